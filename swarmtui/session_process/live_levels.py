"""What the levels are made of: kept in memory while it is little, read again from the journal when it is much."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.levels.serial import serial_rates
from swarmtui.client.spawn import environment
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from swarmtui.model.session import Level, Request, StretchEnd, StretchStart, entry_encoder
from swarmtui.session_process.journal_queue import Ledger
from swarmtui.sessions.journal import Thrift

# Gaps between chunks, and as much for a request without any: about 3 MB in all. A run of hours must not grow with them.
_MOST_KEPT = 200_000
_PER_REQUEST = 100

_levels_decoder: msgspec.json.Decoder[tuple[Level, ...]] = msgspec.json.Decoder(tuple[Level, ...])


class Measured:
    """`answered`: at least one request that counts came back well."""

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        self._rates, self._ledger = serial_rates(plan), ledger
        self._starts: list[StretchStart] = []
        self._ends: list[StretchEnd] = []
        self._records: list[Record] | None = []
        self._kept = 0
        self._thrift = Thrift()
        self.answered = False

    def add(self, record: Record) -> None:
        """One that the ledger has already."""
        self.answered = self.answered or record.ok
        if self._records is None:
            return
        self._records.append(self._thrift.record(msgspec.structs.replace(record, text=None, reasoning=None)))
        self._kept += len(record.chunk_us) + _PER_REQUEST
        if self._kept > _MOST_KEPT:
            self._records, self._thrift = None, Thrift()

    def begin(self, start: StretchStart) -> None:
        self._starts.append(start)

    def end(self, end: StretchEnd) -> None:
        self._ends.append(end)

    @property
    def at_hand(self) -> tuple[Level, ...] | None:
        """The levels, where that takes no reading."""
        if self._records is None:
            return None
        return level_figures(self._records, self._starts, self._ends, self._rates)

    async def read(self) -> tuple[Level, ...] | None:
        """Made in a process of its own, whose memory goes with it; None where it came to nothing."""
        unsaved = (entry for entry in self._ledger.unsaved if isinstance(entry, Request))
        lines = [entry_encoder.encode(entry) for entry in (*self._starts, *self._ends, *unsaved)]
        journal = self._ledger.fileno()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "swarmtui.sessions.figures", str(journal),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, pass_fds=(journal,), env=environment(),
            )  # fmt: skip
        except OSError:
            return None
        try:
            told, _ = await process.communicate(b"\n".join([*lines, b""]))
        except asyncio.CancelledError:
            process.kill()
            raise
        if process.returncode:
            return None
        return _levels_decoder.decode(told)
