"""Throughput and TTFT against C; the only place that knows plotext, which is loaded when a curve is first drawn."""

from __future__ import annotations

import asyncio
import importlib
import re
from math import log2
from typing import Any

from swarmtui.tui.paint import Line, Lines, heading, wrapped
from swarmtui.tui.views.levels import Curve as Points
from swarmtui.tui.views.levels import CurveView

# Colours that plotext is told to draw with, by the name of our own style for each.
_INKS = {"first": 4, "second": 3, "dim": 8}
_STYLES = {f"38;5;{number}": name for name, number in _INKS.items()}
_SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")


class Curve(Lines):
    view: CurveView | None = None
    _plotext: Any = None
    _loading = False

    def show(self, view: CurveView) -> None:
        if view == self.view:
            return
        self.view = view
        if not view.empty and not self._loading:
            self._loading = True
            self.run_worker(self._load(), exit_on_error=False)
        self.redraw()

    async def _load(self) -> None:
        """In a thread: its import takes a quarter of a second, and keys must not wait for it."""
        self._plotext = await asyncio.to_thread(importlib.import_module, "plotext")
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        lines = [heading("5", "curve", view.words if view else "", width)]
        if view is None or view.empty or self._plotext is None or height < 6 or width < 24:
            empty = (view.empty or "drawing …") if view else ""
            return [*lines, *([(f" {line}", "dim")] for line in wrapped(empty, max(8, width - 2)))]
        ghost = f"  ··· {view.ghost_name}" if view.ghost.c else ""
        legend: Line = [(" ● output tok/s", "first"), ("  ◆ TTFT s", "second"), (ghost, "dim")]
        return [*lines, legend, *_figure(self._plotext, view, width, height - 2)]


def _figure(plotext: Any, view: CurveView, width: int, height: int) -> list[Line]:
    # The panel is the limit, not the terminal.
    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    if view.ghost.c:
        _draw(plotext, view.ghost, "dim", "left", "·")
    _draw(plotext, view.ttft, "second", "right", "◆")
    _draw(plotext, view.tps, "first", "left", "●")
    for side, values in (("left", (*view.tps.values, *view.ghost.values)), ("right", view.ttft.values)):
        top = max(values, default=0.0) * 1.05 or 1.0
        places = [top * part / 3 for part in range(4)]
        figure.ruler("y", side).lim(0, top)
        figure.ruler("y", side).ticks(places, [_short(place) for place in places])
    levels = sorted({*view.tps.c, *view.ghost.c})
    labels = [f"{'▸' if c == view.best else '▼' if c == view.cliff else ''}{c}" for c in levels]
    figure.ruler("x").ticks([log2(c) for c in levels], labels)
    return [_line(text) for text in figure.build().string().split("\n")[:height]]


def _draw(plotext: Any, points: Points, ink: str, side: str, sign: str) -> None:
    """A line of quarter blocks, which more fonts have than braille, and a sign at each level."""
    figure, colour = plotext.figure, _INKS[ink]
    xs, ys = [log2(c) for c in points.c], list(points.values)
    line = figure.signal(xs, ys, marker=plotext.marker("hd", colour), yside=side)
    line.lines()
    figure.draw(line)
    figure.draw(figure.signal(xs, ys, marker=plotext.marker(sign, colour), yside=side))


def _short(value: float) -> str:
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
