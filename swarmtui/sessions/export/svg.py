"""Charts as inline SVG, drawn by hand: no script, no font, no network; colours come from the page's style."""

from __future__ import annotations

import html
from collections.abc import Sequence
from math import ceil, cos, floor, log10, pi, sin

from swarmtui.numbers import significant
from swarmtui.sessions.export.structs import Chart, Series
from swarmtui.text import sanitize, truncate

_WIDTH, _HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 14, 44
_DASHES = ("", "7 4", "2 4", "9 3 2 3", "1 6", "12 5")
_LOG_FROM = 30.0
_MOST_LABELS = 12


def svg(chart: Chart) -> str:
    body = {"levels": _lines, "time": _lines, "bars": _bars, "radar": _radar}[chart.kind](chart)
    label = _text(chart.title)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}" class="chart">'
        f"<title>{label}</title>{body}</svg>"
    )


def legend(chart: Chart) -> str:
    """Beside the picture, so that it wraps on a phone; a sign of its own for each curve."""
    if len(chart.series) < 2:
        return ""
    items = "".join(
        f'<li><svg viewBox="0 0 34 12" class="key"><path d="M1 6H33" class="line s{k % 6}" '
        f'stroke-dasharray="{_DASHES[k % 6]}"/>{_mark(17, 6, k)}</svg>{_text(series.name)}</li>'
        for k, series in enumerate(chart.series)
    )
    return f'<ul class="legend">{items}</ul>'


class _Scale:
    """Values to places; logarithmic where they span more than thirty times."""

    def __init__(self, values: Sequence[float], low: float, high: float, *, may_log: bool = True) -> None:
        smallest, largest = min(values), max(values)
        self._low, self._high = low, high
        self.log = may_log and smallest > 0 and largest / smallest > _LOG_FROM
        if self.log:
            self.ticks = [10.0**k for k in range(floor(log10(smallest)), ceil(log10(largest)) + 1)]
        else:
            self.ticks = _ticks(min(0.0, smallest), largest)
        self._from, self._to = self._at(self.ticks[0]), self._at(self.ticks[-1])

    def __call__(self, value: float) -> float:
        share = (self._at(value) - self._from) / ((self._to - self._from) or 1.0)
        return self._low + share * (self._high - self._low)

    def _at(self, value: float) -> float:
        return log10(value) if self.log else value


def _ticks(low: float, high: float) -> list[float]:
    """Four to seven round numbers around low and high."""
    span = (high - low) or abs(high) or 1.0
    step = 10.0 ** floor(log10(span / 4))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if span / (m * step) <= 6)
    first = floor(low / step)
    return [k * step for k in range(first, ceil(high / step - 1e-9) + 1)]


