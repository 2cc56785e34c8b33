"""Keep finished requests until the session process has saved them; write them to a spool file if it cannot."""

from __future__ import annotations

import contextlib
from collections import deque
from pathlib import Path

import msgspec

from swarmtui.files import append_whole, is_private_directory, make_private_directory
from swarmtui.model.record import Record, shift_times
from swarmtui.model.session import RequestEntry
from swarmtui.model.worker_protocol import HEADER_BYTES, Finished, decode_report, pack
from swarmtui.text import echo

# Records beyond this size, while the disk of the session is full, are written to a spool file.
_MAX_BYTES = 64 << 20


class UnacknowledgedRecords:
    """Numbers the records of a worker, and keeps their messages until they are acknowledged."""

    def __init__(self) -> None:
        self._spools: tuple[str, ...] = ()
        self._clock_offset_ns = 0
        self._messages: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._last = 0

    def spool_to(self, paths: tuple[str, ...], clock_offset_ns: int) -> None:
        """Set the paths of the spool file, the preferred one first, and how far ahead of the session this clock is."""
        self._spools, self._clock_offset_ns = paths, clock_offset_ns

    def add(self, record: Record) -> bytes:
        """Keep a record; return the message that reports it."""
        message = pack(Finished(self._last + 1, record))
        self._last += 1
        self._messages.append((self._last, message))
        self._bytes += len(message)
        if self._bytes > _MAX_BYTES:
            self.spool()
        return message

    def acknowledge(self, number: int) -> None:
        """Forget the records up to this number."""
        while self._messages and self._messages[0][0] <= number:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        self._bytes -= len(self._messages.popleft()[1])

    def spool(self) -> None:
        """Write the records to spool files, which readers of the session include, and forget them.

        Those that fit nowhere are only in the memory of the session process, if it is still alive.
        """
        spools = list(self._spools)
        lost, problem = 0, ""
        while self._messages:
            line = _journal_line(self._messages[0][1], self._clock_offset_ns)
            while spools:
                try:
                    append_whole(spools[0], line)
                    break
                except OSError as error:
                    problem = f"{spools.pop(0)}: {error.strerror}"
                    _make_spool_directory(spools)
            else:
                lost += 1
            self._forget_oldest()
        if lost and problem:
            echo(f"swarmtui worker: {lost} finished requests could not be spooled: {problem}", err=True)


def _make_spool_directory(spools: list[str]) -> None:
    """Create the directory of the next path, which is not that of the session; skip one that others can access."""
    while spools:
        directory = Path(spools[0]).parent
        with contextlib.suppress(OSError):
            make_private_directory(directory)
        if is_private_directory(directory):
            return
        del spools[0]


def _journal_line(message: bytes, clock_offset_ns: int) -> bytes:
    report = decode_report(message[HEADER_BYTES:])
    assert isinstance(report, Finished)
    return msgspec.json.encode(RequestEntry(record=shift_times(report.record, -clock_offset_ns))) + b"\n"
