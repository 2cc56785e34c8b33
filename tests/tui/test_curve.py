"""The curve of the live screen: what is measured, what is planned, and what says why there is none."""

from __future__ import annotations

import msgspec

from swarmtui.model.findings import SearchState
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.tui.live.curve import beside_plan, curve_view, planned_levels
from tests.analysis.level_builders import level
from tests.tui.frame_builders import frame


def test_levels_still_planned_are_on_the_curve() -> None:
    planned = Plan(goal="sweep", load=Closed(levels=(1, 2, 4, 8))).swept
    running = msgspec.structs.replace(frame(2), status="running", levels=(level(1, tps=80.0),), planned=planned)
    assert planned_levels(running) == (1, 2, 4, 8)
    chart = curve_view(running.levels, (), "", planned=planned_levels(running)).charts[0]
    assert chart.planned == (2, 4, 8) and chart.xs == (1, 2, 4, 8)
    searching = SearchState(goal="capacity", low=8, high=16, next_c=11)
    assert planned_levels(msgspec.structs.replace(running, search=searching)) == (11,)
    assert planned_levels(msgspec.structs.replace(running, status="ended")) == ()


def test_a_baseline_with_more_levels_does_not_widen_the_curve_of_a_sweep() -> None:
    running = msgspec.structs.replace(frame(2), status="running", levels=(level(1, tps=80.0),), planned=(1.0, 2.0))
    baseline = [level(c, tps=70.0 * c) for c in (1, 2, 4, 64)]
    beside = beside_plan(baseline, running)
    chart = curve_view(running.levels, beside, "before", planned=planned_levels(running)).charts[0]
    assert chart.xs == (1, 2)
    # What the user adds to a sweep is shown, too; manual control has no end.
    added = msgspec.structs.replace(running, levels=(level(1, tps=80.0), level(8, tps=80.0)))
    assert [one.c for one in beside_plan(baseline, added)] == [1, 2, 4]
    assert len(beside_plan(baseline, msgspec.structs.replace(running, planned=()))) == 4
