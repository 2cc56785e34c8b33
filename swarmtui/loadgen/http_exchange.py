"""Send one request and read its streamed response: HTTP framing around the events of a dialect."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from time import perf_counter_ns
from typing import Any

import httptools

from swarmtui.loadgen.connection import CLIENT_FAULT, Connection, fault_text
from swarmtui.loadgen.dialects.base import error_text
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.response import MAX_CHARS, MAX_CHUNKS, Response
from swarmtui.loadgen.sse import EventSplitter, LineSplitter, TooLong

MAX_ERROR_BODY = 64 << 10
MAX_HEADERS = 256
# The most bytes outside the body: an endless header line would exhaust memory.
MAX_UNFRAMED = 256 << 10
# A read with this end has whole events in whole HTTP chunks, and is not the last one of its response.
_KEPT_ENDS = {EventSplitter: b"\n\n\r\n", LineSplitter: b"}\n\r\n"}
# The end of the HTTP chunk with the last event, and of the body.
_LAST_CHUNKS = b"\r\n0\r\n\r\n"
# The end of an HTTP chunk and the header of the next one, without extensions, are not longer.
_CHUNK_HEADER = 20
_STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/ndjson", "application/stream+json")
_TOO_LONG = "an event, the headers or the response exceed the size limit"


class HttpExchange:
    """One request from connecting to the end of its response; `done` is then called once, deferred.

    The parser calls the methods named `on_…`. Chunks reach `Response` with `t`, the stamp of the read they came in.

    After the first output, reads that cannot be the end of the response wait in the connection, and are then parsed
    together. If the last ones obviously complete the response, they are parsed when `finish_parsing` is called: the
    next request can be sent first.
    """

    __slots__ = (
        "_body", "_connection", "_done", "_encoding", "_end_of_body", "_header_count", "_is_stream", "_keep_alive",
        "_last", "_parser", "_pieces", "_pool", "_request", "_splitter", "_type", "_unframed", "_unparsed",
        "bytes_seen", "connection_served", "kernel_stamped", "on_body", "response", "reused", "status", "t", "t_done",
        "t_headers", "t_sent",
    )  # fmt: skip

    def __init__(self, pool: EndpointPool, done: Callable[[], None]) -> None:
        self._pool, self._done = pool, done
        self._request = b""
        self._connection: Connection | None = None
        self._splitter = pool.dialect.splitter()
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
        self.on_body = self._pieces.append
        self._end_of_body: int | None = None
        self._keep_alive = False
        self._last: bytes | None = None
        self._unparsed: tuple[bytes, list[bytes], list[int]] | None = None
        self._body = b""

    @property
    def chunks(self) -> int:
        """The chunks with output so far; reads that are not parsed yet count as one each."""
        return len(self.response.times) + (self._connection.kept.reads if self._connection is not None else 0)

    @property
    def span_s(self) -> float:
        times, connection = self.response.times, self._connection
        if not times:
            return 0.0
        last = connection.kept.last_ns if connection is not None and connection.kept else times[-1]
        return (last - times[0]) / 1e9

    def start(self, request: bytes, new_connection: bool = False) -> None:
        """Send on an idle connection if there is one, unless `new_connection`."""
        self._request = request
        connection = None if new_connection else self._pool.idle_connection()
        if connection is not None:
            self.reused, self.connection_served = True, connection.served
            self._attach(connection)
            self.connection_made()
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
            self.t_sent = perf_counter_ns()
            self._connection.send(self._request)

    def read_kept(self, before_ns: int | None = None) -> None:
        """Parse the reads that are kept, if the last of them is older than `before_ns`."""
        connection = self._connection
        if connection is None or not connection.kept:
            return
        if before_ns is None or connection.kept.last_ns < before_ns:
            connection.deliver()

    def data_received(self, reads: list[bytes], times: list[int]) -> None:
        self.bytes_seen = True
        self.t = times[-1]
        data = b"".join(reads)
        if self._last is not None and data.endswith(self._last) and b"error" not in data:
            self._unparsed = data, reads, times
            self._end(None, "", keep=self._keep_alive)
        else:
            self._parse(data, reads, times)

    def finish_parsing(self) -> None:
        """Parse the end of the response, if that was left for later."""
        if self._unparsed is not None:
            unparsed, self._unparsed = self._unparsed, None
            self._parse(*unparsed)
            self._parser = None

    def _parse(self, data: bytes, reads: list[bytes], times: list[int]) -> None:
        try:
            try:
                self._parser.feed_data(data)
            finally:
                # What was received before an error is still counted.
                if self._end_of_body is not None:
                    del self._pieces[self._end_of_body :]
                if self._pieces:
                    self._read_body(data, reads, times)
                    self._pieces.clear()
                else:
                    self._unframed += len(data)
                    if self._unframed > MAX_UNFRAMED:
                        raise TooLong
            if self._end_of_body is not None:
                self._complete(self._keep_alive)
        except TooLong:
            self.response.fail("too_long", _TOO_LONG)
        except httptools.HttpParserCallbackError as error:
            # The parser wraps exceptions of our callbacks.
            if not isinstance(error.__context__, TooLong):
                raise
            self.response.fail("too_long", _TOO_LONG)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.response.fail("bad_http", str(error))
        if self.response.error is not None:
            self._end(self.response.error, self.response.error_detail)

    def _read_body(self, data: bytes, reads: list[bytes], times: list[int]) -> None:
        """Read the pieces of the body that the parser found in some reads."""
        pieces, response = self._pieces, self.response
        if not self._is_stream:
            self._body += b"".join(pieces)[: MAX_ERROR_BODY - len(self._body)]
            return
        end = _KEPT_ENDS[type(self._splitter)]
        stamps = times
        if len(pieces) != len(times):
            # When each event arrived, if each is whole in one read and has this end.
            stamps = [t for read, t in zip(reads, times, strict=True) for _ in range(read.count(end))]
        payloads = self._splitter.feed_each(pieces) if len(pieces) == len(stamps) else None
        if payloads is None:
            payloads, stamps = [], []
            for body, t in zip(_bodies(data, pieces, reads), times, strict=True):
                events = self._splitter.feed(body)
                payloads += events
                stamps += [t] * len(events)
        times = stamps
        self._pool.dialect.read(response, payloads, times)
        if response.chars > MAX_CHARS or len(response.times) > MAX_CHUNKS:
            raise TooLong
        if self._connection is not None and response.times:
            self._connection.keep_reads(end)
            last_event = self._pool.dialect.last_event
            self._last = last_event + _LAST_CHUNKS if last_event is not None else None

    def on_message_begin(self) -> None:
        """Forget the headers of an interim response. A connection with a second final response cannot be reused."""
        if self._end_of_body is None:
            self._type = self._encoding = ""
        self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._end_of_body is not None:
            return
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            raise TooLong
        lowered = name.lower()
        if lowered == b"content-type":
            self._type = value.decode("latin-1").split(";")[0].strip().lower()
        elif lowered == b"content-encoding" and value.lower() != b"identity":
            self._encoding = f"{value.decode('latin-1')}-encoded "

    def on_headers_complete(self) -> None:
        if self._end_of_body is not None:
            return
        self.status = self._parser.get_status_code()
        if self.status < 100:
            self.response.fail("bad_http", f"invalid status {self.status:03}")
        elif self.status == 101:
            self.response.fail("http_101", "the server switched to another protocol without being asked to")
        elif self.status >= 200:
            self.t_headers = self.t
            self._keep_alive = self._parser.should_keep_alive()
        self._is_stream = self.status == 200 and not self._encoding and self._type in _STREAM_TYPES

    def on_message_complete(self) -> None:
        if self._end_of_body is None and self.status >= 200:
            self._end_of_body = len(self._pieces)
            self._keep_alive = self._parser.should_keep_alive()

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
            rest = self._splitter.finish()
            self._pool.dialect.read(response, rest, [self.t] * len(rest))
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
        self.read_kept()
        if self._is_stream and self.response.finished:
            self._end(None, "")
        else:
            self._end(error, detail)

    def cancel(self, error: str, detail: str) -> None:
        self.read_kept()
        self._end(error, detail)

    def abort(self, error: Exception) -> None:
        """End after an exception that nothing else handles: it must not affect other streams."""
        self._end(CLIENT_FAULT, fault_text(error))

    def _end(self, error: str | None, detail: str, keep: bool = False) -> None:
        if self.t_done is not None:
            return
        self.t_done = self.t if self.bytes_seen and error is None else perf_counter_ns()
        if error is not None:
            self.response.fail(error, detail)
        if self._unparsed is None:
            # Break the reference cycle with the parser: the garbage collector is off in a worker.
            self._parser = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.keep_reads(None)
            if keep and connection.open:
                self._pool.release(connection)
            else:
                connection.close()
        self._pool.loop.call_soon(self._done)


def _bodies(data: bytes, pieces: list[bytes], reads: list[bytes]) -> list[bytes]:
    """Return the part of the body in each read, from its pieces, which are in `data`, the reads together.

    So a body that is sent byte by byte costs no more than a whole one.
    """
    if len(reads) == 1:
        return [b"".join(pieces)]
    ends = list(accumulate(map(len, reads)))
    by_read: list[list[bytes]] = [[] for _ in ends]
    position = 0
    for piece in pieces:
        # Search the bytes that can precede the piece only: a search for a long piece in much data is slow to start.
        found = data.find(piece, position, position + len(piece) + _CHUNK_HEADER)
        position = (found if found >= 0 else data.index(piece, position)) + len(piece)
        by_read[min(bisect_left(ends, position), len(ends) - 1)].append(piece)
    return [b"".join(parts) for parts in by_read]
