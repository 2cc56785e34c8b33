"""Commands that clients send to a running session."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

from swarmtui.model import client_protocol
from swarmtui.model.load import Barrier, Closed, Load
from swarmtui.model.plan import Plan
from swarmtui.session_process.steering import Goal, Steering
from swarmtui.sessions.journal import read_journal
from swarmtui.sessions.store import load_session, summarise
from tests.cli.programs import TIMEOUT_S, send_signal, wait_until
from tests.cli.scripted_server import ReceivedRequest, ScriptedHandler, respond_with_words, scripted_server
from tests.model.loads import LOADS
from tests.session_process.harness import SessionHarness, plan, ramp

SLOW = respond_with_words(5, gap_s=0.01)
ENDLESS = respond_with_words(100_000, gap_s=0.02)


GOALS = (client_protocol.SetConcurrency(3), client_protocol.Sweep((1, 2)), client_protocol.FindCliff())


def test_second_stop_sets_stop_now() -> None:
    steering = Steering(Plan())
    steering.stop(grace_s=5.0)
    assert (steering.state(), steering.grace_s, steering.stop_now.is_set()) == ("stop", 5.0, False)
    steering.stop(grace_s=9.0)
    assert (steering.state(), steering.grace_s, steering.stop_now.is_set()) == ("stop", 5.0, True)


def test_stop_without_grace_sets_stop_now() -> None:
    steering = Steering(Plan())
    steering.stop(grace_s=0.0)
    assert steering.stop_now.is_set()


def test_command_before_the_first_answer_ends_the_warm_up(harness: SessionHarness) -> None:
    """Workers on other hosts start slowly, so that users press keys before."""
    warmed_up = threading.Event()

    def answer_later(to: ScriptedHandler, request: ReceivedRequest) -> None:
        warmed_up.wait(TIMEOUT_S)
        SLOW(to, request)

    with scripted_server(answer_later) as server:
        session_client = harness.start(server.url, Plan(goal="manual", load=Closed(levels=(1,), warmup=1)))
        session_client.wait_for_frame(lambda frame: frame.status == "warming up" and frame.in_flight == 1)
        session_client.send(client_protocol.SetConcurrency(3))
        session_client.wait_for_frame(lambda frame: frame.status == "running" and frame.c == 3)
        warmed_up.set()
        session_client.wait_for_frame(lambda frame: frame.done > 2)
        session_client.send(client_protocol.Stop(grace_s=0.0))
        assert session_client.wait_for_end().ending == "done"


@pytest.mark.parametrize("load", [load for load in LOADS if load.fixed], ids=lambda load: load.name)
@pytest.mark.parametrize("goal", GOALS)
def test_fixed_load_mode_keeps_its_goal(load: Load, goal: Goal) -> None:
    steering = Steering(Plan(load=load))
    before = steering.goal
    assert not steering.set_goal(goal)
    assert (steering.goal, steering.state()) == (before, "run")
    seen = []
    for command in (steering.pause, steering.end_pause, steering.end_run, lambda: steering.stop(5.0)):
        command()
        seen.append(steering.state())
    assert seen == ["pause", "run", "next", "stop"]


@pytest.mark.parametrize("load", [load for load in LOADS if not load.fixed], ids=lambda load: load.name)
@pytest.mark.parametrize("goal", GOALS)
def test_other_load_modes_accept_a_new_goal_until_they_stop(load: Load, goal: Goal) -> None:
    steering = Steering(Plan(load=load))
    assert steering.set_goal(goal)
    assert (steering.goal, steering.state()) == (goal, "new_goal")
    steering.stop(grace_s=5.0)
    assert not steering.set_goal(client_protocol.SetConcurrency(7))
    steering.end_run()
    steering.pause()
    assert (steering.goal, steering.state()) == (goal, "stop")


def test_manual_control_turns_a_batch_into_a_closed_loop(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, Plan(load=Barrier(levels=(4,), runs=1000, warmup=0, serial="none")))
        session_client.wait_for_frame(lambda frame: frame.run >= 2)
        session_client.send(client_protocol.SetConcurrency(2))
        session_client.wait_for_frame(lambda frame: frame.c == 2 and frame.done >= 4)
        session_client.send(client_protocol.Stop(grace_s=5.0))
        assert session_client.wait_for_end().ending == "done"
    stages = harness.journal(session_client).stages
    assert (stages[0].load, stages[0].of) == ("barrier", 4)
    assert (stages[-1].load, stages[-1].of, stages[-1].steered) == ("closed", None, True)


def test_manual_stage_becomes_level_after_enough_completions(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, ramp(2))
        session_client.wait_for_frame(lambda frame: frame.c == 2 and frame.done >= 8)
        session_client.send(client_protocol.SetConcurrency(3))
        session_client.wait_for_frame(lambda frame: frame.c == 3 and frame.done >= 12)
        session_client.send(client_protocol.SetConcurrency(20))
        session_client.wait_for_frame(lambda frame: frame.c == 20)
        session_client.send(client_protocol.SetConcurrency(1))
        session_client.wait_for_frame(lambda frame: frame.c == 1 and frame.done >= 4)
        session_client.send(client_protocol.Stop(grace_s=5.0))
        assert session_client.wait_for_end().ending == "done"
    journal = harness.journal(session_client)
    assert [stage.c for stage in journal.stages] == [2, 3, 20, 1]
    assert [end.complete for end in journal.ends] == [True, True, False, True]
    summary = summarise(load_session(harness.sandbox.sessions, "last"))
    # On a busy machine a request may end while C is 20.
    complete = [level for level in summary.levels if level.complete]
    assert [level.c for level in complete] == [1, 2, 3]
    assert all(level.ok >= 4 * level.c and level.errors == 0 for level in complete)
    assert {record.id for record in journal.records if record.ok} == {answer.id for answer in server.completed}


def test_lowering_c_lets_requests_finish(harness: SessionHarness) -> None:
    with scripted_server(respond_with_words(30, gap_s=0.02)) as server:
        session_client = harness.start(server.url, ramp(4))
        session_client.wait_for_frame(lambda frame: frame.in_flight == 4)
        session_client.send(client_protocol.SetConcurrency(1))
        session_client.wait_for_frame(lambda frame: frame.c == 1 and frame.in_flight == 1 and frame.finished >= 4)
        session_client.send(client_protocol.Stop(grace_s=10.0))
        session_client.wait_for_end()
    assert all(record.ok for record in harness.journal(session_client).records)


def test_lowering_c_with_cancel_aborts_requests(harness: SessionHarness) -> None:
    with scripted_server(ENDLESS) as server:
        session_client = harness.start(server.url, ramp(4))
        session_client.wait_for_frame(lambda frame: frame.in_flight == 4)
        session_client.send(client_protocol.SetConcurrency(1, cancel=True))
        session_client.wait_for_frame(lambda frame: frame.c == 1 and frame.in_flight == 1)
        session_client.send(client_protocol.Stop(grace_s=0.0))
        session_client.wait_for_end()
    assert session_client.frames[-1].errors == 0 and not server.completed


@pytest.mark.parametrize("begun", [ramp(2), plan(2, requests=100_000)], ids=["manual", "sweep"])
@pytest.mark.parametrize(
    "goal",
    [client_protocol.Sweep((1,)), client_protocol.FindCliff(1), client_protocol.FindCapacity("ttft=10s", 1)],
    ids=["sweep", "cliff", "capacity"],
)
def test_a_new_goal_ends_answers_without_a_limit(harness: SessionHarness, begun: Plan, goal: Goal) -> None:
    with scripted_server(ENDLESS) as server:
        session_client = harness.start(server.url, begun)
        session_client.wait_for_frame(lambda frame: frame.in_flight == 2)
        session_client.send(goal)
        session_client.wait_for_frame(lambda frame: frame.c == 1 and frame.in_flight == 1)
        session_client.send(client_protocol.Stop(grace_s=0.0))
        session_client.wait_for_end()
    assert session_client.frames[-1].errors == 0 and not server.completed
    journal = harness.journal(session_client)
    first = journal.stages[0].number
    ended = [record.phase for record in journal.records if record.stage == first]
    assert ended and set(ended) <= {"unfinished", "preroll"}


def test_c_is_at_least_one(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, ramp(2))
        session_client.wait_for_frame(lambda frame: frame.in_flight == 2)
        session_client.send(client_protocol.SetConcurrency(0, cancel=True))
        session_client.wait_for_frame(lambda frame: frame.c == 1 and frame.in_flight == 1)
        session_client.send(client_protocol.SetConcurrency(-3))
        session_client.wait_for_frame(lambda frame: frame.c == 1 and frame.done >= 2)
        session_client.send(client_protocol.Stop(grace_s=5.0))
        assert session_client.wait_for_end().ending == "done"


def test_manual_control_ends_a_sweep(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(1, 2, requests=100_000))
        session_client.wait_for_frame(lambda frame: frame.done >= 2)
        session_client.send(client_protocol.SetConcurrency(3))
        session_client.wait_for_frame(lambda frame: frame.c == 3 and frame.done >= 12)
        session_client.send(client_protocol.Stop(grace_s=5.0))
        session_client.wait_for_end()
    assert 3 in [level.c for level in session_client.frames[-1].levels]
    assert 2 not in [level.c for level in session_client.frames[-1].levels]


def test_paused_run_starts_again(harness: SessionHarness) -> None:
    """During a pause no request is sent, and requests from before it do not count."""
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(2, requests=20))
        session_client.wait_for_frame(lambda frame: frame.done >= 5)
        session_client.send(client_protocol.Pause())
        session_client.wait_for_frame(lambda frame: frame.status == "paused")
        received = len(server.received)
        session_client.wait_for_frames(6)
        assert len(server.received) == received == len(server.completed)
        assert session_client.frames[-1].left_s is None, "nobody knows how long the pause takes"
        session_client.send(client_protocol.Resume())
        assert session_client.wait_for_end().ending == "done"
    journal = harness.journal(session_client)
    assert [event.name for event in journal.events] == ["paused", "resumed"]
    assert [end.complete for end in journal.ends] == [False, True]
    (level,) = session_client.frames[-1].levels
    again = journal.stages[-1].number
    assert (level.n, level.runs, level.complete) == (20, 1, True)
    # The server may end the last answer, which is not measured, while it is cancelled.
    completed = {answer.id for answer in server.completed}
    assert {record.id for record in journal.records if record.ok} <= completed
    assert completed <= {record.id for record in journal.records}
    assert sum(record.stage == again and record.phase == "level" for record in journal.records) == 20


def test_search_repeats_a_level_that_was_paused(harness: SessionHarness) -> None:
    """Also if the user resumes while requests are in flight; neither the pause nor what it ended takes its time."""
    answering = threading.Event()

    def answer_later(to: ScriptedHandler, request: ReceivedRequest) -> None:
        answering.wait(TIMEOUT_S)
        SLOW(to, request)

    budget_s = 3.0
    search = Plan(
        goal="capacity", slo="ttft=10s", max_c=2, alpha=0.2, budget_s=budget_s, load=Closed(levels=(1,), warmup=0)
    )
    with scripted_server(answer_later) as server:
        session_client = harness.start(server.url, search)
        begun = session_client.wait_for_frame(lambda frame: frame.waiting == 1 and frame.left_bound == "at_most")
        session_client.send(client_protocol.Pause())
        session_client.wait_for_frame(lambda frame: frame.status == "pausing" and frame.left_s is None)
        session_client.wait_for_frame(lambda frame: frame.elapsed_s > begun.elapsed_s + budget_s)
        session_client.send(client_protocol.Resume())
        session_client.wait_for_frame(lambda frame: frame.status == "draining")
        answering.set()
        assert session_client.wait_for_end().ending == "done"
    journal = harness.journal(session_client)
    first, again = journal.stages[:2]
    assert (first.c, first.run) == (again.c, again.run) == (1, 1)
    assert [end.complete for end in journal.ends[:2]] == [False, True]
    assert sum(record.stage == again.number and record.ok for record in journal.records) >= 4
    capacity = summarise(load_session(harness.sandbox.sessions, "last")).capacity
    assert capacity is not None and capacity.agents == 2


def test_next_level_during_a_pause_ends_only_the_paused_one(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(1, 2, requests=12))
        session_client.wait_for_frame(lambda frame: frame.done >= 2)
        session_client.send(client_protocol.Pause())
        session_client.wait_for_frame(lambda frame: frame.status == "paused")
        session_client.send(client_protocol.NextLevel())
        assert session_client.wait_for_end().ending == "done"
    assert [(level.c, level.complete) for level in session_client.frames[-1].levels] == [(1, False), (2, True)]


def test_manual_stage_continues_after_a_pause(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, ramp(2))
        session_client.wait_for_frame(lambda frame: frame.done >= 2)
        session_client.send(client_protocol.Pause())
        session_client.wait_for_frame(lambda frame: frame.status == "paused" and frame.in_flight == 0)
        received = len(server.received)
        session_client.wait_for_frames(6)
        assert len(server.received) == received
        session_client.send(client_protocol.Resume())
        session_client.wait_for_frame(lambda frame: frame.status == "running" and frame.done >= 8)
        session_client.send(client_protocol.Stop(grace_s=5.0))
        assert session_client.wait_for_end().ending == "done"
    assert len(harness.journal(session_client).records) == len(server.completed)


def test_next_level_ends_the_current_one(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(1, 2, requests=100_000))
        session_client.wait_for_frame(lambda frame: frame.c == 1 and frame.done >= 5)
        session_client.send(client_protocol.NextLevel())
        session_client.wait_for_frame(lambda frame: frame.c == 2 and frame.done >= 5)
        session_client.send(client_protocol.NextLevel())
        assert session_client.wait_for_end().ending == "done"
    one, two = session_client.frames[-1].levels
    assert (one.c, one.complete, two.c, two.complete) == (1, False, 2, False)
    assert one.ok >= 5 and two.ok >= 5 and one.unfinished == two.unfinished == 0


def test_stop_waits_for_its_grace_period(harness: SessionHarness) -> None:
    with scripted_server(respond_with_words(30, gap_s=0.02)) as server:
        session_client = harness.start(server.url, plan(2, requests=100_000))
        session_client.wait_for_frame(lambda frame: frame.in_flight == 2)
        session_client.send(client_protocol.Stop(grace_s=20.0))
        assert session_client.wait_for_end().ending == "stopped"
    assert [record.error for record in harness.journal(session_client).records] == [None, None]
    assert len(server.completed) == 2


def test_stop_without_grace_cancels(harness: SessionHarness) -> None:
    with scripted_server(ENDLESS) as server:
        session_client = harness.start(server.url, plan(2, requests=100_000))
        session_client.wait_for_frame(lambda frame: frame.in_flight == 2)
        session_client.send(client_protocol.Stop(grace_s=0.0))
        assert session_client.wait_for_end().ending == "stopped"
    assert session_client.frames[-1].errors == 0


def test_stop_before_the_first_request(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(1, requests=100_000))
        session_client.send(client_protocol.Stop(grace_s=0.0))
        assert session_client.wait_for_end().ending == "stopped"


# Imported by every Python process: a session process hangs when it opens a file, and a marker shows that it does.
HANGING = """
import os, sys, time
left = {opened}

