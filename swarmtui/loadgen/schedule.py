"""Tasks with a time of their own: handed on when they are due, however busy the server is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from swarmtui.loadgen.event_loop import Loop
from swarmtui.model.workload import Task


class Schedule:
    """Times count from the beginning of the present stretch. `waiting` are the tasks that are not yet due."""

    def __init__(self, loop: Loop, due: Callable[[Task], None]) -> None:
        self._loop, self._due = loop, due
        self._begun = 0
        self._round = 0
        self.waiting = 0

    def begin(self, t_ns: int) -> None:
        self._begun = t_ns

    def add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self.waiting += 1
            self._loop.at(self.due_ns(task) or 0, self._ringing(task, self._round))

    def due_ns(self, task: Task) -> int | None:
        return None if task.at_ns is None else self._begun + task.at_ns

    def clear(self) -> None:
        """What is not yet due never will be; timers that still ring find their round over."""
        self._round += 1
        self.waiting = 0

    def _ringing(self, task: Task, of_round: int) -> Callable[[], None]:
        def ring() -> None:
            if of_round == self._round:
                self.waiting -= 1
                self._due(task)

        return ring
