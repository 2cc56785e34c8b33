"""Start one server, and stop every process of it on request or when the parent exits.

Standard input is a pipe from the parent. The first line is the launch command; any other line, or the end of the
pipe (also if the parent is killed), stops the server. The end of the pipe after such a line means: kill it at once.
Events are reported on standard output, one per line; standard error is the log of the server.

There are two processes: the guardian starts and stops the server, and its parent, the watcher, stops what is left if
the guardian is killed. If the watcher is killed, the guardian continues. Both are subreapers: processes that the server
leaves behind become their children, also those in sessions of their own. Where the cgroup of this process is delegated
to the user, the server is put into a cgroup below it, which is killed as a whole.

The argument, if any, is the file of the settings that were changed while the server ran: before it is stopped, or if
the guardian was killed, what is left of them is restored.
"""

from __future__ import annotations

import ctypes
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

_SUBREAPER, _DEATH_SIGNAL = 36, 1
_POLL_S = 0.05
# How long what a killed guardian leaves behind may take to end, and what was killed to be gone.
_TERMINATE_S, _KILL_S = 1.0, 5.0
# No signal ends a call of a driver that hangs: the server is then stopped all the same.
_RESTORE_S = 60.0

_CGROUP = "swarmtui-server-"

# Blocked until they are handled.
GUARDIAN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


class LaunchCommand(msgspec.Struct, frozen=True, kw_only=True):
    """The commands of a server: argument lists, not shell commands; `env` is added to the environment.

    `ready` is the URL that answers when it is ready. `stop` is a command for servers that a signal does not stop, such
    as a container or a systemd unit. `pass_env` names the variables with keys that it inherits.
    """

    command: tuple[str, ...]
    url: str
    ready: str
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    directory: str | None = None
    ready_within_s: float = 600.0
    stop: tuple[str, ...] = ()
    stop_within_s: float = 20.0

    def __str__(self) -> str:
        variables = (f"{shlex.quote(name)}={shlex.quote(value)}" for name, value in self.env.items())
        return " ".join([*variables, shlex.join(self.command)])


def main() -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, GUARDIAN_SIGNALS)
    libc = ctypes.CDLL(None, use_errno=True)
    cgroup = _make_cgroup(f"{_CGROUP}{os.getpid()}")
    held = Path(sys.argv[1]) if sys.argv[1:] else None
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    if guardian := os.fork():
        status = _watch(guardian, cgroup, held)
    else:
        libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        status = _guard(libc, cgroup, held)
    if cgroup is not None:
        _remove_cgroup(cgroup)
    return status


def _watch(guardian: int, cgroup: Path | None, held: Path | None) -> int:
    """Wait until the guardian exits; if it was killed, restore and stop what is left. SIGTERM is passed on to it."""
    os.close(0)
    ended, status = 0, 0
    while not ended:
        if signal.sigwait((signal.SIGCHLD, signal.SIGTERM)) == signal.SIGTERM:
            os.kill(guardian, signal.SIGTERM)
        ended, status = os.waitpid(guardian, os.WNOHANG)
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    _report("guardian died")
    _restore(held)
    _signal(_left(cgroup), signal.SIGTERM)
    deadline = time.monotonic() + _TERMINATE_S
    while _left(cgroup) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    _kill(cgroup)
    return 1


def _guard(libc: ctypes.CDLL, cgroup: Path | None, held: Path | None) -> int:
    # Unbuffered: select() does not see lines that were read ahead.
    pipe = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    launch = msgspec.json.decode(pipe.readline(), type=LaunchCommand)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminated = [False]
    signal.signal(signal.SIGTERM, lambda *_: terminated.__setitem__(0, True))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GUARDIAN_SIGNALS)
    os.environ |= launch.env

    def prepare() -> None:
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if cgroup is not None:
            with suppress(OSError):
                (cgroup / "cgroup.procs").write_text("0")

    try:
        server = subprocess.Popen(
            launch.command, stdin=subprocess.DEVNULL, stdout=2, cwd=launch.directory, start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509
        )  # fmt: skip
    except OSError as error:
        _report(f"failed {error.strerror}: {error.filename}")
        return 1
    parent_alive = _wait(server, terminated)
    _restore(held)
    _stop_server(server, launch, cgroup, parent_alive)
    return 0


