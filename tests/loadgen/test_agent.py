"""Timeouts and records of one agent, with arrival times set by the test."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.loadgen.agent import Agent, FinishedRequest
from swarmtui.loadgen.clock import KernelClock
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.loadgen.http_exchange import HttpExchange
from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Phase, Record
from swarmtui.model.worker_protocol import StartStage, Target
from tests.loadgen.driver import task
from tests.loadgen.raw_server import DONE, ROLE, delta, usage
from tests.loadgen.scripted_reads import ScriptedConnection

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

_DEFAULT_TIMEOUTS = Timeouts()


class SentRequest:
    """One request of an agent, whose answer is kept; times are seconds since it was sent."""

    def __init__(
        self,
        limits: Timeouts = _DEFAULT_TIMEOUTS,
        *,
        api_key: str | None = None,
        stage: Phase = "level",
        phase: Phase = "level",
        single: bool = False,
    ) -> None:
        self._limits, self._shown = limits, 0
        self._finished: list[FinishedRequest] = []
        self._loop = EventLoop()
        target = Target(url="http://127.0.0.1:9", model="m", api_key=api_key)
        pool = EndpointPool(self._loop, KernelClock(), 0, target)
        self._connection = ScriptedConnection(self._loop, single=single)
        pool.release(self._connection)
        self._agent = Agent(0, StartStage(1, 1, phase=stage), True, self._finished.append, lambda agent, pause: None)
        self._agent.start(task(0, phase=phase), pool)
        user = self._connection.user
        assert isinstance(user, HttpExchange) and user.t_sent is not None
        self._exchange, self._sent = user, user.t_sent

    def receive(self, at_s: float, data: bytes) -> None:
        self._connection.receive(self._sent + round(at_s * 1e9), data)

    def error_at(self, at_s: float) -> str | None:
        """Check timeouts, and return the error with which the request ended."""
        self._agent.check_timeouts(self._sent + round(at_s * 1e9), self._limits)
        return self._exchange.response.error

    def chunks(self) -> int:
        """Return the chunks in the row that the next frame would have, or that an earlier one had."""
        row = self._agent.row_if_changed()
        self._shown = row.total if row is not None else self._shown
        return self._shown

    def record(self) -> Record:
        """Return the record of the request, which must have ended."""
        self._loop.call_soon(self._loop.stop)
        self._loop.run()
        (request,) = self._finished
        return request.record()

    def lose_connection(self) -> None:
        self._connection.end()

    def cancel(self) -> None:
        self._agent.cancel()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_idle_timeout_counts_from_the_last_token() -> None:
    request = SentRequest(Timeouts(first_token=60, idle=1, total=60))
    request.receive(0.1, HEAD + chunk(ROLE))
    assert request.error_at(5.0) is None
    request.receive(5.0, chunk(delta(content="a")))
    assert request.error_at(5.9) is None
    request.receive(5.9, chunk(delta(content="b")))
    assert request.error_at(6.9) is None
    assert request.error_at(6.91) == "idle_timeout"


@pytest.mark.parametrize("head", [b"", HEAD, HEAD + chunk(ROLE)], ids=["silent", "headers", "role"])
def test_first_token_timeout_counts_from_sending(head: bytes) -> None:
    request = SentRequest(Timeouts(first_token=2, idle=1, total=60))
    if head:
        request.receive(1.9, head)
    assert request.error_at(2.0) is None
    assert request.error_at(2.01) == "first_token_timeout"


def test_first_token_timeout_does_not_end_a_started_stream() -> None:
    request = SentRequest(Timeouts(first_token=2, idle=60, total=60))
    request.receive(1.9, HEAD + chunk(delta(content="a")))
    assert request.error_at(10.0) is None


def test_total_timeout_counts_from_sending() -> None:
    request = SentRequest(Timeouts(first_token=60, idle=60, total=10))
    request.receive(9.9, HEAD + chunk(delta(content="a")))
    assert request.error_at(10.0) is None
    assert request.error_at(10.01) == "total_timeout"


def test_cancelled_request_on_a_stale_connection_is_no_error() -> None:
    """It would have been sent again, if it had not been cancelled in the same moment."""
    request = SentRequest()
    request.lose_connection()
    request.cancel()
    assert request.record().error == "cancelled"


KEY = "canary-7c41e09b"
KEY_START = 6  # characters: too short a part of the key to be redacted by itself


def test_error_is_redacted_before_it_is_cut() -> None:
    request = SentRequest(api_key=KEY)
    body = ("x" * (500 - KEY_START) + KEY).encode()
    request.receive(0.1, b"HTTP/1.1 500 Error\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    assert request.record().error_detail == "x" * (500 - KEY_START) + "…"


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_answer_is_redacted_before_it_is_cut(field: str) -> None:
    request = SentRequest(api_key=KEY)
    before = "x" * ((1 << 20) - KEY_START)
    request.receive(0.1, HEAD + chunk(delta(**{field: before + KEY})) + chunk(DONE) + b"0\r\n\r\n")
    record = request.record()
    assert record.error is None
    assert (record.text if field == "content" else record.reasoning) == before + "…"


@pytest.mark.parametrize(
    ("stage", "phase", "recorded"),
    [
        ("level", "level", "level"),
        ("level", "preroll", "preroll"),
        ("level", "filler", "filler"),
        ("warmup", "level", "warmup"),
        ("serial", "level", "serial"),
    ],
)
def test_record_has_the_phase_of_its_task_or_stage(stage: Phase, phase: Phase, recorded: str) -> None:
    request = SentRequest(stage=stage, phase=phase)
    request.receive(0.1, HEAD + chunk(delta(content="a")) + chunk(DONE) + b"0\r\n\r\n")
    assert request.record().phase == recorded


EVENTS = st.sampled_from(
    [
        delta(content="word"),
        delta(content="word"),
        delta(content=""),
        delta(reasoning_content="thought"),
        delta(content="two events") * 2,
        usage(3),
        b": comment {}\n\n",
        delta(content="CRLF").replace(b"\n", b"\r\n"),
        b"data: {\n\n",
    ]
)


@given(st.lists(st.tuples(EVENTS, st.integers(1, 3), st.booleans()), min_size=1, max_size=60))
def test_reads_that_are_parsed_together_give_the_record_of_single_reads(
    sent: list[tuple[bytes, int, bool]],
) -> None:
    """Each event comes in one to three reads, or in one with the event before it, and all at times of their own."""
    reads = [HEAD + chunk(delta(content="first"))]
    for event, parts, joined in sent:
        data = chunk(event)
        if joined:
            reads[-1] += data
        else:
            cuts = [len(data) * part // parts for part in range(parts + 1)]
            reads += [data[start:end] for start, end in pairwise(cuts)]
    reads.append(chunk(delta("stop")) + chunk(DONE) + b"0\r\n\r\n")

    def record(single: bool) -> Record:
        request = SentRequest(single=single)
        for number, data in enumerate(reads):
            request.receive(0.01 * number, data)
        since = request.record()
        sent_ns = since.t_sent_ns or 0
        times = {
            name: value - sent_ns
            for name in ("t_event_ns", "t_first_ns", "t_first_reasoning_ns", "t_last_ns", "t_finish_ns", "t_done_ns")
            if (value := getattr(since, name)) is not None
        }
        return msgspec.structs.replace(since, t_sched_ns=0, t_sent_ns=0, t_headers_ns=0, t_first_content_ns=0, **times)

    together, single = record(single=False), record(single=True)
    assert together.error == single.error
    if single.error is None:
        assert together == single


def test_error_is_noticed_although_the_stream_neither_continues_nor_ends() -> None:
    request = SentRequest()
    request.receive(0.1, HEAD + chunk(delta(content="a")))
    request.receive(0.2, chunk(b'data: {"error": {"message": "out of memory"}}\n\n'))
    assert request.error_at(0.25) is None
    assert request.error_at(0.4) == "error_event"
    assert request.record().error_detail == "out of memory"


def test_row_counts_reads_that_are_not_parsed_yet() -> None:
    request = SentRequest()
    request.receive(0.1, HEAD + chunk(delta(content="a")))
    for _ in range(3):
        request.receive(0.2, chunk(delta(content="b")))
    assert request.chunks() == 4
    request.receive(0.2, chunk(delta(content="")))
    early = request.chunks()
    assert early in (4, 5), "5, unless it was parsed at once"
    assert request.error_at(0.4) is None
    assert request.chunks() == early, "a count that was too high stays until more has arrived"


def test_error_in_the_last_reads_is_known_when_the_response_ends() -> None:
    """An agent waits before its next request after an error, so this is not left for later."""
    request = SentRequest()
    request.receive(0.1, HEAD + chunk(delta(content="a")))
    request.receive(0.2, chunk(b'data: {"error": {"message": "out of memory"}}\n\n') + chunk(DONE) + b"0\r\n\r\n")
    assert request.error_at(0.2) == "error_event"


def test_response_without_finish_reason_and_last_event_is_closed_early() -> None:
    request = SentRequest()
    request.receive(0.1, HEAD + chunk(delta(content="a")))
    request.receive(0.2, chunk(delta(content="b")) + b"0\r\n\r\n")
    assert request.record().error == "closed_early"


def test_reads_before_the_end_of_the_connection_count() -> None:
    request = SentRequest()
    request.receive(0.1, HEAD + chunk(delta(content="a")))
    for number in range(3):
        request.receive(0.2 + number, chunk(delta(content="b")))
    request.lose_connection()
    record = request.record()
    assert (record.error, record.chunks, record.text) == ("closed_early", 4, "abbb")
