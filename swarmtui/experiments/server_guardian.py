"""Start one server, and stop every process of it on request or when the parent exits.

Its standard input is a pipe from the parent. The first line is the specification of the server; any other line, or the
end of the pipe (also if the parent is killed), stops the server. The end of the pipe after such a line means: kill it
at once. Events are reported on standard output, one per line. As a subreaper this process also becomes the parent of
processes that the server leaves behind, so that they are stopped too.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil

_SUBREAPER, _DEATH_SIGNAL = 36, 1
_POLL_S = 0.05

# Blocked until their handlers are set.
GUARDIAN_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How to start and stop the server.

    `stop` is a command for servers that a signal does not stop, such as a container or a systemd unit.
    """

    command: tuple[str, ...]
    env: dict[str, str]
    log: str
    directory: str | None = None
    stop: tuple[str, ...] = ()
    stop_within_s: float = 20.0


def main() -> int:
    # Unbuffered: select() does not see lines that were read ahead.
    pipe = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    spec = msgspec.json.decode(pipe.readline(), type=ServerSpec)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminated = [False]
    signal.signal(signal.SIGTERM, lambda *_: terminated.__setitem__(0, True))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GUARDIAN_SIGNALS)
    environment = os.environ | spec.env
    with Path(spec.log).open("ab") as log:
        try:
            server = subprocess.Popen(
                spec.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=spec.directory,
                start_new_session=True,
                preexec_fn=lambda: libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
            )
        except OSError as error:
            _report(f"failed {error.strerror}: {error.filename}")
            return 1
        _report(f"started {server.pid}")
        parent_alive = _wait(server, terminated)
        _stop_server(server, spec, environment, log.fileno(), parent_alive)
    _report("ended")
    return 0


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
    server: subprocess.Popen[bytes], spec: ServerSpec, environment: dict[str, str], log: int, parent_alive: bool
) -> None:
    """Stop the server: its stop command and SIGTERM first, SIGKILL after the time limit or if the parent asks."""
    deadline = time.monotonic() + spec.stop_within_s
    if spec.stop:
        try:
            subprocess.run(
                spec.stop, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=spec.directory,
                timeout=spec.stop_within_s, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            _report(f"stop failed: {error}")
    if server.poll() is None:
        _signal_group(server.pid, signal.SIGTERM)
    else:
        _signal_each(_living_descendants(server), signal.SIGTERM)
    while time.monotonic() < deadline and _living_descendants(server) and not (parent_alive and _input_ready(0.0)):
        time.sleep(_POLL_S)
    if server.poll() is None:
        _signal_group(server.pid, signal.SIGKILL)
    _signal_each(_living_descendants(server), signal.SIGKILL)
    server.wait()


def _living_descendants(server: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All descendants that are not zombies; `poll` reaps the server first."""
    server.poll()
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def _signal_each(processes: list[psutil.Process], number: int) -> None:
    """Signal each process; psutil checks that its pid was not reused."""
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _report(text: str) -> None:
    """Report an event to the parent; it is dropped silently if the parent has exited."""
    try:
        os.write(1, f"{text}\n".encode())
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())
