"""Start a session or attach to a running one, receive its frames, and send it commands."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from swarmtui.model import client_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.run_request import RunRequest
from swarmtui.model.worker_protocol import Unpacker, pack
from swarmtui.processes import finished_counts
from swarmtui.processes.exits import exit_if_stuck, ignore_signals_unless_stuck
from swarmtui.processes.spawn import StartedProcess, error_log, socket_directory, socket_path, start_session_process

_MOVE_TIMEOUT_S = 10.0

# Workers of a killed session process write their unacknowledged records to disk within this time.
_SPOOL_S = 0.5

# A session process reads what clients send within this time, unless it hangs.
_READ_S = 1.0

# A session process exits within this time after an immediate stop, unless it hangs.
_EXIT_S = 1.5


class ConnectionLost(Exception):
    """The session process exited without sending how the session ended."""


class SessionClient:
    """A connection to a session process. `pid` is known if this process started it."""

    def __init__(
        self, sock: socket.socket, process: subprocess.Popen[bytes] | None = None, counts: int | None = None
    ) -> None:
        self._socket = sock
        self._process = process
        self._counts = counts
        self._unpacker = Unpacker()
        self._ready: list[bytes] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, command: client_protocol.ClientCommand) -> None:
        """Send a command. It is dropped silently if the session process has exited or the connection is closed."""
        with contextlib.suppress(OSError):
            self._socket.sendall(pack(command))

    def receive(self, timeout_s: float | None = None) -> client_protocol.SessionMessage | None:
        """Return the next message, or None after the timeout; raise `ConnectionLost` if no more will follow."""
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
        return client_protocol.decode_message(self._ready.pop(0))

    def exit_description(self, wait_s: float = 5.0) -> str:
        """Say how a session process exited that did not send an end: it was killed, or had an internal error."""
        try:
            code = self._process.wait(wait_s) if self._process else None
        except subprocess.TimeoutExpired:
            code = None
        return "was killed" if code is None or code < 0 else f"failed (see {error_log()})"

    def has_workers(self) -> bool:
        """Return whether workers of a session process that has exited are still running."""
        if self._process is None:
            return False
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def finished_requests(self) -> int:
        """Return how many requests the workers have finished by their own count; 0 if we did not start them."""
        return finished_counts.read_total(self._counts)

    def kill(self) -> None:
        """Kill a session process that hangs, and after its workers had time to write their records, its group."""
        if self._process is None:
            return
        self._process.kill()
        time.sleep(_SPOOL_S)
        # It was not waited for, so its pid is still the id of its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, wait_s: float = 5.0) -> None:
        """Wait for the session process, which exits soon after the end; use 0 if the session is to continue."""
        self._read_to_end()
        self._socket.close()
        if self._counts is not None:
            os.close(self._counts)
            self._counts = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)

    def _read_to_end(self) -> None:
        """Wait until the session process has read all commands: a close with unread frames here discards them there."""
        deadline = time.monotonic() + _READ_S
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                if not self._socket.recv(1 << 20):
                    break


def start_session(
    request: RunRequest, subscription: client_protocol.Subscribe, process: StartedProcess | None = None
) -> SessionClient:
    """Send a request to a session process that was started ahead, or to a new one."""
    started = process or start_session_process()
    with contextlib.suppress(ConnectionError):
        started.socket.sendall(pack(request) + pack(subscription))
    return SessionClient(*started)


def attach(session_id: str, first: client_protocol.ClientCommand) -> SessionClient:
    """Connect to a running session and send a first command, usually `Subscribe`."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(socket_path(session_id)))
        sock.sendall(pack(first))
    except OSError as error:
        sock.close()
        raise BadInput(f"cannot attach: {error.strerror or error}", key=session_id) from None
    return SessionClient(sock)


def move_session(session_id: str, root: Path) -> str:
    # Subscribing after the command ensures that no frame holds an earlier refusal.
    client = attach(session_id, client_protocol.SaveTo(str(root)))
    try:
        client.send(client_protocol.Subscribe(hz=20.0))
        deadline = time.monotonic() + _MOVE_TIMEOUT_S
        while (left := deadline - time.monotonic()) > 0:
            match client.receive(left):
                case client_protocol.Hello(directory=directory) if Path(directory).parent == root:
                    return directory
                case client_protocol.Frame(warnings=warnings) if refused := [
                    w for w in warnings if w.code == "save_refused"
                ]:
                    raise BadInput(refused[0].text, key=session_id)
                case client_protocol.Ended(message=message):
                    raise BadInput(f"the session has ended: {message}", key=session_id)
        raise BadInput(f"no answer within {_MOVE_TIMEOUT_S:g} s", key=session_id)
    except ConnectionLost:
        raise BadInput("the session ended before it answered", key=session_id) from None
    finally:
        client.close()


def running_sessions() -> list[str]:
    """Return the ids of running sessions, and remove the sockets of dead ones."""
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


class StopControl:
    """Ctrl-C: the first request stops and saves; the second stops immediately, with what is in the journal then."""

    def __init__(self) -> None:
        self._client: SessionClient | None = None
        self._grace_s: float | None = None
        self._deadline: float | None = None

    @property
    def requested(self) -> bool:
        return self._grace_s is not None

    @property
    def immediate(self) -> bool:
        return self._deadline is not None

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Request a stop without grace at SIGINT and SIGTERM. Once it was requested, later signals are ignored."""

        def handle(number: int, frame: FrameType | None) -> None:
            self.request(grace_s=0.0)
            if self.immediate:
                exit_if_stuck()

        before = [(number, signal.signal(number, handle)) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)
            if self.requested:
                # Further signals must not interrupt the clean-up and the report.
                ignore_signals_unless_stuck()

    def attach(self, client: SessionClient) -> None:
        """Set the client; a stop that was requested before is sent now."""
        self._client = client
        if self.requested:
            self._send_stop()

    def request(self, grace_s: float) -> None:
        """Send a stop; this is safe in a signal handler."""
        if self.requested:
            self._deadline = self._deadline or time.monotonic() + _EXIT_S
        self._grace_s = 0.0 if self.requested else grace_s
        self._send_stop()

    def _send_stop(self) -> None:
        if self._client is not None:
            self._client.send(client_protocol.Stop(grace_s=self._grace_s or 0.0, immediate=self.immediate))

    def kill_if_overdue(self) -> None:
        """Kill a session process that does not exit in time; call this regularly while waiting for it."""
        if self._client is not None and self._deadline is not None and time.monotonic() > self._deadline:
            client, self._client = self._client, None
            client.kill()
