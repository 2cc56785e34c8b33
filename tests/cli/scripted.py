"""A small server whose answers a test writes, and which remembers what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

MODEL = "scripted"


class Asked(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Completed(NamedTuple):
    id: str
    t_ns: int


class Answering(BaseHTTPRequestHandler):
    """HTTP/1.1 with keep-alive; a stream goes out in chunks."""

    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_GET(self) -> None:
        self.server.listing(self)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.server.asked.append(asked)
        try:
            self.server.answer(self, asked)
        except OSError:
            self.close_connection = True

    def whole(self, status: int, content: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def event(self, data: str) -> None:
        line = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()

    def end_stream(self) -> None:
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


Answer = Callable[[Answering, Asked], None]
Listing = Callable[[Answering], None]


def model_list(to: Answering) -> None:
    to.whole(200, json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode())


def words(count: int = 3, gap_s: float = 0.0, usage: bool = True, text: str = "word ") -> Answer:
    """So many words, one after another; each answer that went out whole is noted."""

    def answer(to: Answering, asked: Asked) -> None:
        server = to.server
        identity = server.next_id()

        def chunk(delta: dict[str, str], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return json.dumps({"id": identity, "object": "chat.completion.chunk", "choices": [choice]})

        to.begin_stream()
        to.event(chunk({"role": "assistant", "content": ""}))
        for number in range(count):
            if gap_s:
                time.sleep(gap_s)
            to.event(chunk({"content": f"{text}{number} "}))
        to.event(chunk({}, "stop"))
        if usage:
            counts = {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": 10 + count}
            to.event(json.dumps({"id": identity, "choices": [], "usage": counts}))
        to.end_stream()
        server.completed.append(Completed(identity, time.perf_counter_ns()))

    return answer


def refusing(status: int, content: bytes, kind: str = "application/json") -> Answer:
    return lambda to, asked: to.whole(status, content, kind)


class Scripted(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, answer: Answer, listing: Listing, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Answering)
        self.answer, self.listing = answer, listing
        self.asked: list[Asked] = []
        self.completed: list[Completed] = []
        self._ids = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_id(self) -> str:
        with self._lock:
            self._ids += 1
            return f"answer-{self._ids}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of many a test."""


@contextmanager
def scripted(answer: Answer | None = None, listing: Listing = model_list) -> Iterator[Scripted]:
    with Scripted(answer or words(), listing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
