"""Write the journal; entries that cannot be written are kept in memory and tried again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from swarmtui.files import MAX_JOURNAL, append_whole, read_file
from swarmtui.model.client_protocol import SessionWarning, WarningCode
from swarmtui.model.session import End, Entry, Event, RequestEntry, StageEnd, StageStart
from swarmtui.sessions.journal import JournalWriter, discard_spools, read_spooled, spool_files, without_chunk_times
from swarmtui.sessions.store import discard_session
from swarmtui.text import count_noun

_RETRY_S = 1.0

# 64 streams at 50 tok/s fill this size in about 45 minutes. Beyond it only one request in eight keeps its chunk times;
# the others take half a kilobyte each, however long their answers.
_FULL_DETAIL_BYTES = 64 << 20
_FULL_DETAIL_ONE_IN = 8


class JournalQueue:
    """Writes each entry immediately, or queues it in memory while the disk is full or fails."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer = JournalWriter(directory)
        self._unsaved: deque[Entry] = deque()
        self._accepted = self._saved = 0
        self._removed = self._unsynced = False
        self._problem = ""
        self._check_at = 0.0
        self._thinned = False

    @property
    def warning(self) -> SessionWarning | None:
        """What is not safely on disk, and how to save the running session elsewhere; None if all is on disk."""
        code = self._problem_code
        if code is None:
            return None
        kept = "kept in memory; " if self._removed or self._unsaved else ""
        advice = f"{kept}save elsewhere with: swarmtui sessions save-to {self.directory.name} DIR"
        return SessionWarning(code, f"{self._problem_text(len(self._unsaved))}; {advice}")

    @property
    def final_problem(self) -> str:
        """What is not safely on disk at the end, when nothing can be saved elsewhere any more."""
        if self._problem_code is None:
            return ""
        spooled = read_spooled(self.directory)
        missing = sum(not isinstance(entry, RequestEntry) or entry.record.key not in spooled for entry in self._unsaved)
        return f"{self._problem_text(missing)}; next time use a directory with enough space: --session-dir DIR"

    @property
    def _problem_code(self) -> WarningCode | None:
        if self._removed:
            return "directory_removed"
        if self._unsaved:
            return "not_on_disk"
        return "not_synced" if self._unsynced else None

    def _problem_text(self, unsaved: int) -> str:
        match self._problem_code:
            case "directory_removed":
                return f"its directory was removed: {self.directory}"
            case "not_synced":
                return f"some entries may not be on disk: {self.directory}: {self._problem}"
        missing = count_noun(unsaved, "entry is", "entries are")
        return f"{missing} not on disk: {self.directory}: {self._problem}"

    def write(self, entry: Entry) -> int:
        """Write or queue an entry; return its place in the journal. It is on disk once `saved` has reached it."""
        if time.monotonic() >= self._check_at:
            self._check_at = time.monotonic() + _RETRY_S
            self._removed = not self._writer.is_in_place()
            self.flush()
        if isinstance(entry, RequestEntry):
            entry = self._limit_detail(entry)
        self._accepted += 1
        place = self._accepted
        if self._unsaved:
            self._unsaved.append(entry)
            return place
        try:
            self._writer.append(entry)
        except OSError as error:
            self._problem = error.strerror or str(error)
            self._unsaved.append(entry)
            return place
        if isinstance(entry, StageStart | StageEnd | End):
            self._sync()
        return place

    def saved(self) -> int:
        """Return how many entries are on disk; none is added while the file is removed, or after a failed sync."""
        self._removed = not self._writer.is_in_place()
        if not self._removed and not self._unsynced:
            self._saved = self._accepted - len(self._unsaved)
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
    def unsaved(self) -> Iterable[Entry]:
        return self._unsaved

    def fileno(self) -> int:
        return self._writer.fileno()

    def log_event(self, name: str, detail: str = "", *, t_ns: int | None = None) -> None:
        self.write(Event(t_ns=time.perf_counter_ns() if t_ns is None else t_ns, name=name, detail=detail))

    def flush(self) -> None:
        while self._unsaved:
            try:
                self._writer.append(self._unsaved[0])
            except OSError as error:
                self._problem = error.strerror or str(error)
                return
            self._unsaved.popleft()

    def move(self, directory: Path) -> None:
        """Move the journal with all its entries, written or not; after an OSError it is where it was."""
        writer = JournalWriter(directory)
        try:
            writer.copy(self._writer)
            for entry in self._unsaved:
                writer.append(entry)
            writer.sync()
            for spool in spool_files(self.directory):
                append_whole(directory / spool.name, read_file(spool, MAX_JOURNAL))
        except OSError:
            writer.close()
            discard_session(directory)
            raise
        before, self.directory = self.directory, directory
        self._writer.close()
        self._writer = writer
        self._unsaved.clear()
        # After a failed sync the old files may be complete or not: keep them too.
        if before != directory and not self._unsynced:
            discard_session(before)
        self._removed = self._unsynced = False
        discard_spools(directory)

    def save_elsewhere(self, roots: Iterable[Path]) -> str:
        """Move an incomplete journal to the first of `roots` that accepts it.

        Return a sentence on what happened; empty if the journal is complete.
        """
        self._removed = not self._writer.is_in_place()
        self.flush()
        if self._problem_code is None:
            return ""
        problem = self._problem if self._unsaved or self._unsynced else "removed during the run"
        before = self.directory
        for root in roots:
            try:
                self.move(root / before.name)
            except OSError:
                continue
            return f"{before}: {problem}; all entries were saved elsewhere"
        return self.final_problem

    def _sync(self) -> None:
        try:
            self._writer.sync()
        except OSError as error:
            self._unsynced, self._problem = True, error.strerror or str(error)

    def close(self) -> None:
        self._writer.close()
