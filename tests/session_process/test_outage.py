"""When an outage of the server is recognised, and what happens then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from swarmtui.model.plan import Plan
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.telemetry import ServerState, Telemetry
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.outage import Outage, ServerEvents
from swarmtui.session_process.steering import Steering
from swarmtui.sessions.journal import read_journal
from swarmtui.state.session_state import SessionState
from tests.sessions.session_builders import head


class OutageHarness:
    """An outage whose server responds or not, what it makes of the run, and the events that it causes."""

    def __init__(self, directory: Path, *, responds: bool = True, changes: str = "", timeout_s: float = 5.0) -> None:
        self.directory = directory
        self.steering = Steering(Plan())
        self.journal = JournalQueue(directory)
        self.journal.write(head())
        self.outage = Outage(SessionState(0), self.journal, self.steering, lambda: responds, lambda: changes, timeout_s)

    def add(self, *errors: str | None, c: int = 4, phase: str = "level") -> None:
        for t_ns, error in enumerate(errors, start=1):
            record = Record(task=0, agent=0, c=c, phase=phase, error=error, t_done_ns=t_ns)  # type: ignore[arg-type]
            self.outage.add_record(record)

    async def wait_for(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10.0):
            while not condition():
                await asyncio.sleep(0.01)

    @property
    def is_recognised(self) -> bool:
        return self.outage._waiting is not None

    def events(self) -> list[str]:
        self.journal.close()
        return [event.name for event in read_journal(self.directory).events]


async def recognised(directory: Path, *errors: str | None, c: int = 4, phase: str = "level") -> bool:
    harness = OutageHarness(directory)
    harness.add(*errors, c=c, phase=phase)
    return harness.is_recognised


@pytest.mark.parametrize(
    ("c", "errors", "expected"),
    [
        (4, ["refused"], False),
        (4, ["refused"] * 3, False),
        (4, ["refused"] * 4, True),
        (4, ["reset", "closed_early", "reset", "refused"], True),
        (4, ["reset"] * 8, False),
        (4, ["refused", "refused", None, "refused", "refused"], False),
        (4, ["refused", "refused", "http_500", "refused", "refused"], False),
        (4, ["refused", CANCELLED, "refused", CANCELLED, "refused", "unreachable"], True),
        (1, ["refused"], False),
        (1, ["refused"] * 2, True),
        (2, ["connect_timeout"] * 2, True),
    ],
)
def test_outage_needs_as_many_errors_in_a_row_as_streams(
    tmp_path: Path, c: int, errors: list[str | None], expected: bool
) -> None:
    assert asyncio.run(recognised(tmp_path, *errors, c=c)) is expected


def test_answer_whose_check_ends_late_does_not_hide_an_outage(tmp_path: Path) -> None:
    async def recognised_after_late_answer() -> bool:
        harness = OutageHarness(tmp_path)
        for t_ns, error in ((5, "refused"), (6, "refused"), (1, None), (7, "refused"), (8, "refused")):
            harness.outage.add_record(Record(task=0, agent=0, c=4, phase="level", error=error, t_done_ns=t_ns))
        return harness.is_recognised

    assert asyncio.run(recognised_after_late_answer())


@pytest.mark.parametrize("phase", ["warmup", "serial"])
def test_only_levels_wait_for_the_server(tmp_path: Path, phase: str) -> None:
    assert not asyncio.run(recognised(tmp_path, *["refused"] * 8, phase=phase))


def test_run_resumes_when_the_server_responds(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = OutageHarness(tmp_path)
        harness.add(*["refused"] * 4)
        await harness.wait_for(lambda: harness.steering.state() == "pause")
        await harness.wait_for(lambda: harness.steering.state() == "run")
        assert not harness.is_recognised and not harness.outage.failure
        harness.add("refused")
        assert not harness.is_recognised, "the errors are counted from the start again"
        assert harness.events() == ["server_gone", "server_back"]

    asyncio.run(scenario())


def test_run_stops_if_the_server_comes_back_changed(tmp_path: Path) -> None:
    async def scenario() -> Outage:
        harness = OutageHarness(tmp_path, changes="--max-num-seqs 2 → 4")
        harness.add(*["refused"] * 4)
        await harness.wait_for(lambda: harness.steering.state() == "pause")
        await harness.wait_for(harness.steering.stop_now.is_set)
        assert harness.events() == ["server_gone", "server_changed"]
        return harness.outage

    assert asyncio.run(scenario()).changes == "--max-num-seqs 2 → 4"


@pytest.mark.parametrize("timeout_s", [0.0, 0.1])
def test_run_fails_if_the_server_does_not_come_back_in_time(tmp_path: Path, timeout_s: float) -> None:
    async def scenario() -> str:
        harness = OutageHarness(tmp_path, responds=False, timeout_s=timeout_s)
        harness.add(*["refused"] * 4)
        await harness.wait_for(lambda: harness.outage.failure)
        assert harness.steering.state() == "stop" and harness.steering.stop_now.is_set()
        return harness.outage.failure

    assert asyncio.run(scenario()).startswith("the server went away at C=4 (refused)")


class EventsHarness:
    """Server events of samples at the given seconds."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.journal = JournalQueue(directory)
        self.journal.write(head())
        self.found = ServerEvents(self.journal)
        self._names: list[str] = []
        self.journal.on_write = lambda entry: self._names.append(getattr(entry, "name", ""))

    @property
    def restarted(self) -> bool:
        return "server_restarted" in self._names

    @property
    def several_servers(self) -> bool:
        return "several_servers" in self._names

    def sample(self, at_s: float, tokens: float) -> None:
        state = ServerState(engine="vLLM", url="http://here/metrics", output_tokens=tokens)
        self.found.add_sample(Telemetry(t_ns=round(at_s * 1e9), servers=(state,)))

    def events(self) -> list[tuple[str, float]]:
        self.journal.close()
        return [(event.name, event.t_ns / 1e9) for event in read_journal(self.directory).events]


