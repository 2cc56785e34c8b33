"""A threaded HTTP server whose responses a test writes byte by byte."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

DONE = b"data: [DONE]\n\n"

# Longer than a client needs to close its connection after close_notify.
TLS_CLOSE_TIMEOUT_S = 60.0
# How long a handler waits for the test; longer than a worker on a busy core takes.
WAIT_S = 100.0


class ClientGone(Exception):
    """The client has closed the connection."""


class RawCall:
    """One request, with methods to respond to it correctly or not."""

    def __init__(self, sock: socket.socket, connection: int, head: bytes, body: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.connection = connection
        self.request_line = lines[0]
        fields = [line.split(": ", 1) for line in lines[1:]]
        self.header_names = [name.lower() for name, _ in fields]
        self.headers = {name.lower(): value for name, value in fields}
        self.body: dict[str, Any] = json.loads(body) if body else {}
        self.open = True
        self.client_closed = threading.Event()
        self._sock = sock

    @property
    def prompt(self) -> str:
        """The content of the last message."""
        text: str = self.body["messages"][-1]["content"]
        return text

    def send(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except OSError:
            raise ClientGone from None

    def begin_stream(self, kind: str = "text/event-stream", *extra: str) -> None:
        """Send the head of a streamed response, to be continued with `chunk` and `end_stream`."""
        head = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", "Transfer-Encoding: chunked", *extra, "", ""]
        self.send("\r\n".join(head).encode())

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self.send(b"0\r\n\r\n")

    def stream(self, *events: bytes) -> None:
        self.begin_stream()
        for event in events:
            self.chunk(event)
        self.end_stream()

    def reply(self, status: str, text: str, kind: str = "application/json") -> None:
        body = text.encode()
        self.send(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    def wait_for_disconnect(self, timeout_s: float) -> None:
        """Wait until the client closes the connection."""
        self._sock.settimeout(timeout_s)
        self._sock.recv(1)

    def close_tls(self) -> None:
        """Send close_notify, and wait for the client to close the TCP connection; then `client_closed` is set."""
        self._sock.settimeout(0)
        # After close_notify was sent, no answer or the end of the connection is met.
        with contextlib.suppress(OSError):
            self._sock.unwrap()  # type: ignore[attr-defined]
        raw = socket.socket(fileno=os.dup(self._sock.fileno()))
        with raw, contextlib.suppress(TimeoutError):
            raw.settimeout(TLS_CLOSE_TIMEOUT_S)
            with contextlib.suppress(ConnectionResetError):
                while raw.recv(65536):
                    pass
            self.client_closed.set()
        self.close()

    def close(self) -> None:
        self.open = False

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()
        self.open = False

    def read_sent(self) -> None:
        """Read what the client has sent, until nothing more comes."""
        self._sock.settimeout(0.1)
        with contextlib.suppress(TimeoutError):
            while self._sock.recv(1 << 20):
                pass
        self._sock.settimeout(None)


class RawServer:
    """Calls `handler` with each request, on one thread per connection. `calls` has all requests in order of arrival."""

    def __init__(
        self,
        handler: Callable[[RawCall], None],
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        read_body: bool = True,
    ) -> None:
        self.calls: list[RawCall] = []
        self.connections = 0
        self.closed_ns: list[int] = []
        self._handler, self._tls, self._read_body = handler, tls, read_body
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=256)
        port = self._listener.getsockname()[1]
        self.authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.url = f"{'https' if tls else 'http'}://{self.authority}"

    def __enter__(self) -> RawServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            number, self.connections = self.connections, self.connections + 1
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            with sock:
                while (call := self._next_call(sock, number)) is not None:
                    self.calls.append(call)
                    self._handler(call)
                    if not call.open:
                        return
        except (OSError, ClientGone):
            sock.close()
        finally:
            self.closed_ns.append(time.perf_counter_ns())

    def _next_call(self, sock: socket.socket, number: int) -> RawCall | None:
        data = b""
        while b"\r\n\r\n" not in data:
            more = sock.recv(65536)
            if not more:
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        if not self._read_body:
            return RawCall(sock, number, head, b"")
        size = next((int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0)
        while len(body) < size:
            more = sock.recv(65536)
            if not more:
                return None
            body += more
        return RawCall(sock, number, head, body)


def event(payload: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> bytes:
    return event({"id": "answer", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def usage(tokens_out: int, tokens_in: int = 7) -> bytes:
    return event(
        {"id": "answer", "choices": [], "usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}}
    )


ROLE = delta(role="assistant", content="")
HELLO = (ROLE, delta(content="Hel"), delta(content="lo "), delta("stop", content="you"), usage(3), DONE)


def hello(call: RawCall) -> None:
    call.stream(*HELLO)


class Gate:
    """A handler that sends the first token immediately, and the rest when the test sets `released`."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.in_flight = self.max_in_flight = 0
        self._lock = threading.Lock()

    def __call__(self, call: RawCall) -> None:
        with self._lock:
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
        call.begin_stream()
        call.chunk(ROLE + delta(content="a"))
        self.released.wait(WAIT_S)
        with self._lock:
            self.in_flight -= 1
        call.chunk(delta("stop", content="b") + usage(2) + DONE)
        call.end_stream()
