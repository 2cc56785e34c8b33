"""A server that mistreats a share of its requests in every known way, and responds correctly to the rest.

The case depends only on the text of a request, so that a request that is sent again meets the same one.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from swarmtui.model.endpoint import PATHS
from swarmtui.model.plan import Timeouts
from tests.loadgen.raw_server import RawCall, RawServer
from tests.loadgen.wire import Wire, wire_of

WORDS = 12
GAP_S = 0.01

# Longer than any timeout of a test.
_HANG_S = 60.0

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"


class HostileCase(NamedTuple):
    """`error` is the expected error name; None if the response is unusual but valid."""

    handler: Callable[[RawCall, Wire], None]
    error: str | None


def healthy(call: RawCall, wire: Wire, sent: list[tuple[int, int]]) -> None:
    """Respond correctly; add the times before and after sending each word to `sent`."""
    call.begin_stream(wire.content_type)
    if wire.start:
        call.chunk(wire.start)
    for number in range(WORDS):
        time.sleep(GAP_S)
        before = time.perf_counter_ns()
        call.chunk(wire.word(f"word{number} "))
        sent.append((before, time.perf_counter_ns()))
    call.chunk(wire.end(WORDS))
    call.end_stream()


def _hang(call: RawCall, wire: Wire) -> None:
    """Wait until the client gives up."""
    call.wait_for_disconnect(_HANG_S)
    call.close()


def _hang_after_headers(call: RawCall, wire: Wire) -> None:
    call.begin_stream(wire.content_type)
    _hang(call, wire)


def _hang_in_mid_stream(call: RawCall, wire: Wire) -> None:
    call.begin_stream(wire.content_type)
    call.chunk(wire.start + wire.word("Hel"))
    _hang(call, wire)


def _trickle(call: RawCall, wire: Wire) -> None:
    """Send single bytes that never form an event."""
    call.begin_stream(wire.content_type)
    while True:
        call.chunk(b"x")
        time.sleep(0.02)


def _close_early(call: RawCall, wire: Wire) -> None:
    call.begin_stream(wire.content_type)
    call.chunk(wire.start + wire.word("Hel"))
    call.close()


def _reset_in_mid_stream(call: RawCall, wire: Wire) -> None:
    call.begin_stream(wire.content_type)
    call.chunk(wire.start + wire.word("Hel"))
    call.reset()


def _page(status: str, text: str, kind: str = "application/json", *headers: str) -> Callable[[RawCall, Wire], None]:
    def answer(call: RawCall, wire: Wire) -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(text.encode())}", *headers]
        call.send("\r\n".join([*head, "", text]).encode())

    return answer


def _stream(make_events: Callable[[Wire], Iterable[bytes]]) -> Callable[[RawCall, Wire], None]:
    def answer(call: RawCall, wire: Wire) -> None:
        call.begin_stream(wire.content_type)
        for event in filter(None, make_events(wire)):
            call.chunk(event)
        call.end_stream()

    return answer


def _words(wire: Wire) -> list[bytes]:
    return [wire.start, *(wire.word(f"word{n} ") for n in range(WORDS))]


def _bad(payload: bytes) -> Callable[[RawCall, Wire], None]:
    """Send an event that cannot be decoded."""
    return _stream(lambda wire: (wire.start, wire.raw(payload)))


def _byte_by_byte(call: RawCall, wire: Wire) -> None:
    """Send each byte as its own chunk, including multi-byte characters."""
    call.begin_stream(wire.content_type)
    for number in range(WORDS):
        for byte in wire.word(f"wörd{number} …"):
            call.chunk(bytes([byte]))
    for byte in wire.end(WORDS):
        call.chunk(bytes([byte]))
    call.end_stream()


def _long_line(call: RawCall, wire: Wire) -> None:
    call.begin_stream(wire.content_type)
    call.chunk(wire.raw(b"").split(b"\n")[0] or b" ")
    for _ in range(160):
        call.chunk(b"x" * (64 << 10))
    call.end_stream()


def _long_line_in_bytes(call: RawCall, wire: Wire) -> None:
    call.begin_stream(wire.content_type)
    piece = b"1\r\nx\r\n" * 10_000
    for _ in range(1_000):
        call.send(piece)
    call.end_stream()


def _endless_stream(call: RawCall, wire: Wire) -> None:
    call.begin_stream(wire.content_type)
    one = wire.word("on ")
    piece = b"%x\r\n%s\r\n" % (len(one), one) * 500
    while True:
        call.send(piece)


def _endless_headers(call: RawCall, wire: Wire) -> None:
    call.send(_HEAD)
    while True:
        call.send(b"X-More: of it\r\n" * 1_000)


def _endless_header(call: RawCall, wire: Wire) -> None:
    call.send(_HEAD + b"X-Long: ")
    while True:
        call.send(b"y" * (64 << 10))


def _endless_trailer(call: RawCall, wire: Wire) -> None:
    call.begin_stream(wire.content_type)
    call.send(b"0\r\nX-Long: ")
    while True:
        call.send(b"y" * (64 << 10))


def _endless_page(call: RawCall, wire: Wire) -> None:
    call.begin_stream("text/html")
    while True:
        call.chunk(b"<p>" * (16 << 10))
        time.sleep(0.02)


def _gzip(call: RawCall, wire: Wire) -> None:
    """Send a compressed stream, although the client accepts none."""
    packed = gzip.compress(wire.start + wire.word("Hel") + wire.end(1))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: {wire.content_type}\r\n"
    call.send(f"{head}Content-Length: {len(packed)}\r\n\r\n".encode() + packed)


def _burst(call: RawCall, wire: Wire) -> None:
    """Send several words at a time, as a buffering proxy does."""
    call.begin_stream(wire.content_type)
    for tick in range(3):
        time.sleep(0.1)
        call.chunk(b"".join(wire.word(f"word{tick}.{n} ") for n in range(WORDS // 3)))
    call.chunk(wire.end(WORDS))
    call.end_stream()


def _respond_twice(call: RawCall, wire: Wire) -> None:
    """Send an unsolicited second response along with the first."""
    body = b"".join([*_words(wire), wire.end(WORDS)])
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {wire.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    whole = head.encode() + body
    call.send(whole * 2)


_LOADING = json.dumps({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})

CASES: dict[str, HostileCase] = {
    "reset": HostileCase(lambda call, wire: call.reset(), "reset"),
    "reset in mid-stream": HostileCase(_reset_in_mid_stream, "reset"),
    "hangs before headers": HostileCase(_hang, "first_token_timeout"),
    "hangs after headers": HostileCase(_hang_after_headers, "first_token_timeout"),
    "hangs in mid-stream": HostileCase(_hang_in_mid_stream, "idle_timeout"),
    "trickles": HostileCase(_trickle, "first_token_timeout"),
    "closes early": HostileCase(_close_early, "closed_early"),
    "429": HostileCase(_page("429 No", '{"detail":"slow down"}', "application/json", "Retry-After: 1"), "http_429"),
    "500": HostileCase(_page("500 No", "Internal Server Error", "text/plain"), "http_500"),
    "503 while loading": HostileCase(_page("503 No", _LOADING), "http_503"),
    "wrong type": HostileCase(_page("200 OK", '{"choices":[]}'), "not_a_stream"),
    "HTML": HostileCase(_page("200 OK", "<html>log in here</html>", "text/html"), "not_a_stream"),
    "endless HTML": HostileCase(_endless_page, "first_token_timeout"),
    "truncated JSON": HostileCase(_bad(b'{"id":"a","choices":[{"delta'), "bad_json"),
    "invalid JSON": HostileCase(_bad(b"{oops}"), "bad_json"),
    "nested JSON": HostileCase(_bad(b'{"error":' + b"[" * 100_000), "bad_json"),
    "invalid UTF-8": HostileCase(
        _stream(lambda wire: (wire.start, wire.word("??").replace(b"??", b"\xff\xfe"))), "bad_json"
    ),
    "huge count": HostileCase(_stream(lambda wire: (*_words(wire), wire.end(1 << 70))), "bad_json"),
    "split at each byte": HostileCase(_byte_by_byte, None),
    "10 MB line": HostileCase(_long_line, "too_long"),
    "10 MB line in bytes": HostileCase(_long_line_in_bytes, "too_long"),
    "endless stream": HostileCase(_endless_stream, "too_long"),
    "endless headers": HostileCase(_endless_headers, "too_long"),
    "endless header": HostileCase(_endless_header, "too_long"),
    "endless trailer": HostileCase(_endless_trailer, "too_long"),
    "gzip": HostileCase(_gzip, "not_a_stream"),
    "last event twice": HostileCase(_stream(lambda wire: (*_words(wire), wire.end(WORDS), wire.last)), None),
    "responds twice": HostileCase(_respond_twice, None),
    "error event": HostileCase(_stream(lambda wire: (*_words(wire)[:3], wire.error("engine died"))), "error_event"),
    "usage contradicts": HostileCase(_stream(lambda wire: (*_words(wire), wire.end(1))), None),
    "bursts": HostileCase(_burst, None),
}


TIMEOUTS = Timeouts(connect=5.0, first_token=5.0, idle=4.0, total=60.0)

# Oversized responses are recognised by their size, which takes a slow machine a while to read.
LONG_TIMEOUTS = Timeouts(connect=5.0, first_token=50.0, idle=50.0, total=55.0)
HEAVY = {"endless stream", "10 MB line", "10 MB line in bytes"}

# Ended by a timeout, after which they are not served again, so that a run with generous timeouts stays short.
TIMED = {name for name, case in CASES.items() if case.error in ("first_token_timeout", "idle_timeout")}


class HostileServer(RawServer):
    """Serves `share` of the requests with one of `cases`, those in `once` at most once; or the case in `<…>`.

    Beyond `limit` connections new ones are closed at once. `cases` has the case of each prompt, empty if healthy, and
    `sent_ns` the times before and after sending each word of the healthy responses.
    """

    def __init__(
        self,
        cases: Collection[str] = tuple(CASES),
        share: float = 0.5,
        *,
        once: Collection[str] = (),
        seed: int = 0,
        limit: int | None = None,
    ) -> None:
        super().__init__(self._respond)
        self._cases, self._share, self._once, self._seed, self._limit = sorted(cases), share, once, seed, limit
        self._open_connections = 0
        self._lock = threading.Lock()
        self.cases: dict[str, str] = {}
        self.sent_ns: dict[str, list[tuple[int, int]]] = {}
        self.rejected = 0

    def _respond(self, call: RawCall) -> None:
        if call.request_line.startswith("GET"):
            call.reply("200 OK", json.dumps({"object": "list", "data": [{"id": "hostile", "object": "model"}]}))
            return
        if call.request_line.split()[1] not in PATHS.values():  # counting tokens, for example
            call.reply("404 Not Found", json.dumps({"error": {"message": "no such path"}}))
            return
        wire = wire_of(call)
        prompt = json.dumps(next(call.body[name] for name in ("messages", "input", "prompt") if name in call.body))
        with self._lock:
            case = self.cases.setdefault(prompt, self._draw(prompt))
        if case:
            CASES[case].handler(call, wire)
        else:
            healthy(call, wire, self.sent_ns.setdefault(prompt, []))

    def _draw(self, prompt: str) -> str:
        if named := re.search("<(.*)>", prompt):
            return named[1]
        chance = random.Random(f"{self._seed} {prompt}")
        case = chance.choice(self._cases) if chance.random() < self._share else ""
        return "" if case in self._once and case in self.cases.values() else case

    def __enter__(self) -> HostileServer:
        super().__enter__()
        return self

    def sent_ns_of(self, text: str) -> list[tuple[int, int]]:
        (sent,) = [sent for prompt, sent in self.sent_ns.items() if json.dumps(text) in prompt]
        return sent

    def case_of(self, text: str) -> str:
        """Return the case of the one request with this text."""
        (case,) = [case for prompt, case in self.cases.items() if json.dumps(text) in prompt]
        return case

    def _serve(self, sock: socket.socket, number: int) -> None:
        with self._lock:
            full = self._limit is not None and self._open_connections >= self._limit
            self._open_connections += not full
            self.rejected += full
        if full:
            sock.close()
            return
        try:
            super()._serve(sock, number)
        finally:
            with self._lock:
                self._open_connections -= 1
