"""One connection to an endpoint: connect, TLS, send, and reads that carry the kernel's stamp."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from typing import Any, Protocol

from swarmtui.loadgen.clock import ANCILLARY_BYTES, KernelClock, ask_for_stamps, monotonic_ns, read_timespec
from swarmtui.loadgen.event_loop import READ, WRITE, Loop
from swarmtui.model.tls_errors import tls_problem

# One read takes at most this much; a saturated stream fills it, a paced one has one event in it. It is so small that a
# server which floods us keeps no other stream waiting for long.
_buffer = bytearray(32 << 10)
_view = memoryview(_buffer)
_buffers = [_buffer]


class User(Protocol):
    """Who uses a connection. `t` is set before each `received`: when the kernel got what is read."""

    t: int
    kernel: bool

    def connected(self) -> None: ...
    def received(self, data: memoryview | bytes) -> None: ...
    def lost(self, error: str, detail: str) -> None: ...


def error_name(error: OSError) -> str:
    """The stable short name under which a socket error is counted."""
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


class Connection:
    __slots__ = (
        "_address", "_addresses", "_clock", "_hostname", "_incoming", "_loop", "_outgoing", "_pending", "_sock",
        "_tls", "_tls_context", "fd", "open", "user",
    )  # fmt: skip

    def __init__(
        self, loop: Loop, clock: KernelClock, addresses: list[Any], hostname: str, tls: ssl.SSLContext | None
    ) -> None:
        self._loop, self._clock = loop, clock
        self._addresses, self._address, self._hostname = addresses, 0, hostname
        self._tls_context = tls
        self._tls: ssl.SSLObject | None = None
        self._pending = b""
        self._sock: socket.socket | None = None
        self.fd = -1
        self.open = False
        self.user: User | None = None

    def connect(self) -> None:
        """Begins to connect; the user hears `connected` or `lost`, perhaps at once."""
        family, kind, protocol, _, address = self._addresses[self._address]
        try:
            self._sock = sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask_for_stamps(sock)
            self.fd = sock.fileno()
            outcome = sock.connect_ex(address)
        except OSError as error:
            self._next_address(error)
            return
        if outcome not in (0, errno.EINPROGRESS):
            self._next_address(OSError(outcome, os.strerror(outcome)))
            return
        self._loop.watch(self.fd, WRITE, self._on_connect)

    def _on_connect(self, events: int) -> None:
        assert self._sock is not None
        outcome = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._loop.forget(self.fd)
        if outcome:
            self._next_address(OSError(outcome, os.strerror(outcome)))
            return
        if self._tls_context is None:
            self._ready(self._on_plain)
            return
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._tls_context.wrap_bio(self._incoming, self._outgoing, server_hostname=self._hostname)
        self._loop.watch(self.fd, READ, self._on_handshake)
        self._shake()

    def _next_address(self, error: OSError) -> None:
        if self._address + 1 < len(self._addresses):
            self._close_socket()
            self._address += 1
            self.connect()
        else:
            self._fail(error)

    def _ready(self, handler: Any) -> None:
        self._loop.watch(self.fd, READ, handler)
        self.open = True
        if self.user is not None:
            self.user.connected()

    def send(self, data: bytes) -> None:
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        self._push(data)

    def _push(self, data: bytes) -> None:
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
            self._loop.change(self.fd, READ | WRITE)

    def _flush(self) -> None:
        data, self._pending = self._pending, b""
        self._loop.change(self.fd, READ)
        self._push(data)

    def _receive(self) -> int:
        """Reads once into the shared buffer and stamps it; −1 when there is nothing, or the connection is gone."""
        try:
            size, ancillary, _, _ = self._sock.recvmsg_into(_buffers, ANCILLARY_BYTES)  # type: ignore[union-attr]
        except BlockingIOError:
            return -1
        except OSError as error:
            self._fail(error)
            return -1
        user = self.user
        if user is not None:
            if ancillary:
                # The stamp is all that these sockets ask the kernel to tell.
                seconds, nanoseconds = read_timespec(ancillary[0][2])
                clock = self._clock
                t = seconds * 1_000_000_000 + nanoseconds - clock.offset
                clock.newest = user.t = t if clock.low < t < clock.high else clock.second_look(t)
            elif size:  # the end of a stream has no stamp, and needs none
                user.t, user.kernel = monotonic_ns(), False
        return size

    def _on_plain(self, events: int) -> None:
        # Read before write: a server that refuses a long request says why before it closes.
        size = self._receive()
        if size > 0:
            if self.user is not None:
                self.user.received(_view[:size])
            else:
                self._unasked()
        elif size == 0:
            self._ended()
        if self._pending and events & WRITE:
            self._flush()

    def _on_tls(self, events: int) -> None:
        size = self._receive()
        if size > 0:
            self._decrypt(size)
        elif size == 0:
            self._ended()
        if self._pending and events & WRITE:
            self._flush()

    def _decrypt(self, size: int) -> None:
        assert self._tls is not None
        self._incoming.write(_view[:size])
        pieces = []
        try:
            while piece := self._tls.read(256 << 10):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._outgoing.pending:
            self._push(self._outgoing.read())
        if pieces:
            if self.user is not None:
                self.user.received(b"".join(pieces))
            else:
                self._unasked()

    def _on_handshake(self, events: int) -> None:
        size = self._receive()
        if size > 0:
            self._incoming.write(_view[:size])
            self._shake()
        elif size == 0:
            self._ended()
        if self._pending and events & WRITE:
            self._flush()

    def _shake(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._push(self._outgoing.read())
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._push(self._outgoing.read())
        if self.fd >= 0:
            self._loop.forget(self.fd)
            self._ready(self._on_tls)

    def _unasked(self) -> None:
        """Bytes that nobody waits for: whatever this is, it is no connection to go on with."""
        self.close()

    def _ended(self) -> None:
        user, self.user = self.user, None
        self.close()
        if user is not None:
            user.lost("closed_early", "the server closed the connection")

    def _fail(self, error: OSError) -> None:
        user, self.user = self.user, None
        self.close()
        if user is not None:
            user.lost(error_name(error), tls_problem(error) or str(error))

    def close(self) -> None:
        self.open = False
        self.user = None
        self._close_socket()

    def _close_socket(self) -> None:
        self._pending = b""
        if self.fd >= 0:
            self._loop.forget(self.fd)
            self.fd = -1
        if self._sock is not None:
            self._sock.close()
            self._sock = None
