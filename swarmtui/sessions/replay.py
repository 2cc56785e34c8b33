"""Replay a saved session: feed its journal to the state that a running session has, and show it at any moment."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from swarmtui.model.client_protocol import Frame, Hello
from swarmtui.model.journal import (
    End,
    Entry,
    Head,
    QualityEntry,
    RequestEntry,
    ServerEntry,
    StageEnd,
    StageStart,
    TelemetryEntry,
)
from swarmtui.model.load import traits
from swarmtui.model.session import Event, Level, Summary
from swarmtui.model.telemetry import HistoryPoint, Telemetry
from swarmtui.sessions.compute_levels import levels_of
from swarmtui.sessions.journal import Journal, unique_records
from swarmtui.sessions.store import LoadedSession, load_session, summarise
from swarmtui.state.recorded_worker import RecordedWorker
from swarmtui.state.session_state import SessionState

T = TypeVar("T")
# Moments that can be shown, each with a frame of the workers; every second one is a point of the history.
_STEP_NS = 125_000_000
_POINT_STEPS = 2
# The time that rates cover: it is fed step by step before a moment, and what is before it in longer steps.
_WINDOW_STEPS = 80
_LONG_STEPS = 2_400
_SNAPSHOTS = 120
# Levels of a session with more requests are computed in a thread.
_MANY_REQUESTS = 5_000


def open_replay(root: Path, which: str) -> Replay:
    return Replay(load_session(root, which))


def result_frame(summary: Summary) -> Frame:
    """Return the frame after the end of a session; what only its journal has is null."""
    session = summary.session
    state = SessionState(session.t0_ns)
    state.apply(Head(session=session, pid=0))
    for event in summary.events:
        state.apply(event)
    for server in summary.servers:
        state.apply(ServerEntry(endpoint=0, server=server))
    state.c = summary.levels[-1].c if summary.levels else 0
    state.finish(summary)
    state.status = "ended"
    return state.frame(session.t0_ns, rows=False)


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
        self._entries = list(_in_order(journal))
        self._entry_times = [t_ns for t_ns, _ in self._entries]
        # Levels are computed when a stage has ended, and its tasks were repeated serially.
        self._ends: list[int] = []
        for position, (_, entry) in enumerate(self._entries):
            if isinstance(entry, StageEnd):
                self._ends.append(position)
            elif isinstance(entry, StageStart) and entry.phase == "serial":
                del self._ends[-1:]
        self._end_times = [self._entry_times[position] for position in self._ends]
        self._baseline_ns = min((start.t_ns for start in journal.stages), default=0)
        end_ns = journal.end.t_ns if journal.end is not None else self._t0
        self._last_ns = max(self._t0, end_ns, self._worker.last_ns, *(end.t_ns for end in journal.ends))
        self._last_step = (self._last_ns - self._t0) // _STEP_NS
        # Long steps are a multiple of a point, so that every one of them ends with one.
        self._long_step = _POINT_STEPS * max(1, -(-self._last_step // (_POINT_STEPS * _LONG_STEPS)))
        self._levels: dict[int, tuple[Level, ...]] = {0: ()}
        self._summary: Summary | None = None
        state = SessionState(self._t0)
        state.apply(journal.head)
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
        if watched is not None and (update := self._worker.watched(watched, now)) is not None:
            state.watched.update(update)
        state.watched.select_tails(tails if self._has_text else ())
        state.watched.update_tails(tuple(self._worker.tail(agent, now) for agent in tails))
        return state.frame(now, rows=True)

    def _moment(self, at_s: float) -> tuple[int, int, bool]:
        """Return the step, its time, and whether it is the end of the session."""
        if at_s >= self.length_s:
            return self._last_step, self._last_ns, True
        step = max(0, int(at_s * 1e9) // _STEP_NS)
        return step, self._t0 + step * _STEP_NS, False

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

    def _apply(self, state: SessionState, entry: Entry) -> None:
        match entry:
            case TelemetryEntry(telemetry=sample) if sample.t_ns < self._baseline_ns:
                state.quality.add_baseline(sample)
            case TelemetryEntry(telemetry=sample):
                state.add_sample(sample)
            case RequestEntry(record=record):
                state.end_stream(record)
                state.apply(entry)
            case _:
                state.apply(entry)

    # levels

    def _set_levels(self, state: SessionState, now: int, ended: bool) -> None:
        """Set the levels of the stages that have ended; the newest known ones while others are computed."""
        if ended and self._summary is not None:
            state.finish(self._summary)
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
        known = [entry for _, entry in self._entries[: self._ends[missing - 1] + 1]]
        rates = self.hello.session.plan.load.serial_rates
        self._levels[missing] = levels_of(unique_records(known), known, rates, known)


def _in_order(journal: Journal) -> Iterator[tuple[int, Entry]]:
    """Yield the entries as they were written, each with the time at which it was known at the earliest."""
    known_ns, seen = journal.head.session.t0_ns, set()
    for entry in journal.entries:
        match entry:
            case RequestEntry(record=record):
                # A record that a worker spooled may be in the journal, too.
                if record.key in seen:
                    continue
                seen.add(record.key)
                known_ns = max(known_ns, record.left_ns)
            case TelemetryEntry(telemetry=sample):
                known_ns = max(known_ns, sample.t_ns)
            case StageStart() | StageEnd() | Event():
                known_ns = max(known_ns, entry.t_ns)
            case Head() | End() | QualityEntry():
                continue
        yield known_ns, entry


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
