"""A chart as data, before anybody draws it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Points = tuple[tuple[float, float], ...]
Marks = tuple[tuple[float, str], ...]


class Series(NamedTuple):
    name: str
    points: Points


class Chart(NamedTuple):
    """`levels`: x is C, drawn as equal steps. `bars`: one group for each of `labels`. `radar`: axes are `labels`.

    `marks` are places on a time axis, with what begins there.
    """

    name: str
    title: str
    kind: Literal["levels", "time", "bars", "radar"]
    x: str
    y: str
    series: tuple[Series, ...]
    labels: tuple[str, ...] = ()
    note: str = ""
    marks: Marks = ()


class Table(NamedTuple):
    """`right` says of each column whether it holds numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]
    note: str = ""
