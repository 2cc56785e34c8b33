"""Paint charts for a terminal: lines, points and intervals on a grid of braille dots, charts one above the other.

The charts share their x axis. Every chart has a y axis of its own, and no chart has two.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import accumulate, pairwise
from typing import NamedTuple

from swarmtui.numbers import short
from swarmtui.report.chart import Boundary, Chart, ChartSeries, Points, labelled_xs, series_intervals
from swarmtui.report.dot_grid import ACROSS, UP, Dot, DotGrid, Line
from swarmtui.report.scales import Axis, TickLabel, axis_with_limit, level_axis, value_axis, visible_ticks
from swarmtui.report.table import MARKS, Code
from swarmtui.text import brief_flags, display_width, sanitize, truncate

# The least that shows something; a lower chart is given up first.
SMALLEST = (24, 4)
_LOWER_SHARE = 0.34
_LEAST_ROWS, _LEAST_BELOW = 4, 3
# Values that differ by this factor have different rows, if there are enough.
_TWICE = 2.0
# With fewer rows than this, a lower chart has its heading inside.
_OWN_HEADINGS = 11
# With no more rows than this, a limit has its value in the middle of a row.
_FEW_ROWS = 5
# Cells beside the outer points, for half of a label.
_MARGIN = 2
_MOST_TICKS = 7
# Cells that a point needs, so that points can be told apart.
_PER_POINT = 3

_POINTS = "●◆▲■▼✚"
# A level that is measured now, and one whose figures do not stand for it.
_NOW, _WEAK = "○", "◇"
# The interval of a point, in the legend.
_INTERVAL = "⡇ ±"
# How many dots of a line are drawn, of how many.
_PATTERNS = {"line": (1, 1), "solid": (1, 1), "dotted": (1, 2), "dashed": (5, 8), "sparse": (1, 5)}
_SAMPLES = {"solid": "──", "dotted": "⠂⠂", "dashed": "╌╌", "sparse": "⠂ ⠂"}
_MARK_STYLES: dict[Code, str] = {
    "best": "good", "kept": "good", "cliff": "warn", "missed": "bad", "unknown": "warn", "failed": "bad",
}  # fmt: skip
# What an SLO says of levels has its name beside the boundary, if there is one.
_MARK_NAMES: dict[Code, str] = {"best": "best", "cliff": "cliff", "unknown": "not sure"}
# What is before the boundary, within it and past it: in a word, or as a sign where there is no room.
_KEPT, _OPEN, _MISSED = ("kept ", "✓ "), (" not sure ", "not sure", " ? ", "?"), (" missed ", " ✖ ")


class _Frame(NamedTuple):
    """The place of a chart: its grid and its axes.

    A level `limit` is drawn at the upper edge of a row of cells, so that every point is on its side of it; `lowered` by
    a row if points above it have too few.
    """

    grid: DotGrid
    along: Axis
    up: Axis
    limit: float | None = None
    lowered: int = 0

    def column(self, x: float) -> int:
        room = self.grid.width - 1 - 2 * _MARGIN
        return _MARGIN + round(self.along.share(x) * room)

    def dot(self, x: float, y: float) -> Dot:
        column, row = self.column(x) * ACROSS, _level(self.up.share(y), self.grid.height)
        if self.limit is None:
            return column, row
        edge = self.tick_row(self.limit) * UP + UP - 1
        return column, edge if y == self.limit else max(row, edge + 1) if y > self.limit else min(row, edge)

    def tick_row(self, value: float) -> int:
        """Return the row of cells of a tick; what is above a limit has a row above it."""
        row = round(self.up.share(value) * (self.grid.height - 1))
        if value != self.limit or self.up.high <= value:
            return row
        return max(0, min(row, self.grid.height - 2) - self.lowered)

    def mixed(self, points: Points) -> int:
        """Count the neighbours that share a row of cells although one is at least twice the other."""
        rows = [(y, self.dot(x, y)[1] // UP) for x, y in points]
        return sum(a == b and max(y, z) >= _TWICE * min(y, z) for (y, a), (z, b) in pairwise(rows))


def paint_charts(charts: Sequence[Chart], width: int, height: int) -> list[Line]:
    """Return `height` lines of `width` cells: the charts, and below them the ticks of their x axis."""
    rows = _rows(len(charts), height)
    charts = charts[: len(rows)]
    along = _x_axis(charts)
    if len(rows) > 1 and rows[0] > _LEAST_ROWS:
        # Points of the last chart that could not be told apart have one more row.
        more = [rows[0] - 1, *rows[1:-1], rows[-1] + 1]
        rows = min((rows, more), key=lambda found: _mixed(charts[-1], _frame(charts[-1], width, found[-1], along)))
    frames = [_frame(chart, width, count, along) for chart, count in zip(charts, rows, strict=True)]
    labels = [
        [short(tick, 4) for tick in frame.up.ticks] if chart.ys else []
        for chart, frame in zip(charts, frames, strict=True)
    ]
    left = max((len(label) for found in labels for label in found), default=1)
    lines: list[Line] = []
    weak, explained = "", False
    for number, (chart, found) in enumerate(zip(charts, frames, strict=True)):
        count = found.grid.height
        frame = found._replace(grid=DotGrid(width - left - 1, count))
        _draw(frame, chart, first=number == 0)
        if number and height < _OWN_HEADINGS:
            _put_inside(frame.grid, chart)
        else:
            weak = weak or _weak_hue(chart)
            known = charts[0].series if number else ()
            heading, shown = _heading(chart, width, known, weak="" if explained else weak)
            lines.append(heading)
            explained = explained or (bool(weak) and shown)
        ticks = _tick_labels(frame, chart, labels[number]) if chart.ys else {}
        for row, line in zip(reversed(range(count)), frame.grid.lines(), strict=True):
            sign = "┤" if row in ticks else "│"
            lines.append([(f"{ticks.get(row, ''):>{left}}{sign}", "dim"), *line])
    lines.append(_x_labels(charts, along, left, width))
    return lines


def _frame(chart: Chart, width: int, rows: int, along: Axis) -> _Frame:
    """Return the place of a chart of these `rows`; its grid has the whole width, also that of the labels."""
    up = value_axis(
        chart.ys,
        min(_MOST_TICKS, 1 + max(1, (rows - 1) // 2)),
        may_log=not chart.linear and chart.kind == "levels",
        from_zero=chart.from_zero,
        rows=rows,
    )
    levels = ({y for _, y in series.points} for series in chart.series if series.stroke == "sparse")
    limit = next((ys.pop() for ys in levels if len(ys) == 1), None)
    if limit is not None and rows <= _FEW_ROWS:
        up = axis_with_limit(up, limit, rows)
    places = [_Frame(DotGrid(width, rows), along, up, limit, lowered) for lowered in (0, 1)]
    return min(places, key=lambda frame: _mixed(chart, frame))


def _tick_labels(frame: _Frame, chart: Chart, labels: Sequence[str]) -> dict[int, str]:
    """Return the labels of the rows, none beside that of a limit; none above it if a moved point would be beside one.

    Such a point is above the limit by less than a row.
    """
    ticks = [(frame.tick_row(tick), tick, label) for tick, label in zip(frame.up.ticks, labels, strict=True)]
    limit = frame.limit
    if limit is None:
        return {row: label for row, _, label in ticks}
    at = frame.tick_row(limit)
    drawn = [(frame.tick_row(y), frame.dot(x, y)[1] // UP) for series in chart.series for x, y in series.points]
    above = {row: label for row, tick, label in ticks if row > at + 1 and tick > limit}
    moved = any(by_value < row <= shown for by_value, shown in drawn for row in above)
    below = {row: label for row, _, label in ticks if row < at - 1 or not row}
    return {at: short(limit, 4)} | below | ({} if moved else above)


def _mixed(chart: Chart, frame: _Frame) -> int:
    return sum(frame.mixed(series.points) for series in chart.series if series.stroke == "line")


def _rows(count: int, height: int) -> list[int]:
    """Return the rows of each chart without its heading; charts without room are left out."""
    room = height - 1 - (count if height >= _OWN_HEADINGS else 1)
    if count < 2 or room < _LEAST_ROWS + (count - 1) * _LEAST_BELOW:
        return [max(1, height - 2)]
    lower = max(_LEAST_BELOW, int(room * _LOWER_SHARE / (count - 1)))
    return [room - lower * (count - 1), *[lower] * (count - 1)]


def _x_axis(charts: Sequence[Chart]) -> Axis:
    xs = [x for chart in charts for x in chart.xs]
    if charts[0].kind == "levels":
        return level_axis(xs)
    if charts[0].kind == "xy":
        return value_axis(xs, 6, from_zero=charts[0].from_zero)
    ticks = tuple(at for at, _ in charts[0].ticks)
    return Axis(min(xs, default=0.0), max(xs, default=1.0), ticks)


def _level(share: float, rows: int) -> int:
    """Return the row of dots; the ends of an axis are in the middle of the outer cells."""
    return int(share * UP * (rows - 1) + 2)


# the drawing


def _draw(frame: _Frame, chart: Chart, *, first: bool) -> None:
    grid = frame.grid
    for series in chart.series:
        _draw_intervals(frame, series)
    _tint_curve(frame, chart)
    numbered = list(zip(chart.series, _numbers(chart), strict=True))[::-1]
    # The first series is the one that counts, and covers the others; what it is compared with is behind all.
    for series, number in sorted(numbered, key=lambda pair: pair[0].counts):
        _draw_series(frame, series, number, named=chart.boundary is None)
    marked = [(series, number) for series, number in numbered if series.stroke == "line" and series.marks]
    for series, number in marked if len(marked) > 1 else ():
        _sign_marks(frame, series, number)
    for column in map(frame.column, chart.planned):
        if grid.is_free(column, 0):
            grid.put(column, 0, "╵", "frame")
    if chart.boundary is not None:
        _draw_boundary(frame, chart.boundary, named=first)


def _tint_curve(frame: _Frame, chart: Chart) -> None:
    """Tint the area below the curve that counts, up to the boundary of the SLO: what is kept is seen at a glance."""
    until = frame.grid.width if chart.boundary is None else _boundary_columns(frame, chart.boundary)[0]
    if curve := chart.main_curve:
        for start, end in pairwise(frame.dot(x, y) for x, y in curve.points):
            frame.grid.tint_below(start, end, until, curve.hue)


def _numbers(chart: Chart) -> list[int]:
    """Number the series that have points, so that each has its own sign."""
    before = accumulate((series.stroke == "line" for series in chart.series), initial=0)
    return list(before)[: len(chart.series)]


def _draw_intervals(frame: _Frame, series: ChartSeries) -> None:
    for x, low, high in series_intervals(series):
        frame.grid.line(frame.dot(x, low), frame.dot(x, high), f"{series.hue}1")


def _draw_series(frame: _Frame, series: ChartSeries, number: int, *, named: bool) -> None:
    pointed = series.stroke in ("line", "points")
    marked = dict(series.marks)
    sparse = series.stroke == "points" or len(series.points) * _PER_POINT <= frame.grid.width
    dots = [frame.dot(x, y) for x, y in series.points]
    if pointed and sparse:
        # To the nearest of the two rows that pass through a sign in its cell: by one row at most.
        dots = [(x, y + {0: 1, UP - 1: -1}.get(y % UP, 0)) for x, y in dots]
    if series.stroke != "points":
        drawn, of = _PATTERNS[series.line]
        for start, end in pairwise(dots):
            frame.grid.line(start, end, series.hue, drawn=drawn, of=of)
    if not pointed:
        return
    # What is marked covers points in the same cell, and the level to choose is above all.
    order = {None: 0, "missed": 1, "unknown": 1, "failed": 1, "cliff": 1}
    ordered = sorted(zip(series.points, dots, strict=True), key=lambda pair: order.get(marked.get(pair[0][0]), 2))
    for (x, _), dot in ordered:
        cell = dot[0] // ACROSS, dot[1] // UP
        code = marked.get(x)
        if code in _MARK_STYLES:
            style = _MARK_STYLES[code] if series.counts else series.hue
            frame.grid.put(*cell, MARKS[code], style)
            if series.counts and named:
                _put_near(frame.grid, cell, _MARK_NAMES.get(code, ""), style)
        elif x in series.hollow:
            frame.grid.put(*cell, _NOW if series.stroke == "points" else _WEAK, series.hue)
        elif sparse:
            frame.grid.put(*cell, _POINTS[number % len(_POINTS)], series.hue)
    for (column, row), name in zip(((x // ACROSS, y // UP) for x, y in dots), series.names, strict=False):
        if frame.grid.is_free(column + 1, row, len(name) + 1):
            frame.grid.put(column + 2, row, name, "dim")
        else:
            _put_near(frame.grid, (column, row), name, "dim")


def _sign_marks(frame: _Frame, series: ChartSeries, number: int) -> None:
    """Write the sign of a series beside its marks that are not covered: only their colour differs from others."""
    at = dict(series.points)
    for x, code in series.marks:
        column, row = frame.column(x), frame.dot(x, at[x])[1] // UP
        if not frame.grid.has_text(column, row, MARKS[code], _MARK_STYLES[code] if series.counts else series.hue):
            continue
        beside = ((column + 1, row), (column - 1, row), (column, row + 1), (column, row - 1))
        if cell := next((cell for cell in beside if frame.grid.may_have_text(*cell)), None):
            frame.grid.put(*cell, _POINTS[number % len(_POINTS)], series.hue)


def _put_near(grid: DotGrid, cell: tuple[int, int], text: str, style: str) -> None:
    """Write text above a point, or below it, if there is room."""
    column, row = max(0, min(cell[0] - len(text) // 2, grid.width - 1 - len(text))), cell[1]
    for at in (row + 1, row - 1):
        if text and grid.is_free(column, at, len(text)):
            grid.put(column, at, text, style)
            return


def _boundary_columns(frame: _Frame, boundary: Boundary) -> list[int]:
    """Return the columns of its lines; a line that has no column for itself is where the levels past it begin."""
    edges = [edge for edge in (boundary.kept, boundary.missed) if edge is not None]
    return sorted({(frame.column(left) + frame.column(right) + 1) // 2 for left, right in edges})


def _draw_boundary(frame: _Frame, boundary: Boundary, *, named: bool) -> None:
    grid, columns = frame.grid, _boundary_columns(frame, boundary)
    for column, hue in zip(columns, ("good", "bad"), strict=False):
        for row in range(grid.height):
            if grid.is_free(column, row):
                grid.put(column, row, "┊", hue)
    if named:
        past = (_OPEN, "warn") if boundary.missed is None else (_MISSED, "bad")
        rows = {row: _boundary_names(grid, columns, row, *past) for row in reversed(range(grid.height))}
        # The highest of the rows with the longest names.
        row = max(rows, key=lambda at: sum(len(text) for _, text, _ in rows[at]))
        for column, text, hue in rows[row]:
            grid.put(column, row, text, hue)


def _boundary_names(
    grid: DotGrid, columns: Sequence[int], row: int, past: Sequence[str], past_hue: str
) -> list[tuple[int, str, str]]:
    """Return the longest names that have room in a row, with their columns and hues; none unless all have room."""
    first, last = columns[0], columns[-1]
    places = [
        [(first - len(text), text, "good") for text in _KEPT],
        # With a blank before a frame.
        [(last + 1, f"{text.rstrip()} ", past_hue) for text in past],
    ]
    if between := max(0, last - first - 1):
        places.append(
            [(first + 1 + (between - len(text)) // 2, text, "warn") for text in _OPEN if len(text) <= between]
        )
    free = ([one for one in versions if grid.is_free(one[0], row, len(one[1]))] for versions in places)
    found = [versions[:1] for versions in free]
    return [one for (one,) in found] if all(found) else []


# words


def _heading(chart: Chart, width: int, known: Sequence[ChartSeries], weak: str) -> tuple[Line, bool]:
    """Name the y axis, and the series at the right unless they are known; what does not fit is left out.

    The hue of a `weak` point, if there is one, is that of its name; return also whether all names fit.
    """
    name = f"{chart.y} ↑, {chart.x} →" if chart.kind == "xy" else chart.y
    line: Line = [(f" {name}", chart.hue)]
    left = width - display_width(name) - 2
    items: Line = []
    named = {(series.name, series.stroke) for series in known}
    entries: Line = []
    for brief, few in ((False, "too few requests"), (True, "few requests")):
        entries = [*_legend(chart, named, brief=brief), *([(f"{_WEAK} {few}", weak)] if weak else [])]
        if sum(display_width(text) + 2 for text, _ in entries) <= left:
            break
    for text, style in entries:
        shown = _cut(text, max(12, left // 2)) if display_width(text) > left else text
        if display_width(shown) + 2 > left:
            break
        items.append((f"  {shown}", style))
        left -= display_width(shown) + 2
    is_whole = len(items) == len(entries)
    hue = next((series.hue for series in chart.series if any(series_intervals(series))), "")
    if hue and is_whole and display_width(_INTERVAL) + 2 <= left:
        items.append((f"  {_INTERVAL}", f"{hue}1"))
        left -= display_width(_INTERVAL) + 2
    return [*line, (" " * max(0, left), ""), *items, (" ", "")], is_whole


def _cut(text: str, width: int) -> str:
    """Cut a text before its last word if that is short: the value of a flag says more than its name."""
    start, _, value = text.rpartition(" ")
    return f"{truncate(start, width - len(value) - 1)} {value}" if len(value) <= width // 2 else truncate(text, width)


def _legend(chart: Chart, known: Set[tuple[str, str]], *, brief: bool = False) -> Line:
    several = sum(series.stroke == "line" for series in chart.series) > 1
    found: Line = []
    for series, number in zip(chart.series, _numbers(chart), strict=True):
        sign = _SAMPLES.get(series.stroke) or _POINTS[number % len(_POINTS)]
        if series.stroke == "points":
            sign = _NOW if series.hollow else _POINTS[0]
        if series.name and (several or series.stroke != "line") and (series.name, series.stroke) not in known:
            name = sanitize(series.name)
            found.append((f"{sign} {brief_flags(name) if brief else name}", series.hue))
    return found


def _weak_hue(chart: Chart) -> str:
    """Return the hue of the first curve with a point that does not stand for its level; empty if none has one."""
    lines = (series for series in chart.series if series.stroke == "line")
    return next((series.hue for series in lines if series.hollow - dict(series.marks).keys()), "")


def _put_inside(grid: DotGrid, chart: Chart) -> None:
    """Write the name of the y axis, and of a limit, into the highest place that is free, but for the limit."""
    limit = next((series for series in chart.series if series.stroke == "sparse"), None)
    text, over = (chart.y, None) if limit is None else (f"{chart.y}  {limit.name}", limit.hue)
    for row in reversed(range(grid.height)):
        for column in range(1, grid.width - len(text)):
            if grid.is_free(column - 1, row, len(text) + 2, over=over):
                grid.put(column, row, text, chart.hue)
                return


def _x_labels(charts: Sequence[Chart], along: Axis, left: int, width: int) -> Line:
    """Write the ticks of the x axis below it, not those of a baseline alone; levels that are only planned are dim."""
    first = charts[0]
    frame = _Frame(DotGrid(width - left - 1, 1), along, along)
    texts = dict(first.ticks) or {tick: f"{tick:g}" for tick in along.ticks}
    labels = []
    for at, text in texts.items():
        start = min(frame.column(at) - (len(text) - 1) // 2, frame.grid.width - 1 - len(text))
        labels.append(TickLabel(at, start + len(text) / 2, len(text)))
    is_level, labelled = first.kind == "levels", labelled_xs(charts)
    measured = {x for chart in charts for series in chart.series for x, _ in series.points}
    labels = [label for label in labels if not is_level or label.value in labelled]
    for label in visible_ticks(labels, first.important_xs):
        text = texts[label.value]
        style = "" if not is_level or label.value in measured else "dim"
        frame.grid.put(int(label.centre - label.width / 2), 0, text, style)
    return [(f"{truncate(first.x, left) if is_level else '':>{left}} ", "dim"), *frame.grid.lines()[0]]
