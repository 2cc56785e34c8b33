"""Scheduled tasks of a worker."""

from __future__ import annotations

import time

from swarmtui.loadgen.event_loop import Callback, EventLoop
from swarmtui.loadgen.worker import Schedule
from swarmtui.model.worker_protocol import Begin, Drop, Enqueue, Ready, StartStage
from swarmtui.model.workload import Task
from tests.loadgen.driver import DrivenWorker, task
from tests.loadgen.raw_server import RawCall, RawServer, hello

MS = 1_000_000


def soon(milliseconds: int) -> int:
    return time.perf_counter_ns() + milliseconds * MS


def test_tasks_are_sent_when_they_are_due() -> None:
    with RawServer(hello) as server, DrivenWorker(server.url) as worker:
        worker.start_stage(8)
        start = soon(100)
        worker.enqueue(task(n, at_ns=start + 30 * n * MS) for n in (3, 1, 2, 0))
        records = sorted(worker.records(4), key=lambda record: record.task)
    due = [record.t_sched_ns or 0 for record in records]
    assert [after - due[0] for after in due] == [0, 30 * MS, 60 * MS, 90 * MS]
    for record in records:
        assert record.t_sent_ns is not None and record.t_sched_ns is not None
        assert record.t_sent_ns >= record.t_sched_ns


def test_scheduled_time_is_kept_while_waiting_for_an_agent() -> None:
    """One stream, responses of 100 ms, all due at the same time: all have the same scheduled time."""

    def slow(call: RawCall) -> None:
        time.sleep(0.1)
        hello(call)

    with RawServer(slow) as server, DrivenWorker(server.url) as worker:
        worker.start_stage(1)
        at_ns = soon(50)
        worker.enqueue(task(n, at_ns=at_ns) for n in range(3))
        records = worker.records(3)
    due = {record.t_sched_ns for record in records}
    waited = sorted((r.t_sent_ns or 0) - (r.t_sched_ns or 0) for r in records)
    assert len(due) == 1
    assert waited[1] >= 95 * MS and waited[2] >= 190 * MS


def test_dropped_tasks_are_not_sent() -> None:
    minute = soon(60_000)
    with RawServer(hello) as server, DrivenWorker(server.url) as worker:
        worker.start_stage(2)
        worker.enqueue([task(1, at_ns=minute), task(2, at_ns=minute)])
        worker.wait_for_frame(lambda frame: frame.queued == 2)
        worker.send(Drop())
        worker.wait_for_frame(lambda frame: frame.drops == 1 and frame.queued == 0)
        worker.enqueue([task(3, at_ns=0)])
        (record,) = worker.records(1)
    assert record.task == 3


class TimerList(EventLoop):
    """Keeps timers, to be fired by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[Callback] = []

    def call_at(self, t_ns: int, callback: Callback) -> None:
        self.timers.append(callback)


def test_timers_of_dropped_tasks_are_ignored() -> None:
    loop, released = TimerList(), list[Task]()
    schedule = Schedule(loop, released.append)
    schedule.add([task(1, at_ns=1)])
    schedule.take_last(1)
    schedule.add([task(2, at_ns=1)])
    assert schedule.pending == 1
    for fire in loop.timers:
        fire()
    assert ([task.id for task in released], schedule.pending) == ([2], 0)


def test_task_can_request_its_text() -> None:
    with RawServer(hello) as server, DrivenWorker(server.url, keep_text=False) as worker:
        without, with_text = worker.run([task(1), task(2, with_text=True)])
    assert without.text is None and with_text.text


def test_stage_on_hold_begins_at_the_common_time() -> None:
    with RawServer(hello) as server, DrivenWorker(server.url) as worker:
        worker.send(StartStage(1, 2, c=2, hold=True), Enqueue((task(0), task(1))))
        while not isinstance(worker.next_report(), Ready):
            pass
        # The connections are open, and nothing is sent.
        worker.wait_for_frame(lambda frame: frame.queued == 2)
        assert not server.calls
        at_ns = soon(50)
        worker.send(Begin(1, at_ns))
        records = worker.records(2)
    assert all(record.ok and (record.t_sent_ns or 0) >= at_ns for record in records)
