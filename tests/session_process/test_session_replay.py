"""Recorded sessions played against the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swarmtui.model import client_protocol
from swarmtui.model.load import Sessions
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from tests.session_process.harness import SessionHarness

FAST = "sim:moe-tp1?speed=100"


def test_sessions_are_played_with_the_recorded_lengths(harness: SessionHarness) -> None:
    plan = Plan(load=Sessions(levels=(2,), sessions=3, warmup=0, time_scale=200.0), seed=1)
    session_client = harness.start(FAST, plan, workload="agents")
    assert session_client.wait_for_end().ending == "done"
    records = [record for record in harness.journal(session_client).records if record.replayed is not None]
    assert {record.phase for record in records} >= {"preroll", "level"}
    for record in records:
        assert record.replayed is not None
        if record.ok:
            # A prompt ends with a whole word, and a few words of code have twenty tokens.
            assert record.tokens_in == pytest.approx(record.replayed.input_tokens, rel=0.002, abs=10)
            assert record.t_sent_ns is not None and record.t_sched_ns is not None
            assert record.t_sent_ns >= record.t_sched_ns
    (level,) = session_client.frames[-1].levels
    assert level.complete and level.errors == 0 and level.load == "sessions"


def test_number_of_sessions_is_changed_while_they_are_played(harness: SessionHarness) -> None:
    plan = Plan(goal="manual", load=Sessions(levels=(1,), warmup=0, time_scale=200.0), seed=1)
    session_client = harness.start(FAST, plan, workload="agents")
    session_client.wait_for_frame(lambda frame: frame.done > 2)
    session_client.send(client_protocol.SetConcurrency(3))

    def answers() -> dict[int, list[Record]]:
        """Return the answers by play."""
        plays: dict[int, list[Record]] = {}
        for record in harness.journal(session_client).records:
            if record.ok and record.replayed is not None:
                plays.setdefault(record.replayed.play, []).append(record)
        return plays

    def continued() -> bool:
        """Whether the session that was played last at C=1 has ended, or has continued at C=3."""
        found = answers()
        last = max(play for play, records in found.items() if records[0].stage == 1)
        replayed = found[last][0].replayed
        assert replayed is not None
        whole = len(found[last]) == replayed.requests - replayed.skipped
        return len(found) >= 3 and (whole or {record.stage for record in found[last]} == {1, 2})

    session_client.wait_for_frame(lambda frame: frame.c == 3 and frame.done > 2 and continued())
    session_client.send(client_protocol.Stop(grace_s=0.0))
    session_client.wait_for_end()


def test_file_that_was_not_checked_before_the_run_is_named(harness: SessionHarness, tmp_path: Path) -> None:
    """Only the first 16 MB of a trace are checked before a run; the others are read when they are played."""
    request = {"t": 0, "type": "s", "in": 64, "out": 2}
    whole = {"id": "a", "requests": [request], "notes": "x" * (17 << 20)}
    (trace := tmp_path / "trace").mkdir()
    (trace / "a.json").write_text(json.dumps(whole))
    (trace / "b.json").write_text('{"id": "b",\n"requests": [\n{"t": nonsense}]}')
    plan = Plan(load=Sessions(levels=(1,), sessions=2, warmup=0), seed=1)
    ended = harness.start(FAST, plan, workload=str(trace)).wait_for_end()
    assert (ended.ending, ended.fault) == ("failed", False)
    assert f"{trace / 'b.json'}:3: not valid JSON" in ended.message
