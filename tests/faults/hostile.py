"""A server that does to a share of its requests whatever a server can do wrong; the rest it answers well.

What becomes of a request hangs on its text alone, so that one that is sent again meets the same.
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

from tests.loadgen.scripted_server import DONE, ROLE, ScriptedCall, ScriptedServer, delta, event, usage

WORDS = 12
GAP_S = 0.01

# Longer than any time limit of a test.
_HANG_S = 60.0

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"


class HostileCase(NamedTuple):
    """`error` is the name under which it must be counted; None for what is odd, but an answer."""

    handler: Callable[[ScriptedCall], None]
    error: str | None


def healthy(call: ScriptedCall, sent: list[int]) -> None:
    """`sent` gets the time of each word, on the client's clock."""
    call.begin_stream()
    call.chunk(ROLE)
    for number in range(WORDS):
        time.sleep(GAP_S)
        sent.append(time.perf_counter_ns())
        call.chunk(delta(content=f"word{number} "))
    call.chunk(delta("stop") + usage(WORDS) + DONE)
    call.end_stream()


def _hang(call: ScriptedCall) -> None:
    """Until the client has had enough of it."""
    assert isinstance(call, HostileCall)
    call.wait_for_disconnect(_HANG_S)
    call.close()


def _hang_after_headers(call: ScriptedCall) -> None:
    call.begin_stream()
    _hang(call)


def _hang_in_mid_stream(call: ScriptedCall) -> None:
    call.begin_stream()
    call.chunk(ROLE + delta(content="Hel"))
    _hang(call)


def _dribble(call: ScriptedCall) -> None:
    """Never silent, and never a whole event."""
    call.begin_stream()
    while True:
        call.chunk(b"x")
        time.sleep(0.02)


def _close_early(call: ScriptedCall) -> None:
    call.begin_stream()
    call.chunk(ROLE + delta(content="Hel"))
    call.close()


def _reset_in_mid_stream(call: ScriptedCall) -> None:
    call.begin_stream()
    call.chunk(ROLE + delta(content="Hel"))
    call.reset()


def _page(status: str, text: str, kind: str = "application/json", *headers: str) -> Callable[[ScriptedCall], None]:
    def answer(call: ScriptedCall) -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(text.encode())}", *headers]
        call.send("\r\n".join([*head, "", text]).encode())

    return answer


def _stream(*events: bytes) -> Callable[[ScriptedCall], None]:
    return lambda call: call.stream(*events)


def _each_byte(call: ScriptedCall) -> None:
    """Every byte a chunk of its own, characters of several bytes among them."""
    call.begin_stream()
    for number in range(WORDS):
        for byte in delta(content=f"wörd{number} …"):
            call.chunk(bytes([byte]))
    for byte in delta("stop") + usage(WORDS) + DONE:
        call.chunk(bytes([byte]))
    call.end_stream()


def _long_line(call: ScriptedCall) -> None:
    call.begin_stream()
    call.chunk(b"data: ")
    for _ in range(160):
        call.chunk(b"x" * (64 << 10))
    call.end_stream()


def _long_line_in_bytes(call: ScriptedCall) -> None:
    call.begin_stream()
    piece = b"1\r\nx\r\n" * 10_000
    for _ in range(1_000):
        call.send(piece)
    call.end_stream()


def _endless_stream(call: ScriptedCall) -> None:
    call.begin_stream()
    one = delta(content="on ")
    piece = b"%x\r\n%s\r\n" % (len(one), one) * 500
    while True:
        call.send(piece)


def _endless_headers(call: ScriptedCall) -> None:
    call.send(_HEAD)
    while True:
        call.send(b"X-More: of it\r\n" * 1_000)


def _endless_header(call: ScriptedCall) -> None:
    call.send(_HEAD + b"X-Long: ")
    while True:
        call.send(b"y" * (64 << 10))


def _endless_trailer(call: ScriptedCall) -> None:
    call.begin_stream()
    call.send(b"0\r\nX-Long: ")
    while True:
        call.send(b"y" * (64 << 10))


def _endless_page(call: ScriptedCall) -> None:
    call.begin_stream("text/html")
    while True:
        call.chunk(b"<p>" * (16 << 10))


def _gzip(call: ScriptedCall) -> None:
    """The encoding named before the type: a client that looks at the type alone reads noise."""
    packed = gzip.compress(ROLE + delta("stop", content="Hel") + DONE)
    head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: text/event-stream\r\n"
    call.send(f"{head}Content-Length: {len(packed)}\r\n\r\n".encode() + packed)


