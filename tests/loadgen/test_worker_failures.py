"""Failures of a worker's requests: each ends its own request, with a stable error name."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from swarmtui.loadgen import http_exchange, sse
from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Record
from swarmtui.model.worker_protocol import Failed
from tests.loadgen.driver import DrivenWorker, task
from tests.loadgen.faulty_worker import FAULTS
from tests.loadgen.raw_server import DONE, HELLO, ROLE, WAIT_S, RawCall, RawServer, delta, event, hello


def _page(status: str, text: str, kind: str = "application/json") -> Callable[[RawCall], None]:
    return lambda call: call.reply(status, text, kind)


def _stream(*events: bytes) -> Callable[[RawCall], None]:
    return lambda call: call.stream(*events)


def _error_without_length(call: RawCall) -> None:
    call.send(b"HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nall slots are in use")
    call.close()


def _reset_in_mid_stream(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(ROLE + delta(content="Hel"))
    call.reset()


def _closed_in_mid_stream(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(ROLE + delta(content="Hel"))
    call.close()


def _reset_after_done(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(b"".join(HELLO))
    call.reset()


def _no_done(call: RawCall) -> None:
    call.stream(ROLE, delta(content="Hel"), delta("stop", content="lo"))


def _never_ends(call: RawCall) -> None:
    call.begin_stream()
    for _ in range(sse.MAX_EVENT // (1 << 20) + 2):
        call.chunk(b"x" * (1 << 20))
    call.end_stream()


def _many_headers(call: RawCall) -> None:
    call.begin_stream("text/event-stream", *(f"X-{n}: y" for n in range(http_exchange.MAX_HEADERS + 1)))


def _no_http(call: RawCall) -> None:
    call.send(b"220 mail.example.org ESMTP\r\n")


def _continue_first(call: RawCall) -> None:
    call.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    hello(call)


def _early_hints_first(call: RawCall) -> None:
    call.send(b"HTTP/1.1 103 Early Hints\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n")
    hello(call)


def _hinted_type(call: RawCall) -> None:
    """Send the content type with the interim response only."""
    call.send(b"HTTP/1.1 103 Early Hints\r\nContent-Type: text/event-stream\r\n\r\n")
    body = b"".join(HELLO)
    call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def _head_only(head: bytes) -> Callable[[RawCall], None]:
    """Send a head without a body or an end, and keep the connection open."""

    def handler(call: RawCall) -> None:
        call.send(head + b"\r\n\r\n")
        call.wait_for_disconnect(10)
        call.close()

    return handler


_LONG = "x" * 3_500_000
_OK = (ROLE, delta(content="Hel"), delta("stop", content="lo"))


class FailureCase(NamedTuple):
    handler: Callable[[RawCall], None]
    error: str | None
    detail: str = ""


_ERROR = event({"error": {"message": "engine died", "code": 500}})

CASES = {
    "unauthorized": FailureCase(_page("401 No", '{"error":"Unauthorized"}'), "http_401", "Unauthorized"),
    "no such model": FailureCase(_page("404 No", '{"error":{"message":"no model nope"}}'), "http_404", "no model nope"),
    "too many": FailureCase(_page("429 No", '{"detail":"slow down"}'), "http_429", "slow down"),
    "server error": FailureCase(
        _page("500 No", "Internal Server Error", "text/plain"), "http_500", "Internal Server Error"
    ),
    "error without length": FailureCase(_error_without_length, "http_503", "all slots are in use"),
    "moved": FailureCase(_page("307 Moved", ""), "http_307"),
    "HTML": FailureCase(
        _page("200 OK", "<html>hello</html>", "text/html"), "not_a_stream", "text/html: <html>hello</html>"
    ),
    "JSON": FailureCase(_page("200 OK", '{"error":"no streams"}'), "not_a_stream", "application/json: no streams"),
    "error event": FailureCase(_stream(ROLE, delta(content="Hel"), _ERROR, DONE), "error_event", "engine died"),
    "error event at once": FailureCase(_stream(_ERROR, DONE), "error_event", "engine died"),
    "bad JSON": FailureCase(_stream(ROLE, b"data: {oops\n\n"), "bad_json", "{oops"),
    "not UTF-8": FailureCase(_stream(ROLE, b'data: {"id":"\xff"}\n\n'), "bad_json", "utf-8"),
    "reset in mid-stream": FailureCase(_reset_in_mid_stream, "reset"),
    "closed in mid-stream": FailureCase(_closed_in_mid_stream, "closed_early"),
    "empty stream": FailureCase(_stream(), "closed_early", "without a finish reason"),
    "no finish reason": FailureCase(_stream(ROLE, delta(content="Hel")), "closed_early", "without a finish reason"),
    "endless event": FailureCase(_never_ends, "too_long"),
    "too many headers": FailureCase(_many_headers, "too_long"),
    "not HTTP": FailureCase(_no_http, "bad_http"),
    "no [DONE]": FailureCase(_no_done, None),
    "reset after [DONE]": FailureCase(_reset_after_done, None),
    "100 Continue": FailureCase(_continue_first, None),
    "103 Early Hints": FailureCase(_early_hints_first, None),
    "type in 103 only": FailureCase(_hinted_type, "not_a_stream", "no content type"),
    "101": FailureCase(
        _head_only(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: h2c"), "http_101", "another protocol"
    ),
    "101 without Upgrade": FailureCase(_head_only(b"HTTP/1.1 101 Switching"), "http_101", "another protocol"),
    "status 000": FailureCase(_head_only(b"HTTP/1.1 000 None"), "bad_http", "invalid status 000"),
    "event: error": FailureCase(
        _stream(*_OK, b'event: error\ndata: {"message": "engine died"}\n\n', DONE), "error_event", "engine died"
    ),
    "event: error with text": FailureCase(
        _stream(*_OK, b"event: error\r\ndata: engine died\r\n\r\n", DONE), "error_event", "engine died"
    ),
    "object: error": FailureCase(
        _stream(*_OK, event({"object": "error", "message": "engine died", "code": 500}), DONE),
        "error_event",
        "engine died",
    ),
    "bad event after [DONE]": FailureCase(_stream(*HELLO, b"data: bye\n\n", _ERROR), None),
    "byte order mark": FailureCase(_stream(b"\xef\xbb\xbf" + HELLO[1], *HELLO[2:]), None),
    "long names": FailureCase(
        _stream(
            event({"id": _LONG, "choices": [{"delta": {"content": "Hel"}}]}),
            event({"choices": [{"delta": {}, "finish_reason": _LONG}]}),
        ),
        None,
    ),
    "long content type": FailureCase(_page("200 OK", "", "x" * 100_000), "not_a_stream", "xxx"),
    "healthy": FailureCase(hello, None),
}


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, Record]]:
    """Records of all cases run concurrently on one worker, one agent each."""
    names = list(CASES)
    with (
        RawServer(lambda call: CASES[call.prompt].handler(call)) as server,
        DrivenWorker(server.url) as worker,
    ):
        records = worker.run((task(n, name) for n, name in enumerate(names)), agents=len(names))
        yield {names[record.task]: record for record in records}


@pytest.mark.parametrize("name", CASES)
def test_error_name_and_detail(outcomes: dict[str, Record], name: str) -> None:
    record = outcomes[name]
    assert record.error == CASES[name].error
    assert CASES[name].detail in record.error_detail
    assert record.t_sent_ns is not None and record.t_done_ns is not None
    assert record.t_sent_ns < record.t_done_ns


def test_kept_text_is_bounded(outcomes: dict[str, Record]) -> None:
    for record in outcomes.values():
        assert len(record.id) <= 200 and len(record.finish_reason or "") <= 200 and len(record.error_detail) <= 500
    assert outcomes["long names"].id == outcomes["long names"].finish_reason == "x" * 200


def test_first_token_after_a_byte_order_mark_counts(outcomes: dict[str, Record]) -> None:
    assert (outcomes["byte order mark"].text, outcomes["byte order mark"].chunks) == ("Hello you", 3)


def test_output_before_a_failure_is_kept(outcomes: dict[str, Record]) -> None:
    for name in ("error event", "reset in mid-stream", "closed in mid-stream"):
        assert outcomes[name].text == "Hel"
        assert outcomes[name].chunks == 1
    for name in ("unauthorized", "HTML", "error event at once", "empty stream"):
        assert outcomes[name].tokens_out is None
        assert outcomes[name].t_first_ns is None


def test_fault_in_the_client_ends_its_own_request_only() -> None:
    """Other streams of the worker, which run at the same time, are not affected."""

    def echo(call: RawCall) -> None:
        if call.prompt == "close":
            call.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + delta(content="close").rstrip())
            call.close()
            return
        call.begin_stream()
        call.chunk(ROLE)
        if call.prompt == "finish":
            call.chunk(delta("stop", content="finish").rstrip())
        else:
            call.chunk(delta("stop", content=call.prompt) + DONE)
        call.end_stream()

    prompts = [*FAULTS, "healthy"] * 3
    with RawServer(echo) as server, DrivenWorker(server.url, module="tests.loadgen.faulty_worker") as worker:
        records = worker.run((task(n, prompt) for n, prompt in enumerate(prompts)), agents=7)
    assert len(records) == len(prompts)
    for record in records:
        prompt = prompts[record.task]
        assert record.error == (None if prompt == "healthy" else "client_fault"), record
        assert prompt == "healthy" or "internal error of swarmtui: " in record.error_detail
    assert any("OverflowError in faulty_worker.py" in record.error_detail for record in records)


def test_ollama_durations_out_of_range_end_their_own_request() -> None:
    def handler(call: RawCall) -> None:
        duration = b"9" * 400 if call.prompt == "huge" else b"5.0"
        call.begin_stream("application/x-ndjson")
        call.chunk(b'{"message":{"content":"Hel"}}\n')
        call.chunk(b'{"done":true,"eval_count":1.0,"eval_duration":%s,"prompt_eval_count":7.0}\n' % duration)
        call.chunk(b"{bye}\n")
        call.end_stream()

    with RawServer(handler) as server, DrivenWorker(server.url, dialect="ollama") as worker:
        bad, good = worker.run([task(0, "huge"), task(1, "good")])
    assert (bad.error, good.error, good.tokens_out, good.tokens_in) == ("bad_json", None, 1, 7)


def test_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with DrivenWorker(f"http://127.0.0.1:{port}") as worker:
        (record,) = worker.run([task(0)])
    assert record.error == "refused"
    assert record.t_sent_ns is None


def test_unknown_host_is_reported() -> None:
    with DrivenWorker("http://no-such-host.invalid") as worker:
        while not isinstance(report := worker.next_report(), Failed):
            pass
        assert "no-such-host.invalid" in report.problem


def test_rejection_of_a_long_request_is_read() -> None:
    """The server responds and closes before it has read the whole request."""
    received = threading.Event()

    def refuse(call: RawCall) -> None:
        call.reply("413 Too large", '{"error":"too large"}')
        received.wait(WAIT_S)
        call.close()

    with RawServer(refuse, read_body=False) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0, "x" * (16 << 20))])
        received.set()
        assert (record.error, record.error_detail) == ("http_413", "too large")


def test_rejection_before_a_reset_is_read() -> None:
    """The worker can send more, and then learns of both the response and the reset at once."""
    connected, stopped, reset = threading.Event(), threading.Event(), threading.Event()

    def refuse(call: RawCall) -> None:
        connected.set()
        assert stopped.wait(WAIT_S)
        call.read_sent()
        call.reply("413 Too large", '{"error":"too large"}')
        call.reset()
        reset.set()

    with RawServer(refuse, read_body=False) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(0, "x" * (16 << 20))])
        worker.start_stage(1)
        assert connected.wait(WAIT_S)
        os.kill(worker.pid, signal.SIGSTOP)
        stopped.set()
        assert reset.wait(WAIT_S)
        os.kill(worker.pid, signal.SIGCONT)
        (record,) = worker.records(1)
    assert (record.error, record.error_detail) == ("http_413", "too large")


def test_reset_while_sending() -> None:
    with RawServer(RawCall.reset, read_body=False) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0, "x" * (16 << 20))])
    assert record.error == "reset"


def test_backoff_grows_after_each_failure() -> None:
    with RawServer(_page("500 No", "")) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(4))
    starts = [record.t_sched_ns or 0 for record in records]
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert gaps[0] >= 50e6
    assert gaps[1] >= 100e6
    assert gaps[2] >= 200e6


# timeouts


def _silent(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(ROLE)
    threading.Event().wait(WAIT_S)


def _stalls(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(ROLE + delta(content="Hel"))
    threading.Event().wait(WAIT_S)


def _endless(call: RawCall) -> None:
    call.begin_stream()
    while True:
        call.chunk(delta(content="on and on"))
        threading.Event().wait(0.02)


def _never_closes(call: RawCall) -> None:
    call.begin_stream()
    call.chunk(b"".join(HELLO))
    threading.Event().wait(WAIT_S)


@pytest.mark.parametrize(
    ("handler", "limits", "error"),
    [
        (_silent, Timeouts(first_token=0.2), "first_token_timeout"),
        (_stalls, Timeouts(idle=0.2, first_token=60), "idle_timeout"),
        (_endless, Timeouts(total=0.3, idle=60), "total_timeout"),
        (_never_closes, Timeouts(idle=0.2), None),
    ],
    ids=["first token", "idle", "total", "complete after [DONE]"],
)
def test_timeout_error_names(handler: Callable[[RawCall], None], limits: Timeouts, error: str | None) -> None:
    with RawServer(handler) as server, DrivenWorker(server.url, timeouts=limits) as worker:
        (record,) = worker.run([task(0)])
    assert record.error == error


def test_handshake_without_response_is_a_connect_timeout() -> None:
    limits = Timeouts(connect=0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        with DrivenWorker(url, timeouts=limits) as worker:
            (record,) = worker.run([task(0)])
    assert record.error == "connect_timeout"
    assert record.t_sent_ns is None
