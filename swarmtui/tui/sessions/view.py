"""Saved sessions as a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from swarmtui.sessions import finding
from swarmtui.text import plain
from swarmtui.tui.lines import left, right
from swarmtui.tui.numbers import NOTHING, rate

if TYPE_CHECKING:
    from swarmtui.sessions.index import Listed

By = Literal["newest first", "best first", "by model", "by workload"]
BY: tuple[By, ...] = ("newest first", "best first", "by model", "by workload")
_ORDERS: dict[By, finding.By] = {
    "newest first": "newest", "best first": "best", "by model": "model", "by workload": "workload",
}  # fmt: skip


class SessionLine(NamedTuple):
    cells: tuple[str, ...]
    doubtful: bool


def ordered(rows: Sequence[Listed], by: By, words: str) -> list[Listed]:
    """Those that hold all the words."""
    return finding.ordered(rows, _ORDERS[by], words)


def session_line(row: Listed, width: int) -> SessionLine:
    """Made only for rows in sight: there may be thousands."""
    mark = "~" if row.chunks_counted else ""
    best = f"{mark}{rate(row.best_out_tps)} at {row.best_at}" if row.best_at else NOTHING
    model = f"(sim) {row.model}" if row.simulated else row.model
    made = row.created[0 if width >= _WIDE else 5 : 16].replace("T", " ") or plain(row.id)
    told = (
        made,
        plain(row.label),
        plain(model),
        plain(row.workload),
        best,
        NOTHING if row.requests is None else f"{row.requests:,}",
        "  " + plain(row.problem or row.state or "unreadable"),
    )
    doubtful = row.problem is not None or row.state in ("failed", "interrupted")
    return SessionLine(_cells(told, width), doubtful)


def titles(width: int) -> str:
    names = ("made (UTC)", "label", "model", "workload", "best tok/s", "requests", "  state")
    return "   " + "".join(_cells(names, width))


def _cells(told: Sequence[str], width: int) -> tuple[str, ...]:
    """With less room names are cut, and the number of requests gives way; with more, names have the rest."""
    rooms = _ROOMY if width >= _WIDE else _TIGHT
    more = max(0, width - _FITS[width >= _WIDE]) // len(_NAMES)
    wider = [room + more if place in _NAMES else room for place, room in enumerate(rooms)]
    sides = (left, left, left, left, right, right)
    cells = [
        side(text, room - 1) + " " if side is left else side(text, room)
        for text, room, side in zip(told, wider, sides, strict=False)
        if room
    ]
    return (*cells, told[-1])


_WIDE = 106
_ROOMY = (17, 14, 24, 14, 16, 9)
_TIGHT = (12, 11, 18, 12, 15, 0)
# Label, model and workload; and the width at which all columns have their least.
_NAMES = (1, 2, 3)
_FITS = (80, 116)
