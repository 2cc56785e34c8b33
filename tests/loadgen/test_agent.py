"""Timeouts of one agent, with arrival times set by the test."""

from __future__ import annotations

import pytest

from swarmtui.loadgen.agent import Agent
from swarmtui.loadgen.clock import KernelClock
from swarmtui.loadgen.connection import Connection
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.loadgen.http_exchange import HttpExchange
from swarmtui.model.plan import Timeouts
from swarmtui.model.worker_protocol import StartStage, Target
from tests.loadgen.driver import task
from tests.loadgen.raw_server import ROLE, delta

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class IdleConnection(Connection):
    """An open connection that discards what is sent."""

    def __init__(self, pool: EndpointPool) -> None:
        super().__init__(pool.loop, KernelClock(), [], "", None)
        self.open = True

    def send(self, data: bytes) -> None:
        pass


class SentRequest:
    """One request of an agent; times are seconds since it was sent."""

    def __init__(self, limits: Timeouts) -> None:
        self._limits = limits
        pool = EndpointPool(EventLoop(), KernelClock(), 0, Target(url="http://127.0.0.1:9", model="m"))
        connection = IdleConnection(pool)
        pool.release(connection)
        self._agent = Agent(0, StartStage(1, 1), False, lambda record: None, lambda agent, pause: None)
        self._agent.start(task(0), pool)
        assert isinstance(connection.user, HttpExchange) and connection.user.t_sent is not None
        self._exchange, self._sent = connection.user, connection.user.t_sent

    def receive(self, at_s: float, data: bytes) -> None:
        self._exchange.t = self._sent + round(at_s * 1e9)
        self._exchange.data_received(data)

    def error_at(self, at_s: float) -> str | None:
        """Check timeouts, and return the error with which the request ended."""
        self._agent.check_timeouts(self._sent + round(at_s * 1e9), self._limits)
        return self._exchange.response.error


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
