"""Compute the levels during a run, from memory or later from the journal, and estimate how long the rest takes."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from swarmtui.analysis.levels.figures import LevelReading, level_figures
from swarmtui.analysis.quality.silence import silence_sentence
from swarmtui.model.journal import CapacitySearch, StageEnd, StageStart, entry_encoder
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from swarmtui.model.session import Level
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.processes.spawn import child_environment, module_command
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.steering import wait_unless
from swarmtui.sessions.journal import GapCache
from swarmtui.state.session_state import SessionState

# Limit on the chunk gaps kept in memory, about 3 MB, so that memory does not grow during a run of hours.
_MAX_GAPS = 200_000
# A request without gaps counts as much as this many.
_GAPS_PER_REQUEST = 100

_levels_decoder: msgspec.json.Decoder[tuple[Level, ...]] = msgspec.json.Decoder(tuple[Level, ...])


class EndedStages(NamedTuple):
    """The stages that have ended, with the records known by then; records are None if only the journal has them."""

    records: tuple[Record, ...] | None
    starts: tuple[StageStart, ...]
    ends: tuple[StageEnd, ...]


class LevelRecords:
    """The records and stages that levels are computed from; `answered` once a request of a level succeeded.

    `Stages` adds the `starts` and `ends` of stages.
    """

    def __init__(self, plan: Plan, journal: JournalQueue) -> None:
        self._rates, self._journal = plan.load.serial_rates, journal
        self.starts: list[StageStart] = []
        self.ends: list[StageEnd] = []
        self._records: list[Record] | None = []
        self._gaps = 0
        self._gap_cache = GapCache()
        self.answered = False
        self.first_error: Record | None = None

    def add(self, record: Record) -> None:
        """Add a record that is already in the journal."""
        if record.failed:
            self.first_error = self.first_error or record
        if record.phase == "warmup":
            return
        self.answered = self.answered or record.ok
        if self._records is None:
            return
        text = record.text if record.phase == "canary" else None
        self._records.append(self._gap_cache.compact(msgspec.structs.replace(record, text=text, reasoning=None)))
        self._gaps += len(record.chunk_us) + _GAPS_PER_REQUEST
        if self._gaps > _MAX_GAPS:
            self._records, self._gap_cache = None, GapCache()

    @property
    def in_memory(self) -> bool:
        """Whether levels can be computed without reading the journal."""
        return self._records is not None

    def ended(self) -> EndedStages:
        """Return the stages that have ended: meanwhile the next one may have begun."""
        ended = {end.number for end in self.ends}
        starts = tuple(start for start in self.starts if start.number in ended)
        return EndedStages(None if self._records is None else tuple(self._records), starts, tuple(self.ends))

    async def levels(
        self,
        ended: EndedStages,
        servers: Sequence[DiscoveredServer],
        readings: Sequence[LevelReading],
        search: CapacitySearch | None,
    ) -> tuple[Level, ...] | None:
        """Compute the levels in a thread, which takes up to 0.2 s, or from the journal; None if it fails."""
        if ended.records is None:
            return await self.levels_from_journal(ended, search)
        return await asyncio.to_thread(
            level_figures, ended.records, ended.starts, ended.ends, self._rates, servers, tuple(readings), search
        )

    async def levels_from_journal(self, ended: EndedStages, search: CapacitySearch | None) -> tuple[Level, ...] | None:
        """Compute the levels in a process whose memory is freed with it; None if it fails."""
        entries = (*ended.starts, *ended.ends, *([search] if search else []))
        stages = [entry_encoder.encode(entry) for entry in entries]
        lines = [*stages, *self._journal.unsaved_requests]
        journal = self._journal.duplicate()
        try:
            process = await asyncio.create_subprocess_exec(
                *module_command("swarmtui.sessions.compute_levels"), str(journal),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                pass_fds=(journal,), env=child_environment(),
            )  # fmt: skip
        except OSError:
            return None
        finally:
            os.close(journal)
        try:
            output, _ = await process.communicate(b"\n".join([*lines, b""]))
        except asyncio.CancelledError:
            process.kill()
            raise
        if process.returncode:
            return None
        return _levels_decoder.decode(output)


class LiveLevels:
    """Keeps the levels of the session's state up to date, with at most one computation running and one pending."""

    def __init__(self, records: LevelRecords, state: SessionState, journal: JournalQueue) -> None:
        self._records, self._state, self._journal = records, state, journal
        # When the silences began that have been logged.
        self._silences: set[int] = set()
        self._computing: asyncio.Task[None] | None = None
        self._next: EndedStages | None = None

    def refresh(self) -> None:
        """Compute the levels from what is known now, as a replay does: streams that continue bring more answers."""
        self._next = self._records.ended()
        if self._computing is None or self._computing.done():
            self._computing = asyncio.create_task(self._compute())

    async def _compute(self) -> None:
        while self._next is not None:
            ended, self._next = self._next, None
            state = self._state
            levels = await self._records.levels(ended, state.servers, state.readings, state.capacity_search)
            self._set(levels or state.levels)

    def _set(self, levels: tuple[Level, ...]) -> None:
        """Keep the levels, and log the silences that were found in them."""
        self._state.levels = levels
        for silence in (silence for level in levels for silence in level.silences):
            if silence.t_ns not in self._silences:
                self._silences.add(silence.t_ns)
                self._journal.log_event(silence.kind, silence_sentence(silence), t_ns=silence.t_ns)

    async def wait(self, stop_now: asyncio.Event) -> None:
        """Wait until the levels are up to date; while the journal is read for them, only until `stop_now` is set."""
        computing, self._computing = self._computing, None
        if computing is None:
            return
        if self._records.in_memory or await wait_unless(stop_now, computing):
            await computing  # raises what it has raised
        computing.cancel()


class RequestTimes:
    """The mean time of the requests at each C."""

    def __init__(self) -> None:
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._count: defaultdict[int, int] = defaultdict(int)

    def add(self, record: Record) -> None:
        if record.ok and record.phase == "level" and record.e2e_s is not None:
            self._seconds[record.c] += record.e2e_s
            self._count[record.c] += 1

    def estimate(self, c: int, slots: int | None) -> tuple[float, bool] | None:
        """Return the expected time of a request at `c`, and whether it is a lower bound; None before the first one.

        A decode step takes a + b·C, so two levels determine the line; a single one does not show its slope. Beyond the
        slots of the server, requests wait at least in proportion to C; it may be that C if the slots are not known.
        """
        known = sorted(level for level in self._count if level <= c) or sorted(self._count)[:1]
        if not known:
            return None
        if c in self._count:
            return self._mean(c), False
        full = min(c, slots) if slots else c
        nearest = known[-1]
        seconds = self._mean(nearest)
        if len(known) > 1 and full > nearest:
            before = known[-2]
            slope = max(0.0, (seconds - self._mean(before)) / (nearest - before))
            seconds += slope * (full - nearest)
        at_least = c > nearest and (slots is None or c > slots or len(known) == 1)
        return seconds * max(1.0, c / max(full, nearest)), at_least

    def _mean(self, c: int) -> float:
        return self._seconds[c] / self._count[c]
