"""Write Markdown: the report of sessions, and a session as a post. Text from servers and users is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from swarmtui.analysis.capacity.marks import summary_marks
from swarmtui.model.base import BadInput
from swarmtui.model.session import Summary
from swarmtui.report.answer import answer_rows
from swarmtui.report.charts import SessionData
from swarmtui.report.environment import environment
from swarmtui.report.levels import level_table, mark_names
from swarmtui.report.session import build_report
from swarmtui.report.table import Table, fit
from swarmtui.report.text import markdown_rows
from swarmtui.text import sanitize

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~!])")
# The columns that a post needs; the shared file has all figures.
_LEFT_OUT = ("n", "errors", "ttft_p90", "tpot", "e2e", "in_flight")
_LEGEND = (
    "tok/s: output of all agents together; ±: half-width of its 95 % interval; per agent: that of one while it writes; "
    "TTFT: time to the first token, median"
)


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


def post_markdown(summary: Summary, attached: str = "") -> bytes:
    answer, session = summary.answer, summary.session
    if answer is None or not summary.levels:
        raise BadInput("nothing was measured, so there is nothing to post", key=session.id)
    known = environment(summary)
    headline = answer.headline.sentence
    title = f"{headline[:1].upper()}{headline[1:]}"
    rows = [(name, text) for name, text in answer_rows(summary) if text != headline]
    facts = (*known.rows(), ("Measured with", ", ".join(filter(None, (known.tool, known.date)))))
    marks = summary_marks(summary)
    table = level_table(summary.levels, marks=marks).without(_LEFT_OUT)
    parts = [
        f"### {escape(session.label)}" if session.label else "",
        f"**{escape(title)}**",
        "**SIMULATED: these are no figures of hardware.**" if session.simulated else "",
        _list(rows),
        "\n".join(table_lines(table)),
        escape(f"{_LEGEND}. {mark_names(marks)[0]}"),
        _list([(name, text) for name, text in facts if text]),
        f"Compare it with your own: `swarmtui compare {attached} last`" if attached else "",
    ]
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
