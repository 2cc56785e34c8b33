"""Requests outside the load path: who gets the secrets, and what is passed on of a reply."""

from __future__ import annotations

import ast
import asyncio
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx2
import pytest

from swarmtui import http_client
from swarmtui.http_client import HttpClient, RequestFailed, check_connection
from swarmtui.model.redaction import Secrets
from tests.cli.programs import ROOT
from tests.loadgen.raw_server import RawCall, RawServer
from tests.telemetry.text_server import TextReply, serving

KEY = "canary-key-5d1f"
SECRETS = Secrets(api_key=KEY, headers={"X-Team": "canary-value"})
SENDING = ("httpx", "httpx2", "requests", "urllib3", "aiohttp")


def test_secrets_go_to_the_same_scheme_host_and_port_only() -> None:
    with serving({"/metrics": "ok"}) as endpoint, serving({"/metrics": "ok"}) as other:
        other_port, own_port = (url.rsplit(":", 1)[1] for url in (other.url, endpoint.url))
        with HttpClient((f"{endpoint.url}/v1",), SECRETS) as client:
            client.get(f"{endpoint.url}/metrics", 5.0)
            client.get(f"http://127.0.0.1:{other_port}/metrics", 5.0)
            client.get(f"http://localhost:{own_port}/metrics", 5.0)
        with HttpClient((endpoint.url.replace("http:", "https:"),), SECRETS) as client:
            client.get(f"{endpoint.url}/metrics", 5.0)
    assert endpoint.authorizations == [f"Bearer {KEY}", None, None]
    assert other.authorizations == [None]


def test_own_authorization_header_replaces_the_key() -> None:
    with serving({"/": "ok"}) as server:
        with HttpClient((server.url,), Secrets(api_key=KEY, headers={"authorization": "Basic abc"})) as client:
            client.get(f"{server.url}/", 5.0)
        assert server.authorizations == ["Basic abc"]


def test_redirect_is_not_followed() -> None:
    with serving({"/": "ok"}) as other:
        away = TextReply(307, b"", {"Location": f"{other.url}/"})
        with serving({"/": away}) as server, HttpClient((server.url, other.url), SECRETS) as client:
            assert client.get(f"{server.url}/", 5.0).status == 307
    assert other.requests == []


