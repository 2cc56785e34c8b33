"""Export sessions as files. The same session always gives the same bytes.

A format is a function in a module of this package, and a line in FORMATS.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from swarmtui.model.schema import BadInput

if TYPE_CHECKING:
    from swarmtui.sessions.export.structs import SessionData
    from swarmtui.sessions.store import LoadedSession


class ExportFormat(NamedTuple):
    """`render` is MODULE:FUNCTION, imported when needed; it gets the sessions, and with `charts` a chart name."""

    render: str
    several: bool = False
    charts: bool = False
    binary: bool = False


FORMATS = {
    "md": ExportFormat("markdown:render_markdown", several=True),
    "csv": ExportFormat("data:render_csv"),
    "json": ExportFormat("data:render_json"),
    "toml": ExportFormat("data:render_toml"),
    "openmetrics": ExportFormat("openmetrics:render_openmetrics", several=True),
    "html": ExportFormat("html:render_html", several=True),
    "png": ExportFormat("images:render_png", several=True, charts=True, binary=True),
    "svg": ExportFormat("images:render_svg", several=True, charts=True),
}


def export(loaded: Sequence[LoadedSession], form: str, chart: str | None = None) -> bytes:
    """Export one session, or several in one file, each compared with the first."""
    if len(loaded) > 1 and not FORMATS[form].several:
        formats = ", ".join(name for name, other in FORMATS.items() if other.several)
        raise BadInput(f"{form} holds one session; several can go into {formats}", key="--format")
    if chart is not None and not FORMATS[form].charts:
        formats = " and ".join(name for name, other in FORMATS.items() if other.charts)
        raise BadInput(f"is for {formats}", key="--chart")
    sessions = _with_unique_names([session_data(one, named=len(loaded) > 1) for one in loaded])
    if len(loaded) > 1:
        from swarmtui.sessions.store import earlier_sessions

        history = earlier_sessions(loaded[0].directory.parent, [session.summary for session in sessions])
        sessions = [session._replace(history=history) for session in sessions]
    module, _, function = FORMATS[form].render.partition(":")
    render = getattr(import_module(f"{__name__}.{module}"), function)
    content: bytes = render(sessions, chart) if FORMATS[form].charts else render(sessions)
    return content


def session_data(loaded: LoadedSession, *, named: bool) -> SessionData:
    from swarmtui.sessions.export.structs import SessionData
    from swarmtui.sessions.store import summarise

    summary, journal = summarise(loaded), loaded.journal
    name = (summary.session.label or summary.session.id) if named else ""
    return SessionData(name, summary, journal.records, journal.telemetry, journal.stages)


def _with_unique_names(sessions: list[SessionData]) -> list[SessionData]:
    """Add the id to the names of sessions that share a label."""
    names = [session.name for session in sessions]
    return [
        session._replace(name=f"{session.name} ({session.summary.session.id})")
        if names.count(session.name) > 1
        else session
        for session in sessions
    ]
