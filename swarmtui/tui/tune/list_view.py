"""The tunes that are kept: how far each is, and the best that it found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from swarmtui.experiments.effects import result
from swarmtui.experiments.tune_status import Standing, cells_now
from swarmtui.model.tuning import flags_text
from swarmtui.text import plain
from swarmtui.tui.lines import Line, left, right
from swarmtui.tui.numbers import rate

_MOODS = {"tuning": "first", "done": "good", "failed": "bad", "interrupted": "bad"}
_BEGUN, _STATE, _CELLS, _LEAST = 17, 13, 11, 14


class TuneLine(NamedTuple):
    directory: Path
    name: str
    begun: str
    state: str
    cells: str
    best: str


def tune_line(directory: Path, standing: Standing | str) -> TuneLine:
    """A text instead of a standing is why it cannot be read."""
    if isinstance(standing, str):
        return TuneLine(directory, directory.name, "", "unreadable", "", plain(standing))
    cells, present = cells_now(standing), standing.present
    finished = sum(cell.state in ("done", "broken") for cell in cells)
    found = next(
        (row for row in result(standing.rows, standing.tune.objective).leaderboard if row.state == "done"), None
    )
    best = f"{rate(found.out_tps)} tok/s at C={found.c} with {plain(flags_text(found.flags))}" if found else ""
    return TuneLine(
        directory,
        plain(standing.tune.name),
        datetime.fromtimestamp(present.begun, UTC).strftime("%Y-%m-%d %H:%M") if present else "",
        "tuning" if standing.alive else (present.ended if present else "") or "interrupted",
        f"{finished} of {len(cells)}",
        best or "no cell is finished yet",
    )


def titles(lines: Sequence[TuneLine], width: int) -> str:
    columns = f"{left('begun (UTC)', _BEGUN)}{left('state', _STATE)}{right('cells', _CELLS)}  best"
    return f"  {left('tune', _name_room(lines, width))}{columns}"


def drawn(line: TuneLine, lines: Sequence[TuneLine], width: int, here: bool) -> Line:
    strong = "bold" if here else ""
    room = _name_room(lines, width)
    return [
        ("› " if here else "  ", "cursor"),
        (left(line.name, room - 1) + " ", strong),
        (left(line.begun, _BEGUN), "dim"),
        (left(line.state, _STATE), _MOODS.get(line.state, "warn")),
        (right(line.cells, _CELLS), strong),
        (left(f"  {line.best}", max(4, width - 2 - room - _BEGUN - _STATE - _CELLS)), strong),
    ]


def _name_room(lines: Sequence[TuneLine], width: int) -> int:
    """What the longest needs, up to a quarter of the line."""
    longest = max((len(line.name) for line in lines), default=0) + 2
    return max(_LEAST, min(longest, width // 4))
