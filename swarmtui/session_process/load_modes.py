"""Define the load modes: in which order levels run, where their tasks come from, and how tasks are handed out."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec

from swarmtui.model.plan import LevelKey, LoadModeName, Plan, Requests
from swarmtui.model.record import Phase, Record
from swarmtui.model.workload import Graph, Task
from swarmtui.prompts.canaries import canary_task
from swarmtui.prompts.generator import TaskGenerator, fill_answers
from swarmtui.prompts.sampling import arrival_times
from swarmtui.prompts.traces.play import ComposedRequest, Play, SharedBlocks
from swarmtui.prompts.traces.recordings import mean_live_context

# Short answers are enough to warm up caches, CUDA graphs and clocks.
_WARMUP_TOKENS = 64

# The contents of unmeasured requests are numbered from here: how many there are must not change what is measured.
_UNMEASURED_START = 1 << 40
# The nonces of repeated prompts are numbered from here.
_REPEATED_START = 1 << 41

# Workers receive scheduled tasks this long before their send time.
_AHEAD_S = 1.0
# The first scheduled task is due after this time, so that connections can open.
_LEAD_S = 0.2

# Streams for the sub-agents of recorded sessions, besides one per session.
_SUBAGENTS_PER_SESSION = 3
_MIN_SUBAGENTS = 16
# The first sessions of two slots start at most this long after each other.
_RAMP_S = 1.0
# The next session of a slot starts this long after the previous one, or after one that failed.
_NEXT_SESSION_S, _AFTER_FAILURE_S = 0.1, 1.0


class TaskFactory:
    """Creates tasks and numbers the requests of a session; warm-up and repeated tasks use up no new prompts."""

    def __init__(self, generator: TaskGenerator) -> None:
        self.generator = generator
        self._requests = 0
        self._contents = 0
        self._unmeasured = _UNMEASURED_START
        self._canaries = 0
        self._plays = 0

    def create(self, c: int, position: int) -> tuple[Task, int]:
        """Return a task with new content, and the number of that content."""
        content, self._contents = self._contents, self._contents + 1
        return self._task(self.generator.task(content, c, position)), content

    def create_unmeasured(self, c: int, position: int, phase: Phase) -> Task:
        content, self._unmeasured = self._unmeasured, self._unmeasured + 1
        task = self._task(self.generator.task(content, c, position))
        return msgspec.structs.replace(task, phase=phase, check=None)

    def repeat(self, c: int, position: int, content: int) -> Task:
        return self._task(self.generator.task(content, c, position, _REPEATED_START + self._requests))

    def _task(self, task: Task) -> Task:
        return msgspec.structs.replace(task, id=self._next_number())

    def warmup(self) -> Task:
        number = self._next_number()
        task = self.generator.warmup(number)
        cap = min(_WARMUP_TOKENS, task.max_tokens or _WARMUP_TOKENS)
        return msgspec.structs.replace(task, id=number, max_tokens=cap, check=None)

    def replay(self, request: ComposedRequest, at_ns: int, phase: Phase) -> Task:
        """Return a request of a recorded session."""
        task = self.generator.replay(request)
        return msgspec.structs.replace(task, id=self._next_number(), at_ns=at_ns, phase=phase)

    def next_play(self) -> int:
        """Return the number of the next play of a recorded session."""
        number, self._plays = self._plays, self._plays + 1
        return number

    def canary(self, phase: Phase = "canary") -> Task:
        """Return the next question with a known answer."""
        question, self._canaries = self._canaries, self._canaries + 1
        return canary_task(self._next_number(), question, phase)

    def _next_number(self) -> int:
        number, self._requests = self._requests, self._requests + 1
        return number


class TaskSource:
    """The tasks of one stage. This base class issues `total` tasks, or tasks without end if it is None.

    `fills`: unmeasured tasks follow until the source is closed.
    `skipped` counts tasks that can never be issued because a task they depend on failed.
    `contents` are the numbers of what was issued, which are consecutive, for batches that are repeated serially.
    `continues`: it stays in use when C is changed under manual control. `streams` are those that it needs for C.
    """

    fills = False
    continues = False
    streams: int | None = None

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
    def has_more(self) -> bool:
        """Whether another task that counts may follow, now or later."""
        return not self._closed and (self.total is None or self._issued < self.total)

    def next_task(self) -> Task | None:
        """Return the next task, or None if there is none at this moment."""
        if not self.has_more:
            return None
        task = self._create(self._issued)
        self._issued += 1
        return task

    def _create(self, position: int) -> Task:
        raise NotImplementedError

    def task_finished(self, task: Task, record: Record) -> None:
        """Called when a task has succeeded or failed."""

    def start_fillers(self) -> None:
        """Issue no more tasks that count."""
        self.total = self._issued

    def close(self) -> None:
        """Issue no more tasks."""
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
    """One pre-roll task for each stream, `total` measured tasks, then fillers.

    The measured requests then run while C are in flight from the first send to the last answer. Without a `total`,
    tasks are measured until `start_fillers`. `canaries` is the number of canaries per measured task, rounded up.
    """

    fills = True

    def __init__(self, factory: TaskFactory, c: int, total: int | None, canaries: float = 0.0) -> None:
        super().__init__(factory, c, total)
        self._unmeasured = 0
        self._canary_share, self._canaries = canaries, 0

    def next_task(self) -> Task | None:
        if self._closed:
            return None
        phase: Phase = "preroll" if self._unmeasured < self._c else "filler"
        if phase == "filler" and self.has_more:
            if self._canaries < self._canary_share * self._issued:
                self._canaries += 1
                return self._factory.canary()
            return super().next_task()
        self._unmeasured += 1
        return self._factory.create_unmeasured(self._c, self._unmeasured - 1, phase)


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
        self._due = next(times)

    @property
    def has_more(self) -> bool:
        return super().has_more and (self._duration_s is None or self._due <= self._duration_s)

    def next_task(self) -> Task | None:
        if self._due > (time.perf_counter_ns() - self._start_ns) / 1e9 + _AHEAD_S:
            return None
        return super().next_task()

    def _create(self, position: int) -> Task:
        task, _ = self._factory.create(self._c, position)
        at_ns = self._start_ns + int((self._due + _LEAD_S) * 1e9)
        self._due = next(self._times)
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


class GraphTasks(TaskSource):
    """The tasks of a graph, each issued as soon as the tasks that it depends on have answered."""

    def __init__(self, factory: TaskFactory, c: int, graph: Graph) -> None:
        super().__init__(factory, c, graph.size)
        self._nodes = [node for node in graph.tasks for _ in range(node.copies)]
        self._copies_left = {node.id: node.copies for node in graph.tasks}
        self._answers: dict[str, str] = {}
        self._pending = set(range(len(self._nodes)))
        self._running: dict[int, int] = {}
        self._quoted = {name for node in graph.tasks for name in node.after}

    @property
    def has_more(self) -> bool:
        return bool(self._pending)

    def next_task(self) -> Task | None:
        position = next((p for p in sorted(self._pending) if not self._is_blocked(p)), None)
        if position is None:
            return None
        self._pending.discard(position)
        node = self._nodes[position]
        task, _ = self._factory.create(self._c, position)
        task = fill_answers(task, {name: self._answers[name] for name in node.after})
        self._running[task.id] = position
        return msgspec.structs.replace(task, with_text=node.id in self._quoted)

    def _is_blocked(self, position: int) -> bool:
        return any(self._copies_left[name] > 0 for name in self._nodes[position].after)

    def task_finished(self, task: Task, record: Record) -> None:
        node = self._nodes[self._running.pop(task.id)]
        if record.ok:
            self._copies_left[node.id] -= 1
            before = self._answers.get(node.id, "")
            self._answers[node.id] = f"{before}\n\n{record.text or ''}".strip()
        else:
            self._skip_dependents(node.id)

    def _skip_dependents(self, failed: str) -> None:
        affected = {failed}
        while more := {n.id for n in self._nodes if n.id not in affected and affected.intersection(n.after)}:
            affected |= more
        skipped = {position for position in self._pending if self._nodes[position].id in affected - {failed}}
        self._pending -= skipped
        self.skipped += len(skipped)
        if self.total is not None:
            self.total -= len(skipped)

    def close(self) -> None:
        self._pending.clear()


class SessionTasks(TaskSource):
    """Recorded sessions in C slots: the session that follows in the trace replaces one that has ended.

    The first session of each slot starts at another place of its recording, so that the contexts of C sessions differ
    as they do later, and a little after that of the slot before. Requests count once all of them have had their first
    answer, until no session is left for a slot: after `sessions` of them, `total` requests, or `start_fillers`. Then
    sessions continue with fillers.
    """

    fills = True
    continues = True

    def __init__(
        self,
        factory: TaskFactory,
        c: int,
        plan: Plan,
        run: int,
        *,
        total: int | None,
        sessions: int | None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        super().__init__(factory, c, total)
        self._plan, self._sessions, self._clock_ns = plan, sessions, clock_ns
        self._plays = factory.generator.plays
        self._begun = self._uncounted = 0
        self._offset = (run - 1) * (sessions or 0)
        self._shared: SharedBlocks | None = None
        self._slots: dict[int, Play | None] = {}
        self._due: list[tuple[int, int, int]] = []
        self._running: dict[int, tuple[int, Play, int]] = {}
        self._unanswered: set[int] = set()
        self._ended = False
        self.resize(c)

    def resize(self, c: int) -> None:
        """Change the number of slots; sessions above it end with their requests in flight."""
        self._c = c
        self.streams = c + max(_MIN_SUBAGENTS, _SUBAGENTS_PER_SESSION * c)
        for slot in [slot for slot in self._slots if slot >= c]:
            del self._slots[slot]
            self._unanswered.discard(slot)
        self._due = [due for due in self._due if due[1] < c]
        heapify(self._due)
        ramp_ns = int(min(_RAMP_S, self._plan.max_gap_s / c) / self._plan.time_scale * 1e9)
        now = self._clock_ns()
        for number, slot in enumerate(slot for slot in range(c) if slot not in self._slots):
            self._slots[slot] = None
            self._unanswered.add(slot)
            heappush(self._due, (now + int(_LEAD_S * 1e9) + number * ramp_ns, slot, -1))

    @property
    def preparing(self) -> bool:
        return bool(self._unanswered)

    def play_on(self, c: int) -> bool:
        """Continue without end with C sessions; return False if it was closed."""
        if self._closed:
            return False
        self.total = self._sessions = None
        self._ended = False
        self.resize(c)
        return True

    @property
    def has_more(self) -> bool:
        return super().has_more and not self._ended

    def start_fillers(self) -> None:
        super().start_fillers()
        self._ended = True

    def next_task(self) -> Task | None:
        while not self._closed and self._due and self._due[0][0] <= self._clock_ns() + _AHEAD_S * 1e9:
            at_ns, slot, position = heappop(self._due)
            if slot not in self._slots:
                continue
            play = self._slots[slot]
            if play is None:
                play = self._slots[slot] = self._start_play(slot)
                position = play.first
            phase: Phase = "filler" if not self.has_more else "preroll" if self._unanswered else "level"
            self._issued += phase == "level"
            task = self._factory.replay(play.compose(position), at_ns, phase)
            self._running[task.id] = slot, play, position
            return task
        return None

    def _start_play(self, slot: int) -> Play:
        """Start the next session; that of the first play of a slot not at its beginning."""
        number, session = self._factory.next_play(), self._offset + self._begun
        self._shared = self._shared or SharedBlocks(number)
        share = slot / self._c if slot in self._unanswered else 0.0
        self._begun += 1
        return self._plays.start(
            number, session, share, self._shared, max_gap_s=self._plan.max_gap_s, time_scale=self._plan.time_scale
        )

    def task_finished(self, task: Task, record: Record) -> None:
        slot, play, position = self._running.pop(task.id, (-1, None, 0))
        if play is None:
            return
        if slot in self._unanswered:
            self._unanswered.discard(slot)
            if not self._unanswered and not self._issued and self._plan.sessions != "all":
                self._uncounted = self._begun - self._c  # they ended before any request counted
        if self._slots.get(slot) is not play:
            return
        end_ns = record.t_end_ns or record.t_done_ns or self._clock_ns()
        if record.ok:
            for due in play.finish(position, end_ns):
                heappush(self._due, (due.due_ns, slot, due.position))
        if not record.ok or play.ended:
            self._free(slot, end_ns + int((_NEXT_SESSION_S if record.ok else _AFTER_FAILURE_S) * 1e9))

    def _free(self, slot: int, at_ns: int) -> None:
        """Let the next session take a slot; without one, the level has ended."""
        self._slots[slot] = None
        self._due = [due for due in self._due if due[1] != slot]
        heapify(self._due)
        heappush(self._due, (at_ns, slot, -1))
        left = None if self._sessions is None else self._sessions - (self._begun - self._uncounted)
        if left is not None and left <= 0 and not self._unanswered:
            self.start_fillers()


def _session_tasks(plan: Plan, factory: TaskFactory, key: LevelKey, run: int) -> SessionTasks:
    if plan.sessions is None:
        total = None if plan.duration_s else plan.requests.at(key[0])
        return SessionTasks(factory, key[0], plan, run, total=total, sessions=None)
    every = len(factory.generator.plays.recordings)
    sessions = every if plan.sessions == "all" else plan.sessions.at(key[0])
    return SessionTasks(factory, key[0], plan, run, total=None, sessions=max(sessions, key[0]))


def _closed_loop_tasks(plan: Plan, factory: TaskFactory, key: LevelKey, run: int) -> TaskSource:
    total = None if plan.duration_s else plan.requests.at(key[0])
    if not plan.preroll:
        return NewTasks(factory, key[0], total)
    return ClosedLoopTasks(factory, key[0], total, plan.canaries)


def _open_loop_tasks(plan: Plan, factory: TaskFactory, key: LevelKey, run: int) -> TaskSource:
    c, rate = key
    assert rate is not None
    if plan.arrival == "recorded":
        times = factory.generator.arrival_times(rate)
    else:
        times = arrival_times(rate, plan.arrival, plan.burst, plan.seed, run)
    return ScheduledTasks(factory, c, times, None if plan.duration_s else plan.requests.at(c), plan.duration_s)


def _graph_tasks(plan: Plan, factory: TaskFactory, key: LevelKey, run: int) -> TaskSource:
    graph = factory.generator.workload
    assert isinstance(graph, Graph)
    return GraphTasks(factory, key[0], graph)


class LoadMode(NamedTuple):
    """How the scheduler runs a level.

    `looping`: a stream sends one request after another. `scheduled`: requests have send times, whether or not streams
    are free. `continuous`: streams continue from one level to the next. `batch`: all tasks of a level start together,
    and can be repeated serially to measure the speed-up.
    """

    make_source: Callable[[Plan, TaskFactory, LevelKey, int], TaskSource]
    looping: bool = False
    scheduled: bool = False
    continuous: bool = False
    batch: bool = False


LOAD_MODES: dict[LoadModeName, LoadMode] = {
    "closed": LoadMode(_closed_loop_tasks, looping=True),
    "barrier": LoadMode(lambda plan, factory, key, run: NewTasks(factory, key[0], key[0]), batch=True),
    "swarm": LoadMode(lambda plan, factory, key, run: NewTasks(factory, key[0], key[0]), batch=True),
    "open": LoadMode(_open_loop_tasks, scheduled=True),
    "ramp": LoadMode(lambda plan, factory, key, run: NewTasks(factory, key[0], None), looping=True, continuous=True),
    "mixed": LoadMode(lambda plan, factory, key, run: MixedTasks(factory, key[0], plan.loop)),
    "dag": LoadMode(_graph_tasks),
    "sessions": LoadMode(_session_tasks, scheduled=True),
}


class PlannedLoad:
    """Apply the load mode of a plan: which runs, in which order, with which tasks.

    `mode_name` is the plan's own, until the user takes manual control: then it is a closed loop, unless recorded
    sessions are played.
    """

    def __init__(self, plan: Plan, factory: TaskFactory) -> None:
        self._plan, self._factory = plan, factory
        self.mode_name: LoadModeName = plan.load
        self._current: TaskSource | None = None

    def user_took_over(self) -> None:
        self.mode_name = "sessions" if self._plan.load == "sessions" else "closed"

    @property
    def mode(self) -> LoadMode:
        return LOAD_MODES[self.mode_name]

    @property
    def duration_s(self) -> float | None:
        """The duration of a run, if the scheduler ends runs by time."""
        timed = (self.mode.looping and not self.mode.continuous) or self.mode_name == "sessions"
        return self._plan.duration_s if timed else None

    def run_order(self, levels: tuple[int, ...], runs: int) -> list[tuple[LevelKey, int]]:
        """Order the runs by level, or rotate the levels: each run starts with another one, as in a Latin square."""
        keys: list[LevelKey] = [(c, None) for c in levels]
        if self.mode_name == "open":
            keys = [(c, rate) for c in levels for rate in self._plan.rates]
        if not self._plan.rotate:
            return [(key, run) for key in keys for run in range(1, runs + 1)]
        rotated = [keys[run % len(keys) :] + keys[: run % len(keys)] for run in range(runs)]
        return [(key, run) for run, row in enumerate(rotated, 1) for key in row]

    def task_source(self, key: LevelKey, run: int, least: int = 0) -> TaskSource:
        """Return the tasks of a run; a run with a number of requests has at least `least`."""
        plan = self._plan
        if least > plan.requests.at(key[0]):
            plan = msgspec.structs.replace(plan, requests=Requests(count=least, per_stream=False))
        self._current = self.mode.make_source(plan, self._factory, key, run)
        return self._current

    async def mean_live_context(self) -> float | None:
        """Return the mean tokens in the context of one agent, as far as the workload tells: only traces do."""
        plan = self._plan
        if self.mode_name != "sessions":
            return None
        recordings, gap_s = self._factory.generator.plays.recordings, plan.max_gap_s
        return await asyncio.to_thread(mean_live_context, recordings, max_gap_s=gap_s, time_scale=plan.time_scale)

    def continuous_source(self, c: int) -> TaskSource:
        """Return tasks without end, for manual control and ramps; recorded sessions continue if they can."""
        if self.mode_name != "sessions":
            return NewTasks(self._factory, c, None)
        if isinstance(self._current, SessionTasks) and self._current.play_on(c):
            return self._current
        self._current = SessionTasks(self._factory, c, self._plan, 1, total=None, sessions=None)
        return self._current

    def serial_contents(self, c: int, contents: range) -> range:
        """Select the tasks of a batch to repeat serially: all, or a sample to extrapolate from."""
        plan = self._plan
        if c == 1 or not self.mode.batch or plan.serial == "none" or plan.serial_decode_tps:
            return range(0)
        return contents if plan.serial == "measured" else contents[: plan.sample]

    def requests_in_sequence(self, c: int) -> float:
        """How many requests a stream sends one after another in a run of this level, with pre-roll and a filler."""
        if self.mode.looping:
            return self._plan.requests.at(c) / c + 2
        return 1.0 + len(self.serial_contents(c, range(c)))
