"""Every way in which an answer can go wrong ends its request under a stable name, and only its own request."""

from __future__ import annotations

import itertools
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
from tests.loadgen.scripted_server import DONE, HELLO, ROLE, Call, ScriptedServer, delta, event, hello


def _page(status: str, text: str, kind: str = "application/json") -> Callable[[Call], None]:
    return lambda call: call.whole(status, text, kind)


def _stream(*events: bytes) -> Callable[[Call], None]:
    return lambda call: call.stream(*events)


def _error_without_length(call: Call) -> None:
    call.send(b"HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nall seats are taken")
    call.close()


def _reset_in_mid_stream(call: Call) -> None:
    call.begin()
    call.chunk(ROLE + delta(content="Hel"))
    call.reset()


def _closed_in_mid_stream(call: Call) -> None:
    call.begin()
    call.chunk(ROLE + delta(content="Hel"))
    call.close()


def _reset_behind_done(call: Call) -> None:
    call.begin()
    call.chunk(b"".join(HELLO))
    call.reset()


def _no_done(call: Call) -> None:
    call.stream(ROLE, delta(content="Hel"), delta("stop", content="lo"))


def _never_ends(call: Call) -> None:
    call.begin()
    for _ in range(sse.MAX_EVENT // (1 << 20) + 2):
        call.chunk(b"x" * (1 << 20))
    call.end()


def _many_headers(call: Call) -> None:
    call.begin("text/event-stream", *(f"X-{n}: y" for n in range(http_exchange.MAX_HEADERS + 1)))


def _no_http(call: Call) -> None:
    call.send(b"220 mail.example.org ESMTP\r\n")


def _continue_first(call: Call) -> None:
    call.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    hello(call)


class Case(NamedTuple):
    answer: Callable[[Call], None]
    error: str | None
    says: str = ""


_ERROR = event({"error": {"message": "engine died", "code": 500}})

CASES = {
    "unauthorised": Case(_page("401 No", '{"error":"Unauthorized"}'), "http_401", "Unauthorized"),
    "no such model": Case(_page("404 No", '{"error":{"message":"no model nope"}}'), "http_404", "no model nope"),
    "too many": Case(_page("429 No", '{"detail":"slow down"}'), "http_429", "slow down"),
    "server error": Case(_page("500 No", "Internal Server Error", "text/plain"), "http_500", "Internal Server Error"),
    "error without length": Case(_error_without_length, "http_503", "all seats are taken"),
    "moved": Case(_page("307 Moved", ""), "http_307"),
    "HTML": Case(_page("200 OK", "<html>hello</html>", "text/html"), "not_a_stream", "text/html: <html>hello</html>"),
    "JSON": Case(_page("200 OK", '{"error":"no streams"}'), "not_a_stream", "application/json: no streams"),
    "error event": Case(_stream(ROLE, delta(content="Hel"), _ERROR, DONE), "error_event", "engine died"),
    "error event at once": Case(_stream(_ERROR, DONE), "error_event", "engine died"),
    "bad JSON": Case(_stream(ROLE, b"data: {oops\n\n"), "bad_json", "{oops"),
    "not UTF-8": Case(_stream(ROLE, b'data: {"id":"\xff"}\n\n'), "bad_json", "utf-8"),
    "reset in mid-stream": Case(_reset_in_mid_stream, "reset"),
    "closed in mid-stream": Case(_closed_in_mid_stream, "closed_early"),
    "empty stream": Case(_stream(), "closed_early", "without a finish reason"),
    "no finish reason": Case(_stream(ROLE, delta(content="Hel")), "closed_early", "without a finish reason"),
    "an event without an end": Case(_never_ends, "too_long"),
    "headers without an end": Case(_many_headers, "too_long"),
    "not HTTP": Case(_no_http, "bad_http"),
    "no [DONE]": Case(_no_done, None),
    "reset behind [DONE]": Case(_reset_behind_done, None),
    "100 Continue": Case(_continue_first, None),
    "well": Case(hello, None),
}


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, Record]]:
    """All cases at once on one worker, an agent for each: none may harm another."""
    names = list(CASES)
    with ScriptedServer(lambda call: CASES[call.asked].answer(call)) as server, DrivenWorker(server.url) as worker:
        records = worker.run((task(n, name) for n, name in enumerate(names)), agents=len(names))
        yield {names[record.task]: record for record in records}


