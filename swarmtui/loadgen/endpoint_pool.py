"""The way to one endpoint: its addresses, its request head, its idle connections, what it has refused so far."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

from swarmtui.loadgen.clock import KernelClock
from swarmtui.loadgen.connection import Connection
from swarmtui.loadgen.event_loop import Loop
from swarmtui.model.endpoint import PATHS, parse_address
from swarmtui.model.worker_protocol import Target

# A shorter header value is no secret, and may stand in any sentence.
_SECRET_LENGTH = 6


class Route:
    def __init__(self, loop: Loop, clock: KernelClock, index: int, target: Target) -> None:
        self.loop, self._clock = loop, clock
        self.index, self.target = index, target
        self.in_flight = 0
        self.chosen = 0
        self.refused: set[str] = set()
        self._idle: list[Connection] = []
        given = (target.api_key or "", *target.headers.values())
        self._secrets = [secret for secret in given if len(secret) >= _SECRET_LENGTH]
        address = parse_address(target.url)
        self._hostname = address.host
        self._addresses: list[Any] = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        self._tls = _context(target) if address.scheme == "https" else None
        headers = {
            "Host": address.authority,
            "User-Agent": "swarmtui",
            "Accept": "application/x-ndjson" if target.dialect == "ollama" else "text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        if target.api_key:
            headers["Authorization"] = f"Bearer {target.api_key}"
        replaced = {name.lower() for name in target.headers}
        headers = {name: value for name, value in headers.items() if name.lower() not in replaced} | target.headers
        lines = [f"POST {address.base}{PATHS[target.dialect]} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._head = "\r\n".join([*lines, "Content-Length: "]).encode("latin-1", "replace")

    def request(self, body: bytes) -> bytes:
        return b"%s%d\r\n\r\n%s" % (self._head, len(body), body)

    def discreet(self, text: str) -> str:
        """A server may say the key back in its complaint: it gets into no file that way."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text

    def tellable(self, pieces: list[str], begin: int) -> tuple[str, int]:
        """What may be shown of an answer that still comes, and up to where: of a key not even a part."""
        text, end = "".join(pieces[begin:]), len(pieces)
        while end > begin and self._begins_secret(text):
            end -= 1
            text = "".join(pieces[begin:end])
        return self.discreet(text), end

    def _begins_secret(self, text: str) -> bool:
        return any(text.endswith(secret[:length]) for secret in self._secrets for length in range(1, len(secret)))

    def idle_connection(self) -> Connection | None:
        """One that is still open, the most recently used first."""
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    def new_connection(self) -> Connection:
        return Connection(self.loop, self._clock, self._addresses, self._hostname, self._tls)

    def open_ahead(self, ready: Callable[[], None]) -> None:
        """A connection for a request to come; `ready` is called when it is open, or cannot be."""
        _Opener(self, ready).start()

    def give_back(self, connection: Connection) -> None:
        connection.user = None
        self._idle.append(connection)


def _context(target: Target) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=target.ca_file)
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Opener:
    """Opens one connection ahead of its first request."""

    __slots__ = ("_connection", "_ready", "_route", "kernel", "t")

    def __init__(self, route: Route, ready: Callable[[], None]) -> None:
        self._route, self._ready = route, ready
        self.t, self.kernel = 0, True
        self._connection = route.new_connection()
        self._connection.user = self

    def start(self) -> None:
        self._connection.connect()

    def connected(self) -> None:
        self._route.give_back(self._connection)
        self._ready()

    def received(self, data: memoryview | bytes) -> None:
        self._connection.close()

    def lost(self, error: str, detail: str) -> None:
        # The agent that takes over meets the same error, and that one is recorded.
        self._ready()
