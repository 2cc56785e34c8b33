"""Create the tasks of a stage, one after another, for each kind of load."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from math import inf, sqrt

import msgspec

from swarmtui.model.record import Phase, Record
from swarmtui.model.workload import Task
from swarmtui.prompts.canaries import canary_task
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.traces.play import ComposedRequest

# The contents of unmeasured requests are numbered from here: how many there are must not change what is measured.
_UNMEASURED_START = 1 << 40
# The nonces of repeated prompts are numbered from here.
_REPEATED_START = 1 << 41
# Pre-roll requests per stream, at most, in which nothing begins.
_MAX_PREROLLS = 4
# Answers of no more tokens are expected to reach that limit, until it was seen whether most do.
_SHORT_ANSWER = 256
_SEEN, _MOST = 5, 0.8
# With this many streams and prompts of this length, prefill takes most of the time and separates the streams by itself.
_MANY_STREAMS, _LONG_PROMPT = 16, 4096
# The answers of a stage whose text is compared with the server's count of tokens at the end of the session.
SAMPLED_OF_STAGE = 2
# Workers receive scheduled tasks this long before their send time.
AHEAD_S = 1.0
# The first scheduled task is due after this time, so that connections can open.
LEAD_S = 0.2


class TaskFactory:
    """Creates tasks and numbers the requests of a session; warm-up and repeated tasks use up no new prompts.

    `slots` are those of the server as far as known: how many streams can write at once. `plays` are the numbers of the
    next plays of recorded sessions.
    """

    slots: int | None = None

    def __init__(self, generator: TaskGenerator) -> None:
        self.generator = generator
        self._numbers, self._contents, self._unmeasured = count(), count(), count(_UNMEASURED_START)
        self._questions, self.plays, self._levels = count(), count(), count()
        self._ended = self._reached_limit = self._tokens = self._squares = 0

    @property
    def keeps_in_step(self) -> bool:
        """Whether answers have the same length, so that streams that start together stay together.

        They do if the server has to write that many tokens, or if most answers reach their limit.
        """
        if self.generator.keeps_in_step:
            return True
        if self._ended < _SEEN:
            return (self.generator.max_tokens or inf) <= _SHORT_ANSWER
        return self._reached_limit >= _MOST * self._ended

    @property
    def similarity(self) -> float:
        """1 − CV of the lengths of answers; 0 if they vary more, too few are known, or requests may wait for slots."""
        if self._ended < _SEEN or self.slots is None or not self._tokens:
            return 0.0
        squares = self._ended * self._squares / self._tokens**2 - 1.0
        return max(0.0, 1.0 - sqrt(max(0.0, squares) * self._ended / (self._ended - 1)))

    def shares_left(self, c: int) -> list[float]:
        """Return which parts of their length the first answers of a level have left, of those that get a slot at once.

        The first ones write while the prompts of others are read: they are the longest, as short ones would end
        together with these. Where others wait for a slot, one has its whole length, and they are sent before the first
        slot is free: else two slots are taken at once.
        """
        generator, level = self.generator, next(self._levels)
        cut = min(c, self.slots or c)
        queues = cut < c
        if generator.keeps_in_step:
            first = 1.0 if queues else generator.random_share(c, 0)
            even = [(first + number) / cut for number in range(cut)]
            return even if queues else even[::-1]
        if self.keeps_in_step or queues:
            # Evenly apart, all requests would wait equally long, until the few shorter answers have scattered them.
            drawn = sorted((generator.random_share(c, level, number) for number in range(cut - 1)), reverse=True)
            return [1.0, *drawn]
        # In sets of up to four, each evenly apart: together as long as usual, and some of them end together, as usual.
        size = min(4, max(2, c // 2))
        return [(generator.random_share(c, number // size) + number % size / size) % 1.0 for number in range(cut)]

    def count_end(self, record: Record) -> None:
        if record.ok and record.phase == "level":
            self._ended += 1
            self._reached_limit += record.finish_reason == "length"
            self._tokens += record.tokens_out or 0
            self._squares += (record.tokens_out or 0) ** 2

    def create(self, c: int, position: int) -> tuple[Task, int]:
        """Return a task with new content, and the number of that content."""
        content = next(self._contents)
        return self._task(self.generator.task(content, c, position)), content

    def create_unmeasured(self, c: int, position: int, phase: Phase, share: float = 1.0) -> Task:
        """Return a task whose answer has a share of its length; of similar lengths, a share of the mean one.

        The mean time that an answer has left falls to CV × that of a new one, and no further: shares above 1 − CV have
        their whole length.
        """
        task = self._task(self.generator.task(next(self._unmeasured), c, position))
        cap = task.max_tokens
        if self.keeps_in_step:
            cap = None if cap is None else max(1, round(share * cap))
        elif share < self.similarity:
            part = max(1, round(share * self._tokens / self._ended))
            cap = part if cap is None else min(cap, part)
        return msgspec.structs.replace(task, phase=phase, check=None, max_tokens=cap)

    def repeat(self, c: int, position: int, content: int) -> Task:
        number = next(self._numbers)
        return msgspec.structs.replace(self.generator.task(content, c, position, _REPEATED_START + number), id=number)

    def _task(self, task: Task) -> Task:
        return msgspec.structs.replace(task, id=next(self._numbers))

    def warmup(self) -> Task:
        number = next(self._numbers)
        return msgspec.structs.replace(self.generator.warmup(number), id=number, check=None)

    def replay(self, request: ComposedRequest, at_ns: int, phase: Phase) -> Task:
        return msgspec.structs.replace(self._task(self.generator.replay(request)), at_ns=at_ns, phase=phase)

    def canary(self, phase: Phase = "canary") -> Task:
        return canary_task(next(self._numbers), next(self._questions), phase)


class TaskSource:
    """The tasks of one stage. This base class issues `total` tasks, or tasks without end if it is None.

    `fills`: unmeasured tasks follow until the source is closed. `over`: the stage has what it measures, and does not
    wait for the tasks in flight.
    `precision`: the half-width at which the stage ends, and the number of requests from which on it is looked at.
    `skipped` counts tasks that can never be issued because a task they depend on failed.
    `contents` are the numbers of what was issued, which are consecutive, for batches that are repeated serially.
    `continues`: it stays in use when C is changed under manual control. `streams` are those that it needs for C.
    `abandoned` are the plays of recorded sessions that ended because C was lowered.
    """

    fills = False
    over = False
    precision: tuple[float, int] | None = None
    continues = False
    streams: int | None = None
    abandoned: Collection[int] = ()

    def __init__(self, factory: TaskFactory, c: int, total: int | None) -> None:
        self.total = total
        self.skipped = 0
        self.contents = range(0)
        self._factory, self._c = factory, c
        self._issued = 0
        self._closed = False

    @property
    def preparing(self) -> bool:
        """Whether the time of the stage must not start yet, although a request has been answered."""
        return False

    @property
    def to_finish(self) -> int | None:
        """The number of tasks that count and will end, if that is known."""
        return self.total

    @property
    def may_end(self) -> bool | None:
        """Whether the time of the stage may end it now; None: tasks that count are waited for."""
        return None

    @property
    def has_more(self) -> bool:
        """Whether another task that counts may follow, now or later."""
        return not self._closed and (self.total is None or self._issued < self.total)

    def next_task(self) -> Task | None:
        """Return the next task, or None if there is none at this moment."""
        if not self.has_more:
            return None
        task = self._create(self._issued)
        self._issued += 1
        return msgspec.structs.replace(task, with_text=True) if self._issued <= SAMPLED_OF_STAGE else task

    def _create(self, position: int) -> Task:
        raise NotImplementedError

    def request_sent(self, task: int) -> None:
        """Called when a request of a task is in flight, but not for each of them: it may end before."""

    def first_token(self, task: int) -> None:
        """Called when the first token of a task has arrived, but not for each of them: answers may be shorter."""

    def task_finished(self, task: Task, record: Record) -> None:
        """Called when a task has succeeded or failed."""

    def start_fillers(self) -> None:
        """Issue no more tasks that count."""
        self.total = self._issued

    def close(self) -> None:
        self._closed = True


class WarmupTasks(TaskSource):
    def _create(self, position: int) -> Task:
        return self._factory.warmup()


class CanaryTasks(TaskSource):
    """Questions with known answers, in a stage of their own."""

    def _create(self, position: int) -> Task:
        return self._factory.canary("level")


class NewTasks(TaskSource):
    """New content for each task, for closed loops and for batches."""

    def _create(self, position: int) -> Task:
        task, content = self._factory.create(self._c, position)
        self.contents = range(self.contents.start if self.contents else content, content + 1)
        return task


class ClosedLoopTasks(NewTasks):
    """Pre-roll until C requests have shown a first token or ended well, `total` measured tasks, then fillers.

    The measured requests then begin while all streams write, and C stay in flight; a single stream needs no pre-roll.
    Answers of equal length would keep streams in step that start together: the first answers, which get a slot at once,
    have parts of that length (`TaskFactory.shares_left`). Those that follow have all of it, so that measured requests
    find the usual queue. Answers of similar length have parts too, once lengths are known: the level then begins as it
    continues, and sooner.
    The stage is over when a filler was sent: all streams have then sent as often as planned. If it is to be `complete`,
    it waits for the measured tasks. Without a `total`, tasks are measured until `start_fillers`, or until the stage is
    ended; with a `precision`, `total` is the most that it may take. `canaries` is the number of canaries per measured
    task, rounded up.
    """

    fills = True

    def __init__(
        self,
        factory: TaskFactory,
        c: int,
        total: int | None,
        canaries: float = 0.0,
        *,
        complete: bool = False,
        precision: tuple[float, int] | None = None,
    ) -> None:
        super().__init__(factory, c, total)
        self._complete, self.precision = complete, precision
        self._first_filler: int | None = None
        self._ended = 0
        # Pre-roll tasks that have not shown a first token; a server that refuses everything must not be asked forever.
        self._awaited: set[int] = set()
        prompt = factory.generator.prompt_tokens or 0
        known = factory.keeps_in_step or factory.similarity > 0.0
        cuts = known and (c < _MANY_STREAMS or prompt < _LONG_PROMPT)
        self._shares = factory.shares_left(c) if cuts else []
        self._cut = len(self._shares)
        self._prerolls = self._begun = self._fillers = 0
        self._canary_share, self._canaries = canaries, 0

    @property
    def preparing(self) -> bool:
        return self._begun < self._c > 1 and self._prerolls < _MAX_PREROLLS * self._c + self._begun

    @property
    def to_finish(self) -> int | None:
        """One of the C requests in flight at the end of the window is a filler; the others may all be measured."""
        if self.precision is not None and self.has_more:
            return None
        return self.total if self._complete or self.total is None else max(1, self.total - self._c + 1)

    @property
    def may_end(self) -> bool | None:
        """Whether each stream has sent twice, so that the window has a whole cycle."""
        return None if self._complete else self._ended >= self._c

    def next_task(self) -> Task | None:
        if self._closed:
            return None
        if self.preparing:
            cut = self._prerolls < self._cut
            if not cut and self._begun < self._cut < self._c and self._awaited:
                return None  # else another answer may get the slot of one that is cut
            share = self._shares[self._prerolls] if cut else 1.0
            task = self._factory.create_unmeasured(self._c, self._prerolls, "preroll", share)
            self._prerolls += 1
            if self._begun + len(self._awaited) < self._c:
                self._awaited.add(task.id)
            return task
        if self.has_more:
            if self._canaries < self._canary_share * self._issued:
                self._canaries += 1
                return self._factory.canary()
            return super().next_task()
        self._fillers += 1
        filler = self._factory.create_unmeasured(self._c, self._prerolls + self._fillers, "filler")
        self._first_filler = filler.id if self._first_filler is None else self._first_filler
        return filler

    def request_sent(self, task: int) -> None:
        if self._first_filler is not None and task >= self._first_filler and not self._complete:
            self.over = True

    def first_token(self, task: int) -> None:
        if task not in self._awaited:
            return
        self._awaited.remove(task)
        self._begun += 1

    def task_finished(self, task: Task, record: Record) -> None:
        self._factory.count_end(record)
        # A stream that ends a task sends the next one: after the first measured task was issued, it is in the window.
        self._ended += self._issued > 0
        self.request_sent(task.id)
        if record.ok:
            self.first_token(task.id)
        self._awaited.discard(task.id)


class RepeatedTasks(TaskSource):
    """The contents of a batch once more, each at its position in the batch."""

    def __init__(self, factory: TaskFactory, c: int, contents: Sequence[int]) -> None:
        super().__init__(factory, c, len(contents))
        self._repeated = contents

    def _create(self, position: int) -> Task:
        return self._factory.repeat(self._c, position, self._repeated[position])


class ScheduledTasks(TaskSource):
    """Tasks with a send time, issued a little ahead of it; the source ends after `total` tasks or `duration_s`."""

    def __init__(
        self, factory: TaskFactory, c: int, times: Iterator[float], total: int | None, duration_s: float | None
    ) -> None:
        super().__init__(factory, c, total)
        self._times, self._duration_s = times, duration_s
        self._start_ns = time.perf_counter_ns()
        self._due = next(times, inf)

    @property
    def has_more(self) -> bool:
        return super().has_more and (self._duration_s is None or self._due <= self._duration_s)

    def next_task(self) -> Task | None:
        if self._due > (time.perf_counter_ns() - self._start_ns) / 1e9 + AHEAD_S:
            return None
        return super().next_task()

    def _create(self, position: int) -> Task:
        task, _ = self._factory.create(self._c, position)
        at_ns = self._start_ns + int((self._due + LEAD_S) * 1e9)
        self._due = next(self._times, inf)
        return msgspec.structs.replace(task, at_ns=at_ns)


class MixedTasks(TaskSource):
    """A primary task and C − 1 side tasks; with `loop` side tasks start again until the primary task has ended."""

    def __init__(self, factory: TaskFactory, c: int, loop: bool) -> None:
        super().__init__(factory, c, None if loop else c)
        self._loop = loop
        self._queue = deque(range(c))
        self._positions: dict[int, int] = {}

    @property
    def has_more(self) -> bool:
        return bool(self._queue) or (self._loop and not self._closed)

    def next_task(self) -> Task | None:
        if not self._queue:
            return None
        position = self._queue.popleft()
        task, _ = self._factory.create(self._c, position)
        self._positions[task.id] = position
        return task

    def task_finished(self, task: Task, record: Record) -> None:
        position = self._positions.pop(task.id)
        if position == 0:
            self.close()
        elif self._loop and not self._closed:
            self._queue.append(position)

    def close(self) -> None:
        super().close()
        self._queue.clear()
