"""The app on a real terminal: what it writes there, and what becomes of a run when the terminal goes away."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
import time
from pathlib import Path

import pytest

from swarmtui.client.client import Client, running, start
from swarmtui.model.client_protocol import Frame, Hello, Subscribe
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import Order
from tests.bench.terminal import Screen

HERE = Path(__file__).parent
REPLAY = ["replay", "last", "--session-dir", str(HERE / "recorded")]
_SGR = re.compile(rb"\x1b\[([0-9;]*)m")


def shown(words: list[str], environment: dict[str, str], seconds: float = 4.0) -> bytes:
    """All that the app wrote until it was told to quit, and after."""
    screen = Screen(words, None, 120, 40, environment)
    assert screen.read(screen.begun + 20, b"GPUs") is not None
    screen.read(time.monotonic() + 0.5)
    screen.press(b"q")
    screen.read(time.monotonic() + seconds, b"\x1b[?1049l")
    screen.end()
    return screen.seen


def colours(written: bytes) -> set[int]:
    return {int(code) for codes in _SGR.findall(written) for code in codes.split(b";") if code}


def test_without_colour_nothing_is_coloured() -> None:
    used = colours(shown(REPLAY, {"NO_COLOR": "1"}))
    assert not {code for code in used if 30 <= code <= 48 or 90 <= code <= 107} - {39}


def test_sixteen_colours_are_enough() -> None:
    written = shown(REPLAY, {"TERM": "xterm", "TEXTUAL_COLOR_SYSTEM": "standard"})
    assert colours(written)
    assert b"38;5;" not in written and b"38;2;" not in written


def test_256_colours_without_colorterm() -> None:
    written = shown(REPLAY, {"TERM": "xterm-256color"})
    assert b"38;5;" in written and b"38;2;" not in written


@pytest.fixture
def run(tmp_path: Path) -> tuple[Client, str]:
    """A run that goes on until somebody ends it."""
    order = Order(
        endpoints=("sim:moe-tp1?speed=10",),
        workload="coding",
        plan=Plan(mode="manual", levels=(2,), warmup=1),
        session_root=str(tmp_path / "sessions"),
    )
    client = start(order, Subscribe(hz=10))
    identity = ""
    while True:
        match client.next(20):
            case Hello(session=session):
                identity = session.id
            case Frame(status="running"):
                return client, identity


def finished(client: Client) -> int:
    while True:
        message = client.next(10)
        if isinstance(message, Frame):
            return message.finished


def goes_on(client: Client, identity: str) -> bool:
    before = finished(client)
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        if finished(client) > before + 2:
            return identity in running()
    return False


@pytest.mark.parametrize("how", ["hang-up", "hang-up ignored", "SIGHUP", "SIGTERM", "SIGKILL"])
def test_a_run_outlives_its_terminal(run: tuple[Client, str], how: str) -> None:
    client, identity = run
    words = ["-c", f"trap '' HUP; exec {sys.executable} -m swarmtui attach {identity}"]
    ignored = how == "hang-up ignored"
    screen = Screen(words, None, 80, 24, program=("sh",)) if ignored else Screen(["attach", identity], None, 80, 24)
    assert screen.read(screen.begun + 20, b"streams") is not None
    if how.startswith("hang-up"):
        os.close(screen.master)
    else:
        os.kill(screen.process.pid, getattr(signal, how))
        screen.read(time.monotonic() + 2, b"goes on")
    assert screen.process.wait(10) is not None
    assert goes_on(client, identity)
    if how == "SIGTERM":
        assert f"swarmtui attach {identity}".encode() in screen.seen
    client.close(0.0)


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGKILL])
def test_an_app_that_is_shot_leaves_the_terminal_sane(run: tuple[Client, str], how: signal.Signals) -> None:
    client, identity = run
    screen = Screen(["attach", identity], None, 80, 24)
    assert screen.read(screen.begun + 20, b"streams") is not None
    assert not termios.tcgetattr(screen.master)[3] & termios.ECHO
    os.kill(screen.process.pid, how)
    assert screen.read(time.monotonic() + 10, b"goes on: swarmtui attach") is not None
    assert screen.seen.rindex(b"\x1b[?1049l") < screen.seen.index(b"the screen was killed")
    assert b"\x1b[?25h" in screen.seen
    assert termios.tcgetattr(screen.master)[3] & termios.ECHO
    assert screen.process.wait(10) == -how
    assert goes_on(client, identity)
    client.close(0.0)


def test_a_crash_leaves_the_terminal_sane_and_the_run_going(run: tuple[Client, str]) -> None:
    client, identity = run
    code = (
        "import swarmtui.tui.live.screen as live\n"
        "live.LiveScreen.action_order = lambda self: 1 / 0\n"
        f"import sys; sys.argv = ['swarmtui', 'attach', '{identity}']\n"
        "from swarmtui.cli import main; main()"
    )
    screen = Screen([sys.executable, "-c", code], None, 80, 24, program=())
    assert screen.read(screen.begun + 20, b"streams") is not None
    screen.press(b"o")
    screen.read(time.monotonic() + 5, b"goes on")
    written = screen.seen
    assert screen.process.wait(10) is not None
    assert b"Traceback" not in written
    assert b"the screen failed (ZeroDivisionError)" in written
    assert f"swarmtui attach {identity}".encode() in written
    assert written.rindex(b"\x1b[?1049l") < written.index(b"the screen failed")
    assert goes_on(client, identity)
    client.close(0.0)
