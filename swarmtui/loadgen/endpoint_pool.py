"""Keep the connections to one endpoint, with its addresses, its request head and the fields that it rejects."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

from swarmtui.loadgen.clock import KernelClock
from swarmtui.loadgen.connection import Connection
from swarmtui.loadgen.dialects import load_dialect
from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.model.endpoint import PATHS, parse_address
from swarmtui.model.redaction import Redactor, Secrets
from swarmtui.model.worker_protocol import Target

# After this many reused connections in a row that the server had closed, none is reused.
_FAILED_REUSES = 2


class EndpointPool:
    def __init__(self, loop: EventLoop, clock: KernelClock, index: int, target: Target) -> None:
        self.loop, self._clock = loop, clock
        self.index, self.target = index, target
        self.dialect = load_dialect(target.dialect)
        self.in_flight = 0
        self.assigned = 0
        self.rejected_fields: set[str] = set()
        self._idle: list[Connection] = []
        self._failed_reuses = 0
        self.redactor = Redactor(Secrets(api_key=target.api_key, headers=target.headers, urls={"": target.url}))
        address = parse_address(target.url)
        self._hostname = address.host
        self._addresses: list[Any] = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        self._tls = _tls_context(target) if address.scheme == "https" else None
        headers = {
            "Host": address.authority,
            "User-Agent": "swarmtui",
            "Accept": self.dialect.accept,
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        } | self.dialect.auth_headers(target.api_key)
        overridden = {name.lower() for name in target.headers}
        headers = {name: value for name, value in headers.items() if name.lower() not in overridden} | target.headers
        query = f"?{address.query}" if address.query else ""
        lines = [f"POST {address.base}{PATHS[target.dialect]}{query} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._head = "\r\n".join([*lines, "Content-Length: "]).encode("latin-1", "replace")

    def request(self, body: bytes) -> bytes:
        return b"%s%d\r\n\r\n%s" % (self._head, len(body), body)

    def idle_connection(self) -> Connection | None:
        """Return the most recently used connection that is still open."""
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    def new_connection(self) -> Connection:
        return Connection(self.loop, self._clock, self._addresses, self._hostname, self._tls)

    def preconnect(self, ready: Callable[[], None]) -> None:
        """Open a connection for a later request; `ready` is called when it is open or has failed."""
        _Preconnection(self, ready)

    def keep(self, connection: Connection) -> None:
        connection.user = None
        self._idle.append(connection)

    def release(self, connection: Connection) -> None:
        """Keep the connection of a complete response, unless the server would close it.

        Then each request opens its own. One that is opened earlier would occupy a thread of servers that have one
        thread per connection, such as llama.cpp.
        """
        if self.closes_connections:
            connection.close()
        else:
            connection.served = True
            self.keep(connection)

    def count_reuse(self, failed: bool) -> None:
        """Count a request on a connection that had served another one."""
        self._failed_reuses = self._failed_reuses + 1 if failed else 0

    @property
    def closes_connections(self) -> bool:
        """Whether the server closes connections after a response, although it promises to keep them."""
        return self._failed_reuses >= _FAILED_REUSES


def _tls_context(target: Target) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=target.ca_file)
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Preconnection:
    """Opens one connection before its first request."""

    __slots__ = ("_connection", "_pool", "_ready", "kernel_stamped")

    def __init__(self, pool: EndpointPool, ready: Callable[[], None]) -> None:
        self._pool, self._ready = pool, ready
        self.kernel_stamped = True
        self._connection = pool.new_connection()
        self._connection.user = self
        self._connection.connect()

    def connection_made(self) -> None:
        self._pool.keep(self._connection)
        self._ready()

    def data_received(self, reads: list[bytes], times: list[int]) -> None:
        self._connection.close()

    def connection_lost(self, error: str, detail: str) -> None:
        # The next request meets the same error, and records it.
        self._ready()

    def abort(self, error: Exception) -> None:
        self._ready()
