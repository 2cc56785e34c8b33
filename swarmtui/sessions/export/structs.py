"""Data structures of exports: sessions, tables, charts and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from swarmtui.model.record import Record
from swarmtui.model.session import StageStart, Summary
from swarmtui.model.telemetry import Telemetry

Points = tuple[tuple[float, float], ...]
Marks = tuple[tuple[float, str], ...]


class SessionData(NamedTuple):
    """A session to export. `name` distinguishes it from the others of the same report; `history` are earlier ones."""

    name: str
    summary: Summary
    records: Sequence[Record] = ()
    telemetry: Sequence[Telemetry] = ()
    stages: Sequence[StageStart] = ()
    history: Sequence[Summary] = ()


class Table(NamedTuple):
    """A table; `right` states for each column whether it is right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]
    note: str = ""


class ChartSeries(NamedTuple):
    """A curve; `marks` are the x of points with what is special about them: the best level, the cliff."""

    name: str
    points: Points
    marks: Marks = ()


class Chart(NamedTuple):
    """A chart. `levels`: x is C, in equal steps; `bars`: one bar per label; `radar`: one axis per label.

    `xy`: x and y are measured, and the marks of a series name its points in order. `marks` are positions on a time axis
    with the name of what starts there.
    """

    name: str
    title: str
    kind: Literal["levels", "time", "xy", "bars", "radar"]
    x: str
    y: str
    series: tuple[ChartSeries, ...]
    labels: tuple[str, ...] = ()
    note: str = ""
    marks: Marks = ()


class Report(NamedTuple):
    title: str
    lead: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
