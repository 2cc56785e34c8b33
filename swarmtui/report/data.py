"""Export one session as data: CSV, JSON or TOML, with every figure in full precision."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import msgspec

from swarmtui.model.session import Level, RunFigures, Summary
from swarmtui.report.charts import SessionData
from swarmtui.sessions.documents import detail_json, summary_toml
from swarmtui.text import sanitize

_NOT_IN_CSV = ("by_run", "flags", "error_counts", "replicas")


def render_json(sessions: Sequence[SessionData]) -> bytes:
    return b"".join(detail_json(sessions[0].summary, sessions[0].records))


def render_toml(sessions: Sequence[SessionData]) -> bytes:
    return summary_toml(sessions[0].summary)


def render_csv(sessions: Sequence[SessionData]) -> bytes:
    """Write one row per level and one per run of it.

    `run` is empty in the row of a level; `c` is empty in an open loop, which has a `rate`. What was not measured is an
    empty cell; replicas are in JSON and Markdown.
    """
    summary = sessions[0].summary
    rows = [row for level in summary.levels for row in _rows(summary, level)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _rows(summary: Summary, level: Level) -> list[dict[str, Any]]:
    # The c of an open loop is the limit of its streams, not its load.
    c = level.c if level.rate is None else None
    key = {"schema": summary.schema, "session": summary.session.id, "c": c, "rate": level.rate}
    whole = {"run": None} | _level_cells(level) | key
    runs = [_run_cells(run) | key for run in level.by_run]
    return [{column: _cell(row[column]) for column in (*key, *row)} for row in (whole, *runs)]


def _level_cells(level: Level) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(level).items():
        if isinstance(value, dict) and name not in _NOT_IN_CSV:
            cells |= {f"{name}.{part}": number for part, number in value.items()}
        elif name not in _NOT_IN_CSV:
            cells[name] = value
    return cells | {"flags": "; ".join(map(str, level.flags))}


def _run_cells(run: RunFigures) -> dict[str, Any]:
    """Use the column names of the level: the stream rate of a run is a mean, its TTFT a median."""
    cells: dict[str, Any] = msgspec.to_builtins(run)
    cells["per_stream_tps.mean"] = cells.pop("per_stream_tps")
    cells["ttft_s.p50"] = cells.pop("ttft_s")
    return cells


def _cell(value: Any) -> Any:
    """Join lists, keep text on one line, and quote what a spreadsheet would take for a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        value = "; ".join(map(str, value))
    if isinstance(value, str):
        value = sanitize(value)
        return f"'{value}" if value.startswith(("=", "+", "-", "@")) else value
    return value
