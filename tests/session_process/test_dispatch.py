"""All streams stay busy while there are tasks, however many workers share them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.model.workload import Message, Task
from swarmtui.session_process.dispatch import Dispatcher


def task(number: int) -> Task:
    return Task(id=number, messages=(Message(role="user", content="x"),))


def source(count: int) -> Callable[[], Task | None]:
    tasks = deque(task(number) for number in range(count))
    return lambda: tasks.popleft() if tasks else None


class ModelWorker:
    """Starts its tasks in order; messages reach it, and its reports the session process, when the test says so."""

    def __init__(self) -> None:
        self.streams = 0
        self.running: list[int] = []
        self.queue: deque[int] = deque()
        self.commands: deque[tuple[str, object]] = deque()
        self.reports: deque[tuple[str, object]] = deque()

    def read_command(self) -> None:
        if not self.commands:
            return
        kind, value = self.commands.popleft()
        if kind == "tasks":
            assert isinstance(value, tuple)
            self.queue.extend(task.id for task in value)
        else:
            assert isinstance(value, int)
            count = min(value, len(self.queue))
            self.reports.append(("returned", tuple(reversed([self.queue.pop() for _ in range(count)]))))
        self.start()

    def start(self) -> None:
        while self.queue and len(self.running) < self.streams:
            self.running.append(self.queue.popleft())

    def finish(self, which: int) -> None:
        if self.running:
            self.reports.append(("finished", self.running.pop(which % len(self.running))))
            self.start()


class ModelSession:
    def __init__(self, workers: int, c: int, count: int, depth: int | None) -> None:
        self.dispatcher = Dispatcher(workers)
        self.workers = [ModelWorker() for _ in range(workers)]
        for worker, streams in zip(self.workers, self.dispatcher.set_streams(c), strict=True):
            worker.streams = streams
        self._next_task, self._depth = source(count), depth
        self.finished: list[int] = []
        self.supply()

    def supply(self) -> None:
        for number, tasks in self.dispatcher.hand_out(self._next_task, self._depth).items():
            self.workers[number].commands.append(("tasks", tasks))
        for number, count in self.dispatcher.take_back().items():
            self.workers[number].commands.append(("take back", count))

    def read_report(self, number: int) -> None:
        worker = self.workers[number]
        if not worker.reports:
            return
        kind, value = worker.reports.popleft()
        if kind == "finished":
            assert isinstance(value, int)
            self.dispatcher.finished(number, value)
            self.finished.append(value)
        else:
            assert isinstance(value, tuple)
            self.dispatcher.returned(number, value)
        self.supply()

    def deliver_all(self) -> None:
        while any(worker.commands or worker.reports for worker in self.workers):
            for number, worker in enumerate(self.workers):
                worker.read_command()
                self.read_report(number)

    @property
    def running(self) -> int:
        return sum(len(worker.running) for worker in self.workers)


STEPS = st.lists(st.tuples(st.sampled_from(["finish", "command", "report"]), st.integers(0, 14), st.integers(0, 9)))


@settings(max_examples=80)
@given(st.integers(1, 15), st.integers(1, 40), st.integers(0, 160), st.sampled_from([1, 3, None]), STEPS)
def test_no_stream_is_idle_while_a_task_waits(
    workers: int, c: int, count: int, depth: int | None, steps: list[tuple[str, int, int]]
) -> None:
    session = ModelSession(workers, c, count, depth)
    for kind, number, which in steps:
        worker = session.workers[number % workers]
        if kind == "finish":
            worker.finish(which)
        elif kind == "command":
            worker.read_command()
        else:
            session.read_report(number % workers)
    while len(session.finished) < count:
        session.deliver_all()
        assert session.running == min(c, count - len(session.finished))
        # The worst order: one worker ends all its requests before another ends one.
        busiest = max(session.workers, key=lambda worker: len(worker.running))
        busiest.finish(0)
    assert sorted(session.finished) == list(range(count))
    session.deliver_all()
    assert not session.dispatcher.has_tasks


@pytest.mark.parametrize("workers", [2, 3, 15])
@pytest.mark.parametrize("count", [1000, 2000, 4000])
def test_every_stream_gets_a_task_before_any_gets_two(workers: int, count: int) -> None:
    dispatcher = Dispatcher(workers)
    streams = dispatcher.set_streams(1000)
    handed_out = dispatcher.hand_out(source(count), 3)
    held = [len(handed_out[number]) for number in range(workers)]
    assert sum(streams) == 1000 and max(streams) - min(streams) <= 1
    assert sum(held) == min(count, 3000)
    assert all(n >= count * s // 1000 or n == 3 * s for n, s in zip(held, streams, strict=True))


def test_part_of_a_reserve_is_taken_back_before_a_stream_is_idle() -> None:
    dispatcher = Dispatcher(2)
    dispatcher.set_streams(8)
    handed_out = dispatcher.hand_out(source(20), 3)
    assert dispatcher.take_back() == {}
    for done in handed_out[0][:6]:
        dispatcher.finished(0, done.id)
    assert dispatcher.take_back() == {1: 3}
    assert dispatcher.take_back() == {}  # already requested
    dispatcher.returned(1, tuple(task.id for task in handed_out[1][-3:]))
    assert dispatcher.hand_out(lambda: None, 3) == {0: handed_out[1][-3:]}


def test_worker_that_had_nothing_to_return_is_not_asked_again() -> None:
    dispatcher = Dispatcher(2)
    dispatcher.set_streams(4)
    handed_out = dispatcher.hand_out(source(8), 3)
    dispatcher.set_streams(2)  # requests in flight continue
    for done in handed_out[0]:
        dispatcher.finished(0, done.id)
    (requested,) = dispatcher.take_back().values()
    assert requested == 2
    dispatcher.returned(1, ())
    assert dispatcher.take_back() == {}


def test_dropped_tasks_are_not_handed_out_again() -> None:
    dispatcher = Dispatcher(2)
    dispatcher.set_streams(4)
    handed_out = dispatcher.hand_out(source(12), 3)
    for done in handed_out[0][:5]:
        dispatcher.finished(0, done.id)
    requested = dispatcher.take_back()
    assert requested
    dispatcher.drop()
    assert [len(tasks) for tasks in dispatcher.hand_out(source(2), 1).values()] == [1]  # one stream is free
    dispatcher.returned(1, tuple(task.id for task in handed_out[1][4:]))
    dispatcher.returned(1, tuple(task.id for task in handed_out[1][2:4]))
    dispatcher.returned(0, ())
    assert dispatcher.hand_out(lambda: None, 3) == {}
    dispatcher.forget_tasks()
    assert not dispatcher.has_tasks


def test_worker_that_got_new_tasks_is_asked_again() -> None:
    dispatcher = Dispatcher(2)
    dispatcher.set_streams(2)
    first = dispatcher.hand_out(source(6), 3)
    for done in first[0]:
        dispatcher.finished(0, done.id)
    assert dispatcher.take_back() == {1: 1}
    dispatcher.returned(1, ())  # all were started in the meantime
    for done in first[1]:
        dispatcher.finished(1, done.id)
    later = [task(number) for number in range(10, 13)]
    dispatcher.add(1, later)
    assert dispatcher.take_back() == {1: 1}


def test_worker_whose_tasks_are_requested_gets_none_while_its_streams_are_busy() -> None:
    """It returns only what it has not started, however much was requested."""
    dispatcher = Dispatcher(2)
    dispatcher.set_streams(4)
    dispatcher.add(0, [task(number) for number in range(5)])
    assert dispatcher.take_back() == {0: 2}
    for done in range(2):
        dispatcher.finished(0, done)
    assert list(dispatcher.hand_out(source(9), 1)) == [1]


def test_tasks_that_are_returned_after_they_were_forgotten_are_ignored() -> None:
    dispatcher = Dispatcher(1)
    dispatcher.set_streams(1)
    (tasks,) = dispatcher.hand_out(source(3), 3).values()
    dispatcher.drop()
    dispatcher.forget_tasks()
    dispatcher.returned(0, tuple(task.id for task in tasks[1:]))
    assert not dispatcher.has_tasks


def test_only_what_exceeds_the_streams_of_a_worker_is_requested() -> None:
    """With fewer tasks than streams, an even share would include tasks that were started."""
    dispatcher = Dispatcher(2)
    dispatcher.set_streams(8)
    dispatcher.add(0, [task(number) for number in range(5)])
    assert dispatcher.take_back() == {0: 1}


def test_few_tasks_are_divided_among_workers() -> None:
    dispatcher = Dispatcher(3)
    dispatcher.set_streams(6)
    assert [len(tasks) for tasks in dispatcher.hand_out(source(3), 3).values()] == [1, 1, 1]