def _burst(call: ScriptedCall) -> None:
    """As behind a proxy that lets go of what it has at each tick of its clock."""
    call.begin_stream()
    for tick in range(3):
        time.sleep(0.1)
        call.chunk(b"".join(delta(content=f"word{tick}.{n} ") for n in range(WORDS // 3)))
    call.chunk(delta("stop") + usage(WORDS) + DONE)
    call.end_stream()


def _answers_twice(call: ScriptedCall) -> None:
    """A second answer that nobody asked for, in the same breath."""
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
    "dribbles": HostileCase(_dribble, "first_token_timeout"),
    "closes early": HostileCase(_close_early, "closed_early"),
    "429": HostileCase(_page("429 No", '{"detail":"slow down"}', "application/json", "Retry-After: 1"), "http_429"),
    "500": HostileCase(_page("500 No", "Internal Server Error", "text/plain"), "http_500"),
    "503 while loading": HostileCase(_page("503 No", _LOADING), "http_503"),
    "wrong type": HostileCase(_page("200 OK", '{"choices":[]}'), "not_a_stream"),
    "HTML": HostileCase(_page("200 OK", "<html>log in here</html>", "text/html"), "not_a_stream"),
    "HTML without end": HostileCase(_endless_page, "first_token_timeout"),
    "truncated JSON": HostileCase(_stream(ROLE, b'data: {"id":"a","choices":[{"delta\n\n'), "bad_json"),
    "invalid JSON": HostileCase(_stream(ROLE, b"data: {oops}\n\n"), "bad_json"),
    "nested JSON": HostileCase(_stream(ROLE, b'data: {"error":' + b"[" * 100_000 + b"\n\n"), "bad_json"),
    "invalid UTF-8": HostileCase(
        _stream(ROLE, b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n'), "bad_json"
    ),
    "huge count": HostileCase(_stream(*_WELL, usage(1 << 70), DONE), "bad_json"),
    "split at each byte": HostileCase(_each_byte, None),
    "10 MB line": HostileCase(_long_line, "too_long"),
    "10 MB line in bytes": HostileCase(_long_line_in_bytes, "too_long"),
    "endless stream": HostileCase(_endless_stream, "too_long"),
    "endless headers": HostileCase(_endless_headers, "too_long"),
    "endless header": HostileCase(_endless_header, "too_long"),
    "endless trailer": HostileCase(_endless_trailer, "too_long"),
    "gzip": HostileCase(_gzip, "not_a_stream"),
    "[DONE] twice": HostileCase(_stream(*_WELL, usage(WORDS), DONE, DONE), None),
    "answers twice": HostileCase(_answers_twice, None),
    "error event": HostileCase(_stream(*_WELL[:3], event({"error": {"message": "engine died"}})), "error_event"),
    "usage contradicts": HostileCase(_stream(*_WELL, usage(1), DONE), None),
    "bursts": HostileCase(_burst, None),
}


class HostileCall(ScriptedCall):
    def wait_for_disconnect(self, patience_s: float) -> None:
        """Until it hangs up."""
        self._sock.settimeout(patience_s)
        self._sock.recv(1)


class HostileServer(ScriptedServer):
    """`share` of the requests meet one of `cases`; beyond `limit` connections at a time new ones are closed at once.

    `fates` says what became of each text that was asked, `sent` when the words of each good answer went out.
    """

    def __init__(
        self, cases: Collection[str] = tuple(CASES), share: float = 0.5, *, seed: int = 0, limit: int | None = None
    ) -> None:
        super().__init__(self._respond)
        self._cases, self._share, self._seed, self._limit = sorted(cases), share, seed, limit
        self._open_connections = 0
        self._lock = threading.Lock()
        self.cases: dict[str, str] = {}
        self.sent_ns: dict[str, list[int]] = {}
        self.rejected = 0

    def _respond(self, call: ScriptedCall) -> None:
        if call.request_line.startswith("GET"):
            call.reply("200 OK", json.dumps({"object": "list", "data": [{"id": "hostile", "object": "model"}]}))
            return
        asked = json.dumps(call.body["messages"])
        chance = random.Random(f"{self._seed} {asked}")
        case = chance.choice(self._cases) if chance.random() < self._share else ""
        self.cases[asked] = case
        if case:
            CASES[case].handler(call)
        else:
            healthy(call, self.sent_ns.setdefault(asked, []))

    def __enter__(self) -> HostileServer:
        super().__enter__()
        return self

    def sent_ns_of(self, text: str) -> list[int]:
        (sent,) = [sent for asked, sent in self.sent_ns.items() if json.dumps(text) in asked]
        return sent

    def case_of(self, text: str) -> str:
        """Of the one request in which this text was."""
        (fate,) = [fate for asked, fate in self.cases.items() if json.dumps(text) in asked]
        return fate

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

    def _next_call(self, sock: socket.socket, number: int) -> ScriptedCall | None:
        data = b""
        while b"\r\n\r\n" not in data:
            more = sock.recv(65536)
            if not more:
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        size = next((int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0)
        while len(body) < size:
            body += sock.recv(65536)
        return HostileCall(sock, number, head, body)
