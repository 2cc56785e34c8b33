"""When an outage of the server is recognised, and what happens then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from swarmtui.model import client_protocol
from swarmtui.model.record import CANCELLED, Record
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.live_state import LiveState
from swarmtui.session_process.outage import Outage
from swarmtui.sessions.journal import read_journal
from tests.sessions.session_builders import head


class OutageHarness:
    """An outage whose server responds or not, with the commands and events that it causes."""

    def __init__(self, directory: Path, *, responds: bool = True, changes: str = "", timeout_s: float = 5.0) -> None:
        self.commands: list[client_protocol.ClientCommand] = []
        self.directory = directory
        self.journal = JournalQueue(directory)
        self.journal.write(head())
        self.outage = Outage(
            LiveState(0), self.journal, self.commands.append, lambda: responds, lambda: changes, timeout_s
        )

    def add(self, *errors: str | None, c: int = 4, phase: str = "level") -> None:
        for error in errors:
            self.outage.add_record(Record(task=0, agent=0, c=c, phase=phase, error=error))  # type: ignore[arg-type]

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


@pytest.mark.parametrize("phase", ["warmup", "serial"])
def test_only_levels_wait_for_the_server(tmp_path: Path, phase: str) -> None:
    assert not asyncio.run(recognised(tmp_path, *["refused"] * 8, phase=phase))


def test_run_resumes_when_the_server_responds(tmp_path: Path) -> None:
    async def scenario() -> list[client_protocol.ClientCommand]:
        harness = OutageHarness(tmp_path)
        harness.add(*["refused"] * 4)
        await harness.wait_for(lambda: len(harness.commands) == 2)
        assert not harness.is_recognised and not harness.outage.failure
        harness.add("refused")
        assert not harness.is_recognised, "the errors are counted from the start again"
        assert harness.events() == ["server_gone", "server_back"]
        return harness.commands

    assert asyncio.run(scenario()) == [client_protocol.Pause(), client_protocol.Resume()]


def test_run_stops_if_the_server_comes_back_changed(tmp_path: Path) -> None:
    async def scenario() -> Outage:
        harness = OutageHarness(tmp_path, changes="--max-num-seqs 2 → 4")
        harness.add(*["refused"] * 4)
        await harness.wait_for(lambda: len(harness.commands) == 2)
        assert harness.commands == [client_protocol.Pause(), client_protocol.Stop(grace_s=0.0)]
        assert harness.events() == ["server_gone", "server_changed"]
        return harness.outage

    assert asyncio.run(scenario()).changes == "--max-num-seqs 2 → 4"


@pytest.mark.parametrize("timeout_s", [0.0, 0.1])
def test_run_fails_if_the_server_does_not_come_back_in_time(tmp_path: Path, timeout_s: float) -> None:
    async def scenario() -> str:
        harness = OutageHarness(tmp_path, responds=False, timeout_s=timeout_s)
        harness.add(*["refused"] * 4)
        await harness.wait_for(lambda: harness.outage.failure)
        assert harness.commands[-1] == client_protocol.Stop(grace_s=0.0)
        assert (client_protocol.Pause() in harness.commands) == bool(timeout_s)
        return harness.outage.failure

    assert asyncio.run(scenario()).startswith("the server went away at C=4 (refused)")
