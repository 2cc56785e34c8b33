"""Flatten levels to rows of a table: for data frames, and for CSV."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

# The columns of a level that a run has: its stream rate is a mean, its TTFT a median.
_OF_RUN = {"per_stream_tps": "per_stream_tps.mean", "ttft_s": "ttft_s.p50"}
_LEFT_OUT = ("by_run", "flags", "error_counts", "replicas")


def level_rows(levels: Iterable[msgspec.Struct], head: dict[str, Any], *, runs: bool) -> list[dict[str, Any]]:
    """Return a row for each level, each beginning with `head`; with `runs`, also one for each run of it.

    Parts of a figure are columns of their own: `ttft_s.p50`. `c` is null in an open loop, whose load is its `rate`.
    With `runs`, `run` is null in the row of a level, and the other rows have the columns that are known of a run.
    """
    rows = []
    for level in map(msgspec.to_builtins, levels):
        # The c of an open loop is the limit of its streams, not its load.
        key = head | {"c": level["c"] if level["rate"] is None else None, "rate": level["rate"]}
        rows.append(key | ({"run": None} if runs else {}) | _flat(level) | key)
        rows += [
            key | {_OF_RUN.get(name, name): value for name, value in run.items()} for run in level["by_run"] if runs
        ]
    return rows


def _flat(level: dict[str, Any]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, value in level.items():
        if isinstance(value, dict) and name not in _LEFT_OUT:
            cells |= {f"{name}.{part}": number for part, number in value.items()}
        elif name not in _LEFT_OUT:
            cells[name] = value
    return cells | {"flags": "; ".join(flag["text"] for flag in level["flags"])}
