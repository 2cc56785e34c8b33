"""Export sessions as files. The same session always gives the same bytes.

A format is a function in a module of this package, and a line in FORMATS.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from swarmtui.model.base import BadInput

if TYPE_CHECKING:
    from swarmtui.report.charts import SessionData
    from swarmtui.sessions.store import LoadedSession


class ExportFormat(NamedTuple):
    """`render` is MODULE:FUNCTION, imported when needed; it gets the sessions, and with `charts` a chart name.

    `suffix` is that of its files, if it is not the name of the format. `needs` are packages of its own.
    """

    render: str
    description: str
    several: bool = False
    charts: bool = False
    binary: bool = False
    suffix: str = ""
    needs: tuple[str, ...] = ()

    @property
    def installed(self) -> bool:
        """Whether the packages are there that this format needs besides those of swarmtui."""
        return all(find_spec(name) is not None for name in self.needs)


FORMATS = {
    "html": ExportFormat("html:render_html", "page with tables and charts, no network needed", several=True),
    "md": ExportFormat("markdown:render_markdown", "Markdown report", several=True),
    "png": ExportFormat(
        "images:render_png", "image of the charts", several=True, charts=True, binary=True,
        needs=("resvg_py", "font_source_sans_pro"),
    ),
    "svg": ExportFormat("images:render_svg", "image of the charts, scalable", several=True, charts=True),
    "csv": ExportFormat("data:render_csv", "one row per level"),
    "json": ExportFormat("data:render_json", "all figures and requests"),
    "toml": ExportFormat("data:render_toml", "all figures of levels"),
    "openmetrics": ExportFormat(
        "openmetrics:render_openmetrics", "figures for Prometheus", several=True, suffix="prom"
    ),
}  # fmt: skip


def offered_formats() -> tuple[str, ...]:
    """Return the formats that can be written with the packages that are installed."""
    return tuple(name for name, form in FORMATS.items() if form.installed)


def format_of(name: str) -> str:
    """Return the format of that name or suffix."""
    found = next((form for form, known in FORMATS.items() if name and name in (form, known.suffix)), None)
    if found is None:
        formats = ", ".join(offered_formats())
        raise BadInput(f"give one of {formats}, or an output file with such a suffix", key="--format")
    return found


def export(loaded: Sequence[LoadedSession], form: str, chart: str | None = None) -> bytes:
    """Export one session, or several in one file, each compared with the first."""
    if len(loaded) > 1 and not FORMATS[form].several:
        formats = ", ".join(name for name in offered_formats() if FORMATS[name].several)
        raise BadInput(f"{form} holds one session; several can go into {formats}", key="--format")
    if chart is not None and not FORMATS[form].charts:
        formats = " and ".join(name for name in offered_formats() if FORMATS[name].charts)
        raise BadInput(f"is for {formats}", key="--chart")
    sessions = [session_data(one) for one in loaded]
    if len(loaded) > 1:
        from swarmtui.analysis.compare.differences import session_names
        from swarmtui.sessions.store import earlier_sessions

        summaries = [session.summary for session in sessions]
        history = earlier_sessions(loaded[0].directory.parent, [summary.session for summary in summaries])
        named = zip(sessions, session_names(summaries), strict=True)
        sessions = [session._replace(name=name, history=history) for session, name in named]
    module, _, function = FORMATS[form].render.partition(":")
    render = getattr(import_module(f"{__name__}.{module}"), function)
    content: bytes = render(sessions, chart) if FORMATS[form].charts else render(sessions)
    return content


def session_data(loaded: LoadedSession) -> SessionData:
    from swarmtui.report.charts import SessionData
    from swarmtui.sessions.store import summarise

    journal = loaded.journal
    return SessionData("", summarise(loaded), journal.records, journal.telemetry, journal.stages)
