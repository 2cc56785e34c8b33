"""Export a report as Markdown. Text from servers and users is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from swarmtui.report.charts import SessionData
from swarmtui.report.session import build_report
from swarmtui.report.table import Table, fit
from swarmtui.report.text import markdown_rows
from swarmtui.text import sanitize

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~!])")


def render_markdown(sessions: Sequence[SessionData]) -> bytes:
    report = build_report(sessions)
    parts = [f"# {escape(report.title)}"]
    parts += [f"**{escape(line)}**" for line in (report.headline,) if line]
    parts += [_list(report.answer), *(f"**{escape(line)}**" for line in report.lead), _list(report.facts)]
    for table in report.tables:
        parts += [f"## {escape(table.title)}", "\n".join(table_lines(table))]
        parts += [escape(table.note)] if table.note else []
    parts += ["## Notes", "\n".join(f"- {escape(note)}" for note in report.notes)]
    return ("\n\n".join(part for part in parts if part) + "\n").encode()


def table_lines(table: Table) -> list[str]:
    return markdown_rows(fit(_escaped(table), None, gaps=(3,)))


def _list(rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"- {escape(name)}: {escape(value)}" for name, value in rows)


def _escaped(table: Table) -> Table:
    return table._replace(
        columns=tuple(column._replace(title=escape(column.title)) for column in table.columns),
        rows=tuple(tuple(cell._replace(text=escape(cell.text)) for cell in row) for row in table.rows),
    )


def escape(text: str) -> str:
    """Return one line without markup; a ~ before a number needs no escape."""
    return re.sub(r"\\~(?=\d)", "~", _SPECIAL.sub(r"\\\1", sanitize(text)))
