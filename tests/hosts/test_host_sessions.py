"""A session whose workers run on other hosts, played by plain processes."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from swarmtui.client.session_client import start_session
from swarmtui.hosts import pool as pool_module
from swarmtui.hosts.pool import HostPool
from swarmtui.hosts.ray_cluster import check_reachable, first_line, refusal
from swarmtui.model.host_protocol import WorkerHello
from swarmtui.model.journal import ClockEntry
from swarmtui.model.load import Closed, Sessions
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from swarmtui.model.run_request import RunRequest
from swarmtui.model.worker_protocol import pack
from swarmtui.processes.spawn import StartedProcess
from swarmtui.sessions.journal import read_entries, read_journal
from tests.cli.programs import SIM, Sandbox, open_sandbox, send_signal, wait_until
from tests.hosts.plain_launcher import AHEAD_S, clocks_can_differ
from tests.session_process.harness import OFTEN, RecordingClient

_SESSION_PROCESS = """
import runpy
import swarmtui.hosts.pool
swarmtui.hosts.pool.LAUNCHER = "tests.hosts.plain_launcher"
runpy.run_module("swarmtui.session_process", run_name="__main__")
"""


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    with open_sandbox(tmp_path) as sandbox:
        for name, value in sandbox.environment.items():
            monkeypatch.setenv(name, value)
        yield sandbox


def start(sandbox: Sandbox, plan: Plan, endpoint: str = SIM, workload: str = "chat") -> RecordingClient:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([sys.executable, "-P", "-c", _SESSION_PROCESS], stdin=theirs.fileno())
    request = RunRequest(
        endpoints=(endpoint,),
        workload=workload,
        plan=plan,
        session_root=str(sandbox.sessions),
        hosts="local:2",
        gpus=False,
    )
    return RecordingClient(start_session(request, OFTEN, StartedProcess(ours, process)))


def test_times_of_all_hosts_are_in_the_clock_of_the_session(sandbox: Sandbox) -> None:
    plan = Plan(load=Closed(levels=(4,), requests=16, complete=True, warmup=0), max_tokens=8, seed=1)
    session = start(sandbox, plan)
    ended = session.wait_for_end()
    assert ended.ending == "done", ended
    journal = read_journal(Path(ended.directory))
    hosts = journal.head.session.hosts
    assert [host.workers for host in hosts] == [(0,), (1,)]
    assert len({host.name for host in hosts}) == 2
    records = [record for record in journal.records if record.phase == "level"]
    # Each stream has a request of the pre-roll.
    assert {record.agent % 2 for record in journal.records} == {0, 1}
    assert [record.tokens_out for record in records] == [8] * 16
    (start_ns,), (end_ns,) = [stage.t_ns for stage in journal.stages], [end.t_ns for end in journal.ends]
    assert all(start_ns <= (r.t_sent_ns or 0) < (r.t_first_ns or 0) <= (r.t_done_ns or 0) <= end_ns for r in records)
    clocks = [
        entry for entry in read_entries(Path(ended.directory) / "journal.jsonl")[0] if isinstance(entry, ClockEntry)
    ]
    assert {entry.host for entry in clocks} == {host.name for host in hosts}
    ahead_ns = 1_000_000_000 * AHEAD_S if clocks_can_differ() else 0
    for entry in clocks:
        expected_ns = ahead_ns if abs(entry.clock.offset_ns) > 1e9 else 0
        assert abs(entry.clock.offset_ns - expected_ns) <= entry.clock.bound_ns
    assert journal.quality is not None
    assert any(line.code == "host_clocks" for line in journal.quality.lines)
    session.client.close()
    wait_until(lambda: not sandbox.processes(), "all processes have exited")


def test_recorded_sessions_are_played_over_hosts_each_request_after_the_answer_before_it(sandbox: Sandbox) -> None:
    plan = Plan(load=Sessions(levels=(2,), sessions=3, warmup=0, time_scale=200.0), seed=1)
    session = start(sandbox, plan, endpoint="sim:moe-tp1?speed=100", workload="agents")
    ended = session.wait_for_end()
    assert ended.ending == "done", ended
    session.client.close()
    records = [record for record in read_journal(Path(ended.directory)).records if record.ok]
    assert {record.agent % 2 for record in records} == {0, 1}
    agents: defaultdict[tuple[int, int], list[Record]] = defaultdict(list)
    for record in records:
        assert record.replayed is not None and record.tokens_in == pytest.approx(record.replayed.input_tokens, abs=10)
        agents[record.replayed.play, record.replayed.subagent].append(record)
    assert any(len(turns) > 3 for turns in agents.values())
    # Requests of one agent are on both hosts, whose clocks differ by far more than a session takes.
    for turns in agents.values():
        turns.sort(key=lambda record: record.task)
        for before, after in pairwise(turns):
            assert (after.t_sent_ns or 0) > (before.t_first_ns or 0)


def test_lost_host_is_named_and_what_finished_is_saved(sandbox: Sandbox) -> None:
    # Slow enough that each host has requests in flight when its agent is killed.
    plan = Plan(goal="manual", load=Closed(levels=(6,), warmup=0), max_tokens=64, seed=1)
    session = start(sandbox, plan, endpoint="sim:moe-tp1?speed=2")
    session.wait_for_frame(lambda frame: frame.finished >= 12 and frame.in_flight == 6)
    agents = [process.pid for process in sandbox.processes() if "run_node_agent" in process.command_line]
    assert len(agents) == 2
    send_signal(agents[0], signal.SIGKILL)
    ended = session.wait_for_end()
    assert ended.ending == "interrupted"
    journal = read_journal(Path(ended.directory))
    lost = [event.detail for event in journal.events if event.name == "host_lost"]
    assert len(lost) == 1 and lost[0] in ended.message
    assert any(f"{host.name} was lost" in lost[0] for host in journal.head.session.hosts)
    assert "in flight there did not finish" in lost[0]
    assert len(journal.records) >= max(frame.finished for frame in session.frames)
    session.client.close()
    wait_until(lambda: not sandbox.processes(), "all processes have exited")


def test_silence_of_a_host_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "LAUNCHER", "tests.hosts.plain_launcher")
    monkeypatch.setattr(pool_module, "_ROUND_S", 0.01)
    monkeypatch.setattr(pool_module, "_SILENT_S", 0.0)

    async def first_event() -> tuple[str, str]:
        events: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        pool = HostPool("local:1", lambda host, how: None, on_event=lambda name, text: events.put_nowait((name, text)))
        try:
            await pool.start()
            while not pool.warnings:
                await asyncio.sleep(0)
            (warning,) = pool.warnings
            assert warning.text == f"{socket.gethostname()} does not answer: after 15 s it is lost"
            return await events.get()
        finally:
            await pool.close()

    name, text = asyncio.run(first_event())
    assert name == "host_silent" and f"{socket.gethostname()} did not answer for 0.0 s" in text


def test_host_whose_ray_node_died_is_named_while_it_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the launcher plays the node, as the parent of the agent."""
    monkeypatch.setattr(pool_module, "LAUNCHER", "tests.hosts.plain_launcher")
    monkeypatch.setattr(pool_module, "_ROUND_S", 0.01)

    async def warned() -> None:
        lost: list[str] = []
        events: asyncio.Queue[str] = asyncio.Queue()
        pool = HostPool(
            "local:1", lambda host, how: lost.append(how), on_event=lambda name, text: events.put_nowait(text)
        )
        try:
            await pool.start()
            assert pool._launcher is not None
            pool._launcher.process.kill()
            while "died; its workers continue" not in await events.get():
                pass
            assert [warning.code for warning in pool.warnings if warning.code != "host_silent"] == ["host_orphaned"]
            assert lost == []
        finally:
            await pool.close()

    asyncio.run(warned())


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "no-such-host.invalid:{}"])
def test_address_where_nothing_listens_is_refused_at_once(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        check_reachable(f"127.0.0.1:{port}")
    with pytest.raises(ConnectionError, match=r"cannot be reached: \w"):
        check_reachable(address.format(port))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("auto", "no Ray cluster runs on this host: give the address of one, such as ray://HOST:10001"),
        ("a:6379", "no: this address is for nodes of the cluster; from elsewhere use ray://HOST:10001"),
        ("ray://a:10001", "no"),
    ],
)
def test_cluster_that_cannot_be_joined_is_explained(address: str, expected: str) -> None:
    assert refusal(address, "no") == expected


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("Failed.\nmore", "Failed."),
        (
            "Failed:\nTraceback (most recent call last):\n  RuntimeError: see x.err ",
            "Failed: RuntimeError: see x.err",
        ),
        ("", "ValueError"),
    ],
)
def test_message_of_ray_becomes_one_line(message: str, line: str) -> None:
    error = RuntimeError("ray::HostActor.run() (pid=1)")
    error.cause = ValueError(message)  # type: ignore[attr-defined]
    assert first_line(ValueError(message)) == first_line(error) == line


@pytest.mark.parametrize(
    "first_message",
    [
        pack(WorkerHello("f" * 64, 0)),
        pack(WorkerHello("ü" * 64, 0)),
        (5_000).to_bytes(4, "big") + b"\x91" * 5_000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
    ],
    ids=["other token", "not ASCII", "nested", "HTTP", "nothing"],
)
def test_connection_without_the_token_is_closed(first_message: bytes) -> None:
    async def greet() -> bool:
        pool = HostPool("local:1", lambda host, reason: None)
        wanted = pool._worker_sockets[0] = asyncio.get_running_loop().create_future()
        await pool._greet(theirs)
        return wanted.done()

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        with theirs:
            ours.sendall(first_message)
            ours.shutdown(socket.SHUT_WR)
            assert not asyncio.run(greet())
            assert theirs.fileno() == -1