def test_replies_and_errors_are_redacted() -> None:
    def bad_status_line(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(f"HTTP/1.1 {KEY} no\r\n\r\n".encode())
        handler.close_connection = True

    escaped = "".join(f"\\u{ord(char):04x}" for char in KEY)
    body = f'{{"id": "{escaped}", "{KEY}": ["{KEY.upper()}"]}}'.encode()
    headers = {"Content-Type": f"text/{KEY}", "Server": f"d\xe4mon \x1b[2J {KEY}"}
    with (
        serving({"/": TextReply(200, body, headers), "/bad": bad_status_line}) as server,
        HttpClient((), SECRETS) as client,
    ):
        reply = client.get(f"{server.url}/", 5.0)
        with pytest.raises(RequestFailed) as failed:
            client.get(f"{server.url}/bad", 5.0)
    assert (reply.content_type, reply.server, reply.json()) == ("text/…", "dämon \x1b[2J …", {"id": "…", "…": ["…"]})
    assert "canary" not in reply.text.lower() and "…" in str(failed.value) and "canary" not in str(failed.value)


def test_deeply_nested_reply_is_a_value_error() -> None:
    with serving({"/": "[" * 100_000}) as server, HttpClient() as client, pytest.raises(ValueError):
        client.get(f"{server.url}/", 5.0).json()


@pytest.mark.parametrize("url", ["http://[bad", "https://a..b/x", "ftp://a", "http://" + "a" * 70 + ".b"])
def test_impossible_address_is_a_failure(url: str) -> None:
    with HttpClient() as client, pytest.raises(RequestFailed):
        client.get(url, 5.0)


def test_reply_of_a_server_with_an_unusable_certificate_file(tmp_path: Path) -> None:
    """It may be removed during a run."""
    with HttpClient(ca_file=str(tmp_path / "missing.pem")) as client, pytest.raises(RequestFailed) as failed:
        client.get("https://127.0.0.1:9/", 5.0)
    assert failed.value.kind == "tls" and "missing.pem" in str(failed.value)


@pytest.mark.parametrize(
    ("url", "kind"), [("http://127.0.0.1:9", "refused"), ("http://no-such-host.invalid", "unknown_host")]
)
def test_failed_connection_has_a_name(url: str, kind: str) -> None:
    with pytest.raises(RequestFailed) as failed:
        check_connection(url, 60.0)
    assert failed.value.kind == kind


# time limits


def _drip(call: RawCall, first: bytes, drop: bytes) -> None:
    """Send a little, again and again, until the client closes the connection."""
    call.send(first)
    while True:
        call.send(drop)
        time.sleep(0.02)


DRIPPING: dict[str, Callable[[RawCall], None]] = {
    "status line": lambda call: _drip(call, b"HTTP/1.1 200 O", b"K"),
    "header": lambda call: _drip(call, b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
    "100 Continue": lambda call: _drip(call, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": lambda call: _drip(call, b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b"x"),
    "body without length": lambda call: _drip(call, b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
    "chunks": lambda call: _drip(call, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "trailer": lambda call: _drip(call, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ", b"x"),
}


@pytest.mark.parametrize("case", DRIPPING)
def test_dripping_response_ends_at_the_time_limit(case: str) -> None:
    with RawServer(DRIPPING[case]) as server, HttpClient() as client, pytest.raises(RequestFailed) as failed:
        client.get(f"{server.url}/v1/models", 0.5)
    assert failed.value.kind == "timeout"
    assert "within 0.5 s" in str(failed.value)


@pytest.mark.parametrize("case", DRIPPING)
def test_dripping_response_ends_when_stopped(case: str) -> None:
    with RawServer(DRIPPING[case]) as server, HttpClient(stopped=lambda: bool(server.calls)) as client:
        with pytest.raises(RequestFailed) as failed:
            client.get(f"{server.url}/v1/models", 3600.0)
        assert failed.value.kind == "timeout"


def test_dripping_handshake_ends_at_the_time_limit() -> None:
    def drip(sock: socket.socket) -> None:
        with suppress(OSError):
            sock.sendall(b"\x16\x03\x03\x40\x00")
            while True:
                sock.sendall(b"\x00")
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listener, HttpClient(insecure=True) as client:
        threading.Thread(target=lambda: drip(listener.accept()[0]), daemon=True).start()
        with pytest.raises(RequestFailed) as failed:
            client.get(f"https://127.0.0.1:{listener.getsockname()[1]}/", 0.5)
    assert failed.value.kind == "connect_timeout"


def test_request_that_is_not_read_ends_at_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, HttpClient() as client:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/tokenize"
        with pytest.raises(RequestFailed) as failed:
            client.request("POST", url, 0.5, json={"prompt": "x" * (16 << 20)})
    assert "within 0.5 s" in str(failed.value)


def test_name_server_that_does_not_answer_ends_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    look_up = socket.getaddrinfo

    def block(host: str | bytes, *args: Any, **options: Any) -> Any:
        if host in ("slow.test", b"slow.test"):
            released.wait()
        return look_up(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", block)
    found = []
    with HttpClient() as client:
        for send in (client.get, check_connection):
            with pytest.raises(RequestFailed) as failed:
                send("http://slow.test/", 0.5)
            found.append(failed.value.kind)
    released.set()
    assert found == ["connect_timeout", "connect_timeout"]


_BLOCKED_LOOK_UP = """
import socket, time
from swarmtui.http_client import HttpClient, RequestFailed
socket.getaddrinfo = lambda *args, **options: time.sleep(600)
try:
    HttpClient().get("http://slow.test/", 0.5)
except RequestFailed as error:
    print(error.kind)
"""


def test_name_server_that_does_not_answer_does_not_keep_the_program_from_exiting() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _BLOCKED_LOOK_UP], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "connect_timeout\n"


def test_endless_header_is_not_collected() -> None:
    def endless(call: RawCall) -> None:
        call.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while True:
            call.send(b"x" * (64 << 10))

    with RawServer(endless) as server, HttpClient() as client, pytest.raises(RequestFailed) as failed:
        client.get(f"{server.url}/", 3600.0)
    assert failed.value.kind == "protocol"


# connections


def test_connection_is_reused_and_replaced_if_the_server_closed_it() -> None:
    def handler(call: RawCall) -> None:
        if call.request_line.split()[1] != "/close":
            call.reply("200 OK", "ok")
        call.open = call.request_line.split()[1].startswith("/keep")

    with RawServer(handler) as server, HttpClient() as client:
        for path, connections in (("/keep", 1), ("/keep?a=b c", 1), ("/then-close", 1), ("/keep", 2)):
            assert client.get(server.url + path, 60.0).text == "ok"
            assert server.connections == connections
        with pytest.raises(RequestFailed) as failed:
            client.get(f"{server.url}/close", 60.0)
    assert failed.value.kind == "protocol"
    assert server.connections == 3
    assert "/keep?a=b%20c" in server.calls[1].request_line


@pytest.mark.parametrize("length", [b"", b"Content-Length: 2\r\n", b"Content-Length: 3\r\n"])
def test_truncated_response_is_a_failure(length: bytes) -> None:
    def handler(call: RawCall) -> None:
        call.send(b"HTTP/1.1 103 Hints\r\nServer: no\r\n\r\nHTTP/1.1 200 OK\r\n" + length + b"\r\nok")
        call.close()

    with RawServer(handler) as server, HttpClient() as client:
        if length.endswith(b"3\r\n"):
            with pytest.raises(RequestFailed, match="closed connection"):
                client.get(f"{server.url}/", 60.0)
        else:
            reply = client.get(f"{server.url}/", 60.0)
            assert (reply.status, reply.text, reply.server) == (200, "ok", "")


def test_threads_that_start_together_share_one_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discovery sends its first requests from many threads; connections of a client belong to one loop."""
    together = Barrier(8)
    entered: list[asyncio.AbstractEventLoop] = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        entered.append(loop := asyncio.SelectorEventLoop())
        time.sleep(0.05)  # keeps the others out of a function that is not locked
        return loop

    def first_use(_: int) -> asyncio.AbstractEventLoop:
        together.wait(60)
        return http_client._event_loop()

    http_client._start_event_loop.cache_clear()
    monkeypatch.setattr(asyncio, "new_event_loop", new_event_loop)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(first_use, range(8)))
    assert len(found) == len(entered) == 1


def test_no_other_module_sends_requests() -> None:
    """One place decides who gets the key; only the load path has its own connections."""
    importing = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "swarmtui").rglob("*.py")
        # To parse all of them takes seconds.
        if re.search(rf"\b(import|from)\b.*\b({'|'.join(SENDING)}|http|urllib)\b", text := path.read_text())
        for node in ast.walk(ast.parse(text))
        for name in _imported(node)
        if name.split(".")[0] in SENDING or name.startswith(("http.client", "urllib.request"))
    }
    assert importing == {"swarmtui/http_client.py"}


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}"] if isinstance(node, ast.ImportFrom) else []


def test_a_client_that_a_late_request_adds_while_closing_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    with serving({"/metrics": "ok"}) as first, serving({"/metrics": "ok"}) as late:
        client = HttpClient((), Secrets())
        client.get(f"{first.url}/metrics", 5.0)
        close = httpx2.AsyncClient.aclose

        async def aclose(self: Any) -> None:
            closed.append("one")
            if len(closed) == 1:
                await asyncio.get_running_loop().run_in_executor(None, client.get, f"{late.url}/metrics", 5.0)
            await close(self)

        monkeypatch.setattr(httpx2.AsyncClient, "aclose", aclose)
        client.close()
    assert len(closed) == 2
