"""Connect to an endpoint, with or without TLS; send, and receive with the kernel's timestamps."""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import ssl
import traceback
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Protocol

from swarmtui.loadgen.clock import ANCILLARY_BYTES, KernelClock, enable_kernel_stamps, unpack_timespec
from swarmtui.loadgen.event_loop import READ, WRITE, EventLoop
from swarmtui.model.endpoint import tls_problem

# Edge-triggered: the kernel then checks a socket once per arrival, not again in the next poll.
_ARRIVALS = READ | select.EPOLLET | select.EPOLLRDHUP
# A read is not larger, so that one saturated stream does not delay the others.
_READ_BYTES = 32 << 10
# Where the headers, or an event in its HTTP chunk, end; none is shorter than this many bytes.
_EVENT_END = re.compile(rb"\r?\n\r?\n(?:\r\n)?")
_LEAST_EVENT = 32
# The number of reads that are parsed together.
_KEPT_READS = 32
# The first ones wait for a part of that, which differs between streams: those that started together would otherwise all
# have to be parsed in the same moment.
_first_limits = cycle(range(_KEPT_READS // 8, 2 * _KEPT_READS + 1, _KEPT_READS // 8))

# A larger read has many events, and is parsed at once.
_KEPT_BYTES = 1024
# The error name of requests that end with an exception in this program.
CLIENT_FAULT = "client_fault"


class ConnectionUser(Protocol):
    """Callbacks of a connection. `data_received` has one or more reads, and when the kernel had each."""

    kernel_stamped: bool

    def connection_made(self) -> None: ...
    def data_received(self, reads: list[bytes], times: list[int]) -> None: ...
    def connection_lost(self, error: str, detail: str) -> None: ...
    def abort(self, error: Exception) -> None: ...


def error_name(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "tls_verify"
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, socket.gaierror):
        return "dns"
    names = {
        errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EPIPE: "reset", errno.ETIMEDOUT: "timeout",
        errno.EHOSTUNREACH: "unreachable", errno.ENETUNREACH: "unreachable", errno.EMFILE: "too_many_files",
        errno.ENFILE: "too_many_files", errno.EADDRNOTAVAIL: "no_ports",
    }  # fmt: skip
    return names.get(error.errno or 0, "socket")


def fault_text(error: Exception) -> str:
    """Describe an exception that nothing else handles: an error in this program."""
    cause = error.__context__ or error  # the HTTP parser wraps exceptions of its callbacks
    where = "".join(
        f" in {Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(cause.__traceback__)[-1:]
    )
    return f"internal error of swarmtui: {type(cause).__name__}{where}: {cause}"


class KeptReads(list[Any]):
    """Reads the socket of a connection; the list has when each read that waits arrived, and its data, alternately.

    A read waits if it ends with `end`, until the list is as long as `limit`. With many streams, nearly all data in
    memory has left the processor's caches since the last read of its stream. This object is all that a read touches.
    """

    __slots__ = ("_clock", "_connection", "_recvmsg", "end", "limit")

    def __init__(self, clock: KernelClock) -> None:
        super().__init__()
        self._clock = clock
        self._connection: Connection | None = None
        self.end: bytes | tuple[()] = ()
        self.limit = 0

    @property
    def reads(self) -> int:
        return len(self) // 2

    @property
    def last_ns(self) -> int:
        t: int = self[-2]
        return t

    def attach(self, connection: Connection, recvmsg: Callable[..., tuple[bytes, list[Any], int, Any]]) -> None:
        self._connection, self._recvmsg = connection, recvmsg

    def detach(self) -> None:
        """Break the reference cycle with the connection: the garbage collector is off in a worker."""
        self._connection = None

    def keep(self, end: bytes | None) -> None:
        """Keep reads that end so from now on; with None, keep no reads."""
        if end is None:
            self.end = ()
        elif self.end != end:
            self.end, self.limit = end, next(_first_limits)

    def take(self) -> tuple[list[bytes], list[int]]:
        reads, times = self[1::2], self[::2]
        self.clear()
        self.limit = 2 * _KEPT_READS
        return reads, times

    def on_ready(self, events: int) -> None:
        try:
            # Read before writing: a server that rejects a long request sends the reason before it closes.
            size = _READ_BYTES if self.end or events != READ else self._first_bytes()
            data, ancillary, _, _ = self._recvmsg(size, ANCILLARY_BYTES)
        except BlockingIOError:
            self._read_on(events)
        except OSError as error:
            assert self._connection is not None
            self._connection.fail(error)
        else:
            t = None
            if ancillary:
                # The timestamp is the only ancillary data that was requested.
                seconds, nanoseconds = unpack_timespec(ancillary[0][2])
                clock = self._clock
                t = seconds * 1_000_000_000 + nanoseconds - clock.offset
                clock.last_stamp = t = t if clock.low < t < clock.high else clock.recheck(t)
            self.received(t, data)
            if events != READ or len(data) == size:
                self._read_on(events)

    def _first_bytes(self) -> int:
        """Return how much to read before the first output: one event, or TLS record, if more have arrived.

        A read has the timestamp of the last packet in it, and the first token needs its own. The kernel may have merged
        packets; then the reads have the same one.
        """
        data: bytes = self._recvmsg(_READ_BYTES, 0, socket.MSG_PEEK)[0]
        if data[1:2] == b"\x03":
            end = 5 + int.from_bytes(data[3:5])
        else:
            found = _EVENT_END.search(data, _LEAST_EVENT)
            end = found.end() if found else len(data)
        return end if 0 < end < len(data) else _READ_BYTES

    def _read_on(self, events: int) -> None:
        """Send what waits for room, and ask to be called again if there may be more to read: data, or the end."""
        if self._connection is not None and events & WRITE:
            self._connection.flush()
        elif self._connection is not None:
            self._connection.await_arrivals()

    def received(self, t: int | None, data: bytes) -> None:
        """Take a read, with the kernel's timestamp if it has one; no data is the end of the connection."""
        if t is None or not data:
            assert self._connection is not None
            if not data:
                self._connection.on_eof()
                return
            t = perf_counter_ns()
            if self._connection.user is not None:
                self._connection.user.kernel_stamped = False
        self.append(t)
        self.append(data)
        if not data.endswith(self.end) or len(self) >= self.limit or len(data) > _KEPT_BYTES:
            assert self._connection is not None
            self._connection.deliver()


class Connection:
    """A connection whose user is called for each read, or for several together.

    After `keep_reads`, reads that end as it says are kept until a read ends otherwise, there are many, or `deliver` is
    called: parsing many reads at once is what makes them cheap.
    """

    __slots__ = (
        "_address", "_addresses", "_hostname", "_incoming", "_loop", "_outgoing", "_pending", "_sock", "_tls",
        "_tls_context", "fd", "kept", "open", "served", "user",
    )  # fmt: skip

    def __init__(
        self, loop: EventLoop, clock: KernelClock, addresses: list[Any], hostname: str, tls: ssl.SSLContext | None
    ) -> None:
        self._loop = loop
        self._addresses, self._address, self._hostname = addresses, 0, hostname
        self._tls_context = tls
        self._tls: ssl.SSLObject | None = None
        self._pending = b""
        self._sock: socket.socket | None = None
        self.fd = -1
        self.open = False
        self.served = False
        self.user: ConnectionUser | None = None
        self.kept = KeptReads(clock)

    def keep_reads(self, end: bytes | None) -> None:
        self.kept.keep(end)

    def connect(self) -> None:
        """Start connecting; `connection_made` or `connection_lost` follows, possibly before this returns."""
        family, kind, protocol, _, address = self._addresses[self._address]
        try:
            self._sock = sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_kernel_stamps(sock)
            self.fd = sock.fileno()
            self.kept.attach(self, sock.recvmsg)
            outcome = sock.connect_ex(address)
        except OSError as error:
            self._next_address(error)
            return
        if outcome not in (0, errno.EINPROGRESS):
            self._next_address(OSError(outcome, os.strerror(outcome)))
            return
        self._loop.add_fd(self.fd, WRITE, self._on_connect)

    def _on_connect(self, events: int) -> None:
        assert self._sock is not None
        outcome = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._loop.remove_fd(self.fd)
        if outcome:
            self._next_address(OSError(outcome, os.strerror(outcome)))
            return
        self._loop.add_fd(self.fd, _ARRIVALS, self.kept.on_ready)
        if self._tls_context is None:
            self._on_established()
            return
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._tls_context.wrap_bio(self._incoming, self._outgoing, server_hostname=self._hostname)
        self._continue_handshake(perf_counter_ns())

    def _next_address(self, error: OSError) -> None:
        if self._address + 1 < len(self._addresses):
            self._close_socket()
            self._address += 1
            self.connect()
        else:
            self.fail(error)

    def _on_established(self) -> None:
        self.open = True
        if self.user is not None:
            self.user.connection_made()

    def send(self, data: bytes) -> None:
        if self._tls is not None:
            try:
                self._tls.write(data)
            except ssl.SSLError as error:
                self.fail(error)
                return
            data = self._outgoing.read()
        self._write(data)

    def _write(self, data: bytes) -> None:
        assert self._sock is not None
        if self._pending:
            self._pending += data
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.fail(error)
            return
        if sent < len(data):
            self._pending = data[sent:]
            self._loop.modify_fd(self.fd, _ARRIVALS | WRITE)

    def flush(self) -> None:
        """Send what the socket did not accept before."""
        data, self._pending = self._pending, b""
        self.await_arrivals()
        self._write(data)

    def await_arrivals(self) -> None:
        """Call the reader when data arrives, and also if some is there already."""
        self._loop.modify_fd(self.fd, _ARRIVALS)

    def deliver(self) -> None:
        if not self.kept:
            return
        reads, times = self.kept.take()
        user = self.user
        try:
            if self._tls is not None:
                self._incoming.write(b"".join(reads))
                read = self._decrypt if self.open else self._continue_handshake
                read(times[-1])
            elif user is not None:
                user.data_received(reads, times)
            else:
                self.close()  # an idle connection that received data cannot be reused
        except Exception as error:  # noqa: BLE001 — whatever a server sends, other streams of this worker continue
            self.close()
            if user is not None:
                user.abort(error)

    def _decrypt(self, t: int) -> None:
        assert self._tls is not None
        pieces = []
        closed = False
        try:
            while piece := self._tls.read(256 << 10):
                pieces.append(piece)
            # The server's close_notify, which may come long before the end of the connection, or without it.
            closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.fail(error)
            return
        if self._outgoing.pending:
            self._write(self._outgoing.read())
        if pieces:
            if self.user is not None:
                self.user.data_received([b"".join(pieces)], [t])
            else:
                self.close()  # an idle connection that received data cannot be reused
        if closed:
            self.on_eof()

    def _continue_handshake(self, t: int) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._write(self._outgoing.read())
            return
        except ssl.SSLError as error:
            self.fail(error)
            return
        self._write(self._outgoing.read())
        if self.fd >= 0:
            self._on_established()
        if self.fd >= 0 and self._incoming.pending:
            self._decrypt(t)

    def on_eof(self) -> None:
        self._lose("closed_early", "the server closed the connection")

    def fail(self, error: OSError) -> None:
        self._lose(error_name(error), tls_problem(error) or str(error))

    def _lose(self, error: str, detail: str) -> None:
        self.deliver()
        user = self.user
        self.close()
        if user is None:
            return
        try:
            user.connection_lost(error, detail)
        except Exception as fault:  # noqa: BLE001 — as in `deliver`: other streams of this worker continue
            user.abort(fault)

    def close(self) -> None:
        self.open = False
        self.user = None
        self._close_socket()

    def _close_socket(self) -> None:
        self._pending = b""
        self.kept.detach()
        if self.fd >= 0:
            self._loop.remove_fd(self.fd)
            self.fd = -1
        if self._sock is not None:
            self._sock.close()
            self._sock = None
