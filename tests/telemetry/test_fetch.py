"""A server that is slow, endless, huge or gone costs us its figures, and nothing else."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler

from swarmtui.telemetry.fetch import MOST_BYTES, Fetcher
from tests.telemetry.text_server import Told, serving


def begin(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response_only(200)
    handler.send_header("Connection", "close")
    handler.end_headers()


def test_a_body_without_end_is_not_read_to_its_end() -> None:
    sent = []

    def endless(handler: BaseHTTPRequestHandler) -> None:
        begin(handler)
        while True:
            sent.append(handler.wfile.write(b"#" * (1 << 16)))

    with serving({"/m": endless}) as server:
        ((_, body, problem),) = Fetcher((f"{server.url}/m",)).fetch()
    assert (body, problem) == ("", "more than 4 MB, not read")
    assert sum(sent) < 4 * MOST_BYTES


def test_silence_and_a_trickle_both_end_in_time() -> None:
    over = threading.Event()

    def silent(handler: BaseHTTPRequestHandler) -> None:
        over.wait(20)

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        begin(handler)
        while not over.wait(0.02):
            handler.wfile.write(b"x")

    with serving({"/silent": silent, "/trickle": trickle}) as server:
        fetcher = Fetcher((f"{server.url}/silent", f"{server.url}/trickle"), timeout_s=0.2)
        answers = fetcher.fetch()
        over.set()
        fetcher.close()
    assert [answer.problem for answer in answers] == ["no answer within 0.2 s", "not done within 0.2 s"]


def closing(body: bytes) -> Told:
    return Told(200, body, {"Connection": "close"})


def test_a_server_that_comes_back_is_read_again() -> None:
    with serving({"/m": closing(b"one")}) as server:
        fetcher = Fetcher((f"{server.url}/m",), retry_s=0.0)
        assert fetcher.fetch()[0].body == "one"
    assert "refused" in fetcher.fetch()[0].problem
    with serving({"/m": closing(b"two")}, port=int(server.url.rsplit(":", 1)[1])):
        assert fetcher.fetch()[0].body == "two"
    fetcher.close()


def test_a_server_that_failed_is_left_alone_for_a_while() -> None:
    with serving({}) as server:
        fetcher = Fetcher((f"{server.url}/m",), retry_s=3600.0)
        assert [fetcher.fetch()[0].problem for _ in range(3)] == ["HTTP 404"] * 3
        assert len(server.asked) == 1
    fetcher.close()


def test_nonsense_for_an_address_is_said() -> None:
    ((_, _, problem),) = Fetcher(("http://[bad",)).fetch()
    assert problem
