"""A server that mistreats a share of its requests in every known way, and responds correctly to the rest.

The case depends only on the text of a request, so that a request that is sent again meets the same one.
"""

from __future__ import annotations

import gzip
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from tests.loadgen.raw_server import DONE, ROLE, RawCall, RawServer, delta, event, usage

WORDS = 12
GAP_S = 0.01

# Longer than any timeout of a test.
_HANG_S = 60.0

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"


class HostileCase(NamedTuple):
    """`error` is the expected error name; None if the response is unusual but valid."""

    handler: Callable[[RawCall], None]
    error: str | None


def healthy(call: RawCall, sent: list[tuple[int, int]]) -> None:
    """Respond correctly; add the times before and after sending each word to `sent`."""
    call.begin_stream()
    call.chunk(ROLE)
    for number in range(WORDS):
        time.sleep(GAP_S)
        before = time.perf_counter_ns()
        call.chunk(delta(content=f"word{number} "))
        sent.append((before, time.perf_counter_ns()))
    call.chunk(delta("stop") + usage(WORDS) + DONE)
    call.end_stream()


def _hang(call: RawCall) -> None:
    """Wait until the client gives up."""
    call.wait_for_disconnect(_HANG_S)
    call.close()


def _hang_after_headers(call: RawCall) -> None:
    call.begin_stream()
    _hang(call)


def _hang_in_mid_stream(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(ROLE + delta(content="Hel"))
    _hang(call)


def _trickle(call: RawCall) -> None:
    """Send single bytes that never form an event."""
    call.begin_stream()
    while True:
        call.chunk(b"x")
        time.sleep(0.02)


def _close_early(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(ROLE + delta(content="Hel"))
    call.close()


def _reset_in_mid_stream(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(ROLE + delta(content="Hel"))
    call.reset()


def _page(status: str, text: str, kind: str = "application/json", *headers: str) -> Callable[[RawCall], None]:
    def answer(call: RawCall) -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(text.encode())}", *headers]
        call.send("\r\n".join([*head, "", text]).encode())

    return answer


def _stream(*events: bytes) -> Callable[[RawCall], None]:
    return lambda call: call.stream(*events)


def _byte_by_byte(call: RawCall) -> None:
    """Send each byte as its own chunk, including multi-byte characters."""
    call.begin_stream()
    for number in range(WORDS):
        for byte in delta(content=f"wörd{number} …"):
            call.chunk(bytes([byte]))
    for byte in delta("stop") + usage(WORDS) + DONE:
        call.chunk(bytes([byte]))
    call.end_stream()


def _long_line(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(b"data: ")
    for _ in range(160):
        call.chunk(b"x" * (64 << 10))
    call.end_stream()


def _long_line_in_bytes(call: RawCall) -> None:
    call.begin_stream()
    piece = b"1\r\nx\r\n" * 10_000
    for _ in range(1_000):
        call.send(piece)
    call.end_stream()


def _endless_stream(call: RawCall) -> None:
    call.begin_stream()
    one = delta(content="on ")
    piece = b"%x\r\n%s\r\n" % (len(one), one) * 500
    while True:
        call.send(piece)


def _endless_headers(call: RawCall) -> None:
    call.send(_HEAD)
    while True:
        call.send(b"X-More: of it\r\n" * 1_000)


def _endless_header(call: RawCall) -> None:
    call.send(_HEAD + b"X-Long: ")
    while True:
        call.send(b"y" * (64 << 10))


def _endless_trailer(call: RawCall) -> None:
    call.begin_stream()
    call.send(b"0\r\nX-Long: ")
    while True:
        call.send(b"y" * (64 << 10))


def _endless_page(call: RawCall) -> None:
    call.begin_stream("text/html")
    while True:
        call.chunk(b"<p>" * (16 << 10))
        time.sleep(0.02)


def _gzip(call: RawCall) -> None:
    """Send a compressed stream, although the client accepts none."""
    packed = gzip.compress(ROLE + delta("stop", content="Hel") + DONE)
    head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: text/event-stream\r\n"
    call.send(f"{head}Content-Length: {len(packed)}\r\n\r\n".encode() + packed)


def _burst(call: RawCall) -> None:
    """Send several words at a time, as a buffering proxy does."""
    call.begin_stream()
    for tick in range(3):
        time.sleep(0.1)
        call.chunk(b"".join(delta(content=f"word{tick}.{n} ") for n in range(WORDS // 3)))
    call.chunk(delta("stop") + usage(WORDS) + DONE)
    call.end_stream()


def _respond_twice(call: RawCall) -> None:
    """Send an unsolicited second response along with the first."""
    body = b"".join([ROLE, *(delta(content=f"word{n} ") for n in range(WORDS)), delta("stop"), usage(WORDS), DONE])
    whole = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    call.send(whole * 2)


_WELL = (ROLE, *(delta(content=f"word{n} ") for n in range(WORDS)), delta("stop"))
_LOADING = json.dumps({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})

CASES: dict[str, HostileCase] = {
    "reset": HostileCase(lambda call: call.reset(), "reset"),
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
    "truncated JSON": HostileCase(_stream(ROLE, b'data: {"id":"a","choices":[{"delta\n\n'), "bad_json"),
    "invalid JSON": HostileCase(_stream(ROLE, b"data: {oops}\n\n"), "bad_json"),
    "nested JSON": HostileCase(_stream(ROLE, b'data: {"error":' + b"[" * 100_000 + b"\n\n"), "bad_json"),
    "invalid UTF-8": HostileCase(
        _stream(ROLE, b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n'), "bad_json"
    ),
    "huge count": HostileCase(_stream(*_WELL, usage(1 << 70), DONE), "bad_json"),
    "split at each byte": HostileCase(_byte_by_byte, None),
    "10 MB line": HostileCase(_long_line, "too_long"),
    "10 MB line in bytes": HostileCase(_long_line_in_bytes, "too_long"),
    "endless stream": HostileCase(_endless_stream, "too_long"),
    "endless headers": HostileCase(_endless_headers, "too_long"),
    "endless header": HostileCase(_endless_header, "too_long"),
    "endless trailer": HostileCase(_endless_trailer, "too_long"),
    "gzip": HostileCase(_gzip, "not_a_stream"),
    "[DONE] twice": HostileCase(_stream(*_WELL, usage(WORDS), DONE, DONE), None),
    "responds twice": HostileCase(_respond_twice, None),
    "error event": HostileCase(_stream(*_WELL[:3], event({"error": {"message": "engine died"}})), "error_event"),
    "usage contradicts": HostileCase(_stream(*_WELL, usage(1), DONE), None),
    "bursts": HostileCase(_burst, None),
}


class HostileServer(RawServer):
    """Serves `share` of the requests with one of `cases`, those in `once` at most once.

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
        prompt = json.dumps(call.body["messages"])
        with self._lock:
            case = self.cases.setdefault(prompt, self._draw(prompt))
        if case:
            CASES[case].handler(call)
        else:
            healthy(call, self.sent_ns.setdefault(prompt, []))

    def _draw(self, prompt: str) -> str:
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
