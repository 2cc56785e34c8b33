"""The tables of a way of laying on load, and of an SLO, as text."""

from __future__ import annotations

from swarmtui.cli.render.table import aligned, wrapped
from swarmtui.model.session import Summary
from swarmtui.sessions.export.loads import load_tables
from swarmtui.sessions.export.report import goodput_table
from swarmtui.text import plain


def loads_text(summary: Summary) -> str:
    parts = []
    for table in (*load_tables(summary), goodput_table(summary)):
        if not table.rows:
            continue
        rows = [[plain(cell).replace("|", "¦") for cell in row] for row in table.rows]
        lines = [plain(table.title), "", *aligned(list(table.columns), rows, right=list(table.right))]
        lines += ["", *wrapped(plain(table.note))] if table.note else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n" if parts else ""