def test_restart_is_dated_when_the_streams_broke(tmp_path: Path) -> None:
    server = EventsHarness(tmp_path)
    server.sample(1.0, tokens=500)
    server.found.add_record(Record(task=0, error="closed_early", t_done_ns=1_400_000_000))
    server.sample(4.0, tokens=10)
    assert server.restarted
    assert server.events() == [("server_restarted", 1.4)]


def test_restart_between_requests_is_confirmed_by_counters_that_stay_low(tmp_path: Path) -> None:
    server = EventsHarness(tmp_path)
    server.sample(1.0, tokens=500)
    for second in range(2, 10):
        server.sample(second, tokens=second)
    assert not server.restarted
    server.sample(10.0, tokens=10)
    assert server.restarted and server.events() == [("server_restarted", 2.0)]


def test_decreased_counters_at_the_end_are_a_restart(tmp_path: Path) -> None:
    server = EventsHarness(tmp_path)
    server.sample(1.0, tokens=500)
    server.sample(2.0, tokens=0)
    server.found.finish()
    assert server.restarted and not server.several_servers


def test_an_error_behind_a_load_balancer_is_no_restart(tmp_path: Path) -> None:
    server = EventsHarness(tmp_path)
    server.sample(1.0, tokens=500)
    server.found.add_record(Record(task=0, error="closed_early", t_done_ns=1_400_000_000))
    server.sample(2.0, tokens=450)
    server.sample(3.0, tokens=520)
    assert server.several_servers and not server.restarted


def test_counters_that_grow_beyond_what_they_were_are_those_of_a_restarted_server(tmp_path: Path) -> None:
    """It had counted little when it restarted, so that it soon has more than before."""
    server = EventsHarness(tmp_path)
    for second, tokens in enumerate((0, 300, 600, 900, 20, 320, 620, 930, 1200), 1):
        server.sample(second, tokens)
    server.found.finish()
    assert server.restarted and not server.several_servers
    assert server.events() == [("server_restarted", 5.0)]


def test_a_server_that_was_away_and_counts_from_the_start_restarted(tmp_path: Path) -> None:
    """Its streams broke long before its metrics were gone, as if only the engine behind them had died."""
    server = EventsHarness(tmp_path)
    server.found.add_record(Record(task=0, error="closed_early", t_done_ns=1_000_000_000))
    server.sample(9.0, tokens=500)
    server.sample(40.0, tokens=10)
    assert server.restarted and server.events() == [("server_restarted", 40.0)]


@pytest.mark.parametrize("tokens", [567, 1613])
def test_a_server_that_refused_connections_restarted_however_much_it_has_counted_since(
    tmp_path: Path, tokens: float
) -> None:
    server = EventsHarness(tmp_path)
    server.sample(1.0, tokens=819)
    server.found.add_record(Record(task=0, error="refused", t_done_ns=1_400_000_000))
    server.sample(28.0, tokens)
    server.sample(29.0, tokens + 500)
    assert server.restarted and not server.several_servers
    assert server.events() == [("server_restarted", 1.4)]


def test_a_replica_that_refuses_connections_is_no_restart_of_the_others(tmp_path: Path) -> None:
    server = EventsHarness(tmp_path)
    for second in range(1, 20):
        server.sample(second, tokens=100.0 * second)
        server.found.add_record(Record(task=0, error="refused", t_done_ns=second * 1_000_000_000))
    server.found.finish()
    assert not server.restarted


def test_two_restarts_are_not_several_servers(tmp_path: Path) -> None:
    server = EventsHarness(tmp_path)
    for second, tokens in enumerate((0, 300, 600, 900, 10, 110, 210, 5, 90), 1):
        server.sample(second, tokens)
    server.found.finish()
    assert not server.several_servers
    assert [name for name, _ in server.events()] == ["server_restarted"] * 2


@pytest.mark.parametrize(
    "tokens",
    [
        (500, 40, 510), (500, 40, 90, 45), (500, 40, 44, 520, 50),
        # Replicas that have counted about as much as each other.
        (700, 800, 900, 850, 910),
    ],
)  # fmt: skip
def test_counters_that_jump_are_several_servers(tmp_path: Path, tokens: tuple[int, ...]) -> None:
    server = EventsHarness(tmp_path)
    for second, count in enumerate((*tokens, 600, 700), 1):
        server.sample(second, count)
    server.found.finish()
    assert server.several_servers and not server.restarted
    assert [name for name, _ in server.events()] == ["several_servers"]
