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
from swarmtui.client.spawn import StartedProcess, start_session_process
from swarmtui.model import client_protocol as said
from swarmtui.model.run_request import RunRequest
from swarmtui.model.schema import BadInput
from swarmtui.model.worker_protocol import Unpacker, pack

_MOVE_S = 10.0

# So long may workers whose conductor was killed take to leave what they still hold on disk.
SPOOL_S = 0.5


class ConnectionLost(Exception):
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

    def send(self, command: said.ClientCommand) -> None:
        """To nobody, where the conductor is gone or we have hung up: a Ctrl-C can come as late as that."""
        with contextlib.suppress(OSError):
            self._socket.sendall(pack(command))

    def receive(self, timeout_s: float | None = None) -> said.SessionMessage | None:
        """The next message; None when none came in time. `Gone` when there will be no more."""
        while not self._ready:
            if not select.select([self._socket], [], [], timeout_s)[0]:
                return None
            try:
                data = self._socket.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                raise ConnectionLost
            self._ready = self._unpacker.feed(data)
        return said.decode_message(self._ready.pop(0))

    def exit_description(self, wait_s: float = 5.0) -> str:
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


def start_session(order: RunRequest, wish: said.Subscribe, conductor: StartedProcess | None = None) -> Client:
    """Gives an order to a conductor: one that was started ahead, or a new one."""
    sock, process = conductor or start_session_process()
    with contextlib.suppress(ConnectionError):
        sock.sendall(pack(order) + pack(wish))
    return Client(sock, process)


def attach(session_id: str, first: said.ClientCommand) -> Client:
    """Joins with a first word, mostly a wish to be shown frames."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(socket_path(session_id)))
        sock.sendall(pack(first))
    except OSError as error:
        sock.close()
        raise BadInput(f"cannot join it: {error.strerror or error}", key=session_id) from None
    return Client(sock)


def move_session(session_id: str, root: Path) -> str:
    """Has a running session saved elsewhere: the next hello names its new directory, or a warning says why not."""
    # Asked to show only afterwards: no frame tells of a refusal from before.
    face = attach(session_id, said.SaveTo(str(root)))
    try:
        face.send(said.Subscribe(hz=20.0))
        give_up = time.monotonic() + _MOVE_S
        while (left := give_up - time.monotonic()) > 0:
            match face.receive(left):
                case said.Hello(directory=directory) if Path(directory).parent == root:
                    return directory
                case said.Frame(warnings=warnings) if refused := [w for w in warnings if w.code == "save_refused"]:
                    raise BadInput(refused[0].text, key=session_id)
                case said.Ended(message=message):
                    raise BadInput(f"it has ended: {message}", key=session_id)
        raise BadInput(f"no answer within {_MOVE_S:g} s", key=session_id)
    except ConnectionLost:
        raise BadInput("it ended before it answered", key=session_id) from None
    finally:
        face.close()


def running_sessions() -> list[str]:
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


# A conductor that was told to leave at once needs no longer, unless it hangs.
_LEAVES_WITHIN_S = 1.5


class StopControl:
    """The first word stops in order and saves; the second leaves at once, with what is in the journal by then."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._grace_s: float | None = None
        self._gone_by: float | None = None

    @property
    def requested(self) -> bool:
        return self._grace_s is not None

    @property
    def at_once(self) -> bool:
        return self._gone_by is not None

    def attach(self, client: Client) -> None:
        """Somebody may have asked before there was a conductor to stop."""
        self._client = client
        if self.requested:
            self._tell()

    def request(self, grace_s: float) -> None:
        """May be called by a signal handler in the middle of anything: it says it to the conductor, and no more."""
        if self.requested:
            self._gone_by = self._gone_by or time.monotonic() + _LEAVES_WITHIN_S
        self._grace_s = 0.0 if self.requested else grace_s
        self._tell()

    def _tell(self) -> None:
        if self._client is not None:
            self._client.send(said.Stop(grace_s=self._grace_s or 0.0, immediate=self.at_once))

    def kill_if_overdue(self) -> None:
        """To be called while we wait: ends a conductor that does not leave, so that its stream ends too."""
        if self._client is not None and self._gone_by is not None and time.monotonic() > self._gone_by:
            client, self._client = self._client, None
            client.kill()
