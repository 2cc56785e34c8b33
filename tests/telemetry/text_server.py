"""Serve scripted replies by path over a real socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class TextReply(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]


Reply = str | TextReply | Callable[[BaseHTTPRequestHandler], None]


class TextServer:
    """`replies` may change while it runs; any other path is 404. `requests` are those received, in order."""

    def __init__(self, replies: dict[str, Reply], url: str, shut: Callable[[], None]) -> None:
        self.replies = replies
        self.url = url
        self.shut = shut
        self.requests: list[tuple[str, str]] = []
        self.authorizations: list[str | None] = []


@contextmanager
def serving(replies: dict[str, Reply], port: int = 0) -> Iterator[TextServer]:
    served: TextServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            served.requests.append((self.command, self.path))
            served.authorizations.append(" and ".join(self.headers.get_all("authorization", [])) or None)
            scripted = served.replies.get(self.path, TextReply(404, b'{"detail":"Not Found"}', {}))
            if callable(scripted) and not isinstance(scripted, TextReply):
                scripted(self)
                return
            reply = TextReply(200, scripted.encode(), {}) if isinstance(scripted, str) else scripted
            assert isinstance(reply, TextReply)
            self.send_response_only(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore disconnects: they are part of the tests."""

    server = Server(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def shut() -> None:
        if thread.is_alive():
            server.shutdown()
            thread.join()
            server.server_close()

    served = TextServer(replies, f"http://127.0.0.1:{server.server_address[1]}", shut)
    try:
        yield served
    finally:
        shut()
