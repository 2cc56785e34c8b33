"""Draw charts as SVG, with colours from a style sheet: no scripts, no external fonts."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from math import ceil, floor, log10

from swarmtui.numbers import significant
from swarmtui.report.charts import Chart, ChartSeries
from swarmtui.text import sanitize, truncate

WIDTH, HEIGHT = 560, 300
LIGHT = {
    "bg": "#fbfbfa", "fg": "#1c2126", "dim": "#5b6670", "rule": "#d9dde0", "card": "#fff",
    "s0": "#1f6fb2", "s1": "#c8610a", "s2": "#5b6670", "s3": "#0a8f84", "s4": "#8a5bb5", "s5": "#a23b5c",
    "ok": "#1f6fb2", "bad": "#b34700",
}  # fmt: skip
DARK = {
    "bg": "#14171a", "fg": "#e4e7ea", "dim": "#9aa5ae", "rule": "#343b41", "card": "#1b1f23",
    "s0": "#6cb4f0", "s1": "#f2a154", "s2": "#aab4bc", "s3": "#56cbbf", "s4": "#c3a1e6", "s5": "#ec8fab",
    "ok": "#6cb4f0", "bad": "#f2a154",
}  # fmt: skip

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 14, 44
_DASHES = ("", "7 4", "2 4", "9 3 2 3", "1 6", "12 5")
_LOG_FROM = 30.0
_MAX_LABELS = 12


def style_sheet(colours: Mapping[str, str]) -> str:
    """Return the CSS of all charts."""
    series = "".join(
        f".s{k}{{stroke:{colours[f's{k}']}}}.mark.s{k},.bar.s{k},.band.s{k}{{fill:{colours[f's{k}']}}}"
        for k in range(6)
    )
    return (
        f"svg text{{fill:{colours['dim']};font-family:system-ui,sans-serif;font-size:12.5px}}\n"
        f"svg .value{{fill:{colours['fg']};paint-order:stroke;stroke:{colours['card']};stroke-width:4px}}\n"
        "svg .finding{font-weight:bold}\n"
        f".grid{{stroke:{colours['rule']};fill:none}}"
        f".moment{{stroke:{colours['dim']};fill:none;stroke-dasharray:1 3}}\n"
        f".axis{{stroke:{colours['dim']};fill:none}}.line{{fill:none;stroke-width:2}}.band{{stroke:none;opacity:.2}}.mark,.bar{{stroke-width:1.5}}\n"
        f"{series}\n"
    )


def draw_chart(chart: Chart) -> str:
    """Return the elements of a chart, WIDTH by HEIGHT."""
    return {"levels": _lines, "time": _lines, "xy": _paths, "bars": _bars}[chart.kind](chart)


def draw_key(k: int) -> str:
    """Draw the line and mark of series k for a legend, 34 by 12."""
    return f'<path d="M1 6H33" class="line s{k % 6}" stroke-dasharray="{_DASHES[k % 6]}"/>{_mark(17, 6, k)}'


def escape(text: str) -> str:
    return html.escape(sanitize(text))


class _Scale:
    """Maps values to coordinates; logarithmic if the largest is more than 30 times the smallest."""

    def __init__(self, values: Sequence[float], low: float, high: float, *, may_log: bool = True) -> None:
        smallest, largest = min(values), max(values)
        self._low, self._high = low, high
        self.log = may_log and smallest > 0 and largest / smallest > _LOG_FROM
        if self.log:
            self.ticks = [10.0**k for k in range(floor(log10(smallest)), ceil(log10(largest)) + 1)]
        else:
            self.ticks = _ticks(min(0.0, smallest), largest)
        self._from, self._to = self._position(self.ticks[0]), self._position(self.ticks[-1])

    def __call__(self, value: float) -> float:
        share = (self._position(value) - self._from) / ((self._to - self._from) or 1.0)
        return self._low + share * (self._high - self._low)

    def _position(self, value: float) -> float:
        return log10(value) if self.log else value


def _ticks(low: float, high: float) -> list[float]:
    """Return four to seven round numbers that enclose low and high."""
    span = (high - low) or abs(high) or 1.0
    step = 10.0 ** floor(log10(span / 4))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if span / (m * step) <= 6)
    first = floor(low / step)
    return [k * step for k in range(first, ceil(high / step - 1e-9) + 1)]


def _lines(chart: Chart) -> str:
    xs = sorted({x for series in chart.series for x, _ in series.points})
    along = _Scale([*xs, *(x for x, _ in chart.marks)], _LEFT, WIDTH - _RIGHT, may_log=False)
    ys = [y for series in chart.series for _, y in series.points]
    ys += [y for series in chart.series for edge in _band(series) for _, y in edge]
    up = _Scale(ys, HEIGHT - _BOTTOM, _TOP, may_log=not chart.linear)
    if chart.kind == "levels":
        positions = {x: _LEFT + 30 + (WIDTH - _LEFT - _RIGHT - 60) * k / max(1, len(xs) - 1) for k, x in enumerate(xs)}
        marks = [(positions[x], f"{x:g}") for x in xs[:: ceil(len(xs) / _MAX_LABELS)]]
    else:
        positions = {x: along(x) for x in xs}
        marks = [(along(x), f"{x:g}") for x in along.ticks]
    parts = [_axes(chart, up, marks)]
    if chart.marks:
        parts.append(_time_marks(chart, along))
    for k, series in enumerate(chart.series):
        points = [(positions[x], up(y)) for x, y in series.points]
        if series.half_widths:
            low, high = ([(positions[x], up(y)) for x, y in edge] for edge in _band(series))
            outline = "L".join(f"{x:.1f} {y:.1f}" for x, y in (*high, *reversed(low)))
            parts.append(f'<path d="M{outline}Z" class="band s{k % 6}"/>')
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path d="{path}" class="line s{k % 6}" stroke-dasharray="{_DASHES[k % 6]}"/>')
        if chart.kind == "levels":
            titles = [f"{escape(series.name)} {significant(value)}" for _, value in series.points]
            parts += [_mark(x, y, k, title) for (x, y), title in zip(points, titles, strict=True)]
    if chart.kind == "levels":
        parts += _values(chart.series[0], positions, up)
        parts += _findings(chart.series, positions, up)
    return "".join(parts)


def _band(series: ChartSeries) -> tuple[list[tuple[float, float]], ...]:
    """Return the lower and the upper edge of the half-widths; none without them."""
    if not series.half_widths:
        return ()
    known = list(zip(series.points, series.half_widths, strict=True))
    # A logarithmic scale has no place for 0.
    low = [(x, max(y - width, y / 100)) for (x, y), width in known]
    return low, [(x, y + width) for (x, y), width in known]


def _paths(chart: Chart) -> str:
    """Draw curves through points that have a name each; one that would cover another is left out."""
    along = _Scale([x for series in chart.series for x, _ in series.points], _LEFT, WIDTH - _RIGHT - 24, may_log=False)
    up = _Scale([y for series in chart.series for _, y in series.points], HEIGHT - _BOTTOM, _TOP, may_log=False)
    parts = [_axes(chart, up, [(along(x), f"{x:g}") for x in along.ticks])]
    named: list[tuple[float, float]] = []
    for k, series in enumerate(chart.series):
        points = [(along(x), up(y)) for x, y in series.points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path d="{path}" class="line s{k % 6}" stroke-dasharray="{_DASHES[k % 6]}"/>')
        for (x, y), (user, server), (_, name) in zip(points, series.points, series.marks, strict=True):
            title = " ".join(filter(None, (series.name, f"{name}: {significant(user)}, {significant(server)}")))
            parts.append(_mark(x, y, k, escape(title)))
            if all(abs(x - left) > 30 or abs(y - top) > 13 for left, top in named):
                named.append((x, y))
                parts.append(f'<text x="{x + 8:.1f}" y="{y - 6:.1f}" class="value">{escape(name)}</text>')
    return "".join(parts)


def _findings(every: Sequence[ChartSeries], positions: dict[float, float], up: _Scale) -> list[str]:
    """Draw a ring around each marked point, with its name below it; a name that would cover another is left out."""
    parts = []
    named: list[tuple[float, float]] = []
    for k, series in enumerate(every):
        values = dict(series.points)
        for x, name in series.marks:
            left, top = positions[x], up(values[x])
            parts.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="8" class="line s{k % 6}"/>')
            at = min(top + 22, HEIGHT - _BOTTOM - 5) if top + 22 < HEIGHT - _BOTTOM or k else top - 22
            if all(abs(left - x) > 30 or abs(at - y) > 13 for x, y in named):
                named.append((left, at))
                parts.append(
                    f'<text x="{left:.1f}" y="{at:.1f}" class="value finding" text-anchor="middle">{name}</text>'
                )
    return parts


def _time_marks(chart: Chart, along: _Scale) -> str:
    """Draw the marks of a time axis, with those labels that fit before the next mark."""
    parts = []
    positions = [along(at) for at, _ in chart.marks]
    for (_, name), x, following in zip(chart.marks, positions, (*positions[1:], WIDTH - _RIGHT), strict=True):
        parts.append(f'<path d="M{x:.1f} {_TOP}V{HEIGHT - _BOTTOM}" class="moment"/>')
        if following - x >= 8.0 * len(name) + 4:
            parts.append(f'<text x="{x + 3:.1f}" y="{_TOP - 3}">{escape(name)}</text>')
    return "".join(parts)


def _values(series: ChartSeries, positions: dict[float, float], up: _Scale) -> list[str]:
    """Write the values of a curve above its points, and above the rings around those that are marked."""
    marked = dict(series.marks)
    return [
        f'<text x="{positions[x]:.1f}" y="{up(y) - (12 if x in marked else 9):.1f}" class="value" text-anchor="middle">'
        f"{significant(y, 3)}</text>"
        for x, y in series.points
    ]


def _axes(chart: Chart, up: _Scale, marks: Sequence[tuple[float, str]]) -> str:
    floor_y = HEIGHT - _BOTTOM
    parts = [
        f'<path d="M{_LEFT} {up(tick):.1f}H{WIDTH - _RIGHT}" class="grid"/>'
        f'<text x="{_LEFT - 7}" y="{up(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        for tick in up.ticks
    ]
    parts += [f'<text x="{x:.1f}" y="{floor_y + 18}" text-anchor="middle">{escape(name)}</text>' for x, name in marks]
    parts.append(f'<path d="M{_LEFT} {_TOP}V{floor_y}H{WIDTH - _RIGHT}" class="axis"/>')
    unit = f"{chart.y}, logarithmic" if up.log else chart.y
    middle = (_TOP + floor_y) / 2
    parts.append(f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{escape(unit)}</text>')
    parts.append(f'<text x="{(_LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(chart.x)}</text>')
    return "".join(parts)


def _bars(chart: Chart) -> str:
    series = chart.series[0]
    up = _Scale([0.0, *(y for _, y in series.points)], HEIGHT - _BOTTOM, _TOP, may_log=False)
    step = (WIDTH - _LEFT - _RIGHT) / len(chart.labels)
    marks = [(_LEFT + step * (k + 0.5), truncate(name, max(6, int(step / 6.5)))) for k, name in enumerate(chart.labels)]
    parts = [_axes(chart, up, marks)]
    for x, y in series.points:
        left, top, middle = _LEFT + step * (x + 0.2), up(y), _LEFT + step * (x + 0.5)
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{step * 0.6:.1f}" height="{HEIGHT - _BOTTOM - top:.1f}" '
            f'class="bar s0"><title>{escape(chart.labels[int(x)])} {significant(y)}</title></rect>'
            f'<text x="{middle:.1f}" y="{top - 5:.1f}" class="value" text-anchor="middle">{significant(y, 3)}</text>'
        )
    return "".join(parts)


def _mark(x: float, y: float, k: int, title: str = "") -> str:
    """Draw a point; each curve has its own shape, so that colour is not needed to tell them apart."""
    shapes = (
        "M{x0} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M{x0} {y0}h8v8h-8Z", "M{x} {y0}l5 8h-10Z",
        "M{x} {y0}l5 4l-5 4l-5 -4Z", "M{x} {y1}l5 -8h-10Z", "M{x0} {y0}l8 8m0 -8l-8 8",
    )  # fmt: skip
    path = shapes[k % 6].format(x=f"{x:.1f}", y=f"{y:.1f}", x0=f"{x - 4:.1f}", y0=f"{y - 4:.1f}", y1=f"{y + 4:.1f}")
    return f'<path d="{path}" class="mark s{k % 6}">' + (f"<title>{title}</title>" if title else "") + "</path>"
