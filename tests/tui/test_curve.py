"""The curve of the live screen: what is measured, what is planned, and what says why there is none."""

from __future__ import annotations

import msgspec

from swarmtui.model.findings import SearchState
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.tui.live.curve import curve_view, planned_levels
from tests.analysis.level_builders import level
from tests.tui.frame_builders import frame, hello


def test_levels_still_planned_are_on_the_curve() -> None:
    session = msgspec.structs.replace(hello().session, plan=Plan(goal="sweep", load=Closed(levels=(1, 2, 4, 8))))
    running = msgspec.structs.replace(frame(2), status="running", levels=(level(1, tps=80.0),))
    assert planned_levels(session, running) == (1, 2, 4, 8)
    chart = curve_view(running.levels, (), "", planned=planned_levels(session, running)).charts[0]
    assert chart.planned == (2, 4, 8) and chart.xs == (1, 2, 4, 8)
    searching = SearchState(goal="capacity", low=8, high=16, next_c=11)
    assert planned_levels(session, msgspec.structs.replace(running, search=searching)) == (11,)
    assert planned_levels(session, msgspec.structs.replace(running, status="ended")) == ()
