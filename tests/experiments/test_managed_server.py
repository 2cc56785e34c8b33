"""Managed servers are started, awaited and stopped completely, also if a process in between is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from swarmtui.client.catalogue import is_listening
from swarmtui.client.session_client import StopControl
from swarmtui.experiments import managed_server, server_guardian
from swarmtui.experiments.managed_server import Interrupted, ManagedServer, ServerFailed, free_port
from swarmtui.experiments.server_guardian import LaunchCommand
from swarmtui.model.findings import Finding
from swarmtui.model.redaction import Secrets
from tests.cli.programs import wait_until

GUARDIAN = server_guardian.__name__
GUARDIAN_DIED = Finding(code="guardian_died", text="its guardian process died")
SIM = (sys.executable, "-m", "swarmtui.sim", "moe-tp1")
# Launches a server and exits, as `docker run -d` and `systemctl start` do.
DETACHED = """\
import pathlib, subprocess, sys
words = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", f"--port={sys.argv[1]}"]
server = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL)
pathlib.Path(sys.argv[2]).write_text(str(server.pid))
"""
# Starts processes that outlive it: one in its process group, one in a session of its own, and a simulator.
FORKING = """\
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
for own_session in (False, True):
    print(subprocess.Popen(sleep, start_new_session=own_session).pid, flush=True)
subprocess.Popen([sys.executable, "-m", "swarmtui.sim", "moe-tp1", f"--port={sys.argv[1]}"])
time.sleep(600)
"""
# Starts a process that is hard to find and ignores SIGTERM, with neither its session nor its environment, and a server.
HIDDEN = """\
import subprocess, sys
code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('here', flush=True); time.sleep(600)"
hidden = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env={}, stdout=subprocess.PIPE)
hidden.stdout.readline()
print(hidden.pid, flush=True)
subprocess.run([sys.executable, "-m", "swarmtui.sim", "moe-tp1", f"--port={sys.argv[1]}"])
"""
# Starts a process that is another one every millisecond, for a minute, but always has the second port, and a server.
JUMPING = """\
import os, socket, subprocess, sys, time
listening = socket.create_server(("127.0.0.1", int(sys.argv[2])))
if not os.fork():
    os.setsid()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        time.sleep(0.001)
    os._exit(0)
listening.close()
subprocess.run([sys.executable, "-m", "swarmtui.sim", "moe-tp1", f"--port={sys.argv[1]}"])
"""
STOP = "import os, pathlib, sys; os.kill(int(pathlib.Path(sys.argv[1]).read_text()), 15)"


def launch(port: int, *words: str, stop: tuple[str, ...] = ()) -> LaunchCommand:
    url = f"http://127.0.0.1:{port}"
    return LaunchCommand(command=words, url=url, ready=f"{url}/v1/models", stop=stop)


def managed(launch: LaunchCommand, log: Path, *, stopped: bool = False) -> ManagedServer:
    stop = StopControl()
    if stopped:
        stop.request(grace_s=0.0)
    return ManagedServer(launch, log, Secrets(), stop)


def sim_on(port: int) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if f"--port={port}" in (process.info["cmdline"] or ()) and process.status() != psutil.STATUS_ZOMBIE
    ]


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_server_runs_when_ready_and_is_gone_when_stopped(tmp_path: Path) -> None:
    port = free_port()
    with managed(launch(port, *SIM, f"--port={port}"), tmp_path / "log") as server:
        assert server.start() > 0
        assert server.failure() is None
        assert server.log_tail() == (f"http://127.0.0.1:{port}",)
        assert len(sim_on(port)) == 1
    assert sim_on(port) == []


def test_server_dies_with_its_guardian(tmp_path: Path) -> None:
    port = free_port()
    with managed(launch(port, *SIM, f"--port={port}"), tmp_path / "log") as server:
        server.start()
        (sim,) = sim_on(port)
        guardian = sim.ppid()
        assert guardian != os.getpid()
        os.kill(guardian, signal.SIGKILL)
        wait_until(lambda: not sim_on(port), "the server is gone")
        assert server.failure() == GUARDIAN_DIED


def test_forked_processes_die_with_a_killed_guardian(tmp_path: Path) -> None:
    """One of them is in a session of its own; both ignore the end of the server."""
    port = free_port()
    with managed(launch(port, sys.executable, "-c", FORKING, str(port)), tmp_path / "log") as server:
        server.start()
        (sim,) = sim_on(port)
        forked = [psutil.Process(int(pid)) for pid in (tmp_path / "log").read_text().split() if pid.isdigit()]
        assert len(forked) == 2
        parent = sim.parent()
        assert parent is not None
        os.kill(parent.ppid(), signal.SIGKILL)
        wait_until(lambda: not parent.is_running() or parent.status() == psutil.STATUS_ZOMBIE, "the server is killed")
        assert server.failure() == GUARDIAN_DIED
    assert not [process for process in (*forked, sim) if alive(process)]


@pytest.fixture(params=["cgroup", "no cgroup"])
def cgroup(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine on which our cgroup is delegated to us, or one on which it is not."""
    kind: str = request.param
    if kind == "cgroup":
        require_cgroup()
    else:
        code = (
            f"import sys, {GUARDIAN} as guardian; guardian._make_cgroup = lambda name: None; sys.exit(guardian.main())"
        )
        monkeypatch.setattr(managed_server, "module_command", lambda module: [sys.executable, "-c", code])
    return kind


