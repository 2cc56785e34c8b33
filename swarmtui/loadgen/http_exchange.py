"""One request and its streamed answer over one connection: HTTP framing around the events of a dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httptools

from swarmtui.loadgen import dialects
from swarmtui.loadgen.clock import monotonic_ns
from swarmtui.loadgen.connection import Connection
from swarmtui.loadgen.endpoint_pool import Route
from swarmtui.loadgen.response import MAX_CHARS, MAX_CHUNKS, Answer
from swarmtui.loadgen.sse import TooLong

MAX_ERROR_BODY = 64 << 10
MAX_HEADERS = 256

# So many bytes may come that are no part of a body: a header line without an end would fill the memory.
MAX_BARE = 256 << 10

# A piece of a body shorter than this is no event of any server we know.
_CRUMB = 32

_STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/ndjson", "application/stream+json")

_TOO_LONG = "an event, a header block or an answer without an end in sight"


class Exchange:
    """Lives from the connection to the end of the answer, then has `done` called once, soon.

    The parser calls the methods named `on_…`. Chunks reach `Answer` with `t`, the stamp of the read they came in.
    """

    __slots__ = (
        "_bare", "_body", "_connection", "_done", "_encoding", "_fed", "_feed", "_finish", "_header_count",
        "_is_stream", "_kept", "_parser", "_pieces", "_read", "_request", "_route", "_type", "answer", "bytes_seen",
        "kernel", "reused", "status", "t", "t_done", "t_headers", "t_sent",
    )  # fmt: skip

    def __init__(self, route: Route, request: bytes, done: Callable[[], None]) -> None:
        self._route, self._request, self._done = route, request, done
        self._connection: Connection | None = None
        self._kept: Connection | None = None
        splitter = dialects.splitter(route.target.dialect)
        self._feed, self._finish = splitter.feed, splitter.finish
        self._read = dialects.reader(route.target.dialect)
        self.answer = Answer()
        self.status = 0
        self.t = 0
        self.kernel = True
        self.t_sent: int | None = None
        self.t_headers: int | None = None
        self.t_done: int | None = None
        self.reused = False
        self.bytes_seen = False
        self._is_stream = False
        self._type = self._encoding = ""
        self._header_count = 0
        self._bare = 0
        self._pieces: list[bytes] = []
        self._body = b""

    def start(self, fresh: bool = False) -> None:
        """`fresh`: on a connection of its own, since the idle ones cannot be trusted."""
        connection = None if fresh else self._route.idle_connection()
        if connection is not None:
            self.reused = True
            self._use(connection)
            self._send(connection)
        else:
            connection = self._route.new_connection()
            self._use(connection)
            connection.connect()

    def _use(self, connection: Connection) -> None:
        self._connection = connection
        connection.user = self
        self._parser: Any = httptools.HttpResponseParser(self)

    def connected(self) -> None:
        if self._connection is not None:
            self._send(self._connection)

    def _send(self, connection: Connection) -> None:
        request = self._request
        self.t_sent = monotonic_ns()
        connection.send(request)

    def received(self, data: memoryview | bytes) -> None:
        self.bytes_seen = True
        try:
            self._fed = False
            self._parser.feed_data(data)
            if self._pieces:
                self._read_pieces()
            elif not self._fed and self.t_done is None:
                self._count_bare(len(data))
        except TooLong:
            self._end("too_long", _TOO_LONG)
        except httptools.HttpParserCallbackError as error:
            # The parser wraps what our own callbacks raise; only one of them is meant to get through.
            if isinstance(error.__context__, TooLong):
                self._end("too_long", _TOO_LONG)
            else:
                raise
        except httptools.HttpParserError as error:
            self._end("bad_http", str(error))
        if self.answer.error is not None:
            self._end(self.answer.error, self.answer.error_detail)
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self._route.give_back(kept)

    def on_message_begin(self) -> None:
        """Behind the answer comes another one that nobody asked for: no connection to go on with."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
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
        self.t_headers = self.t
        self.status = self._parser.get_status_code()
        self._is_stream = self.status == 200 and not self._encoding and self._type in _STREAM_TYPES

    def on_body(self, data: bytes) -> None:
        """Whole events, as nearly always, are read at once; crumbs are gathered until the read is over."""
        if self.t_done is not None:
            return
        if not self._is_stream or self._pieces or len(data) < _CRUMB:
            self._pieces.append(data)
            return
        self._fed = True
        self._take(data)

    def _take(self, data: bytes) -> None:
        answer, t, read = self.answer, self.t, self._read
        for payload in self._feed(data):
            read(answer, payload, t)
        if answer.chars > MAX_CHARS or len(answer.times) > MAX_CHUNKS:
            raise TooLong

    def _read_pieces(self) -> None:
        """All that one read brought, at once: a body cut into single bytes costs no more than a whole one."""
        pieces, self._pieces = self._pieces, []
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if not self._is_stream:
            self._body += data[: MAX_ERROR_BODY - len(self._body)]
            return
        self._take(data)

    def _count_bare(self, size: int) -> None:
        self._bare += size
        if self._bare > MAX_BARE:
            raise TooLong

    def on_message_complete(self) -> None:
        if self.t_done is None and self.status >= 200:
            if self._pieces:
                self._read_pieces()
            self._complete(keep=self._parser.should_keep_alive())

    def lost(self, error: str, detail: str) -> None:
        """The connection is gone. With nothing but its end to mark the body's end, that may be as it should be."""
        self._connection = None
        if self.t_done is not None:
            return
        if self.status >= 200 and (error == "closed_early" or self.answer.finished):
            self._complete(keep=False)
        else:
            self._end(error, detail)

    def _complete(self, keep: bool) -> None:
        answer = self.answer
        if self._is_stream:
            for payload in self._finish():
                self._read(answer, payload, self.t)
            if not answer.finished and answer.finish_reason is None:
                answer.fail("closed_early", "the stream ended without a finish reason and without [DONE]")
        elif self.status != 200:
            answer.fail(f"http_{self.status}", dialects.error_text(self._body))
        else:
            answer.fail(
                "not_a_stream", f"{self._encoding}{self._type or 'no content type'}: {dialects.error_text(self._body)}"
            )
        self._end(answer.error, answer.error_detail, keep=keep)

    def silent(self, error: str, detail: str) -> None:
        """A time limit has passed. A stream that said its last word and only does not end is complete."""
        if self._is_stream and self.answer.finished:
            self._end(None, "")
        else:
            self._end(error, detail)

    def cancel(self, error: str, detail: str) -> None:
        self._end(error, detail)

    def _end(self, error: str | None, detail: str, keep: bool = False) -> None:
        if self.t_done is not None:
            return
        self.t_done = self.t if self.bytes_seen and error is None else monotonic_ns()
        if error is not None:
            self.answer.fail(error, detail)
        # The parser holds us and we hold it: no collector runs in a worker that could part the two.
        self._parser = None
        connection, self._connection = self._connection, None
        if connection is not None:
            if keep and connection.open:
                self._kept = connection
            else:
                connection.close()
        self._route.loop.soon(self._done)
