"""What faces use: start a conductor or join a running one, read frames, send commands."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

from swarmtui.client.sockets import error_log, socket_directory, socket_path
from swarmtui.client.spawn import Started, start_conductor
from swarmtui.model import client_protocol as said
from swarmtui.model.run_request import Order
from swarmtui.model.schema import BadInput
from swarmtui.model.worker_protocol import Unpacker, pack

_MOVE_S = 10.0

# So long may workers whose conductor was killed take to leave what they still hold on disk.
SPOOL_S = 0.5


class Gone(Exception):
    """The conductor ended without a last word."""


class Client:
    """One face's end of the stream. `pid` is the conductor's, where we started it."""

    def __init__(self, sock: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._socket = sock
        self._process = process
        self._unpacker = Unpacker()
        self._ready: list[bytes] = []

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def fileno(self) -> int:
        return self._socket.fileno()

    def say(self, command: said.Command) -> None:
        """To nobody, where the conductor is gone or we have hung up: a Ctrl-C can come as late as that."""
        with contextlib.suppress(OSError):
            self._socket.sendall(pack(command))

    def next(self, timeout_s: float | None = None) -> said.Message | None:
        """The next message; None when none came in time. `Gone` when there will be no more."""
        while not self._ready:
            if not select.select([self._socket], [], [], timeout_s)[0]:
                return None
            try:
                data = self._socket.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                raise Gone
            self._ready = self._unpacker.feed(data)
        return said.decode_message(self._ready.pop(0))

    def how_it_ended(self, wait_s: float = 5.0) -> str:
        """Of a conductor that is gone without a last word: killed by somebody, or by a fault of ours."""
        try:
            code = self._process.wait(wait_s) if self._process else None
        except subprocess.TimeoutExpired:
            code = None
        return "was killed" if code is None or code < 0 else f"failed (see {error_log()})"

    def kill(self) -> None:
        """One of ours that hangs. Its workers leave on disk what they hold, and go; what is left then ends too."""
        if self._process is None:
            return
        self._process.kill()
        time.sleep(SPOOL_S)
        # Nobody has waited for it yet, so that its number is still its own group's.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, wait_s: float = 5.0) -> None:
        """A conductor that has said its last word ends within this time; one that is to go on is not waited for."""
        self._socket.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)


def start(order: Order, wish: said.Subscribe, conductor: Started | None = None) -> Client:
    """Gives an order to a conductor: one that was started ahead, or a new one."""
    sock, process = conductor or start_conductor()
    with contextlib.suppress(ConnectionError):
        sock.sendall(pack(order) + pack(wish))
    return Client(sock, process)


def attach(session_id: str, first: said.Command) -> Client:
    """Joins with a first word, mostly a wish to be shown frames."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(socket_path(session_id)))
        sock.sendall(pack(first))
    except OSError as error:
        sock.close()
        raise BadInput(f"cannot join it: {error.strerror or error}", key=session_id) from None
    return Client(sock)


def move(session_id: str, root: Path) -> str:
    """Has a running session saved elsewhere: the next hello names its new directory, or a warning says why not."""
    # Asked to show only afterwards: no frame tells of a refusal from before.
    face = attach(session_id, said.SaveTo(str(root)))
    try:
        face.say(said.Subscribe(hz=20.0))
        give_up = time.monotonic() + _MOVE_S
        while (left := give_up - time.monotonic()) > 0:
            match face.next(left):
                case said.Hello(directory=directory) if Path(directory).parent == root:
                    return directory
                case said.Frame(warnings=warnings) if refused := [w for w in warnings if w.startswith(said.REFUSED)]:
                    raise BadInput(refused[0], key=session_id)
                case said.Ended(message=message):
                    raise BadInput(f"it has ended: {message}", key=session_id)
        raise BadInput(f"no answer within {_MOVE_S:g} s", key=session_id)
    except Gone:
        raise BadInput("it ended before it answered", key=session_id) from None
    finally:
        face.close()


def running() -> list[str]:
    """Ids of the sessions that can be joined now; sockets of dead conductors are cleared away."""
    alive = []
    for path in sorted(socket_directory().glob("*.sock")):
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(str(path))
                alive.append(path.stem)
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue
    return alive
