"""Export a report as Markdown. Text from servers and users is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from swarmtui.sessions.export.report import build_report
from swarmtui.sessions.export.structs import SessionData, Table
from swarmtui.text import display_width, pad, sanitize

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~!])")
_SIGNS = {"ok": "✓ ok", "not ok": "✗ not ok", "unknown": "? unknown", "not applicable": "– n/a"}


def render_markdown(sessions: Sequence[SessionData]) -> bytes:
    report = build_report(sessions)
    parts = [f"# {_escape(report.title)}"]
    parts += [f"**{_escape(line)}**" for line in report.lead]
    parts.append("\n".join(f"- {_escape(name)}: {_escape(value)}" for name, value in report.facts))
    for table in report.tables:
        parts.append(f"## {_escape(table.title)}")
        parts.append("\n".join(_lines(table)))
        if table.note:
            parts.append(_escape(table.note))
    parts.append("## Notes")
    parts.append("\n".join(f"- {_escape(note)}" for note in report.notes))
    return ("\n\n".join(parts) + "\n").encode()


def _escape(text: str) -> str:
    """Return one line without markup; a ~ before a number needs no escape."""
    return re.sub(r"\\~(?=\d)", "~", _SPECIAL.sub(r"\\\1", sanitize(text)))


def _lines(table: Table) -> list[str]:
    cells = [tuple(_escape(_SIGNS.get(cell, cell)) for cell in row) for row in (table.columns, *table.rows)]
    widths = [max(3, *(display_width(cell) for cell in column)) for column in zip(*cells, strict=True)]
    rule = "|".join(f"{'-' * (w + 1)}{':' if right else '-'}" for w, right in zip(widths, table.right, strict=True))
    rows = [
        f"| {' | '.join(pad(cell, w, right=right) for cell, w, right in zip(row, widths, table.right, strict=True))} |"
        for row in cells
    ]
    return [rows[0], f"|{rule}|", *rows[1:]]
