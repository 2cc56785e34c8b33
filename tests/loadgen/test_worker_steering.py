"""Streams that come and go while the worker runs: more, fewer, none, cancelled; and conversations through all of it."""

from __future__ import annotations

from swarmtui.model.worker_protocol import Drop, WatchAgent
from tests.loadgen.driver import DrivenWorker, task
from tests.loadgen.scripted_server import DONE, ROLE, Call, Gate, ScriptedServer, delta, usage


def test_raising_adds_streams() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(6))
        worker.streams(1)
        worker.frame(lambda frame: frame.in_flight == 1)
        worker.streams(3, number=2)
        frame = worker.frame(lambda frame: frame.in_flight == 3)
        assert frame.queued == 3
        gate.open.set()
        records = worker.records(6)
    assert gate.most == 3
    assert {record.agent for record in records} == {0, 1, 2}
    assert {record.stage for record in records} == {1, 2}


def test_lowering_lets_streams_finish() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(6))
        worker.streams(3)
        worker.frame(lambda frame: frame.in_flight == 3)
        worker.streams(1, number=2)
        worker.frame(lambda frame: frame.agents == 1 and frame.in_flight == 3)
        gate.open.set()
        records = worker.records(6)
    assert [record.error for record in records] == [None] * 6
    assert {record.agent for record in records if record.stage == 2} == {0}
    assert [record.c for record in records if record.stage == 2] == [1, 1, 1]


def test_lowering_with_cancel_ends_the_streams_above() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(3))
        worker.streams(3)
        worker.frame(lambda frame: frame.in_flight == 3 and not frame.waiting)
        worker.streams(1, number=2, cancel=True)
        cancelled = worker.records(2)
        gate.open.set()
        (last,) = worker.records(1)
    assert [(record.error, record.text) for record in cancelled] == [("cancelled", "a")] * 2
    assert {record.agent for record in cancelled} == {1, 2}
    assert (last.error, last.agent) == (None, 0)


def test_pause_and_resume() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(4))
        worker.streams(2)
        worker.frame(lambda frame: frame.in_flight == 2)
        worker.streams(0)
        gate.open.set()
        assert [record.error for record in worker.records(2)] == [None] * 2
        for _ in range(2):
            frame = worker.frame(lambda frame: True)
        assert (frame.in_flight, frame.queued) == (0, 2)
        assert len(server.seen) == 2
        worker.streams(2)
        assert [record.error for record in worker.records(2)] == [None] * 2


def test_drop_forgets_the_queue_and_with_cancel_also_what_is_in_flight() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(5))
        worker.streams(2)
        worker.frame(lambda frame: frame.in_flight == 2)
        worker.say(Drop())
        frame = worker.frame(lambda frame: frame.drops == 1)
        assert (frame.in_flight, frame.queued) == (2, 0)
        worker.say(Drop(cancel=True))
        assert [record.error for record in worker.records(2)] == ["cancelled"] * 2
        worker.frame(lambda frame: frame.drops == 2 and not frame.in_flight)
    assert len(server.seen) == 2


def test_two_workers_have_agents_of_their_own() -> None:
    numbers = []
    with ScriptedServer(Gate()) as server:
        for worker_number in (0, 1):
            with DrivenWorker(server.url, worker=worker_number, workers=2) as worker:
                worker.enqueue(task(n) for n in range(3))
                worker.streams(3)
                frame = worker.frame(lambda frame: len(frame.rows) == 3)
                worker.streams(2, number=2, cancel=True)
                (cancelled,) = worker.records(1)
                numbers.append((sorted(row.agent for row in frame.rows), cancelled.agent))
    assert numbers == [([0, 2, 4], 4), ([1, 3, 5], 5)]


def test_the_text_and_the_stamps_of_a_stream_can_be_watched() -> None:
    """Each chunk is told once; who looks anew is told everything once more, and of nobody nothing is told."""
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.say(WatchAgent(0))
        worker.enqueue([task(0)])
        worker.streams(1)
        for _ in range(2):
            first = worker.frame(lambda frame: bool(frame.watched and frame.watched.text)).watched
            assert first is not None and first.text == "a" and len(first.times) == 1
            again = worker.frame(lambda frame: True).watched
            assert again is not None and again.text == "" and again.times == ()
            worker.say(WatchAgent(None))
            assert worker.frame(lambda frame: frame.watched is None).watched is None
            worker.say(WatchAgent(0))
        gate.open.set()
        (record,) = worker.records(1)
    assert first is not None
    assert (first.task, first.t_sched_ns, first.t_sent_ns) == (record.task, record.t_sched_ns, record.t_sent_ns)
    assert (first.t_headers_ns, first.times[0]) == (record.t_headers_ns, record.t_first_ns)


# conversations


def _counting(call: Call) -> None:
    said = sum(message["role"] == "assistant" for message in call.body["messages"])
    call.stream(ROLE, delta(reasoning_content="hm"), delta(content=f"answer {said}"), delta("stop"), usage(3), DONE)


def test_a_conversation_gets_the_models_own_answers_back() -> None:
    with ScriptedServer(_counting) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(7, "one", followups=("two", "three"))])
        worker.streams(1)
        records = worker.records(3)
    assert [(record.task, record.turn, record.error) for record in records] == [
        (7, 0, None),
        (7, 1, None),
        (7, 2, None),
    ]
    assert [(message["role"], message["content"]) for message in server.seen[2].body["messages"]] == [
        ("user", "one"),
        ("assistant", "answer 0"),
        ("user", "two"),
        ("assistant", "answer 1"),
        ("user", "three"),
    ]


def test_a_conversation_ends_with_its_first_failure() -> None:
    def answer(call: Call) -> None:
        if len(call.body["messages"]) > 1:
            call.whole("500 No", "broken", "text/plain")
        else:
            _counting(call)

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(0, "one", followups=("two", "three")), task(1, "next")])
        worker.streams(1)
        records = worker.records(3)
    assert [(record.task, record.turn, record.error) for record in records] == [
        (0, 0, None),
        (0, 1, "http_500"),
        (1, 0, None),
    ]


def test_a_later_turn_belongs_to_the_stretch_in_which_it_is_sent() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(0, "one", followups=("two",))])
        worker.streams(1, number=1)
        worker.frame(lambda frame: frame.in_flight == 1)
        worker.streams(2, number=2)
        worker.frame(lambda frame: frame.agents == 2)
        gate.open.set()
        records = worker.records(2)
    assert [(record.turn, record.stage, record.c) for record in records] == [(0, 1, 1), (1, 2, 2)]
