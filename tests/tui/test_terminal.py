"""The app in a real terminal: colours, and a run that continues when the app or its terminal ends."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarmtui.client.session_client import SessionClient, running_sessions, start_session
from swarmtui.model.client_protocol import Frame, Hello, Subscribe
from swarmtui.model.config import Config
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.textual_patches import Terminal
from tests.bench.terminal import AppScreen

RECORDED = Path(__file__).with_name("recorded")


@pytest.fixture
def replay(tmp_path: Path) -> list[str]:
    """Return the command that replays a copy of the recorded sessions: looking for the last one writes an index."""
    shutil.copytree(RECORDED, tmp_path / "recorded")
    return ["replay", "last", "--session-dir", str(tmp_path / "recorded")]


WAIT_S = 120.0
_SGR = re.compile(rb"\x1b\[([0-9;]*)m")

OpenTerminal = Callable[..., AppScreen]


@pytest.fixture
def terminal() -> Iterator[OpenTerminal]:
    """Start the app in a pseudo-terminal; it is ended after the test in any case."""
    screens: list[AppScreen] = []

    def open_terminal(words: list[str], columns: int = 80, rows: int = 24, **options: Any) -> AppScreen:
        screens.append(AppScreen(words, None, columns, rows, **options))
        return screens[-1]

    yield open_terminal
    for screen in screens:
        screen.end()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[SessionClient, str]]:
    """A run without an end, with its id."""
    request = RunRequest(
        endpoints=("sim:moe-tp1?speed=10",),
        workload="coding",
        plan=Plan(goal="manual", load=Closed(levels=(2,), warmup=1)),
        session_root=str(tmp_path / "sessions"),
    )
    client = start_session(request, Subscribe(hz=10))
    session_id = ""
    try:
        while True:
            match client.receive(WAIT_S):
                case Hello(session=session):
                    session_id = session.id
                case Frame(status="running"):
                    break
                case None:
                    pytest.fail("the run has not started")
        yield client, session_id
    finally:
        client.close(0.0)


def wait_for(screen: AppScreen, pattern: bytes) -> None:
    assert screen.read(time.monotonic() + WAIT_S, pattern) is not None, (pattern, screen.output[-2000:])


def replayed(terminal: OpenTerminal, command: list[str], environment: dict[str, str]) -> bytes:
    """Return the output of a replay, then the list of sessions, until the app has quit."""
    screen = terminal(command, 120, 40, environment=environment)
    wait_for(screen, b"GPUs")
    screen.read(time.monotonic() + 0.5)
    screen.press(b"L")
    wait_for(screen, b"preview")
    screen.press(b"q")
    wait_for(screen, b"\x1b[?1049l")
    return screen.output


def colours(output: bytes) -> set[int]:
    return {int(code) for codes in _SGR.findall(output) for code in codes.split(b";") if code}


@pytest.mark.parametrize(("enabled", "written"), [(True, "\x1b[?1000h\x1b[?1006h"), (False, "")])
async def test_terminal_reports_clicks_but_no_movements(
    enabled: bool, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(Terminal, "write", lambda terminal, text: sent.append(text))
    driver = Terminal(SwarmApp(config=Config(mouse=enabled)), mouse=enabled)
    driver._enable_mouse_support()
    driver._enable_mouse_pixels()
    assert "".join(sent) == written


def test_no_color_writes_no_colours(terminal: OpenTerminal, replay: list[str]) -> None:
    used = colours(replayed(terminal, replay, {"NO_COLOR": "1"}))
    assert not {code for code in used if 30 <= code <= 48 or 90 <= code <= 107} - {39}


def test_sixteen_colours_are_supported(terminal: OpenTerminal, replay: list[str]) -> None:
    output = replayed(terminal, replay, {"TERM": "xterm", "TEXTUAL_COLOR_SYSTEM": "standard"})
    # Blue is throughput, yellow is latency, and nothing is as red as an error.
    assert {94, 33} <= colours(output) and 91 not in colours(output)
    # The background, and what is on it, have the colours of the terminal.
    assert not {30, 37, 40, 47, 97, 107} & colours(output)
    assert b"38;5;" not in output and b"38;2;" not in output


def test_256_colours_are_used_without_colorterm(terminal: OpenTerminal, replay: list[str]) -> None:
    output = replayed(terminal, replay, {"TERM": "xterm-256color"})
    assert b"38;5;" in output and b"38;2;" not in output


def finished(client: SessionClient, deadline: float) -> int:
    while time.monotonic() < deadline:
        message = client.receive(1.0)
        if isinstance(message, Frame):
            return message.finished
    pytest.fail("no frame from the run")


def continues(client: SessionClient, session_id: str) -> bool:
    deadline = time.monotonic() + WAIT_S
    before = finished(client, deadline)
    while finished(client, deadline) <= before + 2:
        pass
    return session_id in running_sessions()


@pytest.mark.parametrize("how", ["closed", "closed, SIGHUP ignored", "SIGTERM"])
def test_a_run_outlives_its_terminal(terminal: OpenTerminal, run: tuple[SessionClient, str], how: str) -> None:
    client, session_id = run
    if how == "closed, SIGHUP ignored":
        command = f"trap '' HUP; exec {sys.executable} -m swarmtui attach {session_id}"
        screen = terminal(["-c", command], program=("sh",))
    else:
        screen = terminal(["attach", session_id])
    wait_for(screen, b"curve")
    if how.startswith("closed"):
        screen.hang_up()
    else:
        os.kill(screen.process.pid, signal.SIGTERM)
        while screen.process.poll() is None and time.monotonic() < screen.started + WAIT_S:
            screen.read(time.monotonic() + 0.2)
    assert screen.process.wait(WAIT_S) is not None
    assert continues(client, session_id)
    message = f"swarmtui attach {session_id}".encode()
    if how == "SIGTERM" and message not in screen.output:
        wait_for(screen, message)


def test_ctrl_z_returns_to_the_shell_and_fg_to_the_app(terminal: OpenTerminal, run: tuple[SessionClient, str]) -> None:
    client, session_id = run
    screen = terminal(["-i"], program=("sh",), environment={"ENV": ""})
    screen.press(f"{sys.executable} -m swarmtui attach {session_id}\n".encode())
    wait_for(screen, b"curve")
    screen.press(b"\x1a")
    wait_for(screen, b"Stopped")
    assert termios.tcgetattr(screen.master)[3] & termios.ECHO
    cleared, left, stopped = (screen.output.rindex(part) for part in (b"\x1b[2J", b"\x1b[?1049l", b"Stopped"))
    assert cleared < left < stopped
    assert continues(client, session_id)
    screen.press(b"bg\n")  # the app needs the terminal, and stops again
    wait_for(screen, b"[1] ")
    screen.output = b""
    while screen.read(time.monotonic() + 0.2, b"Stopped") is None and time.monotonic() < screen.started + WAIT_S:
        screen.press(b"jobs\n")
    in_foreground(screen)
    os.kill(os.tcgetpgrp(screen.master), signal.SIGSTOP)
    wait_for(screen, b"Stopped")
    in_foreground(screen)
    screen.press(b"d")
    wait_for(screen, b"continues in the background")
    screen.press(b"exit\n")


def in_foreground(screen: AppScreen) -> None:
    """Continue the app, which sets up the terminal and paints the whole screen."""
    screen.output = b""
    screen.press(b"fg\n")
    for part in (b"\x1b[?1049h", b"curve", b"quit"):
        wait_for(screen, part)
    assert not termios.tcgetattr(screen.master)[3] & termios.ECHO


def test_ctrl_z_without_a_shell_changes_nothing(terminal: OpenTerminal, replay: list[str]) -> None:
    screen = terminal(replay)
    wait_for(screen, b"curve")
    screen.press(b"\x1a")
    wait_for(screen, b"no shell")
    screen.press(b"q")
    assert screen.process.wait(WAIT_S) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_app_although_its_output_is_not_read(
    terminal: OpenTerminal, run: tuple[SessionClient, str], how: signal.Signals
) -> None:
    client, session_id = run
    screen = terminal(["attach", session_id])
    wait_for(screen, b"curve")
    accepting = select.poll()
    output = os.open(f"/proc/{screen.process.pid}/fd/1", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        accepting.register(output, select.POLLOUT)
        deadline = time.monotonic() + WAIT_S
        while accepting.poll(0) and time.monotonic() < deadline:
            screen.press(b"t")  # each theme repaints the whole screen
            time.sleep(0.02)
        assert not accepting.poll(0)
        os.kill(screen.process.pid, how)
        assert screen.process.wait(WAIT_S) is not None
    finally:
        os.close(output)
    wait_for(screen, b"\x1b[?1049l")
    assert continues(client, session_id)


def test_a_killed_app_leaves_the_terminal_usable(terminal: OpenTerminal, run: tuple[SessionClient, str]) -> None:
    client, session_id = run
    screen = terminal(["attach", session_id])
    wait_for(screen, b"curve")
    assert not termios.tcgetattr(screen.master)[3] & termios.ECHO
    os.kill(screen.process.pid, signal.SIGKILL)
    wait_for(screen, b"continues: swarmtui attach")
    assert screen.output.rindex(b"\x1b[?1049l") < screen.output.index(b"the app was killed")
    assert b"\x1b[?25h" in screen.output
    assert termios.tcgetattr(screen.master)[3] & termios.ECHO
    assert screen.process.wait(WAIT_S) == -signal.SIGKILL
    assert continues(client, session_id)


def test_a_crash_leaves_the_terminal_usable_and_the_run_in_progress(
    terminal: OpenTerminal, run: tuple[SessionClient, str]
) -> None:
    client, session_id = run
    code = (
        "import swarmtui.tui.live.screen as live\n"
        "live.LiveScreen.action_sort = lambda self: 1 / 0\n"
        f"import sys; sys.argv = ['swarmtui', 'attach', '{session_id}']\n"
        "from swarmtui.cli import main; main()"
    )
    screen = terminal([sys.executable, "-c", code], program=())
    wait_for(screen, b"curve")
    screen.press(b"o")
    wait_for(screen, f"swarmtui attach {session_id}".encode())
    assert screen.process.wait(WAIT_S) is not None
    output = screen.output
    assert b"Traceback" not in output
    assert b"the app failed (ZeroDivisionError)" in output
    assert output.rindex(b"\x1b[?1049l") < output.index(b"the app failed")
    assert continues(client, session_id)
