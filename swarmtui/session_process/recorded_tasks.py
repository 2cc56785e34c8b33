"""Play recorded agent sessions: a fixed number at a time, each request after the answer before it."""

from __future__ import annotations

import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from swarmtui.model.load import Sessions
from swarmtui.model.record import Phase, Record
from swarmtui.model.workload import Task
from swarmtui.prompts.traces.play import Play, SharedBlocks
from swarmtui.prompts.traces.recordings import first_sessions
from swarmtui.session_process.task_sources import (
    AHEAD_S,
    LEAD_S,
    TaskFactory,
    TaskSource,
)

# Streams for the sub-agents of recorded sessions, besides one per session.
_SUBAGENTS_PER_SESSION = 3
_MIN_SUBAGENTS = 16
# The first sessions of two slots start at most this long after each other.
_RAMP_S = 1.0
# The next session of a slot starts this long after the previous one, or after one that failed.
_NEXT_SESSION_S, _AFTER_FAILURE_S = 0.1, 1.0


class RecordedTasks(TaskSource):
    """Recorded sessions in C slots: the session that follows in the trace replaces one that has ended.

    The first sessions of the slots start at places of their recordings, so that the contexts of C sessions are as long
    and as different as they are later, each a little after that of the slot before. Requests count once all of them
    have had their first answer, until no session is left for a slot: after `sessions` of them, `total` requests, or
    `start_fillers`. Then sessions continue with fillers.
    """

    fills = True
    continues = True

    def __init__(
        self,
        factory: TaskFactory,
        c: int,
        load: Sessions,
        run: int,
        *,
        total: int | None,
        sessions: int | None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        super().__init__(factory, c, total)
        self._load, self._sessions, self._clock_ns = load, sessions, clock_ns
        self._plays = factory.generator.plays
        self._begun = self._uncounted = 0
        # Every run of a level plays other sessions; two per slot is about what a run plays.
        self._offset = (run - 1) * (sessions or 2 * c)
        self._shared: SharedBlocks | None = None
        self._slots: dict[int, Play | None] = {}
        self._starts: dict[int, int] = {}
        self._due: list[tuple[int, int, int]] = []
        self._running: dict[int, tuple[int, Play, int]] = {}
        self._unanswered: set[int] = set()
        self._ended = False
        self.resize(c)

    def resize(self, c: int) -> None:
        """Change the number of slots; sessions above it end with their requests in flight."""
        self._c = c
        self.streams = c + max(_MIN_SUBAGENTS, _SUBAGENTS_PER_SESSION * c)
        removed = [slot for slot in self._slots if slot >= c]
        plays = [self._slots.pop(slot) for slot in removed]
        self.abandoned = [play.number for play in plays if play is not None]
        self._unanswered.difference_update(removed)
        self._due = [due for due in self._due if due[1] < c]
        heapify(self._due)
        ramp_ns = int(min(_RAMP_S, self._load.max_gap_s / c) / self._load.time_scale * 1e9)
        now = self._clock_ns()
        added = [slot for slot in range(c) if slot not in self._slots]
        if added:
            first = self._offset + self._begun
            lengths = self._plays.recordings.lengths(first, len(added))
            chosen = range(len(added)) if self._load.session_limit == "all" else first_sessions(lengths)
            self._starts |= {slot: first + session for slot, session in zip(added, chosen, strict=True)}
            self._begun += len(added)
        for number, slot in enumerate(added):
            self._slots[slot] = None
            self._unanswered.add(slot)
            heappush(self._due, (now + int(LEAD_S * 1e9) + number * ramp_ns, slot, -1))

    @property
    def preparing(self) -> bool:
        return bool(self._unanswered)

    def continue_with(self, c: int) -> bool:
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
        while not self._closed and self._due and self._due[0][0] <= self._clock_ns() + AHEAD_S * 1e9:
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
        number = next(self._factory.plays)
        self._shared = self._shared or SharedBlocks(number)
        if slot in self._starts:
            session, share = self._starts.pop(slot), slot / self._c
        else:
            session, share = self._offset + self._begun, 0.0
            self._begun += 1
        return self._plays.start(
            number, session, share, self._shared, max_gap_s=self._load.max_gap_s, time_scale=self._load.time_scale
        )

    def task_finished(self, task: Task, record: Record) -> None:
        slot, play, position = self._running.pop(task.id, (-1, None, 0))
        if play is None:
            return
        if slot in self._unanswered:
            self._unanswered.discard(slot)
            if not self._unanswered and not self._issued and self._load.session_limit != "all":
                self._uncounted = self._begun - self._c  # they ended before any request counted
        if self._slots.get(slot) is not play:
            return
        end_ns = record.t_end_ns or record.t_done_ns or self._clock_ns()
        if record.ok:
            for due_ns, later in play.finish(position, end_ns):
                heappush(self._due, (due_ns, slot, later))
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
