"""One row for each level and one for each run of it, with every figure as it was derived, to its last digit."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec

from swarmtui.model.session import Level, RunFigures, Summary

_APART = ("by_run", "flags", "error_counts", "replicas")


def csv_rows(summary: Summary) -> bytes:
    """`run` is empty in the row of the whole level, and `c` in those of an open loop, which has a `rate`.

    Not measured is an empty cell; replicas are in JSON and Markdown.
    """
    rows = [row for level in summary.levels for row in _rows(summary, level)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _rows(summary: Summary, level: Level) -> list[dict[str, Any]]:
    # The c of an open loop is how many streams it may have at most, and says nothing of its load.
    c = level.c if level.rate is None else None
    name = {"schema": summary.schema, "session": summary.session.id, "c": c, "rate": level.rate}
    whole = {"run": None} | _flat(level) | name
    runs = [_run(run) | name for run in level.by_run]
    return [{title: _safe(row[title]) for title in (*name, *row)} for row in (whole, *runs)]


def _flat(level: Level) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(level).items():
        if isinstance(value, dict) and name not in _APART:
            flat |= {f"{name}.{part}": number for part, number in value.items()}
        elif name not in _APART:
            flat[name] = value
    return flat | {"flags": "; ".join(level.flags)}


def _run(run: RunFigures) -> dict[str, Any]:
    """Under the names of the level's own columns: a run's stream rate is a mean, its TTFT a median."""
    fields: dict[str, Any] = msgspec.to_builtins(run)
    fields["per_stream_tps.mean"] = fields.pop("per_stream_tps")
    fields["ttft_s.p50"] = fields.pop("ttft_s")
    return fields


def _safe(value: Any) -> Any:
    """A spreadsheet takes text that begins with one of these signs for a formula, and knows no lists."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        value = "; ".join(map(str, value))
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
