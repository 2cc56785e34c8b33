"""All tunes that are kept beside the sessions, the newest first; Enter opens the grid of one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from swarmtui.experiments.tune_status import read_standing
from swarmtui.experiments.tune_store import tune_directories
from swarmtui.model.schema import BadInput
from swarmtui.tui.footer import KeyLine
from swarmtui.tui.keys import Where, bindings, shown
from swarmtui.tui.lines import Line, Lines, heading, wrapped
from swarmtui.tui.tune.list_view import TuneLine, drawn, titles, tune_line
from swarmtui.tui.tune.screen import TuneScreen

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

_EMPTY = "no tune yet: `swarmtui tune FILE` makes one, and `swarmtui tune --help` shows such a file"
_LOOK_S = 2.0


class Tunes(Lines):
    lines: list[TuneLine] = []
    cursor = 0
    empty = "looking …"

    def show(self, lines: list[TuneLine], empty: str) -> None:
        """The cursor stays with its tune: one that goes on comes to the top."""
        chosen = self.chosen
        self.lines, self.empty = lines, empty
        self.move(next((place for place, line in enumerate(lines) if line.directory == chosen), self.cursor))

    def move(self, to: int) -> None:
        self.cursor = min(max(0, to), max(0, len(self.lines) - 1))
        self.redraw()

    @property
    def chosen(self) -> Path | None:
        return self.lines[self.cursor].directory if self.lines else None

    def draw(self, width: int, height: int) -> list[Line]:
        head = heading("", "tunes", f"newest first · {len(self.lines)}" if self.lines else "", width)
        if not self.lines:
            return [head, *([(f" {line}", "dim")] for line in wrapped(self.empty, max(8, width - 2)))]
        room = max(1, height - 2)
        first = max(0, min(self.cursor - room // 2, len(self.lines) - room))
        rows = [
            drawn(line, self.lines, width, place == self.cursor)
            for place, line in enumerate(self.lines[first : first + room], first)
        ]
        return [head, [(titles(self.lines, width), "dim")], *rows]


class TunesScreen(Screen[None]):
    """Looked at again now and then: one of them may be on."""

    where: Where = "tunes"
    app: SwarmApp
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("tunes")]

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def compose(self) -> ComposeResult:
        yield Tunes()
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(KeyLine).show(shown(self.app.keys.actions(self.where), "back"))
        self.run_worker(self._follow())

    async def _follow(self) -> None:
        while True:
            lines = await asyncio.to_thread(_lines, self._root)
            self.query_one(Tunes).show(lines, _EMPTY)
            await asyncio.sleep(_LOOK_S)

    def action_move(self, by: int) -> None:
        tunes = self.query_one(Tunes)
        tunes.move(tunes.cursor + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.query_one(Tunes).size.height - 2))

    def action_edge(self, last: int) -> None:
        tunes = self.query_one(Tunes)
        tunes.move(len(tunes.lines) if last else 0)

    def action_open_tune(self) -> None:
        chosen = self.query_one(Tunes).chosen
        if chosen is not None:
            self.app.push_screen(TuneScreen(chosen))

    def action_back(self) -> None:
        self.dismiss()


def _lines(root: Path) -> list[TuneLine]:
    made = []
    for directory in tune_directories(root):
        try:
            made.append(tune_line(directory, read_standing(directory)))
        except BadInput as problem:
            made.append(tune_line(directory, str(problem)))
    return made
