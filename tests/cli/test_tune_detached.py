"""Servers that their command only launches, as `docker run -d` does; and a tune that outlives its UI."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.programs import Program, Sandbox, TerminalProgram, open_sandbox, send_signal, wait_until
from tests.cli.test_tune import state, tune_command

# A container daemon: it runs servers that are not children of the client. One file per command: `run NAME PORT SLOTS`
# or `stop NAME`.
DAEMON = """\
import os, subprocess, sys, time
from pathlib import Path
commands, running = Path(sys.argv[1]), {}
while True:
    for command in sorted(commands.glob("*.command")):
        word, name, *rest = command.read_text().split()
        if word == "run":
            sim = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=5"]
            running[name] = subprocess.Popen([*sim, f"--port={rest[0]}", f"--slots={rest[1]}"])
        elif name in running:
            process = running.pop(name)
            process.terminate()
            process.wait()
            (commands / "stopped").open("a").write(name + "\\n")
        command.unlink()
    time.sleep(0.02)
"""

CLIENT = """\
import os, sys, time
from pathlib import Path
commands, *rest = sys.argv[1:]
command = Path(commands) / f"{time.monotonic_ns()}.command"
command.with_suffix(".new").write_text(" ".join(word for word in rest if word != "--slots"))
command.with_suffix(".new").rename(command)
while rest[0] == "stop" and command.exists():
    time.sleep(0.02)
"""

# Forks twice and detaches, as a server with --daemon does.
DAEMONISE = """\
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        sim = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=5"]
        os.execv(sys.executable, [*sim, f"--port={sys.argv[1]}", f"--slots={sys.argv[3]}"])
    os._exit(0)
os.wait()
"""

PLAN = '[plan]\nlevels = [2]\nrequests = "2C"\nmax_tokens = 64\nwarmup = 1\n'


def tune_file(sandbox: Sandbox, command: str, stop: str, slots: str = "[1, 2]") -> Path:
    path = sandbox.home / "tune.toml"
    head = f'name = "detached"\ncommand = "{command}"\nstop = "{stop}"\nready_within = "20s"\nstop_within = "5s"\n'
    path.write_text(f'{head}restarts = 0\n[grid]\n"--slots" = {slots}\n{PLAN}')
    return path


@contextmanager
def container_daemon(sandbox: Sandbox) -> Iterator[Path]:
    """Run the daemon; the tune may stop neither it nor its servers, except by command."""
    commands = sandbox.home / "commands"
    commands.mkdir()
    for name, text in (("daemon.py", DAEMON), ("client.py", CLIENT)):
        (sandbox.home / name).write_text(text)
    command = [sys.executable, str(sandbox.home / "daemon.py"), str(commands)]
    process = Program(command, sandbox.environment, sandbox.home, forked=True).process
    try:
        yield commands
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait()


def container_commands(sandbox: Sandbox, commands: Path) -> tuple[str, str]:
    client = f"{sys.executable} {sandbox.home / 'client.py'} {commands}"
    return f"{client} run server-{{port}} {{port}}", f"{client} stop server-{{port}}"


def test_container_is_started_and_stopped_by_commands(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox, container_daemon(sandbox) as commands:
        path = tune_file(sandbox, *container_commands(sandbox, commands))
        ran = sandbox.run(*tune_command(sandbox, path, "--yes", "--json"))
        assert ran.code == 0, ran
        assert [row["state"] for row in json.loads(ran.out)["leaderboard"]] == ["done", "done"]
        assert len((commands / "stopped").read_text().split()) == 2
        assert not sandbox.processes("swarmtui.sim")


def test_container_is_stopped_if_the_tune_is_killed(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox, container_daemon(sandbox) as commands:
        path = tune_file(sandbox, *container_commands(sandbox, commands))
        program = sandbox.start(*tune_command(sandbox, path, "--yes"))
        wait_until(lambda: sandbox.processes("swarmtui.sim"), "the container runs")
        send_signal(program.pid, signal.SIGKILL)
        wait_until(lambda: not sandbox.processes("swarmtui.sim"), "the container is stopped")
        wait_until(lambda: not sandbox.processes("swarmtui.session_process"), "no session process runs")


def test_daemonised_server_is_measured_and_stopped(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        (sandbox.home / "server.py").write_text(DAEMONISE)
        command = f"{sys.executable} {sandbox.home / 'server.py'} {{port}}"
        ran = sandbox.run(*tune_command(sandbox, tune_file(sandbox, command, "true"), "--yes", "--json"))
        assert ran.code == 0, ran
        assert [row["state"] for row in json.loads(ran.out)["leaderboard"]] == ["done", "done"]
        assert not sandbox.processes("swarmtui.sim")


def test_command_that_exits_without_stop_command_is_a_failure(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        (sandbox.home / "server.py").write_text(DAEMONISE)
        command = f"{sys.executable} {sandbox.home / 'server.py'} {{port}}"
        ran = sandbox.run(*tune_command(sandbox, tune_file(sandbox, command, "", "[1]"), "--yes", "--json"))
        (row,) = json.loads(ran.out)["leaderboard"]
        assert row["reason"] == "exited with code 0"
        assert not sandbox.processes("swarmtui.sim")


# The first server starts at once, the others wait for the file `go`: the test decides when the tune continues.
GATED = """\
import os, sys, time
from pathlib import Path
home, *arguments = sys.argv[1:]
try:
    os.close(os.open(f"{home}/first", os.O_CREAT | os.O_EXCL))
except FileExistsError:
    while not Path(home, "go").exists():
        time.sleep(0.02)
os.execv(sys.executable, [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=5", *arguments])
"""


def finished(sandbox: Sandbox) -> int:
    return len(state(sandbox)["starts"]) if list(sandbox.sessions.glob(".tuning/*/tune.json")) else 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_tune_outlives_its_ui_and_is_shown_again(tmp_path: Path, number: signal.Signals) -> None:
    with open_sandbox(tmp_path) as sandbox:
        path, server = sandbox.home / "tune.toml", sandbox.home / "server.py"
        server.write_text(GATED)
        command = f"{sys.executable} {server} {sandbox.home} --port={{port}}"
        path.write_text(f'name = "gated"\ncommand = "{command}"\nrestarts = 0\n[grid]\n"--slots" = [1, 2, 3]\n{PLAN}')
        screen = TerminalProgram(sandbox, *tune_command(sandbox, path, "--yes"))
        wait_until(lambda: "1 of 3 configurations" in screen.text(), "the first result is shown")
        send_signal(screen.process.pid, number)
        screen.wait()
        assert finished(sandbox) == 1
        again = TerminalProgram(sandbox, *tune_command(sandbox, path))
        wait_until(lambda: "1 of 3 configurations" in again.text(), "the running tune is shown again")
        (sandbox.home / "go").touch()
        wait_until(lambda: "all configurations are done" in again.text(), "the end is shown")
        again.press(b"q")
        assert again.wait() == 0
        assert "Pareto front" in again.text()
        assert [row["state"] for row in state(sandbox)["starts"]] == ["done"] * 3
        wait_until(lambda: not sandbox.processes("swarmtui"), "no process is left")
