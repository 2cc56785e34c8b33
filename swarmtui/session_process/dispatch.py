"""Decide which worker gets which task: one per free stream first, then a reserve, which can be taken back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from swarmtui.model.workload import Task


class _Withdrawal(NamedTuple):
    """A request to a worker for up to `size` of its queued tasks, not answered yet; `reuse`: give them to others."""

    size: int
    reuse: bool


class _WorkerTasks:
    """The tasks of one worker that have not finished."""

    def __init__(self) -> None:
        self.streams = 0
        self.tasks: dict[int, Task] = {}
        self.withdrawals: deque[_Withdrawal] = deque()
        # Its queue is known to be empty: it returned fewer tasks than requested, and has received none since then.
        self.queue_empty = False

    @property
    def load(self) -> int:
        """The number of tasks that the worker will keep: it returns only those that it has not started."""
        if not self.withdrawals:
            return len(self.tasks)
        leaving = sum(withdrawal.size for withdrawal in self.withdrawals)
        return max(min(len(self.tasks), self.streams), len(self.tasks) - leaving)

    @property
    def requested(self) -> int:
        """The number of tasks that were requested for other workers and are not returned yet."""
        return sum(withdrawal.size for withdrawal in self.withdrawals if withdrawal.reuse)


class Dispatcher:
    """Keeps track of the tasks of all workers. It returns what to send, and sends nothing itself.

    A worker starts its tasks in order, as soon as a stream is free, so it has started as many as it has streams.
    """

    def __init__(self, workers: int) -> None:
        self._workers = [_WorkerTasks() for _ in range(workers)]
        self._returned: deque[Task] = deque()

    def set_streams(self, total: int) -> list[int]:
        count = len(self._workers)
        for number, worker in enumerate(self._workers):
            worker.streams = total // count + (number < total % count)
            worker.queue_empty = False
        return [worker.streams for worker in self._workers]

    def hand_out(self, next_task: Callable[[], Task | None], depth: int | None) -> dict[int, tuple[Task, ...]]:
        """Return new tasks by worker, each for the worker with the fewest tasks per stream.

        A worker holds at most `depth` tasks per stream; None is no limit, for tasks with a send time.
        """
        found: dict[int, list[Task]] = {}
        heap = [
            (worker.load / worker.streams, number, worker.load, worker.streams)
            for number, worker in enumerate(self._workers)
            if worker.streams and (depth is None or worker.load < depth * worker.streams)
        ]
        heapify(heap)
        while heap and (task := self._returned.popleft() if self._returned else next_task()) is not None:
            _, number, load, streams = heap[0]
            found.setdefault(number, []).append(task)
            if depth is None or load + 1 < depth * streams:
                heapreplace(heap, ((load + 1) / streams, number, load + 1, streams))
            else:
                heappop(heap)
        for number, tasks in found.items():
            self.add(number, tasks)
        return {number: tuple(tasks) for number, tasks in found.items()}

    def add(self, number: int, tasks: list[Task]) -> None:
        worker = self._workers[number]
        worker.tasks.update((task.id, task) for task in tasks)
        worker.queue_empty = False

    def take_back(self) -> dict[int, int]:
        """Return how many queued tasks to request from each worker, if some have queued tasks and others have none.

        Call it after `hand_out`. The remaining tasks are then divided evenly, before a stream becomes idle.
        """
        active = [(number, worker) for number, worker in enumerate(self._workers) if worker.streams]
        if len({worker.load > worker.streams for _, worker in active}) < 2:
            return {}
        total = sum(worker.load + worker.requested for _, worker in active) + len(self._returned)
        streams = sum(worker.streams for _, worker in active)
        shares = {number: total * worker.streams // streams for number, worker in active}
        # What cannot be divided evenly stays where it is.
        rest = total - sum(shares.values())
        for number, _ in sorted(active, key=lambda item: shares[item[0]] - item[1].load)[:rest]:
            shares[number] += 1
        found = {}
        for number, worker in active:
            surplus = worker.load - max(worker.streams, shares[number])
            if surplus > 0 and not worker.queue_empty:
                worker.withdrawals.append(_Withdrawal(surplus, reuse=True))
                found[number] = surplus
        return found

    def drop(self) -> None:
        """Expect all queued tasks back, and discard them; until they arrive, assume that all streams are busy."""
        self._returned.clear()
        for worker in self._workers:
            pending = [_Withdrawal(withdrawal.size, reuse=False) for withdrawal in worker.withdrawals]
            worker.withdrawals = deque([*pending, _Withdrawal(max(0, worker.load - worker.streams), reuse=False)])

    def returned(self, number: int, ids: tuple[int, ...]) -> None:
        """Handle the answer to the oldest withdrawal: the tasks that the worker had not started."""
        worker = self._workers[number]
        withdrawal = worker.withdrawals.popleft()
        tasks = [worker.tasks.pop(task_id) for task_id in ids if task_id in worker.tasks]
        if withdrawal.reuse:
            self._returned.extend(tasks)
            worker.queue_empty = len(ids) < withdrawal.size

    def finished(self, number: int, task_id: int) -> None:
        del self._workers[number].tasks[task_id]

    def task(self, number: int, task_id: int) -> Task | None:
        return self._workers[number].tasks.get(task_id)

    @property
    def has_tasks(self) -> bool:
        return bool(self._returned) or any(worker.tasks for worker in self._workers)

    def forget_tasks(self) -> None:
        self._returned.clear()
        for worker in self._workers:
            worker.tasks.clear()
