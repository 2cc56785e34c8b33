"""The curve of throughput and TTFT over C, with the baseline curve behind it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import NamedTuple

from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.model.findings import Scaling
from swarmtui.model.session import Level
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, heading, ljust, longest_fit, wrapped_note
from swarmtui.tui.live.levels import best_load, median_or_mean
from swarmtui.tui.plot import PlotPanel, PlotTrace, Side, zero_based_axis


class CurvePoints(NamedTuple):
    """Load and value of each level that has the value."""

    c: tuple[float, ...]
    values: tuple[float, ...]


class CurveView(NamedTuple):
    """`summary` names the best level, the sweet spot and the cliff, in several versions from long to short."""

    tps: CurvePoints
    ttft: CurvePoints
    baseline: CurvePoints
    baseline_name: str
    best: float | None
    cliff: int | None
    summary: tuple[str, ...]
    empty: str


def curve_view(levels: Sequence[Level], baseline: Sequence[Level], baseline_name: str) -> CurveView:
    tps = _throughput(levels)
    found = scaling(levels)
    best = best_load(levels)
    ttft = [(level.offered_load, value) for level in levels if (value := median_or_mean(level.ttft_s)) is not None]
    return CurveView(
        tps=tps,
        ttft=CurvePoints(tuple(c for c, _ in ttft), tuple(value for _, value in ttft)),
        baseline=_throughput(baseline),
        baseline_name=sanitize(baseline_name),
        best=best,
        cliff=found.cliff.c if found.cliff else None,
        summary=_summary(best, found),
        empty="" if len(tps.c) > 1 else "a curve needs two levels; s starts a sweep",
    )


def _summary(best: float | None, found: Scaling) -> tuple[str, ...]:
    cliff = found.cliff.c if found.cliff else None
    spot = None if found.sweet_spot == best else found.sweet_spot
    versions = (("▸ best", "sweet spot", "▼ cliff"), ("▸ best", "sweet", "▼ cliff"), ("▸", "sweet", "▼"))
    return tuple(
        " · ".join(f"{name} {at:g}" for name, at in zip(names, (best, spot, cliff), strict=True) if at is not None)
        for names in versions
    )


def _throughput(levels: Sequence[Level]) -> CurvePoints:
    known = [(level.offered_load, value) for level in levels if (value := level.headline_tps) is not None]
    return CurvePoints(tuple(c for c, _ in known), tuple(value for _, value in known))


class CurvePanel(PlotPanel):
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
        lines = [heading("5", "curve", longest_fit(view.summary, width - 13) if view else "", width)]
        if view is None or view.empty or self.plotext is None or height < 6 or width < 24:
            return [*lines, *wrapped_note((view.empty or "drawing …") if view else "", width)]
        legend: Line = [(" ● output tok/s", "first"), ("  ◆ TTFT s", "second")]
        if view.baseline.c:
            used = sum(len(text) for text, _ in legend)
            legend.append((ljust(f"  ··· {view.baseline_name}", width - used), "dim"))
        return [*lines, legend, *self._plot(view, width, height - 2)]

    def _plot(self, view: CurveView, width: int, height: int) -> list[Line]:
        traces = [_trace(view.ttft, "second", "right", "◆"), _trace(view.tps, "first", "left", "●")]
        if view.baseline.c:
            traces.insert(0, _trace(view.baseline, "dim", "left", "·"))
        axes = [
            zero_based_axis("left", (*view.tps.values, *view.baseline.values)),
            zero_based_axis("right", view.ttft.values),
        ]
        levels = sorted({*view.tps.c, *view.baseline.c})
        marks = {view.cliff: "▼", view.best: "▸"}
        return self.plot(width, height, traces, axes, [(log2(c), f"{marks.get(c, '')}{c:g}") for c in levels])


def _trace(points: CurvePoints, style: str, side: Side, marker: str) -> PlotTrace:
    return PlotTrace([log2(c) for c in points.c], points.values, style, marker, side=side)
