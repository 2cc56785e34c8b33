"""The journal as the conductor uses it: what the disk does not take now is kept, tried again, and said aloud."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from swarmtui.model.session import End, Entry, Event, Request, StretchEnd, StretchStart
from swarmtui.sessions.journal import SPOOLS, JournalWriter, thinned
from swarmtui.sessions.store import discard
from swarmtui.text import counted

_RETRY_S = 1.0

# A journal of this size is about three quarters of an hour of 64 streams at 50 tokens a second. From there on only one
# request of so many keeps the time of each chunk; any other is half a kilobyte, however long its answer.
_WHOLE_BYTES = 64 << 20
_WHOLE_ONE_IN = 8


class Ledger:
    """Writes at once; a full or broken disk turns it into a queue in memory until the disk is back."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer = JournalWriter(directory)
        self._unsaved: deque[Entry] = deque()
        self._removed = self._unsynced = False
        self._problem = ""
        self._look_at = 0.0
        self._thin = False

    @property
    def problem(self) -> str:
        """Of a session that goes on, with how to save it; empty when all is on disk."""
        kept = "kept in memory; " if self._removed or self._unsaved else ""
        advice = f"{kept}save elsewhere with: swarmtui sessions save-to {self.directory.name} DIR"
        return f"{self._trouble}; {advice}" if self._trouble else ""

    @property
    def loss(self) -> str:
        """The same of one that has ended: there is nothing left to save elsewhere."""
        return f"{self._trouble}; next time keep it where there is room: --session-dir DIR" if self._trouble else ""

    @property
    def _trouble(self) -> str:
        if self._removed:
            return f"its directory was removed: {self.directory}"
        if not self._unsaved:
            return f"the disk may have lost some of it: {self.directory}: {self._problem}" if self._unsynced else ""
        missing = counted(len(self._unsaved), "entry is", "entries are")
        return f"{missing} not on disk: {self.directory}: {self._problem}"

    def write(self, entry: Entry) -> None:
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _RETRY_S
            self._removed = not self._writer.is_there()
            self.catch_up()
        if isinstance(entry, Request):
            entry = self._bounded(entry)
        if self._unsaved:
            self._unsaved.append(entry)
            return
        try:
            self._writer.append(entry)
        except OSError as error:
            self._problem = error.strerror or str(error)
            self._unsaved.append(entry)
            return
        if isinstance(entry, StretchStart | StretchEnd | End):
            self._sync()

    def _bounded(self, entry: Request) -> Request:
        """A run of a day is to fit on the disk, and into the memory of who reads it."""
        if self._writer.size < _WHOLE_BYTES:
            return entry
        if not self._thin:
            self._thin = True
            self.note(
                "thinned",
                f"the journal has {_WHOLE_BYTES >> 20} MB: from here on one request in {_WHOLE_ONE_IN} keeps the time "
                "of each chunk; of the others first, last, count and longest gap are kept",
            )
        return entry if entry.record.task % _WHOLE_ONE_IN == 0 else Request(record=thinned(entry.record))

    @property
    def unsaved(self) -> Iterable[Entry]:
        return self._unsaved

    def fileno(self) -> int:
        return self._writer.fileno()

    def note(self, name: str, detail: str = "") -> None:
        self.write(Event(t_ns=time.perf_counter_ns(), name=name, detail=detail))

    def catch_up(self) -> None:
        while self._unsaved:
            try:
                self._writer.append(self._unsaved[0])
            except OSError as error:
                self._problem = error.strerror or str(error)
                return
            self._unsaved.popleft()

    def move(self, directory: Path) -> None:
        """To another place, with all that was written and all that could not be. OSError: it stays where it was."""
        writer = JournalWriter(directory)
        try:
            writer.copy(self._writer)
            for entry in self._unsaved:
                writer.append(entry)
            writer.sync()
            for spool in self.directory.glob(SPOOLS):
                shutil.copy(spool, directory)
        except OSError:
            writer.close()
            discard(directory)
            raise
        before, self.directory = self.directory, directory
        self._writer.close()
        self._writer = writer
        self._unsaved.clear()
        # What a sync failed for is there as far as anybody can see, and stays: nobody knows which disk is the better.
        if before != directory and not self._unsynced:
            discard(before)
        self._removed = self._unsynced = False

    def rescue(self, roots: Iterable[Path]) -> str:
        """At the end: to the first place that takes all of it. What was wrong, where something was."""
        self._removed = not self._writer.is_there()
        self.catch_up()
        if not self.problem:
            return ""
        problem = self._problem if self._unsaved or self._unsynced else "removed while it was written"
        before = self.directory
        for root in roots:
            try:
                self.move(root / before.name)
            except OSError:
                continue
            return f"{before}: {problem}; all of it was saved elsewhere"
        return self.loss

    def _sync(self) -> None:
        try:
            self._writer.sync()
        except OSError as error:
            self._unsynced, self._problem = True, error.strerror or str(error)

    def close(self) -> None:
        self._writer.close()
