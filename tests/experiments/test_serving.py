"""Servers of ours: started, waited for, ended whole, also when one of the processes between is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from swarmtui.experiments.grid import Launch
from swarmtui.experiments.managed_server import Broken, Server, Stopped, free_port
from tests.cli.programs import until

SIM = (sys.executable, "-m", "swarmtui.sim", "moe-tp1")
# Sets a server going and leaves, as `docker run -d` and `systemctl start` do.
DETACHED = """\
import pathlib, subprocess, sys
words = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", f"--port={sys.argv[1]}"]
server = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL)
pathlib.Path(sys.argv[2]).write_text(str(server.pid))
"""
STOP = "import os, pathlib, sys; os.kill(int(pathlib.Path(sys.argv[1]).read_text()), 15)"


def launch(port: int, *words: str, stop: tuple[str, ...] = ()) -> Launch:
    url = f"http://127.0.0.1:{port}"
    return Launch(words=words, env={}, url=url, ready=f"{url}/v1/models", stop=stop)


def sim_on(port: int) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if f"--port={port}" in (process.info["cmdline"] or ()) and process.status() != psutil.STATUS_ZOMBIE
    ]


def test_it_is_there_when_ready_and_gone_when_stopped(tmp_path: Path) -> None:
    port = free_port()
    with Server(launch(port, *SIM, f"--port={port}"), tmp_path / "log") as server:
        server.start()
        assert server.wait_until_ready(30.0, lambda: False) > 0
        assert server.death() is None
        assert server.log_tail() == (f"http://127.0.0.1:{port}",)
        assert len(sim_on(port)) == 1
    assert sim_on(port) == []


def test_a_killed_guardian_takes_its_server_along(tmp_path: Path) -> None:
    port = free_port()
    with Server(launch(port, *SIM, f"--port={port}"), tmp_path / "log") as server:
        server.start()
        server.wait_until_ready(30.0, lambda: False)
        (sim,) = sim_on(port)
        guardian = sim.ppid()
        assert guardian != os.getpid()
        os.kill(guardian, signal.SIGKILL)
        until(lambda: not sim_on(port), "the server is gone")
        assert server.death() == "its guardian is gone"


def test_what_is_set_going_by_a_command_is_stopped_by_a_command(tmp_path: Path) -> None:
    port, pid = free_port(), str(tmp_path / "pid")
    words = (sys.executable, "-c", DETACHED, str(port), pid)
    stop = (sys.executable, "-c", STOP, pid)
    with Server(launch(port, *words, stop=stop), tmp_path / "log") as server:
        server.start()
        server.wait_until_ready(30.0, lambda: False)
        assert server.death() is None
    assert sim_on(port) == []


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    with Server(launch(free_port(), "/nowhere/llama-server"), tmp_path / "log") as server:
        server.start()
        with pytest.raises(Broken, match="cannot be started: No such file or directory"):
            server.wait_until_ready(30.0, lambda: False)


def test_who_does_not_want_to_wait_need_not(tmp_path: Path) -> None:
    with Server(launch(free_port(), "sleep", "600"), tmp_path / "log") as server:
        server.start()
        with pytest.raises(Stopped):
            server.wait_until_ready(600.0, lambda: True)


def test_a_signal_is_named(tmp_path: Path) -> None:
    words = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    with Server(launch(free_port(), *words), tmp_path / "log") as server:
        server.start()
        with pytest.raises(Broken, match="was killed by signal 9"):
            server.wait_until_ready(30.0, lambda: False)
