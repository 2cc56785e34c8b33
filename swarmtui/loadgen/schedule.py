"""Release scheduled tasks when they are due, however busy the server is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.model.workload import Task


class Schedule:
    """Times count from the start of the current stage. `pending` is the number of tasks that are not yet due."""

    def __init__(self, loop: EventLoop, due: Callable[[Task], None]) -> None:
        self._loop, self._on_due = loop, due
        self._start_ns = 0
        self._generation = 0
        self.pending = 0

    def start(self, t_ns: int) -> None:
        self._start_ns = t_ns

    def add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self.pending += 1
            self._loop.call_at(self.due_ns(task) or 0, self._timer_for(task, self._generation))

    def due_ns(self, task: Task) -> int | None:
        return None if task.at_ns is None else self._start_ns + task.at_ns

    def clear(self) -> None:
        """Drop all pending tasks; their timers are ignored when they fire."""
        self._generation += 1
        self.pending = 0

    def _timer_for(self, task: Task, generation: int) -> Callable[[], None]:
        def fire() -> None:
            if generation == self._generation:
                self.pending -= 1
                self._on_due(task)

        return fire
