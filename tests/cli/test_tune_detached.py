"""Servers that their command only launches, as `docker run -d` does; and a tune that outlives its UI."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.terminal import AppScreen
from tests.cli.programs import Sandbox, open_sandbox, send_signal, wait_until
from tests.cli.test_tune import state, tune_command

# Keeps servers that are no children of who asks for them: `run NAME PORT SEATS`, `stop NAME`, one file a wish.
DAEMON = """\
import os, subprocess, sys, time
from pathlib import Path
wishes, running = Path(sys.argv[1]), {}
while True:
    for wish in sorted(wishes.glob("*.wish")):
        word, name, *rest = wish.read_text().split()
        if word == "run":
            sim = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=5"]
            running[name] = subprocess.Popen([*sim, f"--port={rest[0]}", f"--seats={rest[1]}"])
        elif name in running:
            process = running.pop(name)
            process.terminate()
            process.wait()
            (wishes / "stopped").open("a").write(name + "\\n")
        wish.unlink()
    time.sleep(0.02)
"""

ASK = """\
import os, sys, time
from pathlib import Path
wishes, *rest = sys.argv[1:]
wish = Path(wishes) / f"{time.monotonic_ns()}.wish"
wish.with_suffix(".new").write_text(" ".join(word for word in rest if word != "--seats"))
wish.with_suffix(".new").rename(wish)
while rest[0] == "stop" and wish.exists():
    time.sleep(0.02)
"""

# Forks twice and lets go of everything, as a server with --daemon does.
DAEMONISE = """\
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        sim = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=5"]
        os.execv(sys.executable, [*sim, f"--port={sys.argv[1]}", f"--seats={sys.argv[3]}"])
    os._exit(0)
os.wait()
"""

PLAN = '[plan]\nlevels = [2]\nrequests = "2C"\nmax_tokens = 64\nwarmup = 1\n'


def tune_file(sandbox: Sandbox, command: str, stop: str, seats: str = "[1, 2]") -> Path:
    path = sandbox.home / "tune.toml"
    head = f'name = "far"\ncommand = "{command}"\nstop = "{stop}"\nready_within = "20s"\nstop_within = "5s"\n'
    path.write_text(f'{head}[grid]\n"--seats" = {seats}\n{PLAN}')
    return path


@contextmanager
def keeper(sandbox: Sandbox) -> Iterator[Path]:
    """The daemon with its wishes; it is not ours to stop, and neither are its servers."""
    wishes = sandbox.home / "wishes"
    wishes.mkdir()
    for name, text in (("daemon.py", DAEMON), ("ask.py", ASK)):
        (sandbox.home / name).write_text(text)
    process = subprocess.Popen([sys.executable, str(sandbox.home / "daemon.py"), str(wishes)], env=sandbox.environment)
    try:
        yield wishes
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait()


def asking(sandbox: Sandbox, wishes: Path) -> tuple[str, str]:
    ask = f"{sys.executable} {sandbox.home / 'ask.py'} {wishes}"
    return f"{ask} run cell-{{port}} {{port}}", f"{ask} stop cell-{{port}}"


def test_a_container_is_started_measured_and_stopped_by_its_own_command(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox, keeper(sandbox) as wishes:
        path = tune_file(sandbox, *asking(sandbox, wishes))
        ran = sandbox.run(*tune_command(sandbox, path, "--yes", "--json"))
        assert ran.code == 0, ran
        assert [row["state"] for row in json.loads(ran.out)["leaderboard"]] == ["done", "done"]
        assert len((wishes / "stopped").read_text().split()) == 2
        assert not sandbox.processes("swarmtui.sim")


def test_a_container_is_stopped_also_when_the_tune_is_killed(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox, keeper(sandbox) as wishes:
        path = tune_file(sandbox, *asking(sandbox, wishes))
        program = sandbox.start(*tune_command(sandbox, path, "--yes"))
        wait_until(lambda: sandbox.processes("swarmtui.sim"), "the container runs")
        send_signal(program.pid, signal.SIGKILL)
        wait_until(lambda: not sandbox.processes("swarmtui.sim"), "it is gone")
        wait_until(lambda: not sandbox.processes("swarmtui.session_process"), "no run goes on")


def test_a_server_that_daemonises_is_measured_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        (sandbox.home / "server.py").write_text(DAEMONISE)
        command = f"{sys.executable} {sandbox.home / 'server.py'} {{port}}"
        ran = sandbox.run(*tune_command(sandbox, tune_file(sandbox, command, "true"), "--yes", "--json"))
        assert ran.code == 0, ran
        assert [row["state"] for row in json.loads(ran.out)["leaderboard"]] == ["done", "done"]
        assert not sandbox.processes("swarmtui.sim")


def test_without_a_stop_command_a_start_that_ends_is_a_failure(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        (sandbox.home / "server.py").write_text(DAEMONISE)
        command = f"{sys.executable} {sandbox.home / 'server.py'} {{port}}"
        ran = sandbox.run(*tune_command(sandbox, tune_file(sandbox, command, "", "[1]"), "--yes", "--json"))
        (row,) = json.loads(ran.out)["leaderboard"]
        assert row["reason"] == "ended with exit code 0"
        assert not sandbox.processes("swarmtui.sim")


def finished(sandbox: Sandbox) -> int:
    return len(state(sandbox)["rows"]) if list(sandbox.sessions.glob(".tuning/*/state.json")) else 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_in_a_terminal_the_grid_is_shown_and_the_tune_outlives_it(tmp_path: Path, how: signal.Signals) -> None:
    with open_sandbox(tmp_path) as sandbox:
        path = sandbox.home / "tune.toml"
        command = f"{sys.executable} -m swarmtui.sim moe-tp1 --speed=1 --port={{port}}"
        path.write_text(f'name = "grid"\ncommand = "{command}"\n[grid]\n"--seats" = [1, 2, 3]\n{PLAN}')
        screen = AppScreen(list(tune_command(sandbox, path, "--yes")), None, 80, 24, sandbox.environment)
        assert screen.read(screen.started + 30, b"1 cells") is not None, screen.output
        wait_until(lambda: screen.read(time.monotonic() + 0.1) is None and finished(sandbox), "a first cell")
        send_signal(screen.process.pid, how)
        screen.process.wait(10)
        assert finished(sandbox) < 3
        again = AppScreen(list(tune_command(sandbox, path)), None, 80, 24, sandbox.environment)
        assert again.read(again.started + 60, b"all cells are done") is not None, again.output
        again.press(b"q")
        again.read(again.started + 60, b"Pareto front")
        assert again.process.wait(10) == 0
        assert [row["state"] for row in state(sandbox)["rows"]] == ["done"] * 3
        wait_until(lambda: not sandbox.processes("swarmtui"), "nothing is left")