def _lines(chart: Chart) -> str:
    xs = sorted({x for series in chart.series for x, _ in series.points})
    along = _Scale([*xs, *(x for x, _ in chart.marks)], _LEFT, _WIDTH - _RIGHT, may_log=False)
    ys = [y for series in chart.series for _, y in series.points]
    up = _Scale(ys, _HEIGHT - _BOTTOM, _TOP)
    if chart.kind == "levels":
        places = {x: _LEFT + 30 + (_WIDTH - _LEFT - _RIGHT - 60) * k / max(1, len(xs) - 1) for k, x in enumerate(xs)}
        marks = [(places[x], f"{x:g}") for x in xs[:: ceil(len(xs) / _MOST_LABELS)]]
    else:
        places = {x: along(x) for x in xs}
        marks = [(along(x), f"{x:g}") for x in along.ticks]
    parts = [_axes(chart, up, marks)]
    if chart.marks:
        parts.append(_moments(chart, along))
    for k, series in enumerate(chart.series):
        points = [(places[x], up(y)) for x, y in series.points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path d="{path}" class="line s{k % 6}" stroke-dasharray="{_DASHES[k % 6]}"/>')
        if chart.kind == "levels":
            parts += [
                _mark(x, y, k, f"{_text(series.name)} {significant(v)}") for (x, y), (_, v) in _zip(points, series)
            ]
    if chart.kind == "levels":
        parts += _values(chart.series[0], places, up)
    return "".join(parts)


def _moments(chart: Chart, along: _Scale) -> str:
    """A label that has no room before the next mark gives way to it."""
    parts = []
    places = [along(at) for at, _ in chart.marks]
    for (_, name), x, following in zip(chart.marks, places, (*places[1:], _WIDTH - _RIGHT), strict=True):
        parts.append(f'<path d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" class="moment"/>')
        if following - x >= 8.0 * len(name) + 4:
            parts.append(f'<text x="{x + 3:.1f}" y="{_TOP - 3}">{_text(name)}</text>')
    return "".join(parts)


def _zip(points: list[tuple[float, float]], series: Series) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return list(zip(points, series.points, strict=True))


def _values(series: Series, places: dict[float, float], up: _Scale) -> list[str]:
    """The first curve's numbers, above its points."""
    return [
        f'<text x="{places[x]:.1f}" y="{up(y) - 9:.1f}" class="value" text-anchor="middle">{significant(y, 3)}</text>'
        for x, y in series.points
    ]


def _axes(chart: Chart, up: _Scale, marks: Sequence[tuple[float, str]]) -> str:
    floor_y = _HEIGHT - _BOTTOM
    parts = [
        f'<path d="M{_LEFT} {up(tick):.1f}H{_WIDTH - _RIGHT}" class="grid"/>'
        f'<text x="{_LEFT - 7}" y="{up(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        for tick in up.ticks
    ]
    parts += [f'<text x="{x:.1f}" y="{floor_y + 18}" text-anchor="middle">{_text(name)}</text>' for x, name in marks]
    parts.append(f'<path d="M{_LEFT} {_TOP}V{floor_y}H{_WIDTH - _RIGHT}" class="axis"/>')
    unit = f"{chart.y}, logarithmic" if up.log else chart.y
    middle = (_TOP + floor_y) / 2
    parts.append(f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{_text(unit)}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{_text(chart.x)}</text>')
    return "".join(parts)


def _bars(chart: Chart) -> str:
    series = chart.series[0]
    up = _Scale([0.0, *(y for _, y in series.points)], _HEIGHT - _BOTTOM, _TOP, may_log=False)
    step = (_WIDTH - _LEFT - _RIGHT) / len(chart.labels)
    marks = [(_LEFT + step * (k + 0.5), truncate(name, max(6, int(step / 6.5)))) for k, name in enumerate(chart.labels)]
    parts = [_axes(chart, up, marks)]
    for x, y in series.points:
        left, top, middle = _LEFT + step * (x + 0.2), up(y), _LEFT + step * (x + 0.5)
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{step * 0.6:.1f}" height="{_HEIGHT - _BOTTOM - top:.1f}" '
            f'class="bar s0"><title>{_text(chart.labels[int(x)])} {significant(y)}</title></rect>'
            f'<text x="{middle:.1f}" y="{top - 5:.1f}" class="value" text-anchor="middle">{significant(y, 3)}</text>'
        )
    return "".join(parts)


def _radar(chart: Chart) -> str:
    middle_x, middle_y, radius, n = _WIDTH / 2, _HEIGHT / 2, _HEIGHT / 2 - 36, len(chart.labels)

    def place(axis: float, share: float) -> tuple[float, float]:
        angle = 2 * pi * axis / n - pi / 2
        return middle_x + radius * share * cos(angle), middle_y + radius * share * sin(angle)

    def ring(shares: Sequence[float]) -> str:
        return "M" + "L".join("{:.1f} {:.1f}".format(*place(k, share)) for k, share in enumerate(shares)) + "Z"

    parts = [f'<path d="{ring([share] * n)}" class="grid"/>' for share in (0.25, 0.5, 0.75, 1.0)]
    for k, name in enumerate(chart.labels):
        x, y = place(k, 1.13)
        anchor = "middle" if abs(x - middle_x) < 5 else "start" if x > middle_x else "end"
        parts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">{_text(name)}</text>')
    for k, series in enumerate(chart.series):
        path = ring([share for _, share in series.points])
        parts.append(f'<path d="{path}" class="line s{k % 6}" stroke-dasharray="{_DASHES[k % 6]}"/>')
        parts += [_mark(*place(axis, share), k) for axis, share in series.points]
    return "".join(parts)


def _mark(x: float, y: float, k: int, title: str = "") -> str:
    """A shape of its own for each curve: colour never says anything alone."""
    shapes = (
        "M{x0} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M{x0} {y0}h8v8h-8Z", "M{x} {y0}l5 8h-10Z",
        "M{x} {y0}l5 4l-5 4l-5 -4Z", "M{x} {y1}l5 -8h-10Z", "M{x0} {y0}l8 8m0 -8l-8 8",
    )  # fmt: skip
    path = shapes[k % 6].format(x=f"{x:.1f}", y=f"{y:.1f}", x0=f"{x - 4:.1f}", y0=f"{y - 4:.1f}", y1=f"{y + 4:.1f}")
    return f'<path d="{path}" class="mark s{k % 6}">' + (f"<title>{title}</title>" if title else "") + "</path>"


def _text(text: str) -> str:
    return html.escape(sanitize(text))
