"""The list of all tunes, newest first: progress and the best configuration of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from textual.app import ComposeResult

from swarmtui.experiments.effects import summarise_rows
from swarmtui.experiments.grid import configuration_statuses
from swarmtui.experiments.store import read_tune, tune_directories
from swarmtui.model.base import BadInput
from swarmtui.model.tuning import Tune, format_flags
from swarmtui.numbers import local_time, rate
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import CursorScreen, KeyFooter
from swarmtui.tui.cursor_list import CursorList
from swarmtui.tui.lines import Line, heading, ljust, rjust, wrapped_note
from swarmtui.tui.textual_patches import run_in_background

_EMPTY = "no tunes yet: `swarmtui tune FILE` starts one; `swarmtui tune --help` shows an example file"
_RELOAD_S = 2.0
_STYLES = {"tuning": "first", "done": "good", "failed": "bad", "interrupted": "bad"}
_STARTED, _STATE, _PROGRESS, _MIN_NAME = 17, 13, 11, 14


# views


class TuneLine(NamedTuple):
    directory: Path
    name: str
    started: str
    state: str
    progress: str
    best: str


def tune_line(directory: Path, tune: Tune) -> TuneLine:
    configurations = configuration_statuses(tune)
    finished = sum(configuration.state in ("done", "broken") for configuration in configurations)
    leaderboard = summarise_rows(tune.starts, tune.definition.objective).leaderboard
    best = next((row for row in leaderboard if row.state == "done"), None)
    return TuneLine(
        directory,
        sanitize(tune.definition.name),
        local_time(tune.status.begun),
        tune.status.ended or "tuning",
        f"{finished} of {len(configurations)}",
        f"{rate(best.out_tps)} tok/s at C={best.c} with {sanitize(format_flags(best.flags))}"
        if best
        else "no finished configuration yet",
    )


def _titles(name_width: int) -> str:
    columns = f"{ljust('started', _STARTED)}{ljust('state', _STATE)}{rjust('done', _PROGRESS)}  best"
    return f"  {ljust('tune', name_width)}{columns}"


def _spans(line: TuneLine, name_width: int, width: int, here: bool) -> Line:
    bold = "bold" if here else ""
    return [
        ("› " if here else "  ", "cursor"),
        (ljust(line.name, name_width - 1) + " ", bold),
        (ljust(line.started, _STARTED), "dim"),
        (ljust(line.state, _STATE), _STYLES.get(line.state, "warn")),
        (rjust(line.progress, _PROGRESS), bold),
        (ljust(f"  {line.best}", max(4, width - 2 - name_width - _STARTED - _STATE - _PROGRESS)), bold),
    ]


def _name_width(lines: Sequence[TuneLine], width: int) -> int:
    """Return the width of the longest name, at most a quarter of the line."""
    longest = max((len(line.name) for line in lines), default=0) + 2
    return max(_MIN_NAME, min(longest, width // 4))


# widgets


class TuneList(CursorList[TuneLine]):
    empty = "loading …"

    def show(self, lines: Sequence[TuneLine], empty: str) -> None:
        """Keep the cursor on its tune: a tune that is resumed moves to the top."""
        self.empty = empty
        selected = self.selected.directory if self.selected else None
        position = next((number for number, line in enumerate(lines) if line.directory == selected), None)
        self.set_rows(lines, position)

    def draw(self, width: int, height: int) -> list[Line]:
        head = heading("", "tunes", f"newest first · {len(self.rows)}" if self.rows else "", width)
        if not self.rows:
            return [head, *wrapped_note(self.empty, width)]
        name_width = _name_width(self.rows, width)
        visible = self.visible_rows(max(1, height - self.other_lines))
        rows = [_spans(line, name_width, width, position == self.cursor) for position, line in visible]
        return [head, [(_titles(name_width), "dim")], *rows]


class TuneListScreen(CursorScreen):
    """Reloads regularly: a tune may be running."""

    key_context = "tunes"

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def compose(self) -> ComposeResult:
        yield TuneList()
        yield KeyFooter()

    def on_mount(self) -> None:
        run_in_background(self, self._follow)

    async def _follow(self) -> None:
        while True:
            lines = await asyncio.to_thread(_read_lines, self._root)
            self.query_one(TuneList).show(lines, _EMPTY)
            await asyncio.sleep(_RELOAD_S)

    def action_open(self) -> None:
        selected = self.query_one(TuneList).selected
        if selected is not None:
            self.app.open_screen("tune", selected.directory)


def _read_lines(root: Path) -> list[TuneLine]:
    lines = []
    for directory in tune_directories(root):
        try:
            if (tune := read_tune(directory)) is not None:
                lines.append(tune_line(directory, tune))
        except BadInput as problem:
            lines.append(TuneLine(directory, directory.name, "", "unreadable", "", sanitize(str(problem))))
    return lines
