"""Start one server, and stop every process of it on request or when the parent exits.

Its standard input is a pipe from the parent. The first line is the launch command; any other line, or the end of the
pipe (also if the parent is killed), stops the server. The end of the pipe after such a line means: kill it at once.
Events are reported on standard output, one per line; standard error is the log of the server. As a subreaper this
process also becomes the parent of processes that the server leaves behind, so that they are stopped too. If it is
killed itself, its watcher stops them: a process that does nothing else, with the same standard output.
"""

from __future__ import annotations

import ctypes
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress

import msgspec
import psutil

_SUBREAPER, _DEATH_SIGNAL = 36, 1
_POLL_S = 0.05
# How long what a killed guardian leaves behind may take to end, and to be killed.
_TERMINATE_S, _KILL_S = 1.0, 1.0

# A variable in the environment of a server and of all processes that it starts, even in another session.
_MARKER = "SWARMTUI_SERVER"

# Blocked until their handlers are set.
GUARDIAN_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class LaunchCommand(msgspec.Struct, frozen=True, kw_only=True):
    """How to start and stop a server: argument lists, not shell commands; `env` is added to the environment.

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
    # Unbuffered: select() does not see lines that were read ahead.
    pipe = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    launch = msgspec.json.decode(pipe.readline(), type=LaunchCommand)
    mark = os.urandom(8).hex()
    to_watcher = _start_watcher(mark)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminated = [False]
    signal.signal(signal.SIGTERM, lambda *_: terminated.__setitem__(0, True))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GUARDIAN_SIGNALS)
    os.environ |= launch.env | {_MARKER: mark}
    try:
        server = subprocess.Popen(
            launch.command,
            stdin=subprocess.DEVNULL,
            stdout=2,
            cwd=launch.directory,
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
        )
    except OSError as error:
        _report(f"failed {error.strerror}: {error.filename}")
        os.write(to_watcher, b"0")
        return 1
    _stop_server(server, launch, parent_alive=_wait(server, terminated))
    os.write(to_watcher, b"0")
    return 0


def _start_watcher(mark: str) -> int:
    """Start the watcher, which is no child of this process; a byte in its pipe says that nothing is left to stop."""
    from_guardian, to_watcher = os.pipe()
    if os.fork():
        os.close(from_guardian)
        os.wait()
        return to_watcher
    if os.fork():
        os._exit(0)
    os.setsid()
    os.close(to_watcher)
    os.close(0)
    if not os.read(from_guardian, 1):
        _stop_marked(mark, signal.SIGTERM, _TERMINATE_S)
        _stop_marked(mark, signal.SIGKILL, _KILL_S)
    os._exit(0)


def _stop_marked(mark: str, number: int, within_s: float) -> None:
    """Send a signal to every process of the server and its group, again to those that they start meanwhile."""
    deadline, told = time.monotonic() + within_s, set[int]()
    while (left := _marked_processes(mark)) and time.monotonic() < deadline:
        for process in left:
            if process.pid not in told:
                told.add(process.pid)
                with suppress(OSError, psutil.Error):
                    os.killpg(os.getpgid(process.pid), number)
        time.sleep(_POLL_S)


def _marked_processes(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(_MARKER) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


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


def _stop_server(server: subprocess.Popen[bytes], launch: LaunchCommand, parent_alive: bool) -> None:
    """Stop the server: its stop command and SIGTERM first, SIGKILL after the time limit or if the parent asks."""
    deadline = time.monotonic() + launch.stop_within_s
    if launch.stop:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                launch.stop, stdin=subprocess.DEVNULL, stdout=2, cwd=launch.directory, timeout=launch.stop_within_s,
                check=False,
            )  # fmt: skip
    _signal(server, signal.SIGTERM)
    while time.monotonic() < deadline and _living_descendants(server) and not (parent_alive and _input_ready(0.0)):
        time.sleep(_POLL_S)
    _signal(server, signal.SIGKILL)
    server.wait()


def _signal(server: subprocess.Popen[bytes], number: int) -> None:
    """Terminate the process group of the server, or what it left behind; kill both."""
    running = server.poll() is None
    if running:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)
    if not running or number == signal.SIGKILL:
        for process in _living_descendants(server):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def _living_descendants(server: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All descendants that are not zombies; `poll` reaps the server first."""
    server.poll()
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def _report(text: str) -> None:
    """Report an event to the parent; it is dropped silently if the parent has exited."""
    with suppress(OSError):
        os.write(1, f"{text}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
