"""What follows after a level has cancelled its requests: the server ends them, does not tell, or ignores it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from swarmtui.model.telemetry import ServerState, Telemetry
from swarmtui.session_process import cancellation
from swarmtui.session_process.cancellation import CancelledRequests


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends requests has more than enough time for it, also on a busy machine."""
    for name, value in (("_PAUSE_S", 0.02), ("_PATIENCE_S", 30.0), ("_MAX_WAIT_S", 60.0), ("_POLL_S", 0.001)):
        monkeypatch.setattr(cancellation, name, value)


class Server:
    """Returns one sample per read: the requests that it works on, and the tokens that it has generated."""

    def __init__(self, running: Callable[[int], float | None], tokens: Callable[[int], float] = float) -> None:
        self._running, self._tokens, self.reads = running, tokens, 0

    def read(self) -> Telemetry:
        now, state = time.perf_counter_ns(), self._running(self.reads)
        server = ServerState(engine="vllm", running=state, waiting=0.0, output_tokens=self._tokens(self.reads))
        self.reads += 1
        return Telemetry(t_ns=now, servers=(server,), servers_t_ns=now)

    def ended_after_cancelling(self, own: int = 4) -> bool:
        return asyncio.run(CancelledRequests(self.read, own, 0).wait(lambda: False))


def test_next_level_starts_when_the_server_has_ended_all_requests() -> None:
    server = Server(lambda read: 4.0 if read < 5 else 0.0)
    assert server.ended_after_cancelling()
    assert server.reads == 6, "no pause after the sample that shows it"


def test_requests_of_other_clients_are_not_waited_for() -> None:
    server = Server(lambda read: 7.0 if read < 3 else 3.0)
    assert server.ended_after_cancelling()
    assert server.reads == 4


def test_without_metrics_the_next_level_starts_after_a_pause() -> None:
    assert Server(lambda _: None).ended_after_cancelling()
    empty = Telemetry(t_ns=0)
    assert asyncio.run(CancelledRequests(lambda: empty, 4, 0).wait(lambda: False))


def test_server_that_goes_on_with_cancelled_requests_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(cancellation, "_MAX_WAIT_S", 0.3)
    assert not Server(lambda read: 4.0).ended_after_cancelling()


def test_number_that_an_idle_server_does_not_update_is_no_running_request() -> None:
    assert Server(lambda _: 4.0, tokens=lambda _: 100.0).ended_after_cancelling()


def test_a_command_ends_the_wait() -> None:
    server = Server(lambda _: 4.0)
    assert asyncio.run(CancelledRequests(server.read, 4, 0).wait(lambda: True))
