"""Export a report as Markdown. Text from servers and users is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from swarmtui.sessions.export.report import build_report
from swarmtui.sessions.export.structs import SessionData
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
        cells = [[_escape(_SIGNS.get(cell, cell)) for cell in row] for row in (table.columns, *table.rows)]
        parts.append("\n".join(markdown_table(cells[0], cells[1:], table.right)))
        if table.note:
            parts.append(_escape(table.note))
    parts.append("## Notes")
    parts.append("\n".join(f"- {_escape(note)}" for note in report.notes))
    return ("\n\n".join(parts) + "\n").encode()


def _escape(text: str) -> str:
    """Return one line without markup; a ~ before a number needs no escape."""
    return re.sub(r"\\~(?=\d)", "~", _SPECIAL.sub(r"\\\1", sanitize(text)))


def markdown_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int | None = None
) -> list[str]:
    """Pad the cells of a table; spaces next to the bars are dropped if it would be wider than `width`."""
    widths = [max(2, *map(display_width, column)) for column in zip(titles, *rows, strict=True)]
    spaces = next((n for n in (2, 1) if width is None or sum(widths) + (n + 1) * len(widths) < width), 0)
    before, after = " " * min(spaces, 1), " " * (spaces - 1)
    rule = [("-" * (w - 1) + ":" if to_right else "-" * w) for w, to_right in zip(widths, right, strict=True)]
    padded = [
        [pad(cell, w, right=to_right) for cell, w, to_right in zip(row, widths, right, strict=True)]
        for row in (titles, *rows)
    ]
    return [f"|{before}{f'{after}|{before}'.join(row)}{after}|" for row in (padded[0], rule, *padded[1:])]
