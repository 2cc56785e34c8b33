"""Connections of a worker: reuse, retries, TLS, IPv6, headers, and fields that a server rejects."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator

import pytest
import trustme

from swarmtui.model.workload import Tool
from tests.loadgen.driver import DrivenWorker, task
from tests.loadgen.raw_server import HELLO, TLS_CLOSE_TIMEOUT_S, RawCall, RawServer, hello


def test_connection_is_reused() -> None:
    with RawServer(hello) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(5))
    assert [record.error for record in records] == [None] * 5
    assert server.connections == 1


def test_server_that_closes_each_connection() -> None:
    def handler(call: RawCall) -> None:
        call.begin_stream("text/event-stream", "Connection: close")
        call.chunk(b"".join(HELLO))
        call.end_stream()
        call.close()

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(3))
    assert [(record.error, record.retried) for record in records] == [(None, False)] * 3
    assert server.connections == 3


def test_body_that_ends_with_its_connection() -> None:
    def handler(call: RawCall) -> None:
        call.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b"".join(HELLO).rstrip())
        call.close()

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(2))
    assert [(record.error, record.tokens_out, record.stamp) for record in records] == [(None, 3, "kernel")] * 2


def test_stale_connection_is_replaced_and_the_first_attempt_not_counted() -> None:
    closed: list[int] = []

    def handler(call: RawCall) -> None:
        if len(server.calls) == 2:
            time.sleep(0.1)
            closed.append(time.perf_counter_ns())
            call.close()
        else:
            hello(call)

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        first, second, third = worker.run(task(n) for n in range(3))
    assert [record.error for record in (first, second, third)] == [None] * 3
    assert [record.retried for record in (first, second, third)] == [False, True, False]
    assert second.t_sent_ns is not None and second.t_sent_ns >= closed[0]
    assert len(server.calls) == 4


def test_retry_uses_a_new_connection() -> None:
    """A server may close all idle connections at the same time."""

    def handler(call: RawCall) -> None:
        if call.connection < 3:
            call.close()
        else:
            hello(call)

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)], agents=3)
    assert (record.error, record.retried) == (None, True)


def test_no_second_retry() -> None:
    with RawServer(RawCall.close) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert (record.error, record.retried) == ("closed_early", True)
    assert len(server.calls) == 2


def test_connections_closed_while_idle_are_not_used() -> None:
    def handler(call: RawCall) -> None:
        hello(call)
        call.close()

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        (first,) = worker.run([task(0)])
        worker.wait_for_frame(lambda frame: bool(server.closed_ns))
        # The poll before the next frame may be from before the close; the one before the frame after that is not.
        for _ in range(2):
            worker.wait_for_frame(lambda frame: frame.t_ns > server.closed_ns[0])
        worker.enqueue([task(1)])
        (second,) = worker.records(1)
    assert (first.error, second.error, second.retried) == (None, None, False)
    assert len(server.calls) == 2


def test_connections_are_not_reused_after_two_that_the_server_closed() -> None:
    """Some builds of llama.cpp promise to keep connections, and close them after each stream."""
    answered: set[int] = set()

    def handler(call: RawCall) -> None:
        if call.connection in answered:
            call.close()
        else:
            answered.add(call.connection)
            hello(call)

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(6))
    assert [record.error for record in records] == [None] * 6
    assert [record.retried for record in records] == [False, True, True, False, False, False]
    assert [record.new_connection for record in records] == [False, False, True, True, True, True]
    assert len(server.calls) == 8


def test_single_closed_connections_do_not_end_reuse() -> None:
    def handler(call: RawCall) -> None:
        if len(server.calls) in (2, 5, 8):
            call.close()
        else:
            hello(call)

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(8))
    assert [record.retried for record in records] == [n in (1, 3, 5) for n in range(8)]
    assert not any(record.new_connection for record in records)
    assert server.connections == 4


# fields


def test_rejected_stream_options_are_remembered_per_server() -> None:
    def handler(call: RawCall) -> None:
        if "stream_options" in call.body:
            call.reply("400 Bad", '{"error":{"message":"Unrecognized request argument: stream_options"}}')
        else:
            hello(call)

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(3))
    assert [record.error for record in records] == [None] * 3
    assert ["stream_options" in call.body for call in server.calls] == [True, False, False, False]
    assert [record.left_out for record in records] == [("stream_options",)] * 3


def test_only_the_named_field_is_omitted() -> None:
    def handler(call: RawCall) -> None:
        if "ignore_eos" in call.body:
            detail = '{"type":"extra_forbidden","loc":["body","ignore_eos"],"msg":"Extra inputs are not permitted"}'
            call.reply("422 Unprocessable", '{"detail":[' + detail + "]}")
        else:
            hello(call)

    extra = {"ignore_eos": True, "top_k": 1}
    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n, extra=extra) for n in range(2))
    assert [record.left_out for record in records] == [("ignore_eos",)] * 2
    assert len(server.calls) == 3
    for call in server.calls[1:]:
        assert {"stream_options", "top_k"} <= call.body.keys()


def test_tools_are_sent_without_calls_if_the_server_rejects_these() -> None:
    def handler(call: RawCall) -> None:
        if call.body["tool_choice"] == "auto":
            problem = '\\"auto\\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            call.reply("400 Bad", '{"error":{"message":"' + problem + '"}}')
        else:
            hello(call)

    tools = (Tool(name="read", description="", parameters="{}"),)
    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n, tools=tools) for n in range(2))
    assert [(record.error, record.left_out) for record in records] == [(None, ("tool_choice",))] * 2
    assert [call.body["tool_choice"] for call in server.calls] == ["auto", "none", "none"]
    assert all(call.body["tools"] and call.body["stream_options"] for call in server.calls)


def test_unrelated_400_is_an_error_and_not_remembered() -> None:
    def handler(call: RawCall) -> None:
        if call.prompt == "long":
            call.reply("400 Bad", '{"error":{"message":"prompt too long"}}')
        else:
            hello(call)

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        bad, good = worker.run([task(0, "long"), task(1, "short")])
    assert (bad.error, bad.error_detail) == ("http_400", "prompt too long")
    assert (good.error, good.left_out) == (None, ())
    assert "stream_options" in server.calls[-1].body


# request head


def test_key_headers_and_host() -> None:
    with (
        RawServer(hello) as server,
        DrivenWorker(f"{server.url}/gateway/v1", api_key="sk-1", headers={"X-Team": "bees"}) as worker,
    ):
        worker.run([task(0)])
    (call,) = server.calls
    assert call.request_line == "POST /gateway/v1/chat/completions HTTP/1.1"
    assert call.headers["host"] == server.authority
    assert call.headers["authorization"] == "Bearer sk-1"
    assert call.headers["x-team"] == "bees"
    assert call.headers["content-type"] == "application/json"


def test_user_header_replaces_default_in_any_case() -> None:
    own = {"authorization": "Basic abc", "user-agent": "bench"}
    with RawServer(hello) as server, DrivenWorker(server.url, api_key="sk-1", headers=own) as worker:
        worker.run([task(0)])
    assert server.calls[0].headers["authorization"] == "Basic abc"
    assert server.calls[0].headers["user-agent"] == "bench"
    assert len(set(server.calls[0].header_names)) == len(server.calls[0].header_names)


def test_no_authorization_without_key() -> None:
    with RawServer(hello) as server, DrivenWorker(server.url) as worker:
        worker.run([task(0)])
    assert "authorization" not in server.calls[0].headers


def test_proxy_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with RawServer(hello) as server, DrivenWorker(server.url) as worker:
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
    with RawServer(hello, host="::1") as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert (record.error, record.stamp) == (None, "kernel")
    assert server.calls[0].headers["host"] == server.authority
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
def secure(authority: trustme.CA) -> Iterator[RawServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with RawServer(hello, tls=context) as server:
        yield server


def test_tls_with_custom_authority(secure: RawServer, ca_file: str) -> None:
    with DrivenWorker(secure.url, ca_file=ca_file) as worker:
        records = worker.run(task(n) for n in range(3))
    assert [(record.error, record.tokens_out, record.text) for record in records] == [(None, 3, "Hello you")] * 3
    assert {record.stamp for record in records} == {"kernel"}


def _tls_server(authority: trustme.CA, handler: Callable[[RawCall], None]) -> RawServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return RawServer(handler, tls=context)


def _truncated(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(HELLO[1])


def _close_delimited(call: RawCall) -> None:
    call.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b"".join(HELLO))


@pytest.mark.parametrize(("respond", "error"), [(_truncated, "closed_early"), (_close_delimited, None)])
def test_tls_close_notify_ends_a_response(
    authority: trustme.CA, ca_file: str, respond: Callable[[RawCall], None], error: str | None
) -> None:
    """The TCP connection stays open."""

    def handler(call: RawCall) -> None:
        respond(call)
        call.close_tls()

    with _tls_server(authority, handler) as server, DrivenWorker(server.url, ca_file=ca_file) as worker:
        (record,) = worker.run([task(0)])
        assert server.calls[0].client_closed.wait(TLS_CLOSE_TIMEOUT_S)
    assert record.error == error


def test_tls_close_notify_on_an_idle_connection_is_retried(authority: trustme.CA, ca_file: str) -> None:
    """As with plain HTTP, a request that meets the server's close is sent again on a new connection."""
    answered: set[int] = set()

    def handler(call: RawCall) -> None:
        if call.connection in answered:
            call.close_tls()
        else:
            answered.add(call.connection)
            hello(call)

    with _tls_server(authority, handler) as server, DrivenWorker(server.url, ca_file=ca_file) as worker:
        records = worker.run(task(n) for n in range(6))
        assert all(call.client_closed.wait(TLS_CLOSE_TIMEOUT_S) for call in server.calls[1:4:2])
    assert [record.error for record in records] == [None] * 6
    assert [record.retried for record in records] == [False, True, True, False, False, False]


