"""Changing the number of streams while a worker runs, watching a stream, and conversations."""

from __future__ import annotations

import time

from swarmtui.model.record import CANCELLED
from swarmtui.model.worker_protocol import Drop, SendTails, TakeBack, TextTail, WatchAgent
from swarmtui.model.workload import ToolCall, ToolExchange
from tests.loadgen.driver import DrivenWorker, task
from tests.loadgen.raw_server import DONE, ROLE, Gate, RawCall, RawServer, delta, hello, usage


def test_raising_adds_streams() -> None:
    gate = Gate()
    with RawServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(6))
        worker.start_stage(1)
        worker.wait_for_frame(lambda frame: frame.in_flight == 1)
        worker.start_stage(3, number=2)
        frame = worker.wait_for_frame(lambda frame: frame.in_flight == 3 and not frame.waiting)
        assert frame.queued == 3
        gate.released.set()
        records = worker.records(6)
    assert gate.max_in_flight == 3
    assert {record.agent for record in records} == {0, 1, 2}
    assert {record.stage for record in records} == {1, 2}


def test_lowering_lets_streams_finish() -> None:
    gate = Gate()
    with RawServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(6))
        worker.start_stage(3)
        worker.wait_for_frame(lambda frame: frame.in_flight == 3)
        worker.start_stage(1, number=2)
        worker.wait_for_frame(lambda frame: frame.agents == 1 and frame.in_flight == 3)
        gate.released.set()
        records = worker.records(6)
    assert [record.error for record in records] == [None] * 6
    assert {record.agent for record in records if record.stage == 2} == {0}
    assert [record.c for record in records if record.stage == 2] == [1, 1, 1]


def test_lowering_with_cancel_ends_excess_streams() -> None:
    gate = Gate()
    with RawServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(3))
        worker.start_stage(3)
        worker.wait_for_frame(lambda frame: frame.in_flight == 3 and not frame.waiting)
        worker.start_stage(1, number=2, cancel=True)
        cancelled = worker.records(2)
        gate.released.set()
        (last,) = worker.records(1)
    assert [(record.error, record.text) for record in cancelled] == [("cancelled", "a")] * 2
    assert {record.agent for record in cancelled} == {1, 2}
    assert (last.error, last.agent) == (None, 0)


def test_pause_and_resume() -> None:
    gate = Gate()
    with RawServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(4))
        worker.start_stage(2)
        worker.wait_for_frame(lambda frame: frame.in_flight == 2)
        worker.start_stage(0)
        gate.released.set()
        assert [record.error for record in worker.records(2)] == [None] * 2
        for _ in range(2):
            frame = worker.wait_for_frame(lambda frame: True)
        assert (frame.in_flight, frame.queued) == (0, 2)
        assert len(server.calls) == 2
        worker.start_stage(2)
        assert [record.error for record in worker.records(2)] == [None] * 2


def test_drop_clears_queue_and_with_cancel_ends_requests() -> None:
    gate = Gate()
    with RawServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(5))
        worker.start_stage(2)
        worker.wait_for_frame(lambda frame: frame.in_flight == 2)
        worker.send(Drop())
        frame = worker.wait_for_frame(lambda frame: frame.drops == 1)
        assert (frame.in_flight, frame.queued) == (2, 0)
        worker.send(Drop(cancel=True))
        assert [record.error for record in worker.records(2)] == ["cancelled"] * 2
        worker.wait_for_frame(lambda frame: frame.drops == 2 and not frame.in_flight)
    assert len(server.calls) == 2


def test_tasks_that_were_not_started_are_returned() -> None:
    gate, minute = Gate(), time.perf_counter_ns() + 60_000_000_000
    with RawServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([*(task(n) for n in range(4)), task(4, at_ns=minute), task(5, at_ns=minute)])
        worker.start_stage(2)
        worker.wait_for_frame(lambda frame: frame.in_flight == 2)
        worker.send(TakeBack(3), TakeBack(3), Drop())
        assert [worker.returned() for _ in range(3)] == [(3, 4, 5), (2,), ()]
        gate.released.set()
        assert sorted(record.task for record in worker.records(2)) == [0, 1]


def test_agents_are_numbered_across_workers() -> None:
    numbers = []
    with RawServer(Gate()) as server:
        for worker_number in (0, 1):
            with DrivenWorker(server.url, worker=worker_number, workers=2) as worker:
                worker.enqueue(task(n) for n in range(3))
                worker.start_stage(3)
                frame = worker.wait_for_frame(lambda frame: len(frame.rows) == 3)
                worker.start_stage(2, number=2, cancel=True)
                (cancelled,) = worker.records(1)
                numbers.append((sorted(row.agent for row in frame.rows), cancelled.agent, cancelled.error))
    assert numbers == [([0, 2, 4], 4, CANCELLED), ([1, 3, 5], 5, CANCELLED)]


