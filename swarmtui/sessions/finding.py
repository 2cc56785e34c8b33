"""Sessions found by words, in an order of one's own: for the command line and for the app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from swarmtui.sessions.index import Listed

By = Literal["newest", "best", "model", "workload"]


def ordered(rows: Sequence[Listed], by: By, words: str) -> list[Listed]:
    """Those that hold all the words; rows come newest first."""
    wanted = words.lower().split()
    kept = [row for row in rows if all(word in _searched(row) for word in wanted)]
    match by:
        case "best":
            kept.sort(key=lambda row: -(row.best_out_tps or 0.0))
        case "model":
            kept.sort(key=lambda row: (row.model, -(row.best_out_tps or 0.0)))
        case "workload":
            kept.sort(key=lambda row: (row.workload, -(row.best_out_tps or 0.0)))
        case "newest":
            pass
    return kept


def _searched(row: Listed) -> str:
    tags = " ".join(f"{name}={value}" for name, value in row.tags.items())
    return " ".join([row.id, row.label, row.model, row.workload, row.endpoint, row.state or "", tags]).lower()