def test_tls_connection_closed_while_idle_is_not_used(authority: trustme.CA, ca_file: str) -> None:
    def handler(call: RawCall) -> None:
        hello(call)
        call.close_tls()

    with _tls_server(authority, handler) as server, DrivenWorker(server.url, ca_file=ca_file) as worker:
        (first,) = worker.run([task(0)])
        assert server.calls[0].client_closed.wait(TLS_CLOSE_TIMEOUT_S)
        worker.enqueue([task(1)])
        (second,) = worker.records(1)
    assert (first.error, second.error, second.retried) == (None, None, False)


def test_tls_with_unknown_authority_is_rejected(secure: RawServer) -> None:
    with DrivenWorker(secure.url) as worker:
        (record,) = worker.run([task(0)])
    assert record.error == "tls_verify"
    assert record.t_sent_ns is None
    assert "certificate" in record.error_detail


def test_tls_for_another_host_is_rejected(secure: RawServer, ca_file: str) -> None:
    with DrivenWorker(secure.url.replace("127.0.0.1", "localhost"), ca_file=ca_file) as worker:
        (record,) = worker.run([task(0)])
    assert record.error == "tls_verify"


def test_tls_without_verification(secure: RawServer) -> None:
    with DrivenWorker(secure.url, insecure=True) as worker:
        (record,) = worker.run([task(0)])
    assert record.error is None
