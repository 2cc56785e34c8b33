"""What is under way: one C, one run, and the feed that its tasks come from."""

from __future__ import annotations

import time

from swarmtui.model.plan import Mode
from swarmtui.model.record import Phase
from swarmtui.model.workload import Task
from swarmtui.session_process.load_modes import Feed


class Stretch:
    """`streams` are those in use: fewer than C where the tasks of a batch are asked one by one.

    `depth`: how many tasks a worker may hold for each of its streams; a batch is divided evenly, so it holds one.
    """

    def __init__(
        self,
        number: int,
        c: int,
        run: int,
        phase: Phase,
        feed: Feed,
        *,
        load: Mode = "closed",
        rate: float | None = None,
        duration_s: float | None = None,
        streams: int | None = None,
    ) -> None:
        self.number, self.c, self.run, self.phase, self.feed, self.load = number, c, run, phase, feed, load
        self.rate = rate
        self.streams = c if streams is None else streams
        self.depth = 3 if load in ("closed", "ramp") else 1
        self.until = None if duration_s is None else time.monotonic() + duration_s
        self.issued = self.done = self.succeeded = 0

    @property
    def timed_out(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    def next(self) -> Task | None:
        task = None if self.timed_out else self.feed.next()
        self.issued += task is not None
        return task

    @property
    def complete(self) -> bool:
        if self.until is not None:
            return self.timed_out
        return not self.feed.more and self.done >= self.issued
