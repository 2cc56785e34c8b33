"""A server is restarted with another flag: the app notices it, measures again and reports the effect."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from swarmtui.analysis.compare.differences import server_change_texts
from swarmtui.client.session_client import start_session
from swarmtui.experiments.store import baseline_effects, read_log
from swarmtui.model.client_protocol import Ended, Subscribe
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.frame_source import LiveSource
from swarmtui.tui.live.header import header_view, server_notice, status_line
from swarmtui.tui.live.result import ResultPanel
from swarmtui.tui.live.run_screen import RunScreen
from tests.tui.conftest import Until
from tests.tui.frame_builders import frame, hello
from tests.tui.screen_text import screen_text, text_of


@contextmanager
def simulator(port: int, slots: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=2", f"--port={port}", f"--slots={slots}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def result(app: SwarmApp) -> str:
    return " ".join(text_of(app.screen.query_one(ResultPanel).lines).split())


def notice(app: SwarmApp) -> str:
    return " ".join(screen_text(app).splitlines()[2:5])


def run_screen(app: SwarmApp) -> RunScreen:
    screen = app.screen
    assert isinstance(screen, RunScreen)
    return screen


async def test_a_restart_with_another_flag_is_noticed_measured_and_compared(tmp_path: Path, until: Until) -> None:
    port = free_port()
    request = RunRequest(
        endpoints=(f"http://127.0.0.1:{port}",),
        workload="coding",
        plan=Plan(load=Closed(levels=(1, 4), runs=4, requests="2C", warmup=1), max_tokens=24, seed=7),
        session_root=str(tmp_path / "sessions"),
        label="one slot",
    )
    with simulator(port, 1) as server:
        app = SwarmApp(source=LiveSource(start_session(request, Subscribe(hz=10, rows=True))), request=request)
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            first = run_screen(app).source.live
            await until(lambda: first.ended is not None)
            server.kill()
            server.wait(60)
            await until(lambda: "the server went down 0:0" in notice(app))
            await pilot.press("R")
            await until(lambda: "the server is down; press R when it is back" in screen_text(app))
            with simulator(port, 4):
                await until(lambda: "the server is back, R runs it again: --slots 1 → 4" in notice(app))
                await pilot.press("R")
                await until(lambda: run_screen(app).source.live is not first)
                again = run_screen(app).source.live
                await until(lambda: "baseline" in screen_text(app) and "change" in screen_text(app))
                await until(lambda: again.ended is not None)
                # Runs may differ too much for a claim. Parts of the large number may be between the words.
                pattern = r"(faster|not sure yet) with .{0,9}4 agents.*--slots 1 → 4 since the run of \d\d:\d\d"
                await until(lambda: re.search(pattern, result(app)) is not None)
                await until(lambda: re.search(r"(▲|\?) [+−][\d.]+ %", screen_text(app)) is not None)
                # A busy machine may cut a run short.
                assert re.search(r"[34] .{0,9}v .{0,9}[34] .{0,9}\w* ?.{0,9}runs", result(app)), result(app)
                await until(lambda: bool(read_log(tmp_path / "sessions")))
    assert first.session is not None and again.session is not None
    assert again.session.previous == first.session.id
    assert (first.session.label, again.session.label) == ("one slot", "")  # it has four now
    assert again.session.plan.seed == first.session.plan.seed == 7
    (change,) = read_log(tmp_path / "sessions")
    assert change.what == "--slots 1 → 4" and change.verdict in ("faster", "not sure yet")
    assert (change.before, change.after) == (first.session.id, again.session.id)


async def test_a_run_that_is_compared_with_the_last_one_has_the_same_verdict_in_the_list(
    tmp_path: Path, until: Until
) -> None:
    """Neither run was told what to be compared with."""
    port = free_port()
    request = RunRequest(
        endpoints=(f"http://127.0.0.1:{port}",),
        workload="coding",
        plan=Plan(load=Closed(levels=(1, 4), runs=1, requests="2C", warmup=0), max_tokens=16, seed=7),
        session_root=str(tmp_path / "sessions"),
    )
    root = Path(request.session_root)

    async def measure(logged: int) -> RunScreen:
        app = SwarmApp(source=LiveSource(start_session(request, Subscribe(hz=10, rows=True))), request=request)
        async with app.run_test(size=(120, 40)):
            screen = run_screen(app)
            await until(lambda: screen.source.live.ended is not None and len(read_log(root)) == logged)
        return screen

    with simulator(port, 4):
        await measure(0)
        again = await measure(1)
    session, pair = again.source.live.session, again.comparison.pair
    assert session is not None and not session.previous and pair is not None
    logged = baseline_effects(root)[session.id]
    assert (logged.before, logged.verdict, logged.likely) == (pair.a, pair.verdict, pair.likely)


def test_the_simulator_is_killed_if_a_test_fails() -> None:
    with pytest.raises(AssertionError), simulator(free_port(), 1) as server:
        raise AssertionError
    assert server.returncode is not None


def test_phase_counts_the_time_of_an_outage() -> None:
    down = msgspec.structs.replace(frame(4), outage_s=42.0, status="paused")
    assert header_view(hello().session, down, None, None).phase == "server down for 0:42, waiting"


def test_server_notice() -> None:
    assert server_notice(42.0, ()) == ("the server went down 0:42 ago",)
    assert server_notice(None, ("the same flags",))[0] == "the server is back, R runs it again: the same flags"
    assert server_notice(None, ()) == ()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "--parallel 2 → 4, context of a request 4,096 → 2,048 · R repeats"),
        ({"model": "a-long-name.gguf"}, "restarted: context 4,096 → 2,048 and 2 other changes · R runs it again"),
    ],
)
def test_a_restart_that_halves_the_context_says_so_in_a_narrow_terminal(flags: dict[str, str], said: str) -> None:
    before = DiscoveredServer(
        url="http://127.0.0.1:8080", engine="llama.cpp", flags={"parallel": "2"}, models=("m",), context=4096
    )
    after = msgspec.structs.replace(before, flags={"parallel": "4", **flags}, context=2048)
    notice = server_notice(None, server_change_texts(before, after))
    shown = msgspec.structs.replace(frame(4), status="ended")
    view = header_view(hello().session, shown, Ended("done", "", "/saved"), None, "", notice)
    line = "".join(text for text, _ in status_line(view._replace(progress="", errors=()), 80))
    assert len(line) <= 80 and line.endswith(said), line