def test_task_goes_to_the_endpoint_with_fewest_requests_in_flight() -> None:
    gate = Gate()
    with RawServer(gate) as held, RawServer(hello) as free, DrivenWorker(held.url, free.url) as worker:
        worker.enqueue(task(n) for n in range(6))
        worker.start_stage(2)
        records = worker.records(5)
        gate.released.set()
        records += worker.records(1)
    assert [record.endpoint for record in records] == [1, 1, 1, 1, 1, 0]


def test_idle_endpoints_take_turns() -> None:
    with RawServer(hello) as one, RawServer(hello) as other, DrivenWorker(one.url, other.url) as worker:
        records = worker.run(task(n) for n in range(4))
    assert [record.endpoint for record in records] == [0, 1, 0, 1]


def test_watching_a_stream() -> None:
    """Each chunk is reported once; a new watch starts from the beginning."""
    gate = Gate()
    with RawServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.send(WatchAgent(0))
        worker.enqueue([task(0)])
        worker.start_stage(1)
        for _ in range(2):
            first = worker.wait_for_frame(lambda frame: bool(frame.watched and frame.watched.text)).watched
            assert first is not None and first.text == "a" and len(first.times) == 1
            again = worker.wait_for_frame(lambda frame: True).watched
            assert again is not None and again.text == "" and again.times == ()
            worker.send(WatchAgent(None))
            assert worker.wait_for_frame(lambda frame: frame.watched is None).watched is None
            worker.send(WatchAgent(0))
        gate.released.set()
        (record,) = worker.records(1)
    assert first is not None
    assert (first.task, first.t_sched_ns, first.t_sent_ns) == (record.task, record.t_sched_ns, record.t_sent_ns)
    assert (first.t_headers_ns, first.times[0]) == (record.t_headers_ns, record.t_first_ns)


def test_tails_of_texts_are_sent_on_request_and_when_they_change() -> None:
    gate = Gate()
    with RawServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(0)])
        worker.start_stage(1)
        assert worker.wait_for_frame(lambda frame: bool(frame.rows and frame.rows[0].total)).tails == ()
        for _ in range(2):
            worker.send(SendTails((0, 7)))
            assert worker.wait_for_frame(lambda frame: bool(frame.tails)).tails == (TextTail(0, 1, "a"),)
        assert [worker.wait_for_frame(lambda frame: True).tails for _ in range(4)] == [()] * 4
        gate.released.set()
        worker.records(1)
        assert worker.wait_for_frame(lambda frame: bool(frame.tails)).tails == (TextTail(0, 0, ""),)


# conversations


def _counting(call: RawCall) -> None:
    earlier = sum(message["role"] == "assistant" for message in call.body["messages"])
    call.stream(ROLE, delta(reasoning_content="hm"), delta(content=f"answer {earlier}"), delta("stop"), usage(3), DONE)


def test_conversation_includes_earlier_responses() -> None:
    with RawServer(_counting) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(7, "one", followups=("two", "three"))])
        worker.start_stage(1)
        records = worker.records(3)
    assert [(record.task, record.turn, record.error) for record in records] == [
        (7, 0, None),
        (7, 1, None),
        (7, 2, None),
    ]
    assert [(message["role"], message["content"]) for message in server.calls[2].body["messages"]] == [
        ("user", "one"),
        ("assistant", "answer 0"),
        ("user", "two"),
        ("assistant", "answer 1"),
        ("user", "three"),
    ]


def test_result_of_a_tool_follows_its_call() -> None:
    read = ToolExchange(call=ToolCall(id="call00001", name="read", arguments='{"path":"a"}'), result="text")
    with RawServer(_counting) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(7, "one", followups=(read, "two"))])
        worker.start_stage(1)
        records = worker.records(3)
    assert [(record.turn, record.error) for record in records] == [(0, None), (1, None), (2, None)]
    _, answer, result, *rest = server.calls[2].body["messages"]
    assert (answer["content"], answer["tool_calls"][0]["function"]["name"]) == ("answer 0", "read")
    assert result == {"role": "tool", "content": "text", "tool_call_id": "call00001"}
    assert [message["content"] for message in rest] == ["answer 1", "two"]


def test_conversation_ends_with_its_first_failure() -> None:
    def handler(call: RawCall) -> None:
        if len(call.body["messages"]) > 1:
            call.reply("500 No", "broken", "text/plain")
        else:
            _counting(call)

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(0, "one", followups=("two", "three")), task(1, "next")])
        worker.start_stage(1)
        records = worker.records(3)
    assert [(record.task, record.turn, record.error) for record in records] == [
        (0, 0, None),
        (0, 1, "http_500"),
        (1, 0, None),
    ]


def test_turn_belongs_to_the_stage_in_which_it_is_sent() -> None:
    gate = Gate()
    with RawServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(0, "one", followups=("two",))])
        worker.start_stage(1, number=1)
        worker.wait_for_frame(lambda frame: frame.in_flight == 1)
        worker.start_stage(2, number=2)
        worker.wait_for_frame(lambda frame: frame.agents == 2)
        gate.released.set()
        records = worker.records(2)
    assert [(record.turn, record.stage, record.c) for record in records] == [(0, 1, 1), (1, 2, 2)]
