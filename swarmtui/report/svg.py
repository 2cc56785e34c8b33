"""Draw charts as SVG, with colours from a style sheet: no scripts, no external fonts; titles show values on hover."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import NamedTuple

from swarmtui.numbers import short, significant
from swarmtui.report.chart import Boundary, Chart, ChartSeries, labelled_xs, series_intervals
from swarmtui.report.colours import DARK, HUES, LIGHT, ColourTable
from swarmtui.report.scales import Axis, TickLabel, level_axis, value_axis, visible_ticks
from swarmtui.report.table import Code
from swarmtui.text import sanitize, truncate

WIDTH, HEIGHT = 560, 300
# The height of a chart below another one.
LOWER = 170

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 18, 44
# Beside the outer points of levels.
_INSET = 30
_CHARACTER = 7.0
_MAX_VALUES = 16
# Names of points that are further apart than this do not touch.
_NAME = 70
_DASHES = {"line": "", "solid": "", "dotted": "2 4", "dashed": "8 5", "sparse": "1 8", "points": ""}
_MARK_NAMES: dict[Code, str] = {
    "best": "best", "cliff": "cliff", "kept": "most agents", "missed": "past it", "unknown": "? not sure",
    "failed": "drift",
}  # fmt: skip
# What is between the levels that are kept and those that are missed.
_OPEN = ("not sure", "?")
_SHAPES = (
    "M{x0} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M{x} {y0}l5 4l-5 4l-5 -4Z", "M{x} {y0}l5 8h-10Z", "M{x0} {y0}h8v8h-8Z",
    "M{x} {y1}l5 -8h-10Z", "M{x0} {y0}l8 8m0 -8l-8 8",
)  # fmt: skip


def page_colours(palette: ColourTable, card: str) -> dict[str, str]:
    page = {
        "bg": palette.background, "fg": palette.text, "dim": palette.dim, "rule": palette.frame, "card": card,
    }  # fmt: skip
    return page | {hue: palette.hues[hue] for hue in HUES}


LIGHT_PAGE = page_colours(LIGHT, "#ffffff")
DARK_PAGE = page_colours(DARK, DARK.surface)


def style_sheet(colours: Mapping[str, str]) -> str:
    hues = "".join(
        f".{hue}{{stroke:{colours[hue]}}}.mark.{hue},.bar.{hue},.band.{hue},.area.{hue}{{fill:{colours[hue]}}}"
        f"svg text.{hue}{{fill:{colours[hue]};stroke:none}}"
        for hue in (*HUES, "dim")
    )
    return (
        f"svg text{{fill:{colours['dim']};font-family:system-ui,sans-serif;font-size:12.5px}}\n"
        f"svg .value{{fill:{colours['fg']};paint-order:stroke;stroke:{colours['card']};stroke-width:4px}}\n"
        "svg .finding{font-weight:bold}\n"
        f".grid{{stroke:{colours['rule']};fill:none;opacity:.6}}"
        f".moment{{stroke:{colours['dim']};fill:none;stroke-dasharray:1 3}}\n"
        f".axis{{stroke:{colours['dim']};fill:none}}.line{{fill:none;stroke-width:2}}"
        ".band{stroke:none;opacity:.2}.area{stroke:none;opacity:.12}.mark,.bar{stroke-width:1.5}\n"
        f"{hues}\n.mark.hollow{{fill:{colours['card']}}}\n"
    )


def svg_file(width: int, height: int, colours: Mapping[str, str], style: str, parts: Sequence[str]) -> str:
    """Return a file with what is drawn on a card of this size; `style` is added to the CSS of charts."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f"<style>{style_sheet(colours)}{style}</style>\n"
        f'<rect width="{width}" height="{height}" fill="{colours["card"]}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def escape(text: str) -> str:
    return html.escape(sanitize(text))


class _Area(NamedTuple):
    """The area of a chart, from `top` to `bottom`, and its axes."""

    along: Axis
    up: Axis
    top: float
    bottom: float
    inset: float = 0.0
    right: float = _RIGHT
    width: float = WIDTH

    def x(self, value: float) -> float:
        room = self.width - _LEFT - self.right - 2 * self.inset
        return _LEFT + self.inset + self.along.share(value) * room

    def middle(self, neighbours: tuple[float, float]) -> float:
        return sum(map(self.x, neighbours)) / 2

    def y(self, value: float) -> float:
        return self.bottom - self.up.share(value) * (self.bottom - self.top)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)


