"""Slow, endless, huge and failing replies become problems, never exceptions or delays."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler

from swarmtui.telemetry.prometheus import MAX_BYTES, Fetcher
from tests.telemetry.text_server import TextReply, serving


def begin(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response_only(200)
    handler.send_header("Connection", "close")
    handler.end_headers()


def test_endless_body_is_cut_off() -> None:
    sent = []

    def endless(handler: BaseHTTPRequestHandler) -> None:
        begin(handler)
        while True:
            sent.append(handler.wfile.write(b"#" * (1 << 16)))

    with serving({"/m": endless}) as server:
        ((_, body, problem),) = Fetcher((f"{server.url}/m",)).fetch()
    assert (body, problem) == ("", "more than 4 MB, not read")
    assert sum(sent) < 4 * MAX_BYTES


def test_silent_and_trickling_servers_time_out() -> None:
    done = threading.Event()

    def silent(handler: BaseHTTPRequestHandler) -> None:
        done.wait(20)

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        begin(handler)
        while not done.wait(0.02):
            handler.wfile.write(b"x")

    with serving({"/silent": silent, "/trickle": trickle}) as server:
        fetcher = Fetcher((f"{server.url}/silent", f"{server.url}/trickle"), timeout_s=0.2)
        results = fetcher.fetch()
        done.set()
        fetcher.close()
    assert [result.problem for result in results] == ["no answer within 0.2 s", "not finished within 0.2 s"]


def closing(body: bytes) -> TextReply:
    return TextReply(200, body, {"Connection": "close"})


def test_restarted_server_is_read_again() -> None:
    with serving({"/m": closing(b"one")}) as server:
        fetcher = Fetcher((f"{server.url}/m",), retry_s=0.0)
        assert fetcher.fetch()[0].body == "one"
    assert "refused" in fetcher.fetch()[0].problem
    with serving({"/m": closing(b"two")}, port=int(server.url.rsplit(":", 1)[1])):
        assert fetcher.fetch()[0].body == "two"
    fetcher.close()


def test_failed_server_is_not_asked_again_at_once() -> None:
    with serving({}) as server:
        fetcher = Fetcher((f"{server.url}/m",), retry_s=3600.0)
        assert [fetcher.fetch()[0].problem for _ in range(3)] == ["HTTP 404"] * 3
        assert len(server.requests) == 1
    fetcher.close()


def test_invalid_url_is_a_problem() -> None:
    ((_, _, problem),) = Fetcher(("http://[bad",)).fetch()
    assert problem
