"""The journal as the conductor uses it: what the disk does not take now is kept, tried again, and said aloud."""

from __future__ import annotations

import time
from pathlib import Path

from swarmtui.model.session import End, Entry, Event, StretchEnd, StretchStart
from swarmtui.sessions.journal import JournalWriter

_RETRY_S = 1.0


class Ledger:
    """Writes at once; a full or broken disk turns it into a queue in memory until the disk is back."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer = JournalWriter(directory)
        self._unsaved: list[Entry] = []
        self._problem = ""
        self._retry_at = 0.0

    @property
    def problem(self) -> str:
        """Empty when all is on disk."""
        if not self._unsaved:
            return ""
        return f"{len(self._unsaved)} entries are not on disk: {self.directory}: {self._problem}"

    def write(self, entry: Entry) -> None:
        if self._unsaved:
            self._unsaved.append(entry)
            if time.monotonic() >= self._retry_at:
                self.catch_up()
            return
        try:
            self._writer.append(entry)
            if isinstance(entry, StretchStart | StretchEnd | End):
                self._writer.sync()
        except OSError as error:
            self._keep(entry, error)

    def note(self, name: str, detail: str = "") -> None:
        self.write(Event(t_ns=time.perf_counter_ns(), name=name, detail=detail))

    def catch_up(self) -> None:
        while self._unsaved:
            try:
                self._writer.append(self._unsaved[0])
            except OSError as error:
                self._problem = error.strerror or str(error)
                self._retry_at = time.monotonic() + _RETRY_S
                return
            self._unsaved.pop(0)

    def _keep(self, entry: Entry, error: OSError) -> None:
        self._problem = error.strerror or str(error)
        self._retry_at = time.monotonic() + _RETRY_S
        self._unsaved.append(entry)

    def close(self) -> None:
        self._writer.close()
