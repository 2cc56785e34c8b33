"""Export one session as data: CSV, JSON or TOML, with every figure in full precision."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from swarmtui.model.rows import level_rows
from swarmtui.report.charts import SessionData
from swarmtui.sessions.documents import detail_json, summary_toml
from swarmtui.text import sanitize


def render_json(sessions: Sequence[SessionData]) -> bytes:
    return b"".join(detail_json(sessions[0].summary, sessions[0].records))


def render_toml(sessions: Sequence[SessionData]) -> bytes:
    return summary_toml(sessions[0].summary)


def render_csv(sessions: Sequence[SessionData]) -> bytes:
    """Write one row per level and one per run of it.

    `run` is empty in the row of a level; `c` is empty in an open loop, which has a `rate`. What was not measured is an
    empty cell; replicas are in JSON and Markdown. The number of agents that a search has found is in every row.
    """
    summary = sessions[0].summary
    head: dict[str, Any] = {"schema": summary.schema, "session": summary.session.id}
    if summary.answer is not None and summary.answer.agents is not None:
        found = summary.answer
        head |= {"agents": found.agents, "agents_low": found.low, "agents_high": found.high}
    flat = level_rows(summary.levels, head, runs=True)
    rows = [{column: _cell(value) for column, value in row.items()} for row in flat]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


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
