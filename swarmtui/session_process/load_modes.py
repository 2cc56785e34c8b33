"""Where the tasks of a stretch come from, one class for each way of laying on load."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from swarmtui.model.record import Record
from swarmtui.model.workload import Graph, Task
from swarmtui.prompts.generator import Source, with_answers

# Warm-up wakes caches, graphs and clocks; a short answer does that.
_WARMUP_TOKENS = 64

# Workers get tasks this long before they are due; the first is due when connections have had time to open.
_AHEAD_S = 1.0
_LEAD_S = 0.2


class Feed(Protocol):
    """`of` is how many tasks there will be, where that is known; `more`: there may be another, now or later."""

    of: int | None

    @property
    def more(self) -> bool: ...

    def next(self) -> Task | None:
        """None: not now."""

    def over(self, task: Task, record: Record) -> None:
        """A task has come to its end, well or not."""

    def close(self) -> None:
        """No more from now on."""


class Asker:
    """Numbers the requests of a session, and what is asked by them: a warm-up or a baseline uses up no prompt."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._requests = 0
        self._contents = 0

    def fresh(self, c: int, position: int) -> tuple[Task, int]:
        """The task, and the number of its content."""
        content, self._contents = self._contents, self._contents + 1
        return self.again(c, position, content), content

    def again(self, c: int, position: int, content: int) -> Task:
        number = self._number()
        return msgspec.structs.replace(self.source.task(number, c, position, content), id=number)

    def warmup(self) -> Task:
        number = self._number()
        task = self.source.warmup(number)
        cap = min(_WARMUP_TOKENS, task.max_tokens or _WARMUP_TOKENS)
        return msgspec.structs.replace(task, id=number, max_tokens=cap, check=None)

    def _number(self) -> int:
        number, self._requests = self._requests, self._requests + 1
        return number


class Counted:
    """Base of feeds that give so many tasks and end; without `of` they go on until they are closed."""

    def __init__(self, asker: Asker, of: int | None) -> None:
        self.of = of
        self._asker = asker
        self._given = 0
        self._closed = False

    @property
    def more(self) -> bool:
        return not self._closed and (self.of is None or self._given < self.of)

    def next(self) -> Task | None:
        if not self.more:
            return None
        task = self._make(self._given)
        self._given += 1
        return task

    def _make(self, position: int) -> Task:
        raise NotImplementedError

    def over(self, task: Task, record: Record) -> None:
        return

    def close(self) -> None:
        self._closed = True


class Warmups(Counted):
    def _make(self, position: int) -> Task:
        return self._asker.warmup()


class Fresh(Counted):
    """New content for each task: closed loops, and batches whose `contents` may be asked again."""

    def __init__(self, asker: Asker, c: int, of: int | None) -> None:
        super().__init__(asker, of)
        self._c = c
        self.contents: list[int] = []

    def _make(self, position: int) -> Task:
        task, content = self._asker.fresh(self._c, position)
        if self.of is not None:
            self.contents.append(content)
        return task


class Again(Counted):
    """The same content once more, in the same places of the batch."""

    def __init__(self, asker: Asker, c: int, contents: Sequence[int]) -> None:
        super().__init__(asker, len(contents))
        self._c, self._contents = c, contents

    def _make(self, position: int) -> Task:
        return self._asker.again(self._c, position, self._contents[position])


class Arriving(Counted):
    """Tasks with the time at which they are due, given to workers a little ahead of it."""

    def __init__(self, asker: Asker, c: int, times: Iterator[float], of: int | None, seconds: float | None) -> None:
        super().__init__(asker, of)
        self._c, self._times, self._seconds = c, times, seconds
        self._begun = time.monotonic()
        self._due = next(times)

    @property
    def more(self) -> bool:
        return super().more and (self._seconds is None or self._due <= self._seconds)

    def next(self) -> Task | None:
        if self._due > time.monotonic() - self._begun + _AHEAD_S:
            return None
        return super().next()

    def _make(self, position: int) -> Task:
        task, _ = self._asker.fresh(self._c, position)
        at_ns = int((self._due + _LEAD_S) * 1e9)
        self._due = next(self._times)
        return msgspec.structs.replace(task, at_ns=at_ns)


class Beside:
    """A primary task and C − 1 beside it; with `loop` those begin again until the primary one has ended."""

    def __init__(self, asker: Asker, c: int, loop: bool) -> None:
        self.of = None if loop else c
        self._asker, self._c, self._loop = asker, c, loop
        self._waiting = deque(range(c))
        self._places: dict[int, int] = {}
        self._primary_over = False

    @property
    def more(self) -> bool:
        return bool(self._waiting) or (self._loop and not self._primary_over)

    def next(self) -> Task | None:
        if not self._waiting:
            return None
        place = self._waiting.popleft()
        task, _ = self._asker.fresh(self._c, place)
        self._places[task.id] = place
        return task

    def over(self, task: Task, record: Record) -> None:
        place = self._places.pop(task.id)
        if place == 0:
            self.close()
        elif self._loop and not self._primary_over:
            self._waiting.append(place)

    def close(self) -> None:
        self._primary_over = True
        self._waiting.clear()


class Waiting:
    """The tasks of a graph, each as soon as those that it waits for have answered; `lost` can never be asked."""

    def __init__(self, asker: Asker, c: int, graph: Graph) -> None:
        self.of: int | None = graph.size
        self._asker, self._c = asker, c
        self._nodes = [node for node in graph.tasks for _ in range(node.copies)]
        self._copies_left = {node.id: node.copies for node in graph.tasks}
        self._answers: dict[str, str] = {}
        self._places = set(range(len(self._nodes)))
        self._running: dict[int, int] = {}
        self._quoted = {name for node in graph.tasks for name in node.after}
        self.lost = 0

    @property
    def more(self) -> bool:
        return bool(self._places)

    def next(self) -> Task | None:
        place = next((p for p in sorted(self._places) if not self._missing(p)), None)
        if place is None:
            return None
        self._places.discard(place)
        node = self._nodes[place]
        task, _ = self._asker.fresh(self._c, place)
        task = with_answers(task, {name: self._answers[name] for name in node.after})
        self._running[task.id] = place
        return msgspec.structs.replace(task, with_text=node.id in self._quoted)

    def _missing(self, place: int) -> bool:
        return any(self._copies_left[name] > 0 for name in self._nodes[place].after)

    def over(self, task: Task, record: Record) -> None:
        node = self._nodes[self._running.pop(task.id)]
        if record.ok:
            self._copies_left[node.id] -= 1
            before = self._answers.get(node.id, "")
            self._answers[node.id] = f"{before}\n\n{record.text or ''}".strip()
            return
        fallen = {node.id}
        while more := {n.id for n in self._nodes if n.id not in fallen and fallen.intersection(n.after)}:
            fallen |= more
        gone = {place for place in self._places if self._nodes[place].id in fallen - {node.id}}
        self.lost += len(gone)
        self._places -= gone
        if self.of is not None:
            self.of -= len(gone)

    def close(self) -> None:
        self._places.clear()