def _restore(held: Path | None) -> None:
    """Restore settings that our parent has changed and not restored; say so in the log of the server."""
    if held is None or not held.exists():
        return
    from swarmtui.client.held_settings import restore_file  # late: the server should start early

    def restore() -> None:
        for line in restore_file(held):
            with suppress(OSError):
                os.write(2, f"swarmtui: {line}\n".encode())

    thread = threading.Thread(target=restore, daemon=True)
    thread.start()
    thread.join(_RESTORE_S)


def _make_cgroup(name: str) -> Path | None:
    """Create a cgroup below that of this process; None without cgroup v2, or if it is not delegated to the user."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line.removeprefix("0::") for line in lines if line.startswith("0::"))
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        root, mounted = next((words[3], words[4]) for words in mounts if words[words.index("-") + 1] == "cgroup2")
        parent = Path(mounted) / own.removeprefix(root).lstrip("/")
        # Controllers for the children would change how much CPU time and memory the server gets.
        if ".." in parent.parts or (parent / "cgroup.subtree_control").read_text().strip():
            return None
        for left in parent.glob(f"{_CGROUP}*"):
            # Both processes of its guardian were killed; one with processes in it cannot be removed.
            if not psutil.pid_exists(int(left.name.removeprefix(_CGROUP))):
                _remove_cgroup(left)
        cgroup = parent / name
        cgroup.mkdir()
        return cgroup
    return None


def _remove_cgroup(cgroup: Path) -> None:
    for directory, _, _ in os.walk(cgroup, topdown=False):
        with suppress(OSError):
            Path(directory).rmdir()


def _wait(server: subprocess.Popen[bytes], terminated: list[bool]) -> bool:
    """Wait until the server is to be stopped, and report if it exits by itself.

    Return whether a line asked for it: then the parent is alive, and the end of the pipe is still to come.
    """
    exited = False
    while not terminated[0]:
        if _input_ready(_POLL_S):
            return bool(os.read(0, 64))
        if not exited and server.poll() is not None:
            exited = True
            _report(f"exit {server.returncode}")
    return False


def _input_ready(within_s: float) -> bool:
    return bool(select.select([0], [], [], within_s)[0])


def _stop_server(
    server: subprocess.Popen[bytes], launch: LaunchCommand, cgroup: Path | None, parent_alive: bool
) -> None:
    """Stop the server: its stop command and SIGTERM first, SIGKILL after the time limit or if the parent asks."""
    deadline = time.monotonic() + launch.stop_within_s
    if launch.stop:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                launch.stop, stdin=subprocess.DEVNULL, stdout=2, cwd=launch.directory, timeout=launch.stop_within_s,
                check=False,
            )  # fmt: skip
    if server.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
    else:
        _signal(_left(cgroup), signal.SIGTERM)
    while time.monotonic() < deadline and _left(cgroup) and not (parent_alive and _input_ready(0.0)):
        time.sleep(_POLL_S)
    _kill(cgroup)
    server.wait()


def _kill(cgroup: Path | None) -> None:
    """Kill what is left, also what it starts meanwhile; in a cgroup, also what starts too often to be found."""
    deadline = time.monotonic() + _KILL_S
    while ((left := _left(cgroup)) or _is_populated(cgroup)) and time.monotonic() < deadline:
        if cgroup is not None:
            with suppress(OSError):
                (cgroup / "cgroup.kill").write_text("1")
        _signal(left, signal.SIGKILL)
        time.sleep(_POLL_S)


def _is_populated(cgroup: Path | None) -> bool:
    with suppress(OSError):
        return cgroup is not None and "populated 1" in (cgroup / "cgroup.events").read_text()
    return False


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


def _left(cgroup: Path | None) -> list[psutil.Process]:
    """All descendants, and what is in the cgroup, without zombies."""
    found = {child.pid: child for child in psutil.Process().children(recursive=True)}
    for listed in cgroup.rglob("cgroup.procs") if cgroup is not None else ():
        with suppress(OSError, psutil.Error):
            found |= {int(pid): psutil.Process(int(pid)) for pid in listed.read_text().split()}
    left = []
    for process in found.values():
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                left.append(process)
    return left


def _report(text: str) -> None:
    """Report an event to the parent; it is dropped silently if the parent has exited."""
    with suppress(OSError):
        os.write(1, f"{text}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
