"""Faces that look on and give commands: any number of them, none of them waited for."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec

from swarmtui.model import client_protocol as said
from swarmtui.model.worker_protocol import Unpacker, pack


class Faces:
    def __init__(
        self,
        hello: Callable[[], said.Hello | None],
        frame: Callable[[bool], said.Frame],
        obey: Callable[[said.Command], None],
    ) -> None:
        self._hello, self._frame, self._obey = hello, frame, obey
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, path: Path) -> None:
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self.welcome, path)
        finally:
            os.umask(mask)
        self._path = path

    def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The one that started us, or one that joins. It hears how the session ends, however soon that is."""
        if not _is_ours(writer.get_extra_info("socket")):
            writer.close()
            return
        self._writers.add(writer)
        task = asyncio.create_task(self._meet(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # So that `drain` at the end means: the face has it.
        writer.transport.set_write_buffer_limits(0)
        showing: asyncio.Task[None] | None = None
        unpacker = Unpacker()
        try:
            while data := await reader.read(1 << 16):
                for body in unpacker.feed(data):
                    command = said.decode_command(body)
                    if isinstance(command, said.Subscribe):
                        if showing is not None:
                            showing.cancel()
                        showing = asyncio.create_task(self._show(writer, command))
                    else:
                        self._obey(command)
        except (ConnectionError, msgspec.DecodeError, ValueError, RecursionError):
            # Whoever this is, it does not speak our language (any more); the run does not care.
            pass
        finally:
            if showing is not None:
                showing.cancel()
            self._writers.discard(writer)
            writer.close()

    async def _show(self, writer: asyncio.StreamWriter, wish: said.Subscribe) -> None:
        pause = 1.0 / min(20.0, max(0.1, wish.hz))
        hello: said.Hello | None = None
        while not writer.is_closing():
            # A face that has not taken its last frame gets the next one when it has: the latest, not all.
            if not writer.transport.get_write_buffer_size():
                if hello is None and (hello := self._hello()) is not None:
                    writer.write(pack(hello))
                writer.write(pack(self._frame(wish.rows)))
            await asyncio.sleep(pause if hello else 0.05)

    async def close(self, last: said.Ended, frame: said.Frame) -> None:
        """Says goodbye with the final state; nobody can delay it for long."""
        for writer in list(self._writers):
            writer.write(pack(frame) + pack(last))
        try:
            async with asyncio.timeout(2.0):
                # Exceptions are results here: one that has hung up does not cost the others the last word.
                await asyncio.gather(*(writer.drain() for writer in self._writers), return_exceptions=True)
        except TimeoutError:
            pass
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _is_ours(sock: socket.socket) -> bool:
    """Only processes of the same user may steer."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    return bool(uid == os.getuid())
