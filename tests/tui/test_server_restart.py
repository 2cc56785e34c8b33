"""The loop of whoever tunes a server: measure, restart it with another flag, measure again, know if it helped."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from swarmtui.client.client import start
from swarmtui.experiments.tune_store import read_log
from swarmtui.model.client_protocol import Subscribe
from swarmtui.model.plan import Plan, Requests
from swarmtui.model.run_request import Order
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.frame_source import Live
from swarmtui.tui.live.header_view import head_view, server_words
from swarmtui.tui.live.run_screen import RunScreen
from tests.tui.conftest import Until
from tests.tui.made_frames import frame, hello
from tests.tui.screen_text import screen_text


@contextmanager
def server(port: int, seats: int) -> Iterator[None]:
    words = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=5", f"--port={port}", f"--seats={seats}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        yield
        process.kill()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def notice(app: SwarmApp) -> str:
    return " ".join(screen_text(app).splitlines()[2:5])


def run_of(app: SwarmApp) -> RunScreen:
    screen = app.screen
    assert isinstance(screen, RunScreen)
    return screen


async def test_a_restart_with_another_flag_is_noticed_measured_and_judged(tmp_path: Path, until: Until) -> None:
    port = free_port()
    order = Order(
        endpoints=(f"http://127.0.0.1:{port}",),
        workload="coding",
        plan=Plan(levels=(1, 4), runs=4, requests=Requests(count=2), warmup=1, max_tokens=24, seed=7),
        session_root=str(tmp_path / "sessions"),
    )
    with server(port, 1):
        app = SwarmApp(source=Live(start(order, Subscribe(hz=10, rows=True))), order=order)
        context = app.run_test(size=(120, 40), notifications=True)
        pilot = await context.__aenter__()
        first = run_of(app).source.track
        await until(lambda: first.ended is not None)
    await until(lambda: "server down for 0:0" in notice(app) and "waiting" in notice(app))
    await pilot.press("R")
    await until(lambda: "the server is down; R when it is back" in screen_text(app))
    with server(port, 4):
        await until(lambda: "the server is back: --seats 1 → 4; R runs the same plan again" in notice(app))
        await pilot.press("R")
        await until(lambda: run_of(app).source.track is not first)
        again = run_of(app).source.track
        await until(lambda: "before" in screen_text(app) and "change" in screen_text(app))
        await until(lambda: again.ended is not None)
        await until(lambda: "--seats 1 → 4 gave C=4: +" in notice(app))
        await until(lambda: "% faster" in screen_text(app))
        assert "faster (4 v 4 runs, p = 0.029)" in notice(app)
        await context.__aexit__(None, None, None)
    assert first.session is not None and again.session is not None
    assert again.session.previous == first.session.id
    assert again.session.plan.seed == first.session.plan.seed == 7
    (row,) = read_log(tmp_path / "sessions")
    assert (row.what, row.verdict, row.before, row.after) == (
        "--seats 1 → 4",
        "faster",
        first.session.id,
        again.session.id,
    )


def test_while_it_is_waited_for_the_time_is_counted_where_the_phase_stands() -> None:
    away = msgspec.structs.replace(frame(4), down_s=42.0, status="paused")
    assert head_view(hello().session, away, None, None).phase == "server down for 0:42, waiting"


def test_news_of_the_server_stands_before_what_was_said_of_the_run() -> None:
    assert server_words(42.0, "") == "server down for 0:42, waiting"
    assert server_words(None, "the same flags") == "the server is back: the same flags; R runs the same plan again"
    assert server_words(None, "") == ""
