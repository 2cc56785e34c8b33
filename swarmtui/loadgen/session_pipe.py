"""Exchange messages with the session process over a socket, without waiting for it."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable

from swarmtui.loadgen.event_loop import READ, WRITE, EventLoop
from swarmtui.model.worker_protocol import Unpacker, WorkerCommand, decode_command

# Messages that wait to be sent; beyond this no frames are sent, only records.
_MAX_WAITING = 64


class SessionPipe:
    """Calls `on_command` for each command, and `on_closed` when the session process is gone."""

    def __init__(
        self,
        loop: EventLoop,
        sock: socket.socket,
        on_command: Callable[[WorkerCommand], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._loop, self._socket = loop, sock
        self._on_command, self._on_closed = on_command, on_closed
        self._unpacker = Unpacker()
        self._outbox: deque[bytes] = deque()
        sock.setblocking(False)
        loop.add_fd(sock.fileno(), READ, self._on_ready)

    def keeps_up(self) -> bool:
        """Whether the session process reads fast enough for frames to be sent."""
        return len(self._outbox) <= _MAX_WAITING

    def send(self, message: bytes) -> None:
        self._outbox.append(message)
        if len(self._outbox) == 1:
            self._flush()

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_closed()
            return
        for body in self._unpacker.feed(data):
            self._on_command(decode_command(body))

    def _flush(self) -> None:
        while self._outbox:
            message = self._outbox[0]
            try:
                sent = self._socket.send(message)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._on_closed()
                return
            if sent < len(message):
                self._outbox[0] = message[sent:]
                self._loop.modify_fd(self._socket.fileno(), READ | WRITE)
                return
            self._outbox.popleft()
        self._loop.modify_fd(self._socket.fileno(), READ)
