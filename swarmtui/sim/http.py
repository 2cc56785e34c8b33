"""A minimal HTTP/1.1 server: one request at a time per connection, with whole or chunked responses."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import httptools
import msgspec

MAX_BODY = 64 << 20
JSON = "application/json"
LAST_CHUNK = b"0\r\n\r\n"


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    http_1_1: bool


def head(status: int, content_type: str, *, length: int | None, keep_alive: bool) -> bytes:
    """Return status line and headers; without a length the body is chunked."""
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    close = "" if keep_alive else "connection: close\r\n"
    reason = HTTPStatus(status).phrase
    return (
        f"HTTP/1.1 {status} {reason}\r\nserver: swarmtui-sim\r\ncontent-type: {content_type}\r\n{size}\r\n{close}\r\n"
    ).encode()


class SimConnection(asyncio.Protocol):
    """One client connection. `handle` is called for each request after the response to the previous one."""

    def __init__(
        self, handle: Callable[[SimConnection, HttpRequest], None], on_disconnect: Callable[[SimConnection], None]
    ) -> None:
        self._handle = handle
        self._on_disconnect = on_disconnect
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[HttpRequest] = deque()
        self._current: HttpRequest | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._waiting.clear()
        self._on_disconnect(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400)

    def on_message_begin(self) -> None:
        self._url, self._body = b"", bytearray()
        self._headers: dict[str, str] = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > MAX_BODY:
            self._refuse(413)

    def on_message_complete(self) -> None:
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=self._url.partition(b"?")[0].decode("latin-1"),
            headers=self._headers,
            body=bytes(self._body),
            keep_alive=self._parser.should_keep_alive(),
            http_1_1=self._parser.get_http_version() == "1.1",
        )
        self._waiting.append(request)
        if self._current is None:
            self._next()

    def _next(self) -> None:
        if self._waiting and self._current is None and not self.transport.is_closing():
            self._current = self._waiting.popleft()
            self._handle(self, self._current)

    @property
    def _keeps_alive(self) -> bool:
        return self._current is not None and self._current.keep_alive

    def respond(self, status: int, body: bytes, content_type: str = JSON) -> None:
        self.transport.write(head(status, content_type, length=len(body), keep_alive=self._keeps_alive) + body)
        self.finish()

    def start_stream(self, content_type: str) -> None:
        self.transport.write(head(200, content_type, length=None, keep_alive=self._keeps_alive))

    def finish(self) -> None:
        """End the response. The next request is handled by a new callback, so that no handler runs inside another."""
        keeps_alive, self._current = self._keeps_alive, None
        if not keeps_alive:
            self.transport.close()
        elif self._waiting:
            asyncio.get_running_loop().call_soon(self._next)

    def reset(self) -> None:
        """Break the connection with a TCP reset, like a crashed server."""
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _refuse(self, status: int) -> None:
        if self.transport.is_closing():
            return
        body = b'{"detail":"%s"}' % HTTPStatus(status).phrase.encode()
        self.transport.write(head(status, JSON, length=len(body), keep_alive=False) + body)
        self.transport.close()