def require_cgroup() -> None:
    made = server_guardian._make_cgroup(f"swarmtui-test-{os.getpid()}")
    if made is None:
        pytest.skip("no cgroup is delegated to this user")
    made.rmdir()


def cgroups() -> set[Path]:
    """The cgroups of managed servers."""
    made = server_guardian._make_cgroup(f"swarmtui-test-{os.getpid()}")
    if made is None:
        return set()
    made.rmdir()
    return set(made.parent.glob("swarmtui-server-*"))


@pytest.mark.parametrize("killed", ["guardian", "watcher", "neither"])
def test_process_without_the_session_and_environment_of_its_server_is_stopped(
    tmp_path: Path, cgroup: str, killed: str
) -> None:
    port = free_port()
    command = msgspec.structs.replace(launch(port, sys.executable, "-c", HIDDEN, str(port)), stop_within_s=1.0)
    with managed(command, tmp_path / "log") as server:
        server.start()
        hidden = psutil.Process(int((tmp_path / "log").read_text().split()[0]))
        (sim,) = sim_on(port)
        guardian = sim.parents()[1]
        directory = Path(f"swarmtui-server-{guardian.ppid()}")
        assert directory.name in {path.name for path in cgroups()} or cgroup == "no cgroup"
        if killed != "neither":
            os.kill(guardian.pid if killed == "guardian" else guardian.ppid(), signal.SIGKILL)
            wait_until(lambda: server.failure() == GUARDIAN_DIED, "it is noticed")
    assert not alive(hidden) and sim_on(port) == []
    assert directory.name not in {path.name for path in cgroups()}


def test_empty_cgroup_of_a_killed_guardian_is_removed() -> None:
    require_cgroup()
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = server_guardian._make_cgroup(f"swarmtui-server-{ended.pid}")
    assert left is not None
    assert left not in cgroups()


def test_cgroup_ends_a_process_that_cannot_be_found(tmp_path: Path) -> None:
    require_cgroup()
    port, other = free_port(), free_port()
    words = (sys.executable, "-c", JUMPING, str(port), str(other))
    with managed(msgspec.structs.replace(launch(port, *words), stop_within_s=0.5), tmp_path / "log") as server:
        server.start()
        assert is_listening(f"http://127.0.0.1:{other}")
    assert not is_listening(f"http://127.0.0.1:{other}")


def test_detached_server_is_stopped_by_the_stop_command(tmp_path: Path) -> None:
    port, pid = free_port(), str(tmp_path / "pid")
    words = (sys.executable, "-c", DETACHED, str(port), pid)
    stop = (sys.executable, "-c", STOP, pid)
    with managed(launch(port, *words, stop=stop), tmp_path / "log") as server:
        server.start()
        assert server.failure() is None
    assert sim_on(port) == []


def test_missing_program_is_reported(tmp_path: Path) -> None:
    with (
        managed(launch(free_port(), "/nowhere/llama-server"), tmp_path / "log") as server,
        pytest.raises(ServerFailed, match="could not be started: No such file or directory"),
    ):
        server.start()


def test_waiting_can_be_interrupted(tmp_path: Path) -> None:
    with (
        managed(launch(free_port(), "sleep", "600"), tmp_path / "log", stopped=True) as server,
        pytest.raises(Interrupted),
    ):
        server.start()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, "killed"), (signal.SIGSEGV, "exited")])
def test_fatal_signal_is_reported(tmp_path: Path, number: signal.Signals, code: str) -> None:
    """Somebody kills a server; what it does itself is its own fault."""
    words = (sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(number)})")
    with (
        managed(launch(free_port(), *words), tmp_path / "log") as server,
        pytest.raises(ServerFailed) as caught,
    ):
        server.start()
    assert caught.value.why == Finding(code=code, text=f"was killed by signal {int(number)}")


def test_running_server_is_left_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        server = managed(launch(foreign.getsockname()[1], "true"), tmp_path / "log")
        with pytest.raises(ServerFailed, match="another server is already listening"):
            server.start()
