"""A small HTTP server whose responses a test defines, and which records the requests it receives."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

MODEL = "scripted"


class ReceivedRequest(NamedTuple):
    """`connection` is the client's port."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    connection: int


class CompletedResponse(NamedTuple):
    id: str
    t_ns: int
    connection: int


class ScriptedHandler(BaseHTTPRequestHandler):
    """HTTP/1.1 with keep-alive and chunked streams."""

    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def do_GET(self) -> None:
        self.server.listing(self)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if "tokenize" in self.path and not self.server.tokenizes:
            self.whole(404, b"{}")
            return
        request = ReceivedRequest(self.path, headers, body, self.client_address[1])
        self.server.received.append(request)
        try:
            self.server.answer(self, request)
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


Responder = Callable[[ScriptedHandler, ReceivedRequest], None]
ModelLister = Callable[[ScriptedHandler], None]


def model_list(to: ScriptedHandler) -> None:
    list_models(to, MODEL)


def list_models(to: ScriptedHandler, *names: str) -> None:
    models = [{"id": name, "object": "model"} for name in names]
    to.whole(200, json.dumps({"object": "list", "data": models}).encode())


def respond_with_words(
    count: int = 3, gap_s: float = 0.0, usage: bool = True, text: str = "word ", tokens: int | None = None
) -> Responder:
    """Stream `count` words, counted as so many `tokens`; responses that were sent completely are recorded."""
    counted = count if tokens is None else tokens

    def answer(to: ScriptedHandler, request: ReceivedRequest) -> None:
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
            counts = {"prompt_tokens": 10, "completion_tokens": counted, "total_tokens": 10 + counted}
            to.event(json.dumps({"id": identity, "choices": [], "usage": counts}))
        to.end_stream()
        server.completed.append(CompletedResponse(identity, time.perf_counter_ns(), to.client_address[1]))

    return answer


def respond_with_status(status: int, content: bytes, kind: str = "application/json") -> Responder:
    return lambda to, request: to.whole(status, content, kind)


class ScriptedServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, answer: Responder, listing: ModelLister, port: int = 0, *, tokenizes: bool = False) -> None:
        super().__init__(("127.0.0.1", port), ScriptedHandler)
        self.answer, self.listing, self.tokenizes = answer, listing, tokenizes
        self.received: list[ReceivedRequest] = []
        self.completed: list[CompletedResponse] = []
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
        """Silent: many tests disconnect on purpose."""


@contextmanager
def scripted_server(
    answer: Responder | None = None, listing: ModelLister = model_list, *, tokenizes: bool = False
) -> Iterator[ScriptedServer]:
    """`tokenizes`: requests to /tokenize are answered like all others, instead of with 404."""
    with ScriptedServer(answer or respond_with_words(), listing, tokenizes=tokenizes) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
