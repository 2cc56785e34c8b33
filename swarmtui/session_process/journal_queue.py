"""Write the journal in a thread; entries that cannot be written are kept in memory and tried again."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from swarmtui.files import MAX_JOURNAL, append_whole, read_file
from swarmtui.model.client_protocol import SessionWarning, WarningCode
from swarmtui.model.journal import End, Entry, RequestEntry, StageEnd, StageStart, entry_encoder
from swarmtui.model.session import Event
from swarmtui.sessions.journal import JournalWriter, discard_spools, read_spooled, spool_files, without_chunk_times
from swarmtui.sessions.store import discard_session
from swarmtui.text import count_noun

_RETRY_S = 1.0
# A disk that has not finished a write for this long is reported.
_SLOW_S = 5.0
# 64 streams at 50 tok/s fill this size in about 45 minutes. Beyond it only one request in eight keeps its chunk times;
# the others take half a kilobyte each, however long their answers.
_FULL_DETAIL_BYTES = 64 << 20
_FULL_DETAIL_ONE_IN = 8


class _QueuedLine(NamedTuple):
    """An encoded entry; `request` is the key of its record, `synced` whether it must reach the disk itself."""

    line: bytes
    request: tuple[int, int, int] | None
    synced: bool


class JournalQueue:
    """Writes entries in order, in a thread, so that no disk delays the event loop.

    What is not written yet is in memory, and stays there while the disk is full or fails. To create one, `flush`,
    `move`, `save_elsewhere`, `final_problem` and `close` wait for the disk: an event loop calls them in a thread.
    `on_write` gets each entry, on disk or not.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer = JournalWriter(directory)
        self._unsaved: deque[_QueuedLine] = deque()
        self._accepted = self._written = self._saved = 0
        self._failing = self._removed = self._unsynced = self._closed = False
        self._busy_since: float | None = None
        self._problem = ""
        self._thinned = False
        self.on_write: Callable[[Entry], None] = lambda entry: None
        # `_disk` is held for as long as the disk takes; `_queue` never while the disk is used.
        self._disk, self._queue = threading.Lock(), threading.Lock()
        self._wake = threading.Event()
        threading.Thread(target=self._write_until_closed, name="journal", daemon=True).start()

    @property
    def warning(self) -> SessionWarning | None:
        """Say what is not safely on disk, and how to save the running session elsewhere; None if all is on disk."""
        code = self._problem_code
        if code is None:
            return None
        kept = "kept in memory; " if self._removed or self._unsaved else ""
        advice = f"{kept}save elsewhere with: swarmtui sessions save-to {self.directory.name} DIR"
        return SessionWarning(code, f"{self._problem_text(code, len(self._unsaved))}; {advice}")

    def final_problem(self) -> str:
        """Say what is not safely on disk at the end, when nothing can be saved elsewhere any more."""
        code = self._problem_code
        if code is None:
            return ""
        spooled = read_spooled(self.directory)
        missing = sum(entry.request not in spooled for entry in self._queued())
        return f"{self._problem_text(code, missing)}; next time use a directory with enough space: --session-dir DIR"

    @property
    def _problem_code(self) -> WarningCode | None:
        if self._removed:
            return "directory_removed"
        since = self._busy_since
        if self._failing or (since is not None and time.monotonic() - since > _SLOW_S):
            return "not_on_disk"
        return "not_synced" if self._unsynced else None

    def _problem_text(self, code: WarningCode, unsaved: int) -> str:
        match code:
            case "directory_removed":
                return f"its directory was removed: {self.directory}"
            case "not_synced":
                return f"some entries may not be on disk: {self.directory}: {self._problem}"
        missing = count_noun(unsaved, "entry is", "entries are")
        problem = self._problem if self._failing else f"a write has taken more than {_SLOW_S:g} s"
        return f"{missing} not on disk: {self.directory}: {problem}"

    def write(self, entry: Entry) -> int:
        """Queue an entry; return its place in the journal. It is on disk once `saved` has reached it."""
        self.on_write(entry)
        if isinstance(entry, RequestEntry):
            entry = self._limit_detail(entry)
        request = entry.record.key if isinstance(entry, RequestEntry) else None
        synced = isinstance(entry, StageStart | StageEnd | End)
        with self._queue:
            self._unsaved.append(_QueuedLine(entry_encoder.encode(entry), request, synced))
            self._accepted += 1
            place = self._accepted
        if not self._failing:
            self._wake.set()
        return place

    def saved(self) -> int:
        """Return how many entries are on disk; none is added while the file is removed, or after a failed sync."""
        return self._saved

    def _limit_detail(self, entry: RequestEntry) -> RequestEntry:
        """Drop chunk times in a long journal, so that a run of a day fits on disk and can be read into memory."""
        if self._writer.size < _FULL_DETAIL_BYTES:
            return entry
        if not self._thinned:
            self._thinned = True
            self.log_event(
                "thinned",
                f"the journal has {_FULL_DETAIL_BYTES >> 20} MB: from now on one request in {_FULL_DETAIL_ONE_IN} "
                "keeps its chunk times; of the others the first, last, count and longest gap are kept",
            )
        if entry.record.task % _FULL_DETAIL_ONE_IN == 0:
            return entry
        return RequestEntry(record=without_chunk_times(entry.record))

    @property
    def unsaved_requests(self) -> list[bytes]:
        """The finished requests that may not be in the file yet, encoded."""
        return [entry.line for entry in self._queued() if entry.request is not None]

    def duplicate(self) -> int:
        """Return another descriptor of the open file, which a move does not close; the caller closes it."""
        with self._queue:
            return os.dup(self._writer.fileno())

    def log_event(self, name: str, detail: str = "", *, t_ns: int | None = None) -> None:
        self.write(Event(t_ns=time.perf_counter_ns() if t_ns is None else t_ns, name=name, detail=detail))

    def _write_until_closed(self) -> None:
        """Write what is queued, look for the file and, if writing failed, try again once per second."""
        while not self._closed:
            self._wake.wait(_RETRY_S)
            self._wake.clear()
            with self._disk:
                if not self._closed:
                    self._write_queued()

    def _write_queued(self) -> None:
        self._busy_since = time.monotonic()
        queued, written = self._queued(), 0
        try:
            for entry in queued:
                self._writer.append(entry.line)
                written += 1
            self._failing = False
        except OSError as error:
            self._failing, self._problem = True, error.strerror or str(error)
        if any(entry.synced for entry in queued[:written]):
            try:
                self._writer.sync()
            except OSError as error:
                self._unsynced, self._problem = True, error.strerror or str(error)
        self._forget(written)
        self._removed = not self._writer.is_in_place()
        if not self._removed and not self._unsynced:
            self._saved = self._written
        self._busy_since = None

    def _queued(self) -> list[_QueuedLine]:
        with self._queue:
            return list(self._unsaved)

    def _forget(self, written: int) -> None:
        """Remove the first entries from memory, which are in the file now."""
        with self._queue:
            for _ in range(written):
                self._unsaved.popleft()
        self._written += written

    def flush(self) -> None:
        """Wait until everything is on disk, or could not be written."""
        with self._disk:
            self._write_queued()

    def move(self, directory: Path) -> None:
        """Move the journal with all its entries, written or not; after an OSError it is where it was."""
        with self._disk:
            writer = JournalWriter(directory)
            queued = self._queued()
            try:
                writer.copy(self._writer)
                for entry in queued:
                    writer.append(entry.line)
                writer.sync()
                for spool in spool_files(self.directory):
                    append_whole(directory / spool.name, read_file(spool, MAX_JOURNAL))
            except OSError:
                writer.close()
                discard_session(directory)
                raise
            before, self.directory = self.directory, directory
            with self._queue:
                left, self._writer = self._writer, writer
            left.close()
            self._forget(len(queued))
            # After a failed sync the old files may be complete or not: keep them too.
            if before != directory and not self._unsynced:
                discard_session(before)
            self._failing = self._removed = self._unsynced = False
            self._saved = self._written
            discard_spools(directory)

    def save_elsewhere(self, roots: Iterable[Path]) -> str:
        """Move an incomplete journal to the first of `roots` that accepts it.

        Return a sentence on what happened; empty if the journal is complete.
        """
        self.flush()
        if self._problem_code is None:
            return ""
        problem = self._problem if self._failing or self._unsynced else "removed during the run"
        before = self.directory
        for root in roots:
            try:
                self.move(root / before.name)
            except OSError:
                continue
            return f"{before}: {problem}; all entries were saved elsewhere"
        return self.final_problem()

    def close(self) -> None:
        """Write what is queued, as far as the disk accepts it, and close the file."""
        with self._disk:
            self._write_queued()
            self._closed = True
            self._writer.close()
        self._wake.set()
