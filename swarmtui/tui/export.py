"""The table of levels as a file, from within the app."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swarmtui.model.session import Level, Session
from swarmtui.text import plain
from swarmtui.tui.views.levels import levels_view


def write_levels(directory: Path, session: Session, levels: Sequence[Level]) -> Path:
    """Markdown, beside where the app was started; an older one of the same session is replaced."""
    view = levels_view(levels)
    endpoint = session.endpoints[0] if session.endpoints else None
    title = f"{plain(endpoint.model)} on {plain(endpoint.url)}" if endpoint else session.id
    simulated = " (SIMULATED)" if session.simulated else ""
    rows = [view.titles, ("--:",) * len(view.titles), *(line.cells for line in view.lines)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    flags = "".join(f"- {plain(flag)}\n" for flag in view.flags)
    text = f"# {title}{simulated}\n\nsession {session.id}, workload {plain(session.workload)}\n\n{table}\n\n{flags}"
    path = directory / f"swarmtui-{session.id}.md"
    path.write_text(text, encoding="utf-8")
    return path
