"""A report as Markdown, ready for a post or an issue. Text from servers and people is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from swarmtui.sessions.export.curves import Source
from swarmtui.sessions.export.report import Report, report_of
from swarmtui.sessions.export.structs import Table
from swarmtui.text import display_width, sanitize

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~!])")
_SIGNS = {"ok": "✓ ok", "not ok": "✗ not ok", "unknown": "? unknown"}


def markdown(sources: Sequence[Source]) -> bytes:
    return render(report_of(sources)).encode()


def render(found: Report) -> str:
    parts = [f"# {escape(found.title)}"]
    parts += [f"**{escape(line)}**" for line in found.lead]
    parts.append("\n".join(f"- {escape(name)}: {escape(value)}" for name, value in found.facts))
    for table in found.tables:
        parts.append(f"## {escape(table.title)}")
        parts.append("\n".join(_lines(table)))
        if table.note:
            parts.append(escape(table.note))
    parts.append("## Notes")
    parts.append("\n".join(f"- {escape(note)}" for note in found.notes))
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """One line in which nothing is markup; a ~ before a number means what it says."""
    return re.sub(r"\\~(?=\d)", "~", _SPECIAL.sub(r"\\\1", sanitize(text)))


def _lines(table: Table) -> list[str]:
    cells = [tuple(escape(_SIGNS.get(cell, cell)) for cell in row) for row in (table.columns, *table.rows)]
    widths = [max(3, *(display_width(cell) for cell in column)) for column in zip(*cells, strict=True)]
    rule = "|".join(f"{'-' * (w + 1)}{':' if right else '-'}" for w, right in zip(widths, table.right, strict=True))
    rows = [
        "| "
        + " | ".join(
            (" " * (w - display_width(cell)) + cell) if right else cell + " " * (w - display_width(cell))
            for cell, w, right in zip(row, widths, table.right, strict=True)
        )
        + " |"
        for row in cells
    ]
    return [rows[0], f"|{rule}|", *rows[1:]]
