"""Saved sessions as a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from swarmtui.text import plain
from swarmtui.tui.paint import left, right
from swarmtui.tui.views.numbers import NOTHING, rate

if TYPE_CHECKING:
    from swarmtui.sessions.listing import Listed

By = Literal["newest first", "best first", "by model", "by workload"]
BY: tuple[By, ...] = ("newest first", "best first", "by model", "by workload")


class SessionLine(NamedTuple):
    cells: tuple[str, ...]
    doubtful: bool


def ordered(rows: Sequence[Listed], by: By, words: str) -> list[Listed]:
    """Those that hold all the words."""
    wanted = words.lower().split()
    kept = [row for row in rows if all(word in _searched(row) for word in wanted)]
    match by:
        case "best first":
            kept.sort(key=lambda row: -(row.best_out_tps or 0.0))
        case "by model":
            kept.sort(key=lambda row: (row.model, -(row.best_out_tps or 0.0)))
        case "by workload":
            kept.sort(key=lambda row: (row.workload, -(row.best_out_tps or 0.0)))
        case "newest first":
            pass
    return kept


def _searched(row: Listed) -> str:
    tags = getattr(row, "tags", {})
    return " ".join([row.id, row.label, row.model, row.workload, row.endpoint, row.state or "", str(tags)]).lower()


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
