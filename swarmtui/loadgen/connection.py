"""Connect to an endpoint, with or without TLS; send, and receive with the kernel's timestamps."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from swarmtui.loadgen.clock import ANCILLARY_BYTES, KernelClock, enable_kernel_stamps, monotonic_ns, unpack_timespec
from swarmtui.loadgen.event_loop import READ, WRITE, EventLoop
from swarmtui.loadgen.kept_reads import KEPT_BYTES, KeptReads
from swarmtui.model.endpoint import tls_problem

# A read is not larger, so that one saturated stream does not delay the others.
_buffer = bytearray(32 << 10)
_buffers, _buffer_view = [_buffer], memoryview(_buffer)

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
    """Return the stable name under which a socket error is counted."""
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


class Connection:
    """A connection whose user is called for each read, or for several together.

    After `keep_reads`, reads that end as it says are kept until a read ends otherwise, there are many, or `deliver` is
    called: parsing many reads at once is what makes them cheap.
    """

    __slots__ = (
        "_address", "_addresses", "_clock", "_hostname", "_incoming", "_loop", "_outgoing", "_pending", "_recvmsg",
        "_sock", "_tls", "_tls_context", "fd", "kept", "open", "served", "user",
    )  # fmt: skip

    def __init__(
        self, loop: EventLoop, clock: KernelClock, addresses: list[Any], hostname: str, tls: ssl.SSLContext | None
    ) -> None:
        self._loop, self._clock = loop, clock
        self._addresses, self._address, self._hostname = addresses, 0, hostname
        self._tls_context = tls
        self._tls: ssl.SSLObject | None = None
        self._pending = b""
        self._sock: socket.socket | None = None
        self._recvmsg: Callable[..., tuple[int, list[Any], int, Any]]
        self.fd = -1
        self.open = False
        self.served = False
        self.user: ConnectionUser | None = None
        self.kept = KeptReads()

    def keep_reads(self, end: bytes | None) -> None:
        """Keep reads that end so from now on; with None, keep no reads."""
        self.kept.keep(end)

    def connect(self) -> None:
        """Start connecting; `connection_made` or `connection_lost` follows, possibly before this returns."""
        family, kind, protocol, _, address = self._addresses[self._address]
        try:
            self._sock = sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_kernel_stamps(sock)
            self.fd, self._recvmsg = sock.fileno(), sock.recvmsg_into
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
        self._loop.add_fd(self.fd, READ, self._on_ready)
        if self._tls_context is None:
            self._on_established()
            return
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._tls_context.wrap_bio(self._incoming, self._outgoing, server_hostname=self._hostname)
        self._continue_handshake(monotonic_ns())

    def _next_address(self, error: OSError) -> None:
        if self._address + 1 < len(self._addresses):
            self._close_socket()
            self._address += 1
            self.connect()
        else:
            self._fail(error)

    def _on_established(self) -> None:
        self.open = True
        if self.user is not None:
            self.user.connection_made()

    def send(self, data: bytes) -> None:
        if self._tls is not None:
            try:
                self._tls.write(data)
            except ssl.SSLError as error:
                self._fail(error)
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
            self._fail(error)
            return
        if sent < len(data):
            self._pending = data[sent:]
            self._loop.modify_fd(self.fd, READ | WRITE)

    def _flush(self) -> None:
        data, self._pending = self._pending, b""
        self._loop.modify_fd(self.fd, READ)
        self._write(data)

    def _on_ready(self, events: int) -> None:
        try:
            # Read before writing: a server that rejects a long request sends the reason before it closes.
            size, ancillary, _, _ = self._recvmsg(_buffers, ANCILLARY_BYTES)
        except BlockingIOError:
            size = -1
        except OSError as error:
            self._fail(error)
            return
        if size >= 0:
            t = None
            if ancillary:
                # The timestamp is the only ancillary data that was requested.
                seconds, nanoseconds = unpack_timespec(ancillary[0][2])
                clock = self._clock
                t = seconds * 1_000_000_000 + nanoseconds - clock.offset
                clock.last_stamp = t = t if clock.low < t < clock.high else clock.recheck(t)
            self.received(t, bytes(_buffer_view[:size]))
        if self._pending and events & WRITE:
            self._flush()

    def received(self, t: int | None, data: bytes) -> None:
        """Take a read, with the kernel's timestamp if it has one; no data is the end of the connection."""
        if t is None or not data:
            if not data:
                self._on_eof()
                return
            t = monotonic_ns()
            if self.user is not None:
                self.user.kernel_stamped = False
        kept = self.kept
        kept.append(t)
        kept.append(data)
        if not data.endswith(kept.end) or len(kept) >= kept.limit or len(data) > KEPT_BYTES:
            self.deliver()

    def deliver(self) -> None:
        """Pass what was kept to the user."""
        if not self.kept:
            return
        reads, times = self.kept.take()
        user = self.user
        try:
            if self._tls is not None:
                self._on_tls_data(b"".join(reads), times[-1])
            elif user is not None:
                user.data_received(reads, times)
            else:
                self._on_unexpected_data()
        except Exception as error:  # noqa: BLE001 — whatever a server sends, other streams of this worker continue
            self.close()
            if user is not None:
                user.abort(error)

    def _on_tls_data(self, data: bytes, t: int) -> None:
        self._incoming.write(data)
        if self.open:
            self._decrypt(t)
        else:
            self._continue_handshake(t)

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
            self._fail(error)
            return
        if self._outgoing.pending:
            self._write(self._outgoing.read())
        if pieces:
            if self.user is not None:
                self.user.data_received([b"".join(pieces)], [t])
            else:
                self._on_unexpected_data()
        if closed:
            self._on_eof()

    def _continue_handshake(self, t: int) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._write(self._outgoing.read())
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._write(self._outgoing.read())
        if self.fd >= 0:
            self._on_established()
        if self.fd >= 0 and self._incoming.pending:
            self._decrypt(t)

    def _on_unexpected_data(self) -> None:
        """Close an idle connection that received data: it cannot be reused."""
        self.close()

    def _on_eof(self) -> None:
        self._lose("closed_early", "the server closed the connection")

    def _fail(self, error: OSError) -> None:
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
        if self.fd >= 0:
            self._loop.remove_fd(self.fd)
            self.fd = -1
        if self._sock is not None:
            self._sock.close()
            self._sock = None
