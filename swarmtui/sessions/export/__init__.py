"""A session as a file for others: the same session always gives the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from swarmtui.model.schema import BadInput
from swarmtui.sessions.documents import detail_json, summary_toml
from swarmtui.sessions.export.curves import Source
from swarmtui.sessions.store import Loaded, summarise

Format = Literal["md", "csv", "json", "toml", "html", "png", "svg"]

FORMATS: tuple[Format, ...] = get_args(Format)
BINARY: tuple[Format, ...] = ("png",)
_OF_SEVERAL = ("md", "html", "png", "svg")


def export(sessions: Sequence[Loaded], form: Format, chart: str | None = None) -> bytes:
    """Of more than one their curves lie over each other, and each is held against the first."""
    if len(sessions) > 1 and form not in _OF_SEVERAL:
        raise BadInput(f"{form} holds one session; several go into {', '.join(_OF_SEVERAL)}", key="--format")
    if chart is not None and form not in ("png", "svg"):
        raise BadInput("is for png and svg", key="--chart")
    sources = _told_apart([source_of(loaded, named=len(sessions) > 1) for loaded in sessions])
    summary, records = sources[0].summary, sources[0].records
    match form:
        case "md":
            from swarmtui.sessions.export.markdown import markdown

            return markdown(sources)
        case "csv":
            from swarmtui.sessions.export.csv import csv_rows

            return csv_rows(summary)
        case "json":
            return b"".join(detail_json(summary, records))
        case "toml":
            return summary_toml(summary)
        case "html":
            from swarmtui.sessions.export.html import html_report

            return html_report(sources)
        case "png" | "svg":
            from swarmtui.sessions.export.charts import picture

            return picture(sources, form, chart)


def source_of(loaded: Loaded, *, named: bool) -> Source:
    summary = summarise(loaded)
    name = (summary.session.label or summary.session.id) if named else ""
    return Source(name, summary, loaded.journal.records, loaded.journal.telemetry, loaded.journal.stretches)


def _told_apart(sources: list[Source]) -> list[Source]:
    """Sessions of one label carry their ids as well."""
    names = [source.name for source in sources]
    return [
        source._replace(name=f"{source.name} ({source.summary.session.id})") if names.count(source.name) > 1 else source
        for source in sources
    ]