def hang(event, args):
    global left
    if event == "open" and str(args[0]).endswith({name!r}) and "swarmtui.session_process" in sys.orig_argv:
        left -= 1
        while left <= 0:
            os.makedirs({marker!r}, exist_ok=True)
            time.sleep(0.1)

sys.addaudithook(hang)
"""


@pytest.mark.parametrize("by_signal", [False, True])
@pytest.mark.parametrize(("name", "opened"), [("work.toml", 1), ("prompts.jsonl", 2), ("journal.jsonl", 1)])
def test_stop_is_obeyed_while_a_file_cannot_be_opened(
    harness: SessionHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, opened: int, by_signal: bool
) -> None:
    """As on a network file system that has gone away. The prompts are read for their digest, then for the requests."""
    work, marker = tmp_path / "work.toml", tmp_path / "hangs"
    work.write_text('kind = "jsonl"\nname = "work"\nfile = "prompts.jsonl"\n')
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"prompt": "hello", "max_tokens": 5}))
    (tmp_path / "sitecustomize.py").write_text(HANGING.format(name=name, opened=opened, marker=str(marker)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{harness.sandbox.environment['PYTHONPATH']}")
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(1), workload=str(work))
        wait_until(marker.exists, "the file is being opened")
        if by_signal:
            (process,) = harness.sandbox.processes("swarmtui.session_process")
            send_signal(process.pid, signal.SIGTERM)
        else:
            session_client.send(client_protocol.Stop(grace_s=0.0))
        ended = session_client.wait_for_end()
    assert (ended.ending, ended.message) == ("stopped", "stopped before the first request")
    wait_until(lambda: not harness.sandbox.processes("swarmtui.session_process"), "the process has ended")


def test_session_that_is_moved_twice_is_where_it_was_moved_last(harness: SessionHarness, tmp_path: Path) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(1, requests=100_000))
        session_client.wait_for_frame(lambda frame: frame.finished > 4)
        name = Path(session_client.wait_for_hello().directory).name
        for root in ("first", "second"):
            session_client.send(client_protocol.SaveTo(str(tmp_path / root)))
        session_client.send(client_protocol.Stop(grace_s=0.0))
        while not isinstance(ended := session_client.client.receive(TIMEOUT_S), client_protocol.Ended):
            assert ended is not None
    assert ended.directory == str(tmp_path / "second" / name)
    answered = {record.id for record in read_journal(Path(ended.directory)).records if record.ok}
    assert answered == {request.id for request in server.completed}
    assert not (tmp_path / "first" / name).exists()


def test_each_frame_holds_the_whole_watched_stream(harness: SessionHarness) -> None:
    """A client that misses frames still has the text, timestamps, gaps and earlier answers."""
    with scripted_server(respond_with_words(40, gap_s=0.02, text="token")) as server:
        session_client = harness.start(server.url, ramp(2), client_protocol.Subscribe(hz=20.0, rows=True))
        session_client.wait_for_frame(lambda frame: frame.in_flight == 2)
        session_client.send(client_protocol.WatchStream(1))
        session_client.wait_for_frame(lambda frame: frame.watched is not None and frame.watched.text.count("token") > 9)
        watched = session_client.frames[-1].watched
        assert watched is not None and watched.agent == 1
        assert watched.chunks == watched.text.count("token") == watched.gaps_s.n + 1
        assert None not in (watched.t_sched_ns, watched.t_sent_ns, watched.t_headers_ns)
        assert (watched.t_sent_ns or 0) < (watched.t_first_ns or 0) < (watched.t_last_ns or 0)
        assert watched.recent_gaps_s and max(watched.recent_gaps_s) == watched.gaps_s.max
        session_client.wait_for_frame(lambda frame: frame.watched is not None and bool(frame.watched.before))
        before = session_client.frames[-1].watched
        assert before is not None and before.before[0].task == watched.task
        assert before.before[0].ttft_s is not None and before.before[0].preview == ""
        session_client.send(client_protocol.WatchStream(None))
        session_client.wait_for_frame(lambda frame: frame.watched is None)
        session_client.send(client_protocol.Stop(grace_s=0.0))
        session_client.wait_for_end()


@pytest.mark.parametrize("previews", [True, False])
def test_texts_are_sent_unless_previews_were_declined(harness: SessionHarness, previews: bool) -> None:
    with scripted_server(respond_with_words(40, gap_s=0.02, text="token")) as server:
        subscription = client_protocol.Subscribe(hz=20.0, rows=True)
        session_client = harness.start(server.url, ramp(2), subscription, previews=previews)
        session_client.send(client_protocol.WatchTails((1,)))
        if previews:
            (tail,) = session_client.wait_for_frame(lambda frame: any(tail.text for tail in frame.tails)).tails
            assert tail.agent == 1 and tail.length == len(tail.text) and tail.text.startswith("token")
        else:
            session_client.wait_for_frame(lambda frame: frame.finished > 4)
            assert not any(frame.tails for frame in session_client.frames)
        session_client.send(client_protocol.Stop(grace_s=0.0))
        session_client.wait_for_end()


def test_new_label_is_saved(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(1, requests=30), label="old")
        session_client.wait_for_frame(lambda frame: frame.done >= 1)
        session_client.send(client_protocol.Describe("new", "with a note"))
        session_client.wait_for_end()
    session = summarise(load_session(harness.sandbox.sessions, "last")).session
    assert (session.label, session.note) == ("new", "with a note")
