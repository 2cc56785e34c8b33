from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from swarmtui.analysis.capacity.judged_levels import Visit
from swarmtui.analysis.capacity.slo_search import NextVisit
from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.model import client_protocol
from swarmtui.model.journal import CapacitySearch, SearchEntry
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.session_process.goals.capacity import Budget, VisitTally, count_request
from swarmtui.session_process.steering import Goal, goal_of
from swarmtui.sessions.journal import read_journal
from tests.analysis.record_builders import request
from tests.cli.scripted_server import ReceivedRequest, ScriptedHandler, respond_with_words, scripted_server
from tests.session_process.harness import SessionHarness
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
    searched = isinstance(goal, client_protocol.FindCapacity)
    near = {"near": (9, 14)} if searched else {}
    assert goal_of(plan, (9, 14)) == msgspec.structs.replace(goal, **near)


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


def test_a_visit_in_which_the_server_froze_does_not_end_a_quick_search() -> None:
    """It took 20 s for a few requests: another one is faster, and the time that is left is enough for it."""
    slo, now = parse_slo("ttft=1s"), [0.0]
    assert slo is not None
    budget = Budget(60.0, lambda: now[0])
    bisect = NextVisit(8, 16, "bisect")
    assert budget.allows(bisect), "nothing is known yet"
    budget.add(Visit(4, slo, [request(0, [1]) for _ in range(16)]), 10.0)
    budget.add(Visit(8, slo, [request(0, [1]) for _ in range(2)]), 20.0)
    now[0] = 40.0
    assert budget.allows(bisect)
    now[0] = 55.0
    assert not budget.allows(bisect)


def test_a_level_in_which_the_server_froze_is_not_missed(harness: SessionHarness) -> None:
    """The search knows it as soon as the level has ended."""
    words, thaws_at, beside = respond_with_words(20, gap_s=0.01), list[float](), list[int]()

    def freeze_once(to: ScriptedHandler, asked: ReceivedRequest) -> None:
        """Some requests of two agents, all after the pre-roll, get no answer for some time."""
        if len(to.server.received) - len(to.server.completed) > 1:
            beside.append(1)
        if len(beside) > 10 and not thaws_at:
            thaws_at.append(time.monotonic() + 2.5)
        time.sleep(max(0.0, max(thaws_at, default=0.0) - time.monotonic()))
        words(to, asked)

    search = Plan(
        goal="capacity", slo="ttft_p90=300ms", max_c=2, alpha=0.2, budget_s=9.0, load=Closed(levels=(1,), warmup=0)
    )
    with scripted_server(freeze_once) as server:
        session_client = harness.start(server.url, search)
        assert session_client.wait_for_end().ending == "done"
    journal = harness.journal(session_client)
    # A host without CPU time explains a silence, too.
    assert {"frozen", "all_waiting", "no_cpu"} & {event.name for event in journal.events}
    searches = [entry.search for entry in journal.entries if isinstance(entry, SearchEntry)]
    assert "missed" not in {level.state for found in searches for level in found.levels}
