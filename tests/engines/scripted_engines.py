"""Serve an API as Ollama and TGI do, over a real socket, well enough for a whole session."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

VRAM_BYTES = 6_000_000_000
_TOKENS = 4
_METRICS_READS = 6
_TIMEOUT_S = 60.0
_TGI_METRICS = Path(__file__).parent.parent / "telemetry/samples/tgi.txt"


class ScriptedEngine(ThreadingHTTPServer):
    """`pages` are the replies to GET by path; `requests` counts all requests by path.

    Completions are held back until the metrics page was read a few times, so that the session is long enough for it.
    """

    daemon_threads = True

    def __init__(self, pages: dict[str, str], metrics_path: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages = pages
        self.requests: Counter[str] = Counter()
        self._metrics_path = metrics_path
        self._changed = threading.Condition()

    def count(self, path: str) -> None:
        with self._changed:
            self.requests[path] += 1
            self._changed.notify_all()

    def wait_for_metrics(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.requests[self._metrics_path] >= _METRICS_READS, _TIMEOUT_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedEngine

    def do_GET(self) -> None:
        self.server.count(self.path)
        page = self.server.pages.get(self.path)
        self._send(200 if page is not None else 404, (page or "404 page not found").encode())

    def do_POST(self) -> None:
        self.server.count(self.path)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.wait_for_metrics()
        if self.path == "/v1/chat/completions":
            self._send(200, b"".join(_chat_events(body["model"])), "text/event-stream")
        elif self.path == "/api/chat":
            self._send(200, b"".join(_ollama_lines(body["model"])), "application/x-ndjson")
        else:
            self._send(404, b"404 page not found")

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response_only(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _chat_events(model: str) -> Iterator[bytes]:
    def event(choices: list[dict[str, Any]], **fields: Any) -> bytes:
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": model, "choices": choices}
        return b"data: " + json.dumps(chunk | fields).encode() + b"\n\n"

    for number in range(_TOKENS):
        yield event([{"index": 0, "delta": {"role": "assistant", "content": f"word{number} "}, "finish_reason": None}])
    yield event([{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}])
    counts = {"prompt_tokens": 10, "completion_tokens": _TOKENS, "total_tokens": 10 + _TOKENS}
    yield event([], usage=counts)
    yield b"data: [DONE]\n\n"


def _ollama_lines(model: str) -> Iterator[bytes]:
    base = {"model": model, "created_at": "2026-11-15T00:00:00Z"}
    for number in range(_TOKENS):
        message = {"role": "assistant", "content": f"word{number} "}
        yield json.dumps(base | {"message": message, "done": False}).encode() + b"\n"
    timings = {"prompt_eval_count": 10, "prompt_eval_duration": 1_000_000, "eval_count": _TOKENS, "eval_duration": 1000}
    last = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    yield json.dumps(base | last | timings).encode() + b"\n"


def ollama_pages(owner: str = "library") -> dict[str, str]:
    """`owner` is the namespace of the model, "library" unless it belongs to a user."""
    model = {"name": "qwen3:8b", "model": "qwen3:8b", "size": VRAM_BYTES}
    return {
        "/": "Ollama is running",
        "/api/version": '{"version":"0.12.0"}',
        "/api/tags": json.dumps({"models": [model]}),
        "/api/ps": json.dumps({"models": [model | {"size_vram": VRAM_BYTES, "context_length": 8192}]}),
        "/v1/models": json.dumps(
            {"object": "list", "data": [{"id": "qwen3:8b", "object": "model", "owned_by": owner}]}
        ),
    }


def tgi_pages() -> dict[str, str]:
    model = "HuggingFaceH4/zephyr-7b-beta"
    info = {
        "model_id": model,
        "version": "3.3.0",
        "max_total_tokens": 4096,
        "max_batch_size": 16,
        "max_input_tokens": 1,
    }
    return {
        "/info": json.dumps(info),
        "/metrics": _TGI_METRICS.read_text(),
        "/v1/models": _model_list(model, owner=model),
    }


def _model_list(model: str, owner: str) -> str:
    return json.dumps({"object": "list", "data": [{"id": model, "object": "model", "owned_by": owner}]})


@contextmanager
def scripted_engine(pages: dict[str, str], metrics_path: str) -> Iterator[ScriptedEngine]:
    with ScriptedEngine(pages, metrics_path) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
