"""Throughput and TTFT against C."""

from __future__ import annotations

from math import log2

from swarmtui.tui.lines import Line, heading, left, longest, wrapped
from swarmtui.tui.live.levels_view import Curve as Points
from swarmtui.tui.live.levels_view import CurveView
from swarmtui.tui.plot import Axis, Plot, Side, Trace, short


class Curve(Plot):
    view: CurveView | None = None

    def show(self, view: CurveView) -> None:
        if view == self.view:
            return
        self.view = view
        if not view.empty:
            self.load()
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        lines = [heading("5", "curve", longest(view.words, width - 13) if view else "", width)]
        if view is None or view.empty or self.plotext is None or height < 6 or width < 24:
            empty = (view.empty or "drawing …") if view else ""
            return [*lines, *([(f" {line}", "dim")] for line in wrapped(empty, max(8, width - 2)))]
        legend: Line = [(" ● output tok/s", "first"), ("  ◆ TTFT s", "second")]
        if view.ghost.c:
            used = sum(len(text) for text, _ in legend)
            legend.append((left(f"  ··· {view.ghost_name}", width - used), "dim"))
        return [*lines, legend, *self._figure(view, width, height - 2)]

    def _figure(self, view: CurveView, width: int, height: int) -> list[Line]:
        traces = [_trace(view.ttft, "second", "right", "◆"), _trace(view.tps, "first", "left", "●")]
        if view.ghost.c:
            traces.insert(0, _trace(view.ghost, "dim", "left", "·"))
        axes = [_axis("left", (*view.tps.values, *view.ghost.values)), _axis("right", view.ttft.values)]
        levels = sorted({*view.tps.c, *view.ghost.c})
        marks = {view.cliff: "▼", view.best: "▸"}
        return self.plotted(width, height, traces, axes, [(log2(c), f"{marks.get(c, '')}{c:g}") for c in levels])


def _trace(points: Points, ink: str, side: Side, sign: str) -> Trace:
    return Trace([log2(c) for c in points.c], points.values, ink, sign, side=side)


def _axis(side: Side, values: tuple[float, ...]) -> Axis:
    top = max(values, default=0.0) * 1.05 or 1.0
    places = [top * part / 3 for part in range(4)]
    return Axis(side, 0, top, [(place, short(place)) for place in places])
