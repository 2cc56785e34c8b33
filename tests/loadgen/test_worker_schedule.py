"""Tasks with a time of their own."""

from __future__ import annotations

import time

from swarmtui.model.worker_protocol import Drop
from tests.loadgen.driver import DrivenWorker, task
from tests.loadgen.scripted_server import Call, ScriptedServer, hello

MS = 1_000_000


def test_tasks_are_sent_when_they_are_due() -> None:
    with ScriptedServer(hello) as server, DrivenWorker(server.url) as worker:
        worker.streams(8)
        worker.enqueue(task(n, at_ns=(100 + 30 * n) * MS) for n in (3, 1, 2, 0))
        records = sorted(worker.records(4), key=lambda record: record.task)
    due = [record.t_sched_ns or 0 for record in records]
    assert [after - due[0] for after in due] == [0, 30 * MS, 60 * MS, 90 * MS]
    for record in records:
        assert record.t_sent_ns is not None and record.t_sched_ns is not None
        assert record.t_sent_ns >= record.t_sched_ns


def test_a_task_that_finds_no_stream_keeps_its_time() -> None:
    """One stream, answers of 100 ms, all due at once: the last was due as early as the first."""

    def slow(call: Call) -> None:
        time.sleep(0.1)
        hello(call)

    with ScriptedServer(slow) as server, DrivenWorker(server.url) as worker:
        worker.streams(1)
        worker.enqueue(task(n, at_ns=50 * MS) for n in range(3))
        records = worker.records(3)
    due = {record.t_sched_ns for record in records}
    waited = sorted((r.t_sent_ns or 0) - (r.t_sched_ns or 0) for r in records)
    assert len(due) == 1
    assert waited[1] >= 95 * MS and waited[2] >= 190 * MS


def test_what_is_dropped_is_never_sent() -> None:
    with ScriptedServer(hello) as server, DrivenWorker(server.url) as worker:
        worker.streams(2)
        worker.enqueue([task(1, at_ns=200 * MS), task(2, at_ns=250 * MS)])
        worker.frame(lambda frame: frame.queued == 2)
        worker.say(Drop())
        worker.frame(lambda frame: frame.drops == 1 and frame.queued == 0)
        worker.enqueue([task(3, at_ns=500 * MS)])
        (record,) = worker.records(1)
    assert record.task == 3


def test_text_comes_along_where_a_task_wants_it() -> None:
    with ScriptedServer(hello) as server, DrivenWorker(server.url, keep_text=False) as worker:
        plain, wanted = worker.run([task(1), task(2, with_text=True)])
    assert plain.text is None and wanted.text
