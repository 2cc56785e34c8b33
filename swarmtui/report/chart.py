"""A chart before it is painted: series of points, built once; `dot_chart` and `svg` paint it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import pairwise
from typing import Literal, NamedTuple

from swarmtui.report.colours import Hue
from swarmtui.report.table import Code

Points = tuple[tuple[float, float], ...]
Marks = tuple[tuple[float, str], ...]
ChartHue = Hue | Literal["dim"]
Stroke = Literal["line", "solid", "dotted", "dashed", "sparse", "points"]

# A limit that is higher than this many times the measured values leaves the chart, so that they can still be read.
MOST_ABOVE = 2.5


class ChartSeries(NamedTuple):
    """A curve. `marks` are the x of points with what is special about them: the best level, the first past the SLO.

    `half_widths` are those of the 95 % intervals of its points; 0 if a point has none. Empty: no point has one.
    `hollow` are the x of points that do not stand for their level. `names` are those of its points, in order. A
    `solid`, `dotted` or `dashed` series is a line without points, a `sparse` one a limit, and `points` are not joined.
    The hue `dim` is that of what the others are compared with.
    """

    name: str
    points: Points
    marks: tuple[tuple[float, Code], ...] = ()
    half_widths: tuple[float, ...] = ()
    hue: ChartHue = "throughput"
    stroke: Stroke = "line"
    hollow: frozenset[float] = frozenset()
    names: tuple[str, ...] = ()

    @property
    def line(self) -> Stroke:
        """How its line is drawn: dotted if the others are compared with it."""
        return "dotted" if self.stroke == "line" and not self.counts else self.stroke

    @property
    def counts(self) -> bool:
        """Whether it is what is measured, rather than what that is compared with."""
        return self.hue != "dim"


class Boundary(NamedTuple):
    """Two neighbouring levels between which what keeps the SLO ends, and two between which what misses it begins.

    They are the same unless it is not sure of levels between them; `missed` is null if it is of all above.
    """

    kept: tuple[float, float]
    missed: tuple[float, float] | None


def boundary_of(kept: float, missed: float | None, levels: Iterable[float]) -> Boundary | None:
    """Return the boundary between the last level that is kept and the first that is missed; None without a level."""
    edges = list(pairwise(sorted({kept, *(x for x in levels if x > kept)})))
    return Boundary(edges[0], next((edge for edge in edges if edge[1] == missed), None)) if edges else None


class Chart(NamedTuple):
    """A chart. `levels`: x is C or a rate; `time`: x is a time; `xy`: both are measured; `bars`: one bar per label.

    `marks` are positions on a time axis with the name of what starts there, `ticks` the labels of x if they are not the
    numbers themselves. `planned` are levels that are not measured yet. `boundary` is that of the SLO. Unless `linear`,
    as percentages are, a wide range of y is drawn logarithmically. y begins at 0 if `from_zero`.
    """

    name: str
    title: str
    kind: Literal["levels", "time", "xy", "bars"]
    x: str
    y: str
    series: tuple[ChartSeries, ...]
    labels: tuple[str, ...] = ()
    note: str = ""
    marks: Marks = ()
    linear: bool = False
    from_zero: bool = True
    ticks: Marks = ()
    planned: tuple[float, ...] = ()
    boundary: Boundary | None = None

    @property
    def hue(self) -> str:
        """The hue of what is measured, rather than of what it is compared with."""
        return next((series.hue for series in self.series if series.counts), "dim")

    @property
    def main_curve(self) -> ChartSeries | None:
        """The one curve over levels that counts; None if several do."""
        curves = [series for series in self.series if series.stroke == "line" and series.counts]
        return curves[0] if self.kind == "levels" and len(curves) == 1 else None

    @property
    def xs(self) -> tuple[float, ...]:
        """All x that have a point or are planned."""
        return tuple(sorted({*self.planned, *(x for series in self.series for x, _ in series.points)}))

    @property
    def own_xs(self) -> tuple[float, ...]:
        """The x that are measured or planned, without those that only a baseline or a limit has."""
        own = [series for series in self.series if series.counts and series.stroke != "sparse"]
        return (*self.planned, *(x for series in own for x, _ in series.points))

    @property
    def important_xs(self) -> tuple[float, ...]:
        """The x to be labelled first: both ends of the boundary, those beside it, and marked points.

        Of these come first those of what is measured.
        """
        ordered = sorted(self.series, key=lambda series: not series.counts)
        marked = tuple(x for series in ordered for x, _ in series.marks)
        if self.boundary is None:
            return marked
        (kept, after), missed = self.boundary
        return (kept, *(missed or ())[::-1], after, *marked)

    @property
    def ys(self) -> tuple[float, ...]:
        """The y that the axis has to show: all with the ends of their intervals; of a limit, what is not far above."""
        measured = [series for series in self.series if series.stroke != "sparse"]
        points = [y for series in measured for _, y in series.points]
        points += [y for series in measured for _, *ends in series_intervals(series) for y in ends]
        most = MOST_ABOVE * max(points, default=0.0)
        return (
            *points,
            *(min(y, most) for series in self.series if series.stroke == "sparse" for _, y in series.points),
        )


def labelled_xs(charts: Sequence[Chart]) -> Set[float]:
    """Return the x of levels that may have a label: those of a baseline only if there are no others, and both ends."""
    own = {x for chart in charts for x in chart.own_xs}
    every = {x for chart in charts for x in chart.xs}
    return own | {min(every), max(every)} if own else every


def series_intervals(series: ChartSeries) -> list[tuple[float, float, float]]:
    """Return x and the ends of the interval of each point; nothing if no point has one, or it is only compared with."""
    if not series.half_widths or not series.counts:
        return []
    known = zip(series.points, series.half_widths, strict=True)
    # A logarithmic axis has no place for 0.
    return [(x, max(y - half, y / 100), y + half) for (x, y), half in known]
