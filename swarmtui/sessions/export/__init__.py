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
_OVERLAID = ("html", "png", "svg")


def export(sessions: Sequence[Loaded], form: Format, chart: str | None = None) -> bytes:
    """The first session; with more than one their curves are drawn over each other, where the format has curves."""
    if len(sessions) > 1 and form not in _OVERLAID:
        raise BadInput(f"{form} holds one session; several go into {', '.join(_OVERLAID)}", key="--format")
    sources = [source_of(loaded, named=len(sessions) > 1) for loaded in sessions]
    summary, records = sources[0].summary, sources[0].records
    match form:
        case "md":
            from swarmtui.sessions.export.markdown import markdown

            return markdown(summary)
        case "csv":
            from swarmtui.sessions.export.csv import csv_rows

            return csv_rows(summary)
        case "json":
            return detail_json(summary, records)
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
