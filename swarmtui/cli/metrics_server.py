"""Serve the metrics of a running session over HTTP (`--metrics-port`), from the process that shows its progress.

A scrape renders the newest frame, which this process has anyway: the session process and the workers, which measure,
notice nothing of it.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Frame, Hello, SessionMessage
from swarmtui.model.session import Session
from swarmtui.report.metrics import CONTENT_TYPE, render_live
from swarmtui.text import write_text

# Host and port.
MetricsAddress = tuple[str, int]

_LOCAL = "127.0.0.1"
_OPTION = "--metrics-port"
_TIMEOUT_S = 5.0


class LiveMetrics:
    """Keeps the newest frame of a session, for scrapes in other threads."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._frame: Frame | None = None

    def observe(self, message: SessionMessage) -> None:
        match message:
            case Hello(session=session):
                self._session = session
            case Frame():
                self._frame = message

    def render(self) -> bytes:
        return render_live(self._session, self._frame)


def parse_metrics_address(text: str) -> MetricsAddress:
    """Parse PORT, which listens on 127.0.0.1, or HOST:PORT; port 0 is a free one."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) > 65535 or (":" in text and not host):
        raise BadInput(f"{text!r} is neither a port nor HOST:PORT", key=_OPTION)
    return host.strip("[]") or _LOCAL, int(port)


@contextmanager
def serve_metrics(address: MetricsAddress) -> Iterator[tuple[LiveMetrics, str]]:
    """Serve `/metrics` in a thread; yields what to show messages to, and the URL."""
    live = LiveMetrics()

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            content = live.render()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing: stderr shows the progress."""

    host, port = address
    try:
        server = _Server(address, Handler)
    except OSError as error:
        raise BadInput(f"cannot listen on {host}:{port}: {error.strerror or error}", key=_OPTION) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        name = f"[{host}]" if ":" in host else host
        yield live, f"http://{name}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without the name of the host, which HTTPServer asks a name server for."""
        TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Report our own errors, not readers that hang up."""
        error = sys.exception()
        if not isinstance(error, OSError):
            write_text(sys.stderr, f"swarmtui: metrics: {type(error).__name__}: {error}")
