"""Exchange messages with the session process without waiting for it; keep finished requests until it has saved them.

Those that it cannot save are written to a spool file.
"""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

import msgspec

from swarmtui.files import append_whole, is_private_directory, make_private_directory
from swarmtui.loadgen.event_loop import READ, WRITE, EventLoop
from swarmtui.model.journal import RequestEntry
from swarmtui.model.record import Record, shift_times
from swarmtui.model.worker_protocol import (
    HEADER_BYTES,
    Finished,
    Unpacker,
    WorkerCommand,
    decode_command,
    decode_report,
    pack,
)
from swarmtui.text import echo

# Messages that wait to be sent; beyond this no frames are sent, only records.
_MAX_WAITING = 64
# Records beyond this size, while the disk of the session is full, are written to a spool file.
_MAX_BYTES = 64 << 20
# After this time the disk of the session is full or slow, or its process hangs. So many are copied at once: reading
# must not wait for long.
_OVERDUE_NS = 1_000_000_000
_AT_ONCE = 256


class SessionPipe:
    """Calls `on_command` for each command, and `on_closed` when the session process is gone."""

    def __init__(
        self,
        loop: EventLoop,
        sock: socket.socket,
        on_command: Callable[[WorkerCommand], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._loop, self._socket = loop, sock
        self._on_command, self._on_closed = on_command, on_closed
        self._unpacker = Unpacker()
        self._outbox: deque[bytes] = deque()
        sock.setblocking(False)
        loop.add_fd(sock.fileno(), READ, self._on_ready)

    def keeps_up(self) -> bool:
        """Whether the session process reads fast enough for frames to be sent."""
        return len(self._outbox) <= _MAX_WAITING

    def send(self, message: bytes) -> None:
        self._outbox.append(message)
        if len(self._outbox) == 1:
            self._flush()

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_closed()
            return
        for body in self._unpacker.feed(data):
            self._on_command(decode_command(body))

    def _flush(self) -> None:
        while self._outbox:
            message = self._outbox[0]
            try:
                sent = self._socket.send(message)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._on_closed()
                return
            if sent < len(message):
                self._outbox[0] = message[sent:]
                self._loop.modify_fd(self._socket.fileno(), READ | WRITE)
                return
            self._outbox.popleft()
        self._loop.modify_fd(self._socket.fileno(), READ)


class _Kept(NamedTuple):
    number: int
    since_ns: int
    message: bytes


class UnacknowledgedRecords:
    """Numbers the records of a worker, and keeps their messages until they are acknowledged."""

    def __init__(self) -> None:
        self._spools: tuple[str, ...] = ()
        self._clock_offset_ns = 0
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        self._last = 0
        # The records up to this number are also in these files.
        self._copied = 0
        self._copies: set[str] = set()

    def spool_to(self, paths: tuple[str, ...], clock_offset_ns: int) -> None:
        """Set the paths of the spool file, the preferred one first, and how far ahead of the session this clock is."""
        self._spools, self._clock_offset_ns = paths, clock_offset_ns

    def add(self, record: Record) -> bytes:
        """Keep a record; return the message that reports it."""
        message = pack(Finished(self._last + 1, record))
        self._last += 1
        self._kept.append(_Kept(self._last, perf_counter_ns(), message))
        self._bytes += len(message)
        if self._bytes > _MAX_BYTES:
            self.spool()
        return message

    def acknowledge(self, number: int) -> None:
        while self._kept and self._kept[0].number <= number:
            self._bytes -= len(self._kept.popleft().message)
        if self._copies and number >= self._copied:
            for path in map(Path, self._copies):
                with suppress(OSError):
                    path.unlink()
                    path.parent.rmdir()
            self._copies.clear()

    def copy_overdue(self) -> None:
        """Copy records that have waited long to a disk that takes them: this process, too, may be killed."""
        start = max(0, self._copied + 1 - self._kept[0].number) if self._kept else 0
        # Once some had to be copied, the others need not wait as long.
        before = perf_counter_ns() - (0 if self._copies else _OVERDUE_NS)
        overdue = [kept for kept in islice(self._kept, start, start + _AT_ONCE) if kept.since_ns < before]
        lines = b"".join(map(self._line, overdue))
        for path in self._spools[1:] if overdue else ():
            with suppress(OSError):
                _make_directory(path)
                append_whole(path, lines)
                self._copied = overdue[-1].number
                self._copies.add(path)
                return

    def spool(self) -> None:
        """Write the records to spool files, which readers of the session include, and forget them.

        Those that fit nowhere are only in the memory of the session process, if it is still alive.
        """
        paths = list(self._spools)
        lost, problem = 0, ""
        for kept in self._kept:
            line = self._line(kept)
            while paths and (len(paths) == len(self._spools) or kept.number > self._copied):
                try:
                    if paths[0] != self._spools[0]:
                        _make_directory(paths[0])
                    append_whole(paths[0], line)
                    # A file of copies may have this record now: it is kept until this one is acknowledged, too.
                    self._copied = max(self._copied, kept.number)
                    break
                except OSError as error:
                    problem = f"{paths.pop(0)}: {error.strerror}"
            else:
                lost += kept.number > self._copied
        self._kept.clear()
        self._bytes = 0
        if lost and problem:
            echo(f"swarmtui worker: {lost} finished requests could not be spooled: {problem}", err=True)

    def _line(self, kept: _Kept) -> bytes:
        report = decode_report(kept.message[HEADER_BYTES:])
        assert isinstance(report, Finished)
        return msgspec.json.encode(RequestEntry(record=shift_times(report.record, -self._clock_offset_ns))) + b"\n"


def _make_directory(path: str) -> None:
    """Create the directory of a spool file that is not in that of the session; refuse one that others can access."""
    directory = Path(path).parent
    make_private_directory(directory)
    if not is_private_directory(directory):
        raise OSError(errno.EACCES, "others can access it", str(directory))
