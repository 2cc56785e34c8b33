"""A server on this host that answers each path as a test says, over real sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Told(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]


Answer = str | Told | Callable[[BaseHTTPRequestHandler], None]


class TextServer:
    """`answers` may change while it runs; a path that is not there is 404. `asked` are the requests, in order."""

    def __init__(self, answers: dict[str, Answer], url: str, shut: Callable[[], None]) -> None:
        self.answers = answers
        self.url = url
        self.shut = shut
        self.asked: list[tuple[str, str]] = []
        self.keys: list[str | None] = []


@contextmanager
def serving(answers: dict[str, Answer], port: int = 0) -> Iterator[TextServer]:
    served: TextServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            served.asked.append((self.command, self.path))
            served.keys.append(self.headers.get("authorization"))
            answer = served.answers.get(self.path, Told(404, b'{"detail":"Not Found"}', {}))
            if callable(answer) and not isinstance(answer, Told):
                answer(self)
                return
            told = Told(200, answer.encode(), {}) if isinstance(answer, str) else answer
            assert isinstance(told, Told)
            self.send_response_only(told.status)
            for name, value in {"Content-Length": str(len(told.body)), **told.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(told.body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients here hang up on purpose."""

    server = Server(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def shut() -> None:
        if thread.is_alive():
            server.shutdown()
            thread.join()
            server.server_close()

    served = TextServer(answers, f"http://127.0.0.1:{server.server_address[1]}", shut)
    try:
        yield served
    finally:
        shut()
