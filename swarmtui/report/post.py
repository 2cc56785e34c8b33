"""Write a session as Markdown for a post or an issue: the answer, the levels, and what was measured."""

from __future__ import annotations

from swarmtui.analysis.capacity.marks import summary_marks
from swarmtui.model.base import BadInput
from swarmtui.model.session import Summary
from swarmtui.report.answer import answer_rows
from swarmtui.report.environment import environment
from swarmtui.report.levels import level_table, mark_names
from swarmtui.report.markdown import escape, table_lines

# The columns that a post needs; the shared file has all figures.
_LEFT_OUT = ("n", "errors", "wall", "tpot", "e2e", "in_flight", "held", "cap_hits")
_LEGEND = (
    "steady: output tok/s of all agents together; ±: half-width of its 95 % interval; stream: tok/s of one agent; "
    "TTFT: time to the first token, median"
)


def post_markdown(summary: Summary, attached: str = "") -> bytes:
    """Return the post. `attached` is the name of the shared file that is sent with it."""
    answer, session = summary.answer, summary.session
    if answer is None or not summary.levels:
        raise BadInput("nothing was measured, so there is nothing to post", key=session.id)
    known = environment(summary)
    headline = answer.headline.sentence
    title = f"{headline[:1].upper()}{headline[1:]}"
    rows = [(name, text) for name, text in answer_rows(summary) if text != headline]
    facts = (
        ("Hardware", known.hardware),
        ("Engine", known.engine),
        ("Model", known.model),
        ("Flags", known.flags or "not known"),
        ("Workload", ", ".join(filter(None, (known.workload, known.plan)))),
        ("Measured with", ", ".join(filter(None, (known.tool, known.date)))),
    )
    marks = summary_marks(summary)
    table = level_table(summary.levels, marks=marks).without(_LEFT_OUT)
    parts = [
        f"### {escape(session.label)}" if session.label else "",
        f"**{escape(title)}**",
        "**SIMULATED: these are no figures of hardware.**" if session.simulated else "",
        "\n".join(f"- {name}: {escape(text)}" for name, text in rows),
        "\n".join(table_lines(table)),
        escape(f"{_LEGEND}. {mark_names(marks)[0]}"),
        "\n".join(f"- {name}: {escape(text)}" for name, text in facts if text),
        f"Compare it with your own: `swarmtui compare {attached} last`" if attached else "",
    ]
    return ("\n\n".join(part for part in parts if part) + "\n").encode()
