"""Release scheduled tasks when they are due, however busy the server is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.model.workload import Task


class Schedule:
    """Keeps tasks until their send times."""

    def __init__(self, loop: EventLoop, due: Callable[[Task], None]) -> None:
        self._loop, self._on_due = loop, due
        self._tasks: dict[int, Task] = {}

    @property
    def pending(self) -> int:
        """The number of tasks that are not yet due."""
        return len(self._tasks)

    def add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self._tasks[task.id] = task
            self._loop.call_at(task.at_ns or 0, self._timer_for(task.id))

    def take_last(self, count: int) -> list[Task]:
        """Remove and return the tasks added last; their timers are ignored when they fire."""
        ids = list(self._tasks)[max(0, len(self._tasks) - count) :]
        return [self._tasks.pop(task_id) for task_id in ids]

    def _timer_for(self, task_id: int) -> Callable[[], None]:
        def fire() -> None:
            if (task := self._tasks.pop(task_id, None)) is not None:
                self._on_due(task)

        return fire
