"""Draw curves and markers on two axes; the only module of the app that uses plotext, loaded at the first plot."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Sequence
from math import floor, log2, log10
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from swarmtui.numbers import short
from swarmtui.tui.lines import Line, Panel, scale_top
from swarmtui.tui.textual_patches import run_in_background

# The colour that plotext draws with for each style.
_COLOURS = {"first": 4, "second": 3, "bad": 1, "dim": 8, "good": 6, "warn": 5, "": 7}
_STYLES = {f"38;5;{number}": name for name, number in _COLOURS.items()}
_SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")

# The lines of a plot for its frame and the labels below it.
_FRAME = 3

AxisSide = Literal["left", "right"]
Tick = tuple[float, str]
Point = tuple[float, float]


class PlotTrace(NamedTuple):
    """A line through points, a marker at each of them, or both; `style` is a name in themes.py.

    A line is drawn in braille, or if it is `dotted` with its marker.
    """

    points: tuple[Point, ...]
    style: str
    marker: str = ""
    joined: bool = True
    side: AxisSide = "left"
    dotted: bool = False


class Axis(NamedTuple):
    side: AxisSide
    low: float
    high: float
    ticks: Sequence[Tick]


class Plottable(Protocol):
    """A view of a plot; `empty` says why there is nothing to draw."""

    @property
    def empty(self) -> str: ...


PlotView = TypeVar("PlotView", bound=Plottable)


class PlotPanel(Panel[PlotView]):
    """A panel that can draw a plot once `plotext` is loaded."""

    plotext: Any = None
    _loading = False

    def show(self, view: PlotView) -> None:
        super().show(view)
        if not view.empty and not self._loading:
            self._loading = True
            run_in_background(self, self._load)

    async def _load(self) -> None:
        """Import plotext in a thread: it takes a quarter of a second, and keys must not wait for it."""
        self.plotext = await asyncio.to_thread(importlib.import_module, "plotext")
        self.redraw()

    def plot(
        self, width: int, height: int, traces: Sequence[PlotTrace], axes: Sequence[Axis], xs: Sequence[Tick]
    ) -> list[Line]:
        # Limit the plot to the panel rather than to the terminal.
        self.plotext.terminal.limit(False, False)
        figure = self.plotext.figure
        figure.clear()
        figure.theme("colorless")
        figure.plot_size(width, height)
        for trace in traces:
            self._draw(trace)
        for axis in axes:
            figure.ruler("y", axis.side).lim(axis.low, axis.high)
            figure.ruler("y", axis.side).ticks([at for at, _ in axis.ticks], [label for _, label in axis.ticks])
        positions = [*(at for at, _ in xs), *(x for trace in traces for x, _ in trace.points)]
        low, high = min(positions), max(positions)
        if high > low:
            # plotext omits a label at the edge unless half of it fits.
            edge = (high - low) / width
            figure.ruler("x").lim(low - edge, high + 2 * edge)
        figure.ruler("x").ticks([at for at, _ in xs], [label for _, label in xs])
        return [_line(text) for text in figure.build().string().split("\n")[:height]]

    def _draw(self, trace: PlotTrace) -> None:
        figure, marker, colour = self.plotext.figure, self.plotext.marker, _COLOURS[trace.style]
        xs, ys = (list(values) for values in zip(*trace.points, strict=True))
        if trace.joined:
            line = figure.signal(
                xs, ys, marker=marker(trace.marker if trace.dotted else "braille", colour), yside=trace.side
            )
            line.lines()
            figure.draw(line)
        if trace.marker:
            figure.draw(figure.signal(xs, ys, marker=marker(trace.marker, colour), yside=trace.side))


def logarithmic(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points on a logarithmic x axis."""
    return tuple((log2(x), y) for x, y in points)


def zero_based_axis(side: AxisSide, points: Sequence[Point], height: int = 40) -> Axis:
    """Return an axis from 0 to the round number just above the highest point, with round ticks.

    `height` is that of the plot: ticks are at least two lines apart.
    """
    top = scale_top(max((y for _, y in points), default=0.0)) or 1.0
    most = max(1, (height - _FRAME - 1) // 2)
    parts = next((parts for parts in (4, 3, 5) if parts <= most and _is_round(top / parts)), min(2, most))
    return Axis(side, 0, top, [(top * part / parts, short(top * part / parts)) for part in range(parts + 1)])


def _is_round(step: float) -> bool:
    return round(step / 10.0 ** floor(log10(step)), 6) in (1, 2, 2.5, 3, 5)


def _line(ansi: str) -> Line:
    """Replace plotext's colours by our styles, so that themes and NO_COLOR apply."""
    line: Line = []
    style = "dim"
    for index, part in enumerate(_SEQUENCE.split(ansi)):
        if index % 2:
            style = _STYLES.get(part, "dim")
        elif part:
            line.append((part, style))
    return line
