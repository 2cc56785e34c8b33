"""The journal as the conductor uses it: what the disk does not take now is kept, tried again, and said aloud."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from swarmtui.model.session import End, Entry, Event, StretchEnd, StretchStart
from swarmtui.sessions.journal import JournalWriter
from swarmtui.sessions.store import discard

_RETRY_S = 1.0


class Ledger:
    """Writes at once; a full or broken disk turns it into a queue in memory until the disk is back."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer = JournalWriter(directory)
        self._unsaved: deque[Entry] = deque()
        self._removed = False
        self._problem = ""
        self._look_at = 0.0

    @property
    def problem(self) -> str:
        """Empty when all is on disk."""
        if self._removed:
            return f"its directory was removed: {self.directory}; {self._advice}"
        if not self._unsaved:
            return ""
        return f"{len(self._unsaved)} entries are not on disk: {self.directory}: {self._problem}; {self._advice}"

    @property
    def _advice(self) -> str:
        return f"kept in memory; save elsewhere with: swarmtui sessions save-to {self.directory.name} DIR"

    def write(self, entry: Entry) -> None:
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _RETRY_S
            self._removed = not self._writer.is_there()
            self.catch_up()
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
        except OSError:
            writer.close()
            discard(directory)
            raise
        before, self.directory = self.directory, directory
        self._writer.close()
        self._writer = writer
        self._unsaved.clear()
        self._removed = False
        if before != directory:
            discard(before)

    def rescue(self, roots: Iterable[Path]) -> str:
        """At the end: to the first place that takes all of it. What was wrong, where something was."""
        self._removed = not self._writer.is_there()
        self.catch_up()
        if not self.problem:
            return ""
        problem = self._problem if self._unsaved else "removed while it was written"
        before = self.directory
        for root in roots:
            try:
                self.move(root / before.name)
            except OSError:
                continue
            return f"{before}: {problem}; all of it was saved elsewhere"
        return self.problem

    def _sync(self) -> None:
        try:
            self._writer.sync()
        except OSError as error:
            self._problem = error.strerror or str(error)

    def close(self) -> None:
        self._writer.close()
