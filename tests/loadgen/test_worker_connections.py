"""Connections: kept, lost and made again; TLS, IPv6, headers, and fields that a server refuses."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator

import pytest
import trustme

from tests.loadgen.driver import DrivenWorker, task
from tests.loadgen.scripted_server import HELLO, Call, ScriptedServer, hello


def test_a_connection_is_used_again() -> None:
    with ScriptedServer(hello) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(5))
    assert [record.error for record in records] == [None] * 5
    assert server.connections == 1


def test_a_server_that_closes_each_connection() -> None:
    def answer(call: Call) -> None:
        call.begin("text/event-stream", "Connection: close")
        call.chunk(b"".join(HELLO))
        call.end()
        call.close()

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(3))
    assert [(record.error, record.retried) for record in records] == [(None, False)] * 3
    assert server.connections == 3


def test_a_body_that_ends_with_its_connection() -> None:
    def answer(call: Call) -> None:
        call.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b"".join(HELLO).rstrip())
        call.close()

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(2))
    assert [(record.error, record.tokens_out, record.stamp) for record in records] == [(None, 3, "kernel")] * 2


def test_a_connection_that_dies_at_send_is_replaced_once_and_the_lost_time_not_counted() -> None:
    closed: list[int] = []

    def answer(call: Call) -> None:
        if len(server.seen) == 2:
            time.sleep(0.1)
            closed.append(time.perf_counter_ns())
            call.close()
        else:
            hello(call)

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        first, second, third = worker.run(task(n) for n in range(3))
    assert [record.error for record in (first, second, third)] == [None] * 3
    assert [record.retried for record in (first, second, third)] == [False, True, False]
    assert second.t_sent_ns is not None and second.t_sent_ns >= closed[0]
    assert len(server.seen) == 4


def test_the_second_try_is_on_a_fresh_connection_not_on_another_stale_one() -> None:
    """A server closes all its idle connections at the same time."""

    def answer(call: Call) -> None:
        if call.connection < 3:
            call.close()
        else:
            hello(call)

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)], agents=3)
    assert (record.error, record.retried) == (None, True)


def test_there_is_no_third_try() -> None:
    with ScriptedServer(Call.close) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert (record.error, record.retried) == ("closed_early", True)
    assert len(server.seen) == 2


def test_connections_closed_while_idle_are_not_used() -> None:
    def answer(call: Call) -> None:
        hello(call)
        call.close()

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        (first,) = worker.run([task(0)])
        worker.frame(lambda frame: True)
        worker.frame(lambda frame: True)
        worker.enqueue([task(1)])
        (second,) = worker.records(1)
    assert (first.error, second.error, second.retried) == (None, None, False)
    assert len(server.seen) == 2


# fields


def test_stream_options_are_dropped_once_and_the_server_remembered() -> None:
    def answer(call: Call) -> None:
        if "stream_options" in call.body:
            call.whole("400 Bad", '{"error":{"message":"Unrecognized request argument: stream_options"}}')
        else:
            hello(call)

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(3))
    assert [record.error for record in records] == [None] * 3
    assert ["stream_options" in call.body for call in server.seen] == [True, False, False, False]
    assert [record.left_out for record in records] == [("stream_options",)] * 3


def test_only_the_field_that_is_named_is_dropped() -> None:
    def answer(call: Call) -> None:
        if "ignore_eos" in call.body:
            detail = '{"type":"extra_forbidden","loc":["body","ignore_eos"],"msg":"Extra inputs are not permitted"}'
            call.whole("422 Unprocessable", '{"detail":[' + detail + "]}")
        else:
            hello(call)

    extra = {"ignore_eos": True, "top_k": 1}
    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n, extra=extra) for n in range(2))
    assert [record.left_out for record in records] == [("ignore_eos",)] * 2
    assert len(server.seen) == 3
    for call in server.seen[1:]:
        assert {"stream_options", "top_k"} <= call.body.keys()


def test_a_400_that_has_nothing_to_do_with_fields_stays_one_and_is_not_remembered() -> None:
    def answer(call: Call) -> None:
        if call.asked == "long":
            call.whole("400 Bad", '{"error":{"message":"prompt too long"}}')
        else:
            hello(call)

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        bad, good = worker.run([task(0, "long"), task(1, "short")])
    assert (bad.error, bad.error_detail) == ("http_400", "prompt too long")
    assert (good.error, good.left_out) == (None, ())
    assert "stream_options" in server.seen[-1].body


# what is sent


def test_key_headers_and_host() -> None:
    with (
        ScriptedServer(hello) as server,
        DrivenWorker(f"{server.url}/gateway/v1", api_key="sk-1", headers={"X-Team": "bees"}) as worker,
    ):
        worker.run([task(0)])
    (call,) = server.seen
    assert call.line == "POST /gateway/v1/chat/completions HTTP/1.1"
    assert call.headers["host"] == server.authority
    assert call.headers["authorization"] == "Bearer sk-1"
    assert call.headers["x-team"] == "bees"
    assert call.headers["content-type"] == "application/json"


def test_a_header_of_ones_own_replaces_ours_however_it_is_written() -> None:
    own = {"authorization": "Basic abc", "user-agent": "bench"}
    with ScriptedServer(hello) as server, DrivenWorker(server.url, api_key="sk-1", headers=own) as worker:
        worker.run([task(0)])
    assert server.seen[0].headers["authorization"] == "Basic abc"
    assert server.seen[0].headers["user-agent"] == "bench"
    assert len(set(server.seen[0].header_names)) == len(server.seen[0].header_names)


def test_no_key_no_authorization() -> None:
    with ScriptedServer(hello) as server, DrivenWorker(server.url) as worker:
        worker.run([task(0)])
    assert "authorization" not in server.seen[0].headers


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with ScriptedServer(hello) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert record.error is None


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")
def test_ipv6() -> None:
    with ScriptedServer(hello, host="::1") as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert (record.error, record.stamp) == (None, "kernel")
    assert server.seen[0].headers["host"] == server.authority
    assert server.authority.startswith("[::1]:")


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture(scope="module")
def secure(authority: trustme.CA) -> Iterator[ScriptedServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with ScriptedServer(hello, tls=context) as server:
        yield server


def test_tls_with_its_own_authority(secure: ScriptedServer, ca_file: str) -> None:
    with DrivenWorker(secure.url, ca_file=ca_file) as worker:
        records = worker.run(task(n) for n in range(3))
    assert [(record.error, record.tokens_out, record.text) for record in records] == [(None, 3, "Hello you")] * 3
    assert {record.stamp for record in records} == {"kernel"}


def test_tls_without_the_authority_is_refused(secure: ScriptedServer) -> None:
    with DrivenWorker(secure.url) as worker:
        (record,) = worker.run([task(0)])
    assert record.error == "tls_verify"
    assert record.t_sent_ns is None
    assert "certificate" in record.error_detail


def test_tls_for_another_host_is_refused(secure: ScriptedServer, ca_file: str) -> None:
    with DrivenWorker(secure.url.replace("127.0.0.1", "localhost"), ca_file=ca_file) as worker:
        (record,) = worker.run([task(0)])
    assert record.error == "tls_verify"


def test_tls_unverified_when_told_so(secure: ScriptedServer) -> None:
    with DrivenWorker(secure.url, insecure=True) as worker:
        (record,) = worker.run([task(0)])
    assert record.error is None
