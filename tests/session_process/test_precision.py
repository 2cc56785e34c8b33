"""Runs that end when the half-width of their steady rate is small enough."""

from __future__ import annotations

import pytest

from swarmtui.analysis.levels.runs import runs_by_level
from swarmtui.session_process.precision import PrecisionGoal, known_part
from tests.analysis.record_builders import request, stage
from tests.bench.load_shape import SHAPES, simulate
from tests.cli.scripted_server import respond_with_words, scripted_server
from tests.seeds.virtual_session import simulate_journal
from tests.session_process.harness import SessionHarness, plan


@pytest.mark.parametrize("c", [4, 8])
def test_run_ends_when_its_half_width_is_reached(c: int) -> None:
    (rough, _), (exact, _) = (simulate(c, 3, shape=SHAPES["cv0.5"], precision=text) for text in ("5%", "0.5%"))
    assert rough.half_width is not None and rough.half_width < 0.05
    assert exact.half_width is not None and exact.half_width < 0.006
    assert rough.n <= exact.n < 16 * c and (rough.n < exact.n or c == 8)


def test_run_that_does_not_reach_it_ends_after_sixteen_requests_per_stream() -> None:
    level, _ = simulate(2, 3, shape=SHAPES["8-32 tokens"], precision="0.5%")
    assert level.n + level.unfinished == 32


def test_answers_in_flight_do_not_count_as_silence() -> None:
    """A look during the run finds the half-width of what is known, not of a rate that seems to fall at the end."""
    shape = SHAPES["cv0.5"]
    journal = simulate_journal(shape.simulator, shape.workload, seed=4, levels=(8,), requests="6C", warmup=1)
    start = next(stage for stage in journal.stages if stage.phase == "level")
    goal = PrecisionGoal(start, 0.0, 24)
    answered = sorted((r for r in journal.records if r.ok), key=lambda record: record.left_ns)
    for record in answered[:-12]:
        goal.add(record)
    assert goal.found is not None and goal.found < 0.02


def test_one_small_half_width_may_be_chance_two_in_a_row_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter((0.05, 0.01, 0.03, 0.02, 0.02))
    monkeypatch.setattr(PrecisionGoal, "_known_half_width", lambda goal, records: next(found))
    goal = PrecisionGoal(stage(c=1), 0.02, 1)
    reached = []
    for task in range(5):
        goal.add(request(100.0 * task, [100.0 * task + 50], task=task))
        reached.append(goal.reached)
    assert reached == [False, False, False, False, True]


def test_nothing_is_known_of_a_run_before_each_agent_has_an_answer() -> None:
    records = [request(100.0 * task, [100.0 * task + 50, 100.0 * task + 60], task=task) for task in range(4)]
    runs = runs_by_level(records, [stage(c=2)], [])
    assert known_part(runs[2, None][0]).sent == []
    runs = runs_by_level([*records, request(0.0, [50, 260], task=9, agent=1)], [stage(c=2)], [])
    assert len(known_part(runs[2, None][0]).sent) == 4, "the other agent has had none since then"


@pytest.mark.parametrize("complete", [False, True])
def test_session_says_that_a_level_did_not_reach_the_precision(harness: SessionHarness, complete: bool) -> None:
    with scripted_server(respond_with_words(3, gap_s=0.01)) as server:
        chosen = plan(2, requests=None, precision="0.5%", complete=complete)
        client = harness.start(server.url, chosen)
        assert client.wait_for_end().ending == "done"
    journal = harness.journal(client)
    (level,) = client.frames[-1].levels
    events = [event for event in journal.events if event.name == "precision_missed"]
    reached = level.half_width is not None and level.half_width <= 0.006
    assert reached or (len(events) == 1 and "± 0.5 % was to be reached" in events[0].detail)
    assert level.complete and (reached or level.n + level.unfinished == 32)
