from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.model import client_protocol
from swarmtui.model.journal import CapacitySearch
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.session_process.goals.capacity import VisitTally, count_request
from swarmtui.session_process.steering import Goal, goal_of
from swarmtui.sessions.journal import read_journal
from tests.analysis.record_builders import request
from tests.sessions.session_builders import head, write_session


@pytest.mark.parametrize(
    ("plan", "goal"),
    [
        (Plan(load=Closed(levels=(2, 4), runs=3)), client_protocol.Sweep((2, 4), 3)),
        (Plan(goal="manual", load=Closed(levels=(5,))), client_protocol.SetConcurrency(5)),
        (Plan(goal="cliff", max_c=64), client_protocol.FindCliff(64)),
        (Plan(goal="capacity", slo="ttft=1s", max_c=64), client_protocol.FindCapacity("ttft=1s", 64)),
    ],
)
def test_first_goal_is_that_of_the_plan(plan: Plan, goal: Goal) -> None:
    assert goal_of(plan) == goal


def test_run_that_starts_again_after_a_pause_is_counted_anew() -> None:
    slo = parse_slo("ttft=1s")
    assert slo is not None
    run = VisitTally(2, slo, 0.01)
    for stage, error in ((3, None), (3, None), (4, None), (4, "reset"), (4, CANCELLED)):
        phase: Phase = "level" if error != CANCELLED else "unfinished"
        answered = Record(task=0, stage=stage, phase=phase, error=error, t_sent_ns=0)
        run.add(msgspec.structs.replace(answered, t_first_ns=10**8, t_last_ns=2 * 10**8))
    run.add(Record(task=0, stage=4, phase="filler", t_sent_ns=0, t_first_ns=10**8))
    assert (run.visit.c, run.visit.slo.n, run.visit.slo.good) == (2, 3, 2)
    run.begin(4)
    assert run.visit.slo.n == 3
    run.begin(5)
    assert run.visit.slo.n == 0, "a run that begins again does not end by the requests before the pause"
    run.add(Record(task=0, stage=4, phase="level", t_sent_ns=0, t_first_ns=10**8))
    assert run.visit.slo.n == 0


def test_last_search_for_the_capacity_counts(tmp_path: Path) -> None:
    entries = [
        CapacitySearch(t_ns=1, slo="ttft=1s", alpha=0.01),
        CapacitySearch(t_ns=2, slo="ttft=2s", alpha=0.01),
        CapacitySearch(t_ns=2, slo="ttft=2s", alpha=0.01, context_tokens=1234.5),
    ]
    assert read_journal(write_session(tmp_path / "s", [head(), *entries])).search == entries[-1]


def test_a_request_that_is_reported_late_counts_for_the_visit_that_sent_it() -> None:
    slo = parse_slo("ttft_p90=2s")
    before, now = VisitTally(160, slo, 0.2, after=4), VisitTally(144, slo, 0.2, after=5)
    late = [msgspec.structs.replace(request(0, [2500, 2510]), stage=5, phase="level") for _ in range(4)]
    for record in late:
        count_request([before, now], record)
    assert before.missed and not now.missed and now.visit.slo.n == 0
    count_request([before, now], msgspec.structs.replace(late[0], stage=6))
    assert (before.visit.slo.n, now.visit.slo.n) == (4, 1)
    count_request([before, now], msgspec.structs.replace(late[0], stage=4, phase="level"))
    assert (before.visit.slo.n, now.visit.slo.n) == (4, 1), "sent before the search"
