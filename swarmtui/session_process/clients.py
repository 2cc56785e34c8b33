"""Serve any number of clients: send them frames and pass on their commands, without waiting for them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from swarmtui.model import client_protocol
from swarmtui.model.worker_protocol import Unpacker, pack
from swarmtui.state.session_state import SessionState

_MIN_HZ, _MAX_HZ = 0.1, 20.0
_POLL_HELLO_S = 0.05
_CLOSE_TIMEOUT_S = 2.0
# More streams than a large terminal shows.
_MAX_TAILS = 256


class Client:
    """One connected UI: its process, what sends frames to it, and the streams whose text it shows."""

    def __init__(self, writer: asyncio.StreamWriter, pid: int) -> None:
        self.writer, self.pid = writer, pid
        self.tails: tuple[int, ...] = ()
        self.sending: asyncio.Task[None] | None = None

    def unsubscribe(self) -> None:
        if self.sending is not None:
            self.sending.cancel()


class ClientConnections:
    """Accepts clients and sends them frames; `handle_command` gets their other commands."""

    def __init__(
        self,
        state: SessionState,
        hello: Callable[[], client_protocol.Hello | None],
        handle_command: Callable[[Client, client_protocol.ClientCommand], None],
    ) -> None:
        self._state, self._hello, self._handle_command = state, hello, handle_command
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._clients: set[Client] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._greetings = 1

    async def listen(self, path: Path) -> None:
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self.accept, path)
        finally:
            os.umask(mask)
        self._path = path

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Add a client. It gets the end of the session even if it has not subscribed yet."""
        pid, uid = _peer(writer.get_extra_info("socket"))
        if uid != os.getuid():
            writer.close()
            return
        client = Client(writer, pid)
        self._clients.add(client)
        task = asyncio.create_task(self._serve(reader, client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, client: Client) -> None:
        # With no buffer, `drain` at the end waits until the client has received everything.
        client.writer.transport.set_write_buffer_limits(0)
        unpacker = Unpacker()
        try:
            while data := await reader.read(1 << 16):
                for body in unpacker.feed(data):
                    command = client_protocol.decode_command(body)
                    if isinstance(command, client_protocol.Subscribe):
                        client.unsubscribe()
                        client.sending = asyncio.create_task(self._send_frames(client.writer, command))
                    else:
                        self._handle_command(client, command)
        except (ConnectionError, msgspec.DecodeError, ValueError, RecursionError):
            pass  # the client has disconnected or sends invalid data; the run continues
        finally:
            client.unsubscribe()
            self._clients.discard(client)
            client.writer.close()
            if client.tails:
                self._handle_command(client, client_protocol.WatchTails(()))

    def pids(self) -> tuple[int, ...]:
        return tuple(client.pid for client in tuple(self._clients))

    def watched_tails(self) -> tuple[int, ...]:
        return tuple(sorted({agent for client in self._clients for agent in client.tails})[:_MAX_TAILS])

    async def _send_frames(self, writer: asyncio.StreamWriter, subscription: client_protocol.Subscribe) -> None:
        pause = 1.0 / min(_MAX_HZ, max(_MIN_HZ, subscription.hz))
        greetings = 0
        while not writer.is_closing():
            # A client that has not read the last frame gets no other until it has, and then the newest: one that is
            # stopped finds no old frames when it continues, and there is room for the end of the session.
            if not _is_unread(writer):
                if greetings < self._greetings and (hello := self._hello()) is not None:
                    greetings = self._greetings
                    writer.write(pack(hello))
                writer.write(pack(self._state.frame(time.perf_counter_ns(), rows=subscription.rows)))
            await asyncio.sleep(pause if greetings else _POLL_HELLO_S)

    def greet(self) -> None:
        """Send another Hello to each client: the directory of the session has changed."""
        self._greetings += 1

    async def close(self, last: client_protocol.Ended) -> None:
        """Send the final state; a client that does not read delays this only for a short time."""
        frame = self._state.frame(time.perf_counter_ns(), rows=False)
        for client in self._clients:
            client.unsubscribe()  # no frame follows the last one
            client.writer.write(pack(frame) + pack(last))
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                # A client that has disconnected must not keep the others from receiving the end.
                await asyncio.gather(*(client.writer.drain() for client in self._clients), return_exceptions=True)
        except TimeoutError:
            pass
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _is_unread(writer: asyncio.StreamWriter) -> bool:
    if writer.transport.get_write_buffer_size():
        return True
    (unread,) = struct.unpack("i", fcntl.ioctl(writer.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4)))
    return bool(unread)


def _peer(sock: socket.socket) -> tuple[int, int]:
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return pid, uid
