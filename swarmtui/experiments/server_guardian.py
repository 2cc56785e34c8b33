"""Start one server, and stop every process of it on request or when the parent exits.

A process of its own between us and the server. Its standard input is a pipe from us: the order comes on the first
line; any other line, or the end of the pipe, which also a `kill -9` of ours brings about, ends the server. The end of
the pipe behind such a line means that nobody wants to wait any longer. What happens is told on standard output, a word
a line. Processes that the server left behind become children of this one, so that they are found too.
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
_LOOK_S = 0.05


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """`stop` is a command that ends the server where a signal does not, as with a container or a unit of systemd."""

    words: tuple[str, ...]
    env: dict[str, str]
    log: str
    directory: str | None = None
    stop: tuple[str, ...] = ()
    stop_within_s: float = 20.0


def main() -> int:
    # Without a buffer: a line that is read ahead would not be seen to come.
    pipe = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    order = msgspec.json.decode(pipe.readline(), type=Order)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told = [False]
    signal.signal(signal.SIGTERM, lambda *_: told.__setitem__(0, True))
    environment = os.environ | order.env
    with Path(order.log).open("ab") as log:
        try:
            server = subprocess.Popen(
                order.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=order.directory,
                start_new_session=True,
                preexec_fn=lambda: libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
            )
        except OSError as error:
            _tell(f"failed {error.strerror}: {error.filename}")
            return 1
        _tell(f"started {server.pid}")
        in_touch = _wait(server, told)
        _end(server, order, environment, log.fileno(), in_touch)
    _tell("ended")
    return 0


def _wait(server: subprocess.Popen[bytes], told: list[bool]) -> bool:
    """Until we are to end it; that the server itself has ended is told, and waited on for a word from us.

    True where that was a word: then the end of the pipe is still to come.
    """
    over = False
    while not told[0]:
        if _news(_LOOK_S):
            return bool(os.read(0, 64))
        if not over and server.poll() is not None:
            over = True
            _tell(f"exit {server.returncode}")
    return False


def _news(within_s: float) -> bool:
    return bool(select.select([0], [], [], within_s)[0])


def _end(server: subprocess.Popen[bytes], order: Order, environment: dict[str, str], log: int, in_touch: bool) -> None:
    """In good order first, then hard; only what this process has started. In touch, we can be told to hurry."""
    deadline = time.monotonic() + order.stop_within_s
    if order.stop:
        try:
            subprocess.run(
                order.stop, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=order.directory,
                timeout=order.stop_within_s, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            _tell(f"stop failed: {error}")
    if server.poll() is None:
        _signal(server.pid, signal.SIGTERM)
    else:
        _each(_left(server), signal.SIGTERM)
    while time.monotonic() < deadline and _left(server) and not (in_touch and _news(0.0)):
        time.sleep(_LOOK_S)
    if server.poll() is None:
        _signal(server.pid, signal.SIGKILL)
    _each(_left(server), signal.SIGKILL)
    server.wait()


def _left(server: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Living descendants; `poll` takes away the server itself, `waitpid` those that it left to us."""
    server.poll()
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def _each(processes: list[psutil.Process], number: int) -> None:
    """Which makes sure that a number was not given to another process meanwhile."""
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _tell(text: str) -> None:
    """To nobody, where we are gone."""
    try:
        os.write(1, f"{text}\n".encode())
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())
