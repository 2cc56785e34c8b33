"""Saved sessions as a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from swarmtui.text import plain
from swarmtui.tui.paint import left, right
from swarmtui.tui.views.numbers import NOTHING, rate

if TYPE_CHECKING:
    from swarmtui.sessions.listing import Listed

By = Literal["newest", "best", "model", "workload"]
BY: tuple[By, ...] = ("newest", "best", "model", "workload")


class SessionLine(NamedTuple):
    cells: tuple[str, ...]
    doubtful: bool


def ordered(rows: Sequence[Listed], by: By, words: str) -> list[Listed]:
    """Those that hold all the words."""
    wanted = words.lower().split()
    kept = [row for row in rows if all(word in _searched(row) for word in wanted)]
    match by:
        case "best":
            kept.sort(key=lambda row: -(row.best_out_tps_steady or 0.0))
        case "model":
            kept.sort(key=lambda row: (row.model, -(row.best_out_tps_steady or 0.0)))
        case "workload":
            kept.sort(key=lambda row: (row.workload, -(row.best_out_tps_steady or 0.0)))
        case "newest":
            pass
    return kept


def _searched(row: Listed) -> str:
    tags = getattr(row, "tags", {})
    return " ".join([row.id, row.label, row.model, row.workload, row.endpoint, row.state or "", str(tags)]).lower()


def session_line(row: Listed, width: int) -> SessionLine:
    """Made only for rows in sight: there may be thousands."""
    mark = "~" if row.chunks_counted else ""
    best = NOTHING if row.best_c is None else f"{mark}{rate(row.best_out_tps_steady)} at C={row.best_c}"
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
    """With less room names are cut, and the number of requests gives way."""
    rooms = _ROOMY if width >= _WIDE else _TIGHT
    sides = (left, left, left, left, right, right)
    cells = [side(text, room) for text, room, side in zip(told, rooms, sides, strict=False) if room]
    return (*cells, told[-1])


_WIDE = 106
_ROOMY = (17, 14, 24, 14, 16, 9)
_TIGHT = (12, 12, 18, 10, 16, 0)
