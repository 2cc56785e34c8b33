"""Recorded sessions played against the simulator."""

from __future__ import annotations

from swarmtui.model import client_protocol
from swarmtui.model.plan import Plan, Requests
from tests.session_process.harness import SessionHarness

FAST = "sim:moe-tp1?speed=100"


def test_sessions_are_played_with_the_recorded_lengths(harness: SessionHarness) -> None:
    plan = Plan(
        load="sessions", levels=(2,), sessions=Requests(count=3, per_stream=False), warmup=0, time_scale=200.0, seed=1
    )
    session_client = harness.start(FAST, plan, workload="agents")
    assert session_client.wait_for_end().ending == "done"
    records = [record for record in harness.journal(session_client).records if record.replayed is not None]
    assert {record.phase for record in records} >= {"preroll", "level"}
    for record in records:
        assert record.replayed is not None
        if record.ok:
            assert record.tokens_in == record.replayed.input_tokens
            assert record.t_sent_ns is not None and record.t_sched_ns is not None
            assert record.t_sent_ns >= record.t_sched_ns
    (level,) = session_client.frames[-1].levels
    assert level.complete and level.errors == 0 and level.load == "sessions"


def test_number_of_sessions_is_changed_while_they_are_played(harness: SessionHarness) -> None:
    plan = Plan(mode="manual", load="sessions", levels=(1,), warmup=0, time_scale=200.0, seed=1)
    session_client = harness.start(FAST, plan, workload="agents")
    session_client.wait_for_frame(lambda frame: frame.done > 2)
    session_client.send(client_protocol.SetConcurrency(3))
    session_client.wait_for_frame(lambda frame: frame.c == 3 and frame.done > 2)
    session_client.send(client_protocol.Stop(grace_s=0.0))
    session_client.wait_for_end()
    records = [record for record in harness.journal(session_client).records if record.ok and record.replayed]
    stages: dict[int, set[int]] = {}
    for record in records:
        assert record.replayed is not None
        stages.setdefault(record.replayed.play, set()).add(record.stage)
    # The session that was played at C=1 went on at C=3.
    assert stages[0] == {1, 2} and len(stages) >= 3
