"""The curve: output tok/s and first token over the levels, with the baseline, the limit, and what is planned."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.capacity.marks import LevelMarks, level_marks
from swarmtui.model.answer import Answer
from swarmtui.model.client_protocol import Frame, ProvisionalLevel
from swarmtui.model.findings import SearchState, Slots
from swarmtui.model.session import Level
from swarmtui.report.charts import curve_charts
from swarmtui.text import sanitize
from swarmtui.tui.chart_panel import ChartPanel, ChartView
from swarmtui.tui.live.live_panel import LiveData, LivePanel


def curve_view(
    levels: Sequence[Level],
    baseline: Sequence[Level],
    baseline_name: str,
    empty: str = "",
    provisional: Sequence[ProvisionalLevel] = (),
    slots: Slots | None = None,
    answer: Answer | None = None,
    search: SearchState | None = None,
    planned: Sequence[float] = (),
    limit: Sequence[tuple[float, float]] = (),
    slo: str = "",
) -> ChartView:
    """`empty` says how to get a level, which a curve needs."""
    marks = level_marks(levels, slots, answer, search)
    charts = curve_charts(
        levels,
        marks,
        baseline=baseline,
        baseline_name=sanitize(baseline_name),
        provisional=provisional,
        planned=planned,
        limit=limit,
        slo=slo,
    )
    if not any(charts[0].series):
        return ChartView(empty=empty)
    return ChartView(charts if charts[1].series else charts[:1], _notes(marks))


def planned_levels(frame: Frame | None) -> tuple[float, ...]:
    """Return the levels that are still to come, as far as they are known."""
    if frame is None or frame.status == "ended" or frame.steered:
        return ()
    if frame.search is not None:
        return (float(frame.search.next_c),) if frame.search.next_c is not None else ()
    return frame.planned


def beside_plan(baseline: Sequence[Level], frame: Frame | None) -> tuple[Level, ...]:
    """Return the levels of a baseline that are in the range of a sweep, whose own levels would have little room."""
    if frame is None or not frame.planned:
        return tuple(baseline)
    loads = (*frame.planned, *(level.offered_load for level in frame.levels))
    return tuple(level for level in baseline if min(loads) <= level.offered_load <= max(loads))


def _notes(marks: LevelMarks) -> tuple[str, ...]:
    """Name the marked levels, from long to short.

    A search that runs has no answer yet: it says what is shown so far, and what was and is not any more.
    """
    best, past = ("▸ most agents", "▼ past it") if marks.by_slo else ("▸ best", "▼ cliff")
    past = "? not sure" if marks.doubted else past
    named = [(name, at) for name, at in ((best, marks.best), (past, marks.past)) if at is not None]
    long, short = [f"{name} {at:g}" for name, at in named], [f"{name[0]} {at:g}" for name, at in named]
    if marks.so_far:
        known = "no level is sure yet" if marks.best is None else f"{best} so far {marks.best:g}"
        known += f", {marks.withdrawn:g} not any more" if marks.withdrawn is not None else ""
        long = [known, *long[marks.best is not None :]]
    return " · ".join(long), long[0] if long else "", " · ".join(short)


class CurvePanel(LivePanel, ChartPanel):
    key, title, place = 1, "curve", "curve"

    def update_from(self, data: LiveData) -> None:
        live, baseline = data.shown, data.baseline
        levels = live.frame.levels if live.frame else ()
        limit = live.frame.limit if live.frame else ()
        planned, slo = planned_levels(live.frame), live.frame.slo if live.frame else ""
        about = (data.no_curve, live.provisional, *live.marked_by, planned, limit, slo)
        beside = beside_plan(baseline.levels, live.frame)
        self.show_made(curve_view, levels, beside, baseline.name if beside else "", *about)
