"""Export sessions as files. The same session always gives the same bytes.

A format is a function in a module of this package, and a line in FORMATS.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from swarmtui.model.base import BadInput, Mistakes

if TYPE_CHECKING:
    from swarmtui.model.session import Summary
    from swarmtui.report.charts import SessionData
    from swarmtui.sessions.store import LoadedSession


class ExportFormat(NamedTuple):
    """`render` is MODULE:FUNCTION, imported when needed; it gets the sessions, and with `charts` a chart name.

    `suffix` is that of its files, if it is not the name of the format.
    """

    render: str
    description: str
    several: bool = False
    charts: bool = False
    binary: bool = False
    suffix: str = ""


FORMATS = {
    "html": ExportFormat("html:render_html", "page with tables and charts, no network needed", several=True),
    "md": ExportFormat("markdown:render_markdown", "Markdown report", several=True),
    "png": ExportFormat("images:render_png", "image of the charts", several=True, charts=True, binary=True),
    "svg": ExportFormat("images:render_svg", "image of the charts, scalable", several=True, charts=True),
    "csv": ExportFormat("data:render_csv", "one row per level"),
    "json": ExportFormat("data:render_json", "all figures and requests"),
    "toml": ExportFormat("data:render_toml", "all figures of levels"),
    "openmetrics": ExportFormat("metrics:render_openmetrics", "figures for Prometheus", several=True, suffix="prom"),
}  # fmt: skip


def format_of(name: str) -> str:
    """Return the format of that name or suffix."""
    found = next((form for form, known in FORMATS.items() if name and name in (form, known.suffix)), None)
    if found is None:
        formats = ", ".join(FORMATS)
        raise BadInput(f"give one of {formats}, or an output file with such a suffix", key="--format")
    return found


def check_export(form: str, sessions: int, chart: str | None) -> None:
    """Refuse several sessions, or a chart, for a format that cannot hold them."""
    mistakes = Mistakes()
    if sessions > 1 and not FORMATS[form].several:
        formats = ", ".join(name for name, known in FORMATS.items() if known.several)
        mistakes.found.append(BadInput(f"{form} holds one session; several can go into {formats}", key="--format"))
    if chart is not None and not FORMATS[form].charts:
        formats = " and ".join(name for name, known in FORMATS.items() if known.charts)
        mistakes.found.append(BadInput(f"is for {formats}", key="--chart"))
    mistakes.raise_all()


def export(loaded: Sequence[LoadedSession | Summary], form: str, chart: str | None = None) -> bytes:
    """Export one session, or several in one file, each compared with the first; of a shared one there is a summary."""
    check_export(form, len(loaded), chart)
    sessions = [session_data(one) for one in loaded]
    if len(loaded) > 1:
        from swarmtui.analysis.compare.differences import session_names
        from swarmtui.sessions.store import LoadedSession, earlier_sessions

        summaries = [session.summary for session in sessions]
        roots = [one.directory.parent for one in loaded if isinstance(one, LoadedSession)]
        history = earlier_sessions(roots[0], [summary.session for summary in summaries]) if roots else []
        named = zip(sessions, session_names(summaries), strict=True)
        sessions = [session._replace(name=name, history=history) for session, name in named]
    module, _, function = FORMATS[form].render.partition(":")
    render = getattr(import_module(f"{__name__}.{module}"), function)
    content: bytes = render(sessions, chart) if FORMATS[form].charts else render(sessions)
    return content


def session_data(loaded: LoadedSession | Summary) -> SessionData:
    from swarmtui.report.charts import SessionData
    from swarmtui.sessions.store import LoadedSession, summarise

    if not isinstance(loaded, LoadedSession):
        return SessionData("", loaded)
    journal = loaded.journal
    return SessionData("", summarise(loaded), journal.records, journal.telemetry, journal.stages)
