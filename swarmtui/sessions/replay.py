"""Replay a saved session: feed its journal to the state that a running session has, and show it at any moment."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from copy import copy
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.model.client_protocol import Frame, Hello
from swarmtui.model.load import traits
from swarmtui.model.session import Entry, Event, Level, RequestEntry, ServerEntry, StageEnd, StageStart, Summary
from swarmtui.model.telemetry import HistoryPoint, Telemetry
from swarmtui.model.worker_protocol import TextTail
from swarmtui.sessions.store import LoadedSession, load_session, summarise
from swarmtui.state.recorded_worker import RecordedWorker
from swarmtui.state.session_state import SessionState
from swarmtui.state.watched import recorded_tail, recorded_update

T = TypeVar("T")

# Moments that can be shown, each with a frame of the workers; every second one is a point of the history.
_STEP_NS = 125_000_000
_POINT_STEPS = 2
# The time that rates cover: so much is fed step by step before a moment, and what is before it in longer steps.
_WINDOW_STEPS = 80
_LONG_STEPS = 2_400
_SNAPSHOTS = 120
# Levels of a session with more requests are computed in a thread.
_MANY_REQUESTS = 5_000


def open_replay(root: Path, which: str) -> Replay:
    return Replay(load_session(root, which))


class _Snapshot(NamedTuple):
    """The state after a step, and how many entries are in it."""

    step: int
    entries: int
    state: SessionState


class Replay:
    """Shows a session at any time after its start; a jump begins at a snapshot of the state, not at the start."""

    def __init__(self, loaded: LoadedSession) -> None:
        self._loaded, journal = loaded, loaded.journal
        session = journal.head.session
        self._t0 = session.t0_ns
        self.hello = Hello(session, str(loaded.directory))
        scheduled = [start.number for start in journal.stages if traits(start.load).scheduled]
        self._worker = RecordedWorker(journal.records, scheduled)
        self._has_text = any(record.text or record.reasoning for record in journal.records)
        self._entries = _in_order(loaded)
        self._entry_times = [t_ns for t_ns, _ in self._entries]
        self._baseline_ns = min((start.t_ns for start in journal.stages), default=0)
        in_turn = sorted(journal.records, key=lambda record: record.turn)
        self._last_turns = {(record.stage, record.task): record.turn for record in in_turn}
        ends = sorted(journal.ends, key=lambda end: end.t_ns)
        self._ends, self._end_times = ends, [end.t_ns for end in ends]
        self._last_ns = max(
            self._t0, self._worker.last_ns, *self._end_times[-1:], journal.end.t_ns if journal.end else 0
        )
        self._last_step = (self._last_ns - self._t0) // _STEP_NS
        # Long steps are a multiple of a point, so that every one of them ends with one.
        self._long_step = _POINT_STEPS * max(1, -(-self._last_step // (_POINT_STEPS * _LONG_STEPS)))
        self._levels: dict[int, tuple[Level, ...]] = {0: ()}
        self._summary: Summary | None = None
        state = SessionState(self._t0)
        state.apply(journal.head)
        for server in journal.servers:
            state.apply(ServerEntry(endpoint=0, server=server))
        self._now = _Snapshot(0, 0, state)
        self._snapshots = [_Snapshot(0, 0, _clone(state))]
        self._take_snapshots()

    @property
    def length_s(self) -> float:
        return (self._last_ns - self._t0) / 1e9

    @property
    def history(self) -> list[HistoryPoint]:
        """The points until the moment that was shown last."""
        return list(self._now.state.history)

    def samples_until(self, at_s: float, count: int) -> list[Telemetry]:
        """Return the latest samples before a moment."""
        _, now, _ = self._moment(at_s)
        return [sample for sample in self._loaded.journal.telemetry if sample.t_ns <= now][-count:]

    def _take_snapshots(self) -> None:
        between = self._long_step * max(1, self._last_step // (self._long_step * _SNAPSHOTS))
        for step in range(between, self._last_step + 1, between):
            self._feed(step, self._long_step)
            self._snapshots.append(self._now._replace(state=_clone(self._now.state)))

    def frame_at(self, at_s: float, *, watched: int | None = None, tails: tuple[int, ...] = ()) -> Frame:
        """Return the frame of a moment, with the request of the `watched` agent and the text of those in `tails`."""
        if not self.is_long and (missing := self.missing_levels(at_s)) is not None:
            self.compute_levels(missing)
        step, now, ended = self._moment(at_s)
        self._move_to(step)
        state = self._now.state
        if ended:
            state = _clone(state)
            for _, entry in self._entries[self._now.entries :]:
                self._apply(state, entry)
            state.apply_frame(0, self._worker.frame(now))
            self._worker.seek(self._t0 + step * _STEP_NS)
            state.status = "ended"
        self._set_levels(state, now, ended)
        state.watched.select(watched)
        record = self._worker.newest(watched, now) if watched is not None else None
        if record is not None:
            state.watched.update(recorded_update(record, now))
        state.watched.select_tails(tails if self._has_text else ())
        state.watched.update_tails(tuple(self._tail(agent, now) for agent in tails))
        return state.frame(now, rows=True)

    def _moment(self, at_s: float) -> tuple[int, int, bool]:
        """Return the step, its time, and whether it is the end of the session."""
        if at_s >= self.length_s:
            return self._last_step, self._last_ns, True
        step = max(0, int(at_s * 1e9) // _STEP_NS)
        return step, self._t0 + step * _STEP_NS, False

    def _tail(self, agent: int, now: int) -> TextTail:
        record = self._worker.newest(agent, now)
        return recorded_tail(record, now) if record is not None and now < record.left_ns else TextTail(agent, 0, "")

    def _move_to(self, step: int) -> None:
        """Continue from the current state or from a snapshot, whichever is nearer, but not within the window."""
        found = bisect_right(self._snapshots, step - _WINDOW_STEPS, key=lambda snapshot: snapshot.step)
        snapshot = self._snapshots[max(0, found - 1)]
        if not snapshot.step <= self._now.step <= step:
            self._now = snapshot._replace(state=_clone(snapshot.state))
            self._worker.seek(self._t0 + snapshot.step * _STEP_NS)
        early = (step - _WINDOW_STEPS) // self._long_step * self._long_step
        if early > self._now.step:
            self._feed(early, self._long_step)
        self._feed(step, 1)

    def _feed(self, until: int, size: int) -> None:
        """Apply what the journal holds up to a step, with a worker frame for every `size` steps."""
        step, position, state = self._now
        entries, times = self._entries, self._entry_times
        while step < until:
            step = min(until, step - step % size + size)
            t_ns = self._t0 + step * _STEP_NS
            while position < len(entries) and times[position] <= t_ns:
                self._apply(state, entries[position][1])
                position += 1
            state.apply_frame(0, self._worker.frame(t_ns))
            if step % _POINT_STEPS == 0:
                state.tick(t_ns)
        self._now = _Snapshot(step, position, state)

    def _apply(self, state: SessionState, entry: Entry | Telemetry) -> None:
        if isinstance(entry, Telemetry):
            if entry.t_ns < self._baseline_ns:
                state.quality.add_baseline(entry)
            else:
                state.add_sample(entry)
            return
        state.apply(entry)
        if isinstance(entry, RequestEntry):
            record = entry.record
            if self._last_turns[record.stage, record.task] == record.turn:
                state.task_done(record)

    # levels

    def _set_levels(self, state: SessionState, now: int, ended: bool) -> None:
        """Set the levels of the stages that have ended; the newest known ones while others are computed."""
        if ended and self._summary is not None:
            state.finish(self._summary.levels, self._summary.quality)
            return
        count = bisect_right(self._end_times, now)
        state.levels = self._levels[max(known for known in self._levels if known <= count)]

    def missing_levels(self, at_s: float) -> int | None:
        """Return which levels `compute_levels` has to compute before the frame of this moment is complete."""
        _, now, ended = self._moment(at_s)
        if ended:
            return -1 if self._summary is None else None
        count = bisect_right(self._end_times, now)
        return None if count in self._levels else count

    @property
    def is_long(self) -> bool:
        """Whether it takes so long to compute levels that an app should do it in a thread."""
        return len(self._loaded.journal.records) > _MANY_REQUESTS

    def compute_levels(self, missing: int) -> None:
        if missing < 0:
            self._summary = summarise(self._loaded)
            return
        journal = self._loaded.journal
        ends = self._ends[:missing]
        over = {end.number for end in ends}
        until_ns = ends[-1].t_ns
        records = [r for r in journal.records if r.stage in over and r.phase != "warmup" and r.left_ns <= until_ns]
        starts = [start for start in journal.stages if start.number in over]
        rates = journal.head.session.plan.load.serial_rates
        self._levels[missing] = level_figures(records, starts, ends, rates, journal.servers)


def _in_order(loaded: LoadedSession) -> list[tuple[int, Entry | Telemetry]]:
    """Return the entries with the time at which they were known; records in the order in which they arrived."""
    journal = loaded.journal
    found: list[tuple[int, Entry | Telemetry]] = []
    known_ns = 0
    for record in journal.records:
        known_ns = max(known_ns, record.left_ns)
        found.append((known_ns, RequestEntry(record=record)))
    timed: tuple[StageStart | StageEnd | Event | Telemetry, ...] = (
        *journal.stages, *journal.ends, *journal.events, *journal.telemetry,
    )  # fmt: skip
    found += [(entry.t_ns, entry) for entry in timed]
    return sorted(found, key=lambda pair: pair[0])


def _clone(value: T) -> T:
    """Copy what can change: the parts of the state and their containers; structs, tuples and records are shared."""
    own = type(value).__module__.startswith("swarmtui.") and not isinstance(value, msgspec.Struct)
    if not own and not isinstance(value, list | deque | set | dict):
        return value
    copied = copy(value)
    if isinstance(copied, dict):
        for key, part in copied.items():
            copied[key] = _clone(part)
    elif own:
        for name, part in getattr(value, "__dict__", {}).items():
            setattr(copied, name, _clone(part))
    return copied