@pytest.mark.parametrize("name", CASES)
def test_how_a_request_ends(outcomes: dict[str, Record], name: str) -> None:
    record = outcomes[name]
    assert record.error == CASES[name].error
    assert CASES[name].says in record.error_detail
    assert record.t_sent_ns is not None and record.t_done_ns is not None
    assert record.t_sent_ns < record.t_done_ns


def test_what_came_before_a_failure_is_kept(outcomes: dict[str, Record]) -> None:
    for name in ("error event", "reset in mid-stream", "closed in mid-stream"):
        assert outcomes[name].text == "Hel"
        assert outcomes[name].chunks == 1
    for name in ("unauthorised", "HTML", "error event at once", "empty stream"):
        assert outcomes[name].tokens_out is None
        assert outcomes[name].t_first_ns is None


def test_no_server_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with DrivenWorker(f"http://127.0.0.1:{port}") as worker:
        (record,) = worker.run([task(0)])
    assert record.error == "refused"
    assert record.t_sent_ns is None


def test_a_name_that_nobody_has_is_told_in_a_sentence() -> None:
    with DrivenWorker("http://no-such-host.invalid") as worker:
        while not isinstance(report := worker.next_report(), Failed):
            pass
        assert "no-such-host.invalid" in report.problem


def test_a_server_that_refuses_a_long_request_is_heard() -> None:
    """It answers before all is read, and closes: what it says must not be lost in what is still being sent."""
    heard = threading.Event()

    def refuse(call: Call) -> None:
        call.whole("413 Too large", '{"error":"too large"}')
        heard.wait(5)
        call.close()

    with ScriptedServer(refuse, read_body=False) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0, "x" * (16 << 20))])
        heard.set()
        assert (record.error, record.error_detail) == ("http_413", "too large")


def test_a_reset_in_the_middle_of_sending_is_a_reset() -> None:
    with ScriptedServer(Call.reset, read_body=False) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0, "x" * (16 << 20))])
    assert record.error == "reset"


def test_an_agent_waits_longer_after_each_failure_and_goes_on() -> None:
    with ScriptedServer(_page("500 No", "")) as server, DrivenWorker(server.url) as worker:
        records = worker.run(task(n) for n in range(4))
    starts = [record.t_sched_ns or 0 for record in records]
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert gaps[0] >= 50e6
    assert gaps[1] >= 100e6
    assert gaps[2] >= 200e6


# time limits


def _silent(call: Call) -> None:
    call.begin()
    call.chunk(ROLE)
    threading.Event().wait(5)


def _stalls(call: Call) -> None:
    call.begin()
    call.chunk(ROLE + delta(content="Hel"))
    threading.Event().wait(5)


def _endless(call: Call) -> None:
    call.begin()
    while True:
        call.chunk(delta(content="on and on"))
        threading.Event().wait(0.02)


def _never_closes(call: Call) -> None:
    call.begin()
    call.chunk(b"".join(HELLO))
    threading.Event().wait(5)


@pytest.mark.parametrize(
    ("answer", "limits", "error"),
    [
        (_silent, Timeouts(first_token=0.2), "first_token_timeout"),
        (_stalls, Timeouts(idle=0.2, first_token=60), "idle_timeout"),
        (_endless, Timeouts(total=0.3, idle=60), "total_timeout"),
        (_never_closes, Timeouts(idle=0.2), None),
    ],
    ids=["first token", "idle", "total", "a stream that said [DONE] is complete"],
)
def test_each_time_limit_has_its_name(answer: Callable[[Call], None], limits: Timeouts, error: str | None) -> None:
    with ScriptedServer(answer) as server, DrivenWorker(server.url, timeouts=limits) as worker:
        (record,) = worker.run([task(0)])
    assert record.error == error


def test_a_handshake_without_an_answer_runs_into_the_limit_for_connecting() -> None:
    limits = Timeouts(connect=0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        with DrivenWorker(url, timeouts=limits) as worker:
            (record,) = worker.run([task(0)])
    assert record.error == "connect_timeout"
    assert record.t_sent_ns is None
