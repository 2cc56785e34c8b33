"""What people command while a session runs."""

from __future__ import annotations

import time

from swarmtui.model import client_protocol as said
from swarmtui.sessions.store import load, summarise
from tests.cli.scripted import scripted, words
from tests.session_process.watching import Stage, plan, ramp

SLOW = words(5, gap_s=0.01)
ENDLESS = words(100_000, gap_s=0.02)


def test_each_stretch_with_enough_completions_becomes_a_level(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, ramp(2))
        face.until(lambda frame: frame.c == 2 and frame.done >= 8)
        face.say(said.SetConcurrency(3))
        face.until(lambda frame: frame.c == 3 and frame.done >= 12)
        face.say(said.SetConcurrency(20))
        face.until(lambda frame: frame.c == 20)
        face.say(said.SetConcurrency(1))
        face.until(lambda frame: frame.c == 1 and frame.done >= 4)
        face.say(said.Stop(grace_s=5.0))
        assert face.to_the_end().ending == "done"
    journal = stage.journal(face)
    assert [stretch.c for stretch in journal.stretches] == [2, 3, 20, 1]
    assert [end.complete for end in journal.ends] == [True, True, False, True]
    summary = summarise(load(stage.place.sessions, "last"))
    assert [level.c for level in summary.levels] == [1, 2, 3]
    for level in summary.levels:
        assert level.complete and level.ok >= 4 * level.c and level.errors == 0
    assert {record.id for record in journal.records if record.ok} == {answer.id for answer in server.completed}


def test_lowering_c_lets_streams_finish(stage: Stage) -> None:
    with scripted(words(30, gap_s=0.02)) as server:
        face = stage.start(server.url, ramp(4))
        face.until(lambda frame: frame.in_flight == 4)
        face.say(said.SetConcurrency(1))
        face.until(lambda frame: frame.c == 1 and frame.in_flight == 1 and frame.finished >= 4)
        face.say(said.Stop(grace_s=10.0))
        face.to_the_end()
    assert all(record.ok for record in stage.journal(face).records)


def test_lowering_c_with_cancel_does_not_wait(stage: Stage) -> None:
    with scripted(ENDLESS) as server:
        face = stage.start(server.url, ramp(4))
        face.until(lambda frame: frame.in_flight == 4)
        face.say(said.SetConcurrency(1, cancel=True))
        face.until(lambda frame: frame.c == 1 and frame.in_flight == 1)
        face.say(said.Stop(grace_s=0.0))
        face.to_the_end()
    assert face.frames[-1].errors == 0 and not server.completed


def test_c_below_one_is_one(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, ramp(2))
        face.until(lambda frame: frame.in_flight == 2)
        face.say(said.SetConcurrency(0, cancel=True))
        face.until(lambda frame: frame.c == 1 and frame.in_flight == 1)
        face.say(said.SetConcurrency(-3))
        face.until(lambda frame: frame.c == 1 and frame.done >= 2)
        face.say(said.Stop(grace_s=5.0))
        assert face.to_the_end().ending == "done"


def test_taking_the_wheel_ends_a_sweep(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, plan(1, 2, requests=100_000))
        face.until(lambda frame: frame.done >= 2)
        face.say(said.SetConcurrency(3))
        face.until(lambda frame: frame.c == 3 and frame.done >= 12)
        face.say(said.Stop(grace_s=5.0))
        face.to_the_end()
    assert 3 in [level.c for level in face.frames[-1].levels]
    assert 2 not in [level.c for level in face.frames[-1].levels]


def test_a_paused_run_is_begun_again(stage: Stage) -> None:
    """No request goes out in a pause, and none from before it is in the figures."""
    with scripted(SLOW) as server:
        face = stage.start(server.url, plan(2, requests=20))
        face.until(lambda frame: frame.done >= 5)
        face.say(said.Pause())
        face.until(lambda frame: frame.status == "paused")
        asked = len(server.asked)
        time.sleep(0.3)
        assert len(server.asked) == asked == len(server.completed)
        face.say(said.Resume())
        assert face.to_the_end().ending == "done"
    journal = stage.journal(face)
    assert [event.name for event in journal.events] == ["paused", "resumed"]
    assert [end.complete for end in journal.ends] == [False, True]
    (level,) = face.frames[-1].levels
    again = journal.stretches[-1].number
    assert (level.n, level.runs, level.complete) == (20, 1, True)
    assert len(journal.records) == asked + 20 == len(server.completed)
    assert sum(record.stretch == again for record in journal.records) == 20