def draw_chart(chart: Chart) -> str:
    """Return the elements of a chart, WIDTH by HEIGHT."""
    return _draw_bars(chart) if chart.kind == "bars" else draw_stacked([chart])[0]


def draw_stacked(
    charts: Sequence[Chart], width: int = WIDTH, upper: int = HEIGHT, lower: int = LOWER
) -> tuple[str, int]:
    """Draw charts one above the other over the same x axis; return their elements and their height."""
    xs = [*(x for chart in charts for x in chart.xs), *(x for x, _ in charts[0].marks)]
    along = level_axis(xs) if charts[0].kind == "levels" else value_axis(xs, 7)
    important = [x for chart in charts for x in chart.important_xs]
    named = labelled_xs(charts) if charts[0].kind == "levels" else along.ticks
    parts: list[str] = []
    below = 0.0
    for number, chart in enumerate(charts):
        last = number == len(charts) - 1
        room = lower if number else upper
        may_log = chart.kind in ("levels", "time") and not chart.linear
        up = value_axis(chart.ys, (room + 30) // 50, may_log=may_log, from_zero=chart.from_zero)
        inset, right = (_INSET if chart.kind == "levels" else 0.0), (40.0 if chart.kind == "xy" else _RIGHT)
        end = below + room - (_BOTTOM if last else 16)
        area = _Area(along, up, below + _TOP, end, inset, right, width)
        labels = [TickLabel(tick, area.x(tick), _CHARACTER * len(f"{tick:g}")) for tick in along.ticks if tick in named]
        visible = visible_ticks(labels, important, gap=_CHARACTER) if last else ()
        ticks = [(label.centre, f"{label.value:g}") for label in visible]
        parts.append(_axes(chart, area, ticks))
        parts.append(_content(chart, area, important, first=number == 0))
        below += room - (0 if last else _BOTTOM - 30)
    return "".join(parts), int(below)


def draw_key(series: ChartSeries, number: int) -> str:
    """Draw the line and the mark of a series for a legend, 34 by 12."""
    line = f'<path d="M1 6H33" class="line {series.hue}" stroke-dasharray="{_DASHES[series.line]}"/>'
    return line + (_mark(17, 6, series, number) if series.stroke in ("line", "points") else "")


def _axes(chart: Chart, area: _Area, ticks: Sequence[tuple[float, str]]) -> str:
    right = area.width - _RIGHT
    parts = [
        f'<path d="M{_LEFT} {area.y(tick):.1f}H{right}" class="grid"/>'
        f'<text x="{_LEFT - 7}" y="{area.y(tick) + 4:.1f}" text-anchor="end">{short(tick, 4)}</text>'
        for tick in area.up.ticks
    ]
    parts += [
        f'<text x="{x:.1f}" y="{area.bottom + 18:.1f}" text-anchor="middle">{escape(name)}</text>' for x, name in ticks
    ]
    parts.append(f'<path d="M{_LEFT} {area.top}V{area.bottom}H{right}" class="axis"/>')
    unit = f"{chart.y}, logarithmic" if area.up.log else chart.y
    middle = (area.top + area.bottom) / 2
    turned = f'transform="translate(14 {middle:.1f}) rotate(-90)"'
    parts.append(f'<text {turned} text-anchor="middle" class="{chart.hue}">{escape(unit)}</text>')
    if ticks:
        at, y = (_LEFT + area.width) / 2, area.bottom + _BOTTOM - 6
        parts.append(f'<text x="{at}" y="{y:.1f}" text-anchor="middle">{escape(chart.x)}</text>')
    return "".join(parts)


def _content(chart: Chart, area: _Area, important: Sequence[float], *, first: bool) -> str:
    parts = [_time_marks(chart, area)] if chart.marks else []
    if any(series.stroke == "sparse" for series in chart.series):
        outline = f"M{_LEFT} {area.top}H{area.width - _RIGHT}V{area.bottom}H{_LEFT}Z"
        parts.append(f'<clipPath id="clip-{chart.name}"><path d="{outline}"/></clipPath>')
    if (curve := chart.main_curve) and len(curve.points) > 1:
        parts.append(_kept_area(curve, chart.boundary, area))
    if chart.boundary is not None:
        parts.append(_boundary(chart.boundary, area, named=first))
    for series in chart.series:
        if band := series_intervals(series):
            edge = [*((x, high) for x, _, high in band), *((x, low) for x, low, _ in reversed(band))]
            parts.append(f'<path d="{area.path(edge)}Z" class="band {series.hue}"/>')
    # The first series is the one that counts, and covers the others.
    for number, series in reversed(list(enumerate(chart.series))):
        if series.stroke != "points":
            # A limit may be far above.
            clip = f' clip-path="url(#clip-{chart.name})"' if series.stroke == "sparse" else ""
            parts.append(
                f'<path d="{area.path(series.points)}" class="line {series.hue}" '
                f'stroke-dasharray="{_DASHES[series.line]}"{clip}/>'
            )
        if chart.kind != "time" and series.stroke in ("line", "points"):
            parts += _points(chart, series, number, area)
    if chart.kind == "levels" and chart.series:
        parts += _values(chart.series[0], area, important)
        parts += _findings(chart.series, area, named=chart.boundary is None)
    return "".join(parts)


def _points(chart: Chart, series: ChartSeries, number: int, area: _Area) -> list[str]:
    """Draw the points with their values as titles, and their names where none would cover another."""
    parts = []
    named: list[tuple[float, float]] = []
    widths = series.half_widths or (0.0,) * len(series.points)
    names = series.names or [f"{chart.x}={x:g}" for x, _ in series.points]
    for (x, y), width, name in zip(series.points, widths, names, strict=True):
        left, top = area.x(x), area.y(y)
        interval = f" ± {significant(width, 2)}" if width else ""
        figures = [_named_value(significant(x), chart.x)] if series.names else []
        figures.append(_named_value(f"{significant(y)}{interval}", chart.y))
        title = ": ".join(filter(None, (series.name, name, ", ".join(figures))))
        parts.append(_mark(left, top, series, number, escape(title), hollow=x in series.hollow))
        if series.names and all(abs(left - x) > 30 or abs(top - y) > 13 for x, y in named):
            named.append((left, top))
            parts.append(f'<text x="{left + 8:.1f}" y="{top - 6:.1f}" class="value">{escape(name)}</text>')
    return parts


def _named_value(value: str, axis: str) -> str:
    """Say a value in the words of its axis: `310 output tok/s`, `slowdown 48 %`."""
    quantity, _, unit = axis.rpartition(", ")
    return f"{quantity} {value} {unit}".strip()


def _kept_area(curve: ChartSeries, boundary: Boundary | None, area: _Area) -> str:
    """Fill the area below a curve, up to the boundary of the SLO."""
    points = [(area.x(x), area.y(y)) for x, y in curve.points]
    end = points[-1][0] if boundary is None else min(points[-1][0], area.middle(boundary.kept))
    shown = [point for point in points if point[0] <= end]
    after = next((point for point in points if point[0] > end), None)
    if shown and after:
        (x, y), (next_x, next_y) = shown[-1], after
        shown.append((end, y + (next_y - y) * (end - x) / (next_x - x)))
    top = "L".join(f"{x:.1f} {y:.1f}" for x, y in shown)
    return f'<path d="M{points[0][0]:.1f} {area.bottom:.1f}L{top}V{area.bottom:.1f}Z" class="area {curve.hue}"/>'


def _boundary(boundary: Boundary, area: _Area, *, named: bool) -> str:
    """Draw the boundary of the SLO, with its names at the foot, where no values are."""
    kept = area.middle(boundary.kept)
    missed = kept if boundary.missed is None else area.middle(boundary.missed)
    y = f'y="{area.bottom - 8:.1f}"'
    past = f'class="queue">{_OPEN[0]}' if boundary.missed is None else 'class="bad">missed'
    names = [
        f'<text x="{kept - 6:.1f}" {y} text-anchor="end" class="good">kept</text>',
        f'<text x="{missed + 6:.1f}" {y} {past}</text>',
    ]
    if words := next((text for text in _OPEN if _CHARACTER * len(text) <= missed - kept), ""):
        names.append(f'<text x="{(kept + missed) / 2:.1f}" {y} text-anchor="middle" class="queue">{words}</text>')
    lines = [
        f'<path d="M{x:.1f} {area.top}V{area.bottom}" class="line {hue}" stroke-dasharray="3 3"/>'
        for x, hue in {missed: "bad", kept: "good"}.items()
    ]
    return "".join((*lines, *(names if named else ())))


def _findings(every: Sequence[ChartSeries], area: _Area, *, named: bool) -> list[str]:
    """Draw a ring around each marked point, with its name below it; a name that would cover another is left out.

    Unless `named`, the boundary between them has their names. A doubt has its own colour, and is always named.
    """
    parts = []
    names: list[tuple[float, float]] = []
    for number, series in enumerate(every):
        values = dict(series.points)
        for x, code in series.marks:
            left, top = area.x(x), area.y(values[x])
            hue = "queue" if code == "unknown" else series.hue
            parts.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="8" class="line {hue}"/>')
            at = min(top + 22, area.bottom - 5) if top + 22 < area.bottom or number else top - 22
            if code == "unknown":
                at += next((15.0 for x, y in names if abs(left - x) <= _NAME and abs(at - y) <= 13), 0.0)
            if named and all(abs(left - x) > 30 or abs(at - y) > 13 for x, y in names):
                names.append((left, at))
                kind = "value finding queue" if code == "unknown" else "value finding"
                text = f'<text x="{left:.1f}" y="{at:.1f}" class="{kind}" text-anchor="middle">'
                parts.append(f"{text}{_MARK_NAMES[code]}</text>")
    return parts


def _values(series: ChartSeries, area: _Area, important: Sequence[float]) -> list[str]:
    """Write the values of a curve above its points, and above the rings around those that are marked.

    Where not all fit, those are left out that are not `important`: marked on this curve, or on another over its axis.
    """
    marked = dict(series.marks)
    # No more decimals than the largest value needs: 0.06 beside 4.51.
    largest = max(abs(y) for _, y in series.points)
    decimals = max(2, 2 - floor(log10(largest))) if largest else 2
    texts = {x: short(round(y, decimals) or y, 3) for x, y in series.points}
    labels = [TickLabel(x, area.x(x), _CHARACTER * len(text)) for x, text in texts.items()]
    shown = {label.value for label in visible_ticks(labels, important, gap=2.0)}
    return [
        f'<text x="{area.x(x):.1f}" y="{area.y(y) - (12 if x in marked else 9):.1f}" class="value" '
        f'text-anchor="middle">{texts[x]}</text>'
        for x, y in series.points
        if x in shown and len(shown) <= _MAX_VALUES
    ]


def _time_marks(chart: Chart, area: _Area) -> str:
    """Draw the marks of a time axis, with those labels that fit before the next mark."""
    parts = []
    positions = [area.x(at) for at, _ in chart.marks]
    for (_, name), x, following in zip(chart.marks, positions, (*positions[1:], area.width - _RIGHT), strict=True):
        parts.append(f'<path d="M{x:.1f} {area.top}V{area.bottom}" class="moment"/>')
        if following - x >= 8.0 * len(name) + 4:
            parts.append(f'<text x="{x + 3:.1f}" y="{area.top - 3}">{escape(name)}</text>')
    return "".join(parts)


def _draw_bars(chart: Chart) -> str:
    series = chart.series[0]
    step = (WIDTH - _LEFT - _RIGHT) / len(chart.labels)
    area = _Area(Axis(0.0, 1.0, ()), value_axis([y for _, y in series.points], 6), _TOP, HEIGHT - _BOTTOM)
    marks = [(_LEFT + step * (k + 0.5), truncate(name, max(6, int(step / 6.5)))) for k, name in enumerate(chart.labels)]
    parts = [_axes(chart, area, marks)]
    for x, y in series.points:
        left, top, middle = _LEFT + step * (x + 0.2), area.y(y), _LEFT + step * (x + 0.5)
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{step * 0.6:.1f}" height="{area.bottom - top:.1f}" '
            f'class="bar {series.hue}"><title>{escape(chart.labels[int(x)])} {significant(y)}</title></rect>'
            f'<text x="{middle:.1f}" y="{top - 5:.1f}" class="value" text-anchor="middle">{significant(y, 3)}</text>'
        )
    return "".join(parts)


def _mark(x: float, y: float, series: ChartSeries, number: int, title: str = "", *, hollow: bool = False) -> str:
    """Draw a point; each curve has its own shape, so that colour is not needed to tell them apart."""
    shape = _SHAPES[0 if series.stroke == "points" else number % len(_SHAPES)]
    path = shape.format(x=f"{x:.1f}", y=f"{y:.1f}", x0=f"{x - 4:.1f}", y0=f"{y - 4:.1f}", y1=f"{y + 4:.1f}")
    kind = f"mark {series.hue}{' hollow' if hollow else ''}"
    return f'<path d="{path}" class="{kind}">' + (f"<title>{title}</title>" if title else "") + "</path>"
