"""Stopping again with Ctrl-C: the command exits at once, loses no finished request and leaves no process running."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from swarmtui.sessions.index import list_sessions
from tests.cli.programs import CommandResult, Program, Sandbox, wait_until
from tests.cli.scripted_server import ScriptedServer, scripted_server
from tests.faults.kill_checks import (
    ANSWER,
    ENDLESS,
    SESSION_PROCESS,
    assert_files_valid,
    assert_interrupted_session,
    assert_no_processes,
    assert_saved_message,
    assert_stopped_session,
    measured,
    pid_of,
    processed,
    saved,
    three_endless_streams,
    wait_for_idle_workers,
    wait_for_responses,
    wait_until_saved,
)

NO_SUMMARY = "results: swarmtui sessions show"


# Imported by every Python process: opening one spool file blocks while it exists, and a marker shows that it does.
BLOCK = """
import os, sys, time

def block(event, args):
    while event == "open" and str(args[0]).endswith("spool-9.jsonl") and os.path.exists(args[0]):
        os.makedirs({marker!r}, exist_ok=True)
        time.sleep(0.01)

sys.addaudithook(block)
"""


def start_with_block(sandbox: Sandbox, server: ScriptedServer) -> Program:
    folder = sandbox.home / "block"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCK.format(marker=str(sandbox.home / "blocked")))
    env = {"PYTHONPATH": f"{folder}:{sandbox.environment['PYTHONPATH']}"}
    return sandbox.start_benchmark(server.url, *ENDLESS, env=env)


@contextmanager
def blocked_summary(sandbox: Sandbox) -> Iterator[None]:
    """Block the summary of the session when it opens a spool file."""
    spool = sandbox.session / "spool-9.jsonl"
    spool.touch()
    try:
        yield
    finally:
        spool.unlink()


def wait_until_blocked(sandbox: Sandbox) -> None:
    wait_until((sandbox.home / "blocked").exists, "the summary is blocked")


def signal_until_exit(command: Program, number: int = signal.SIGINT) -> CommandResult:
    def has_exited() -> bool:
        if command.process.poll() is None:
            command.signal_group(number)
            return False
        return True

    wait_until(has_exited, "the command exits")
    return command.wait()


def assert_no_summary(sandbox: Sandbox, ran: CommandResult, state: str) -> None:
    """Check a session that was stopped before its summary, and whose summary can be made later."""
    assert_saved_message(ran)
    assert NO_SUMMARY in ran.err
    assert_no_processes(sandbox)
    assert_files_valid(sandbox.session)
    assert not (sandbox.session / "detail.json").exists()
    (row,) = list_sessions(sandbox.sessions)
    assert (row.state, row.requests, row.levels) == (state, len(measured(sandbox)), ())
    summary = sandbox.show_session()
    assert summary["state"] == state
    assert summary["levels"][0]["ok"] == len(measured(sandbox)) > 5
    (row,) = list_sessions(sandbox.sessions)
    assert row.levels == (4,)
    assert_files_valid(sandbox.session)


def test_stopping_twice_does_not_wait_for_the_summary(sandbox: Sandbox) -> None:
    with scripted_server(ANSWER) as server:
        command = start_with_block(sandbox, server)
        wait_for_responses(server, 1)
        with blocked_summary(sandbox):
            command.signal_group(signal.SIGINT)
            wait_until_blocked(sandbox)
            assert command.process.poll() is None
            command.signal_group(signal.SIGINT)
            ran = command.wait()
        assert_no_summary(sandbox, ran, "stopped")
        assert saved(sandbox).keys() == {response.id for response in server.completed}


def test_stopping_twice_during_streams_does_not_wait_for_the_summary(sandbox: Sandbox) -> None:
    with scripted_server(three_endless_streams()) as server:
        command = start_with_block(sandbox, server)
        wait_until(lambda: len(server.completed) >= 50, "some responses")
        with blocked_summary(sandbox):
            command.signal_group(signal.SIGINT)
            wait_until(lambda: "stopping: " in command.stderr_so_far(), "the first Ctrl-C was handled")
            wait_until(lambda: len(server.completed) == len(server.received) - 3, "only the endless streams are left")
            wait_until_saved(sandbox, server)
            command.signal_group(signal.SIGINT)
            ran = command.wait()
        assert_no_summary(sandbox, ran, "stopped")
        assert {response.id for response in server.completed} <= saved(sandbox).keys()


def test_stopping_twice_ends_a_session_process_that_hangs(sandbox: Sandbox) -> None:
    """Requests that finished while it hung are spooled by the worker."""
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_for_responses(server, 2)
        os.kill(pid_of(sandbox, SESSION_PROCESS), signal.SIGSTOP)
        expected = wait_for_idle_workers(sandbox, server)
        command.signal_group(signal.SIGINT)
        wait_until(lambda: "stopping: " in command.stderr_so_far(), "the first Ctrl-C was handled")
        command.signal_group(signal.SIGINT)
        ran = command.wait()
        assert_no_processes(sandbox)
    assert ran.code == 4 and "Traceback" not in ran.err and NO_SUMMARY in ran.err
    assert (sandbox.session / "spool-0.jsonl").exists()
    assert_interrupted_session(sandbox, expected)


def test_stopping_does_not_wait_for_the_summary_after_session_process_was_killed(sandbox: Sandbox) -> None:
    with scripted_server(ANSWER) as server:
        command = start_with_block(sandbox, server)
        wait_for_responses(server, 3)
        with blocked_summary(sandbox):
            session_process, expected = pid_of(sandbox, SESSION_PROCESS), processed(server)
            os.kill(session_process, signal.SIGKILL)
            wait_until_blocked(sandbox)
            ran = signal_until_exit(command)
    assert ran.code == 4 and "Traceback" not in ran.err and NO_SUMMARY in ran.err
    assert_no_processes(sandbox)
    assert_interrupted_session(sandbox, expected)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_repeated_signals_act_as_two(sandbox: Sandbox, number: signal.Signals) -> None:
    with scripted_server(three_endless_streams()) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_until(lambda: len(server.completed) >= 50, "some responses")
        expected = processed(server)
        assert_stopped_session(sandbox, signal_until_exit(command, number), server)
        assert expected <= saved(sandbox).keys()


def test_repeated_probe_can_be_stopped_between_probes(sandbox: Sandbox) -> None:
    with scripted_server(ANSWER) as server:
        words = ("probe", "--endpoint", server.url, "--every", "1h", "--session-dir", str(sandbox.sessions), "--quiet")
        command = sandbox.start(*words)
        wait_until(lambda: "tok/s" in command.stdout_so_far(), "the first probe is done")
        ran = signal_until_exit(command)
    assert ran.code == 4 and "Traceback" not in ran.err
    assert_no_processes(sandbox)


# A server that ignores SIGTERM and never becomes ready.
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


def test_stopping_ab_twice_does_not_wait_for_a_server_that_ignores_sigterm(sandbox: Sandbox) -> None:
    """The guardian still ends the server."""
    script = sandbox.home / "deaf_server.py"
    script.write_text(DEAF)
    serve = f"{sys.executable} {script} {{port}}"
    command = sandbox.start(
        "ab", "--a", serve, "--b", serve, "--yes", "--session-dir", str(sandbox.sessions), "--quiet"
    )
    wait_until(lambda: any("deaf" in log.read_text() for log in logs(sandbox)), "a server is started")
    command.signal_group(signal.SIGINT)
    # The server gets 20 seconds to shut down, and would use them.
    wait_until(lambda: sandbox.processes("guardian"), "its guardian is running")
    ran = signal_until_exit(command)
    assert ran.code == 4 and "Traceback" not in ran.err
    assert_no_processes(sandbox)
    wait_until(lambda: not sandbox.processes("deaf_server"), "the server has ended")


def logs(sandbox: Sandbox) -> list[Path]:
    return list(sandbox.sessions.glob(".tuning/*/1-*.log"))


# Starts two processes that ignore SIGTERM, one of them in a session of its own, and a server.
STUBBORN = """\
import subprocess, sys, time
code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
for own_session in (False, True):
    subprocess.Popen([sys.executable, "-c", code, "stubborn"], start_new_session=own_session)
subprocess.run([sys.executable, "-m", "swarmtui.sim", "moe-tp1", f"--port={sys.argv[1]}"])
"""


def test_no_process_of_a_server_outlives_ab_and_its_guardian_killed_together(sandbox: Sandbox) -> None:
    script = sandbox.home / "stubborn.py"
    script.write_text(STUBBORN)
    command = f"{sys.executable} {script} {{port}}"
    session_dir = ("--session-dir", str(sandbox.sessions))
    ab = sandbox.start("ab", "--a", command, "--b", command, "--yes", "--requests", "1000", *session_dir)
    wait_until(lambda: len(sandbox.processes("stubborn")) >= 3, "the server and what it starts")
    guardians = wait_until(lambda: sandbox.processes("server_guardian"), "its guardian")
    parents = {psutil.Process(found.pid).ppid() for found in sandbox.processes("stubborn.py")}
    for pid in (ab.pid, *({found.pid for found in guardians} & parents)):
        os.kill(pid, signal.SIGKILL)
    ab.wait()
    wait_until(lambda: not sandbox.processes(""), "all processes have ended")
