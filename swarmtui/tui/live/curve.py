"""The curve of throughput and TTFT over C, with the baseline curve behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2
from typing import NamedTuple

from swarmtui.analysis.capacity.marks import LevelMarks, level_marks
from swarmtui.model.answer import Answer
from swarmtui.model.client_protocol import ProvisionalLevel
from swarmtui.model.findings import SearchState, Slots
from swarmtui.model.session import Level
from swarmtui.report.levels import MARKS, mark_code
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, ljust, longest_fit, wrapped_note
from swarmtui.tui.live.live_panel import LiveData, LivePanel
from swarmtui.tui.plot import PlotPanel, PlotTrace, Point, logarithmic, zero_based_axis
from swarmtui.tui.tables import STYLES

# The legend of the intervals needs this width.
_WITH_INTERVALS = 56


class CurveView(NamedTuple):
    """The curves have a point (load, value) for each level that has the value.

    `provisional` are those of levels that have not ended; `incomplete` are the loads of levels that ended early.
    `intervals` are the load, the lowest and the highest tok/s of each 95 % interval. `summary` names the marked levels,
    in several versions from long to short.
    """

    tps: tuple[Point, ...]
    ttft: tuple[Point, ...]
    baseline: tuple[Point, ...]
    baseline_name: str
    marks: LevelMarks
    summary: tuple[str, ...]
    empty: str
    provisional: tuple[Point, ...] = ()
    incomplete: frozenset[float] = frozenset()
    intervals: tuple[tuple[float, float, float], ...] = ()


def curve_view(
    levels: Sequence[Level],
    baseline: Sequence[Level],
    baseline_name: str,
    empty: str = "",
    provisional: Sequence[ProvisionalLevel] = (),
    slots: Slots | None = None,
    answer: Answer | None = None,
    search: SearchState | None = None,
) -> CurveView:
    """`empty` says how to get the two levels that a curve needs."""
    tps = level_points(levels, lambda level: level.headline_tps)
    marks = level_marks(levels, slots, answer, search)
    hollow = tuple((level.offered_load, level.out_tps) for level in provisional if level.out_tps is not None)
    return CurveView(
        tps=tps,
        ttft=level_points(levels, lambda level: level.ttft_s.median),
        baseline=level_points(baseline, lambda level: level.headline_tps),
        baseline_name=sanitize(baseline_name),
        marks=marks,
        summary=_summary(marks),
        empty="" if len(tps) + len(hollow) > 1 else empty,
        provisional=hollow,
        incomplete=frozenset(level.offered_load for level in levels if not level.has_complete_run),
        intervals=tuple(
            (level.offered_load, max(0.0, rate - half), rate + half)
            for level in levels
            if level.headline_is_steady
            and (rate := level.out_tps_steady) is not None
            and (half := level.out_tps_steady_hw) is not None
        ),
    )


def _summary(marks: LevelMarks) -> tuple[str, ...]:
    best, past = ("▸ SLO kept", "✖ missed") if marks.by_slo else ("▸ best", "▼ cliff")
    return tuple(
        " · ".join(f"{name} {at:g}" for name, at in zip(names, (marks.best, marks.past), strict=True) if at is not None)
        for names in ((best, past), (best[0], past[0]))
    )


def level_points(levels: Sequence[Level], value_of: Callable[[Level], float | None]) -> tuple[Point, ...]:
    return tuple((level.offered_load, value) for level in levels if (value := value_of(level)) is not None)


class CurvePanel(LivePanel, PlotPanel[CurveView]):
    key, title = 5, "curve"

    def update_from(self, data: LiveData) -> None:
        live, baseline = data.shown, data.baseline
        levels = live.frame.levels if live.frame else ()
        about = (data.no_curve, live.provisional, *live.marked_by)
        self.show_made(curve_view, levels, baseline.levels, baseline.name, *about)

    @property
    def empty(self) -> str:
        return self.view.empty if self.view else ""

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        lines = [self.heading(longest_fit(view.summary, width - 13) if view else "", width)]
        if view is None or view.empty or self.plotext is None or height < 6 or width < 24:
            return [*lines, *wrapped_note((view.empty or "drawing …") if view else "", width)]
        legend: Line = [(" ● output tok/s", "first"), ("  ◆ TTFT s", "second")]
        if view.intervals and width >= _WITH_INTERVALS:
            legend.append(("  ┃ ± at 95 %", "dim"))
        if view.provisional:
            legend.append(("  ○ so far", "first"))
        elif view.incomplete:
            legend.append(("  ○ incomplete", "first"))
        if view.baseline:
            used = sum(len(text) for text, _ in legend)
            legend.append((ljust(f"  ··· {view.baseline_name}", width - used), ""))
        return [*lines, legend, *self._plot(view, width, height - 2)]

    def _plot(self, view: CurveView, width: int, height: int) -> list[Line]:
        hollow = [point for point in view.tps if point[0] in view.incomplete]
        full = [point for point in view.tps if point not in hollow]
        traces = [
            PlotTrace(logarithmic(view.baseline), "", "·", dotted=True),
            PlotTrace(logarithmic(view.ttft), "second", "◆", side="right"),
            PlotTrace(logarithmic(view.tps), "first"),
            *(PlotTrace(logarithmic([(at, low), (at, high)]), "dim") for at, low, high in view.intervals),
            PlotTrace(logarithmic((*hollow, *view.provisional)), "first", "○", joined=False),
            PlotTrace(logarithmic(full), "first", "●", joined=False),
            *(
                PlotTrace(logarithmic([at]), STYLES[code], MARKS[code], joined=False)
                for at in full
                if (code := mark_code(view.marks, at[0]))
            ),
        ]
        tops = [(at, high) for at, _, high in view.intervals]
        axes = [
            zero_based_axis("left", (*view.tps, *view.provisional, *view.baseline, *tops), height),
            *([zero_based_axis("right", view.ttft, height)] if view.ttft else ()),
        ]
        levels = sorted({c for c, _ in (*view.tps, *view.provisional, *view.baseline)})
        ticks = [(log2(c), f"{c:g}") for c in levels]
        return self.plot(width, height, [trace for trace in traces if trace.points], axes, ticks)
