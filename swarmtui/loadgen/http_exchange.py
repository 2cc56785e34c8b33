"""Send one request and read its streamed response: HTTP framing around the events of a dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httptools

from swarmtui.loadgen.clock import monotonic_ns
from swarmtui.loadgen.connection import CLIENT_FAULT, Connection, fault_text
from swarmtui.loadgen.dialects.base import error_text
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.response import MAX_CHARS, MAX_CHUNKS, Response
from swarmtui.loadgen.sse import TooLong

MAX_ERROR_BODY = 64 << 10
MAX_HEADERS = 256

# The most bytes outside the body: an endless header line would exhaust memory.
MAX_UNFRAMED = 256 << 10

# Shorter pieces of a body are not whole events, and are collected until the read is complete.
_MIN_EVENT = 32

_STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/ndjson", "application/stream+json")

_TOO_LONG = "an event, the headers or the response exceed the size limit"


class HttpExchange:
    """One request from connecting to the end of its response; `done` is then called once, deferred.

    The parser calls the methods named `on_…`. Chunks reach `Response` with `t`, the stamp of the read they came in.
    """

    __slots__ = (
        "_body", "_body_read", "_connection", "_done", "_encoding", "_feed", "_finish", "_header_count", "_is_stream",
        "_parser", "_pieces", "_pool", "_read", "_request", "_reusable", "_type", "_unframed", "bytes_seen",
        "connection_served", "kernel_stamped", "response", "reused", "status", "t", "t_done", "t_headers", "t_sent",
    )  # fmt: skip

    def __init__(self, pool: EndpointPool, done: Callable[[], None]) -> None:
        self._pool, self._done = pool, done
        self._request = b""
        self._connection: Connection | None = None
        self._reusable: Connection | None = None
        splitter = pool.dialect.splitter()
        self._feed, self._finish = splitter.feed, splitter.finish
        self._read = pool.dialect.read
        self.response = Response()
        self.status = 0
        self.t = 0
        self.kernel_stamped = True
        self.t_sent: int | None = None
        self.t_headers: int | None = None
        self.t_done: int | None = None
        self.reused = self.connection_served = False
        self.bytes_seen = False
        self._is_stream = False
        self._type = self._encoding = ""
        self._header_count = 0
        self._unframed = 0
        self._pieces: list[bytes] = []
        self._body = b""

    def start(self, request: bytes, new_connection: bool = False) -> None:
        """Send on an idle connection if there is one, unless `new_connection`."""
        self._request = request
        connection = None if new_connection else self._pool.idle_connection()
        if connection is not None:
            self.reused, self.connection_served = True, connection.served
            self._attach(connection)
            self._send(connection)
        else:
            connection = self._pool.new_connection()
            self._attach(connection)
            connection.connect()

    def _attach(self, connection: Connection) -> None:
        self._connection = connection
        connection.user = self
        self._parser: Any = httptools.HttpResponseParser(self)

    def connection_made(self) -> None:
        if self._connection is not None:
            self._send(self._connection)

    def _send(self, connection: Connection) -> None:
        request = self._request
        self.t_sent = monotonic_ns()
        connection.send(request)

    def data_received(self, data: memoryview | bytes) -> None:
        self.bytes_seen = True
        try:
            self._body_read = False
            self._parser.feed_data(data)
            if self._pieces:
                self._read_pieces()
            elif not self._body_read and self.t_done is None:
                self._count_unframed(len(data))
        except TooLong:
            self._end("too_long", _TOO_LONG)
        except httptools.HttpParserCallbackError as error:
            # The parser wraps exceptions of our callbacks.
            if isinstance(error.__context__, TooLong):
                self._end("too_long", _TOO_LONG)
            else:
                raise
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._end("bad_http", str(error))
        if self.response.error is not None:
            self._end(self.response.error, self.response.error_detail)
        if self._reusable is not None:
            kept, self._reusable = self._reusable, None
            self._pool.release(kept)

    def on_message_begin(self) -> None:
        """Forget the headers of an interim response. A connection with a second final response cannot be reused."""
        self._type = self._encoding = ""
        if self._reusable is not None:
            kept, self._reusable = self._reusable, None
            kept.close()

    def on_status(self, status: bytes) -> None:
        pass

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            raise TooLong
        lowered = name.lower()
        if lowered == b"content-type":
            self._type = value.decode("latin-1").split(";")[0].strip().lower()
        elif lowered == b"content-encoding" and value.lower() != b"identity":
            self._encoding = f"{value.decode('latin-1')}-encoded "

    def on_headers_complete(self) -> None:
        if self.t_done is not None:
            return
        self.status = self._parser.get_status_code()
        if self.status < 100:
            self.response.fail("bad_http", f"invalid status {self.status:03}")
        elif self.status == 101:
            self.response.fail("http_101", "the server switched to another protocol without being asked to")
        elif self.status >= 200:
            self.t_headers = self.t
        self._is_stream = self.status == 200 and not self._encoding and self._type in _STREAM_TYPES

    def on_body(self, data: bytes) -> None:
        """Parse whole events immediately; collect smaller pieces until the read is complete."""
        if self.t_done is not None:
            return
        if not self._is_stream or self._pieces or len(data) < _MIN_EVENT:
            self._pieces.append(data)
            return
        self._body_read = True
        self._read_events(data)

    def _read_events(self, data: bytes) -> None:
        response, t, read = self.response, self.t, self._read
        for payload in self._feed(data):
            read(response, payload, t)
        if response.chars > MAX_CHARS or len(response.times) > MAX_CHUNKS:
            raise TooLong

    def _read_pieces(self) -> None:
        """Parse the pieces of one read together: a body sent byte by byte costs no more than a whole one."""
        pieces, self._pieces = self._pieces, []
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if not self._is_stream:
            self._body += data[: MAX_ERROR_BODY - len(self._body)]
            return
        self._read_events(data)

    def _count_unframed(self, size: int) -> None:
        self._unframed += size
        if self._unframed > MAX_UNFRAMED:
            raise TooLong

    def on_message_complete(self) -> None:
        if self.t_done is None and self.status >= 200:
            if self._pieces:
                self._read_pieces()
            self._complete(keep=self._parser.should_keep_alive())

    def connection_lost(self, error: str, detail: str) -> None:
        """Finish the response: without a length, the end of the connection marks the end of the body."""
        self._connection = None
        if self.t_done is not None:
            return
        if self.status >= 200 and (error == "closed_early" or self.response.finished):
            self._complete(keep=False)
        else:
            self._end(error, detail)

    def _complete(self, keep: bool) -> None:
        response = self.response
        if self._is_stream:
            for payload in self._finish():
                self._read(response, payload, self.t)
            if not response.finished and response.finish_reason is None:
                response.fail("closed_early", "the stream ended without a finish reason and without its last event")
        elif self.status != 200:
            response.fail(f"http_{self.status}", error_text(self._body))
        else:
            response.fail(
                "not_a_stream", f"{self._encoding}{self._type or 'no content type'}: {error_text(self._body)}"
            )
        self._end(response.error, response.error_detail, keep=keep)

    def time_out(self, error: str, detail: str) -> None:
        """End with an error, unless the stream has sent its last event and only fails to close."""
        if self._is_stream and self.response.finished:
            self._end(None, "")
        else:
            self._end(error, detail)

    def cancel(self, error: str, detail: str) -> None:
        self._end(error, detail)

    def abort(self, error: Exception) -> None:
        """End after an exception that nothing else handles: it must not affect other streams."""
        self._end(CLIENT_FAULT, fault_text(error))

    def _end(self, error: str | None, detail: str, keep: bool = False) -> None:
        if self.t_done is not None:
            return
        self.t_done = self.t if self.bytes_seen and error is None else monotonic_ns()
        if error is not None:
            self.response.fail(error, detail)
        # Break the reference cycle with the parser: the garbage collector is off in a worker.
        self._parser = None
        connection, self._connection = self._connection, None
        if connection is not None:
            if keep and connection.open:
                self._reusable = connection
            else:
                connection.close()
        self._pool.loop.call_soon(self._done)