def test_a_pause_on_a_ramp_and_on_again(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, ramp(2))
        face.until(lambda frame: frame.done >= 2)
        face.say(said.Pause())
        face.until(lambda frame: frame.status == "paused" and frame.in_flight == 0)
        asked = len(server.asked)
        time.sleep(0.2)
        assert len(server.asked) == asked
        face.say(said.Resume())
        face.until(lambda frame: frame.status == "running" and frame.done >= 8)
        face.say(said.Stop(grace_s=5.0))
        assert face.to_the_end().ending == "done"
    assert len(stage.journal(face).records) == len(server.completed)


def test_the_next_level_does_not_wait_for_the_rest_of_this_one(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, plan(1, 2, requests=100_000))
        face.until(lambda frame: frame.c == 1 and frame.done >= 5)
        face.say(said.NextLevel())
        face.until(lambda frame: frame.c == 2 and frame.done >= 5)
        face.say(said.NextLevel())
        assert face.to_the_end().ending == "done"
    one, two = face.frames[-1].levels
    assert (one.c, one.complete, two.c, two.complete) == (1, False, 2, False)
    assert one.ok >= 5 and two.ok >= 5 and one.cancelled == two.cancelled == 0


def test_stop_waits_for_its_grace(stage: Stage) -> None:
    with scripted(words(30, gap_s=0.02)) as server:
        face = stage.start(server.url, plan(2, requests=100_000))
        face.until(lambda frame: frame.in_flight == 2)
        face.say(said.Stop(grace_s=20.0))
        assert face.to_the_end().ending == "stopped"
    assert [record.error for record in stage.journal(face).records] == [None, None]
    assert len(server.completed) == 2


def test_stop_without_grace_cancels(stage: Stage) -> None:
    with scripted(ENDLESS) as server:
        face = stage.start(server.url, plan(2, requests=100_000))
        face.until(lambda frame: frame.in_flight == 2)
        face.say(said.Stop(grace_s=0.0))
        assert face.to_the_end().ending == "stopped"
    assert face.frames[-1].errors == 0


def test_stop_before_anything_began(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, plan(1, requests=100_000))
        face.say(said.Stop(grace_s=0.0))
        assert face.to_the_end().ending == "stopped"


def test_a_watched_stream_comes_whole_with_every_frame(stage: Stage) -> None:
    """Two faces may look at it, and one that was late misses nothing: text, stamps, gaps, and the answers before."""
    with scripted(words(40, gap_s=0.02, text="look")) as server:
        face = stage.start(server.url, ramp(2), said.Subscribe(hz=20.0, rows=True))
        face.until(lambda frame: frame.in_flight == 2)
        face.say(said.WatchStream(1))
        face.until(lambda frame: frame.watched is not None and frame.watched.text.count("look") > 9)
        seen = face.frames[-1].watched
        assert seen is not None and seen.agent == 1
        assert seen.chunks == seen.text.count("look") == seen.gaps_s.n + 1
        assert None not in (seen.t_sched_ns, seen.t_sent_ns, seen.t_headers_ns)
        assert (seen.t_sent_ns or 0) < (seen.t_first_ns or 0) < (seen.t_last_ns or 0)
        assert seen.recent_gaps_s and max(seen.recent_gaps_s) == seen.gaps_s.max
        face.until(lambda frame: frame.watched is not None and bool(frame.watched.before))
        before = face.frames[-1].watched
        assert before is not None and before.before[0].task == seen.task
        assert before.before[0].ttft_s is not None and before.before[0].preview == ""
        face.say(said.WatchStream(None))
        face.until(lambda frame: frame.watched is None)
        face.say(said.Stop(grace_s=0.0))
        face.to_the_end()


def test_a_new_label_is_kept(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, plan(1, requests=30), label="old")
        face.until(lambda frame: frame.done >= 1)
        face.say(said.Describe("new", "with a note"))
        face.to_the_end()
    session = summarise(load(stage.place.sessions, "last")).session
    assert (session.label, session.note) == ("new", "with a note")
