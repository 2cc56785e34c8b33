"""Lines and signs on two axes; the only place that knows plotext, which is loaded when something is first drawn."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from swarmtui.tui.lines import Line, Lines

# Colours that plotext is told to draw with, by the name of our own style for each.
_INKS = {"first": 4, "second": 3, "bad": 1, "dim": 8}
_STYLES = {f"38;5;{number}": name for name, number in _INKS.items()}
_SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")

Side = Literal["left", "right"]
Tick = tuple[float, str]


class Trace(NamedTuple):
    """A line through points, a sign at each of them, or both; `ink` is the name of a style."""

    xs: Sequence[float]
    ys: Sequence[float]
    ink: str
    sign: str = ""
    joined: bool = True
    side: Side = "left"


class Axis(NamedTuple):
    side: Side
    low: float
    high: float
    ticks: Sequence[Tick]


class Plot(Lines):
    """A panel with a plot in it: subclasses say what, once `plotext` is there."""

    plotext: Any = None
    _loading = False

    def load(self) -> None:
        if not self._loading:
            self._loading = True
            self.run_worker(self._load(), exit_on_error=False)

    async def _load(self) -> None:
        """In a thread: its import takes a quarter of a second, and keys must not wait for it."""
        self.plotext = await asyncio.to_thread(importlib.import_module, "plotext")
        self.redraw()

    def plotted(
        self, width: int, height: int, traces: Sequence[Trace], axes: Sequence[Axis], xs: Sequence[Tick]
    ) -> list[Line]:
        # The panel is the limit, not the terminal.
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
        places = [*(at for at, _ in xs), *(x for trace in traces for x in trace.xs)]
        low, high = min(places), max(places)
        if high > low:
            # A label at the edge needs room for its half, or it is not drawn.
            edge = (high - low) / width
            figure.ruler("x").lim(low - edge, high + 2 * edge)
        figure.ruler("x").ticks([at for at, _ in xs], [label for _, label in xs])
        return [_line(text) for text in figure.build().string().split("\n")[:height]]

    def _draw(self, trace: Trace) -> None:
        """A line of quarter blocks, which more fonts have than braille."""
        figure, marker, colour = self.plotext.figure, self.plotext.marker, _INKS[trace.ink]
        xs, ys = list(trace.xs), list(trace.ys)
        if trace.joined:
            line = figure.signal(xs, ys, marker=marker("hd", colour), yside=trace.side)
            line.lines()
            figure.draw(line)
        if trace.sign:
            figure.draw(figure.signal(xs, ys, marker=marker(trace.sign, colour), yside=trace.side))


def short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def _line(ansi: str) -> Line:
    """plotext's colours turned into our styles, so that themes and NO_COLOR hold here too."""
    line: Line = []
    style = "dim"
    for place, part in enumerate(_SEQUENCE.split(ansi)):
        if place % 2:
            style = _STYLES.get(part, "dim")
        elif part:
            line.append((part, style))
    return line
