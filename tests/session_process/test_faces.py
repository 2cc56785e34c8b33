"""Faces that do not keep up get the latest frame, not all of them, and hold up nobody."""

from __future__ import annotations

import asyncio
import socket

import pytest

from swarmtui.model import client_protocol as said
from swarmtui.model.plan import Plan
from swarmtui.model.session import Client, Session
from swarmtui.model.worker_protocol import HEADER_BYTES, pack
from swarmtui.session_process.clients import Faces
from swarmtui.session_process.live_state import Board

# Far larger than a socket's buffer.
BIG = "x" * (1 << 20)
SESSION = Session(
    id="20260101-000000-0000",
    created="2026-01-01T00:00:00+00:00",
    t0_ns=0,
    endpoints=(),
    workload="chat",
    workload_digest="",
    workload_spec={},
    plan=Plan(),
    client=Client(version="0", python="3", host="here", cores=1),
)


class Play:
    """Faces over real sockets, and frames that are numbered by `done`."""

    def __init__(self, known: bool) -> None:
        self.made = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.faces = Faces(lambda: said.Hello(SESSION, "") if known else None, self.frame, lambda command: None)

    def frame(self, rows: bool) -> said.Frame:
        self.made += 1
        board = Board(0)
        board.note, board.done = BIG, self.made
        return board.frame(rows)

    async def join(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        self.writers.append(writer)
        self.faces.welcome(reader, writer)
        theirs.sendall(pack(said.Subscribe(hz=20.0)))
        return theirs

    async def until_made(self, count: int) -> None:
        async with asyncio.timeout(10.0):
            while self.made < count:
                await asyncio.sleep(0.01)


async def read(reader: asyncio.StreamReader) -> said.Message:
    size = int.from_bytes(await reader.readexactly(HEADER_BYTES), "big")
    return said.decode_message(await reader.readexactly(size))


@pytest.mark.parametrize("known", [True, False])
def test_a_face_that_does_not_read_gets_no_second_frame(known: bool) -> None:
    """Before the session is known too: a look at the endpoint can take minutes."""

    async def play() -> None:
        stage = Play(known)
        with await stage.join():
            await stage.until_made(1)
            await asyncio.sleep(0.5)
            assert stage.made == 1

    asyncio.run(play())


def test_a_face_that_reads_is_not_held_up_by_one_that_does_not() -> None:
    async def play() -> None:
        stage = Play(known=True)
        with await stage.join():
            await stage.until_made(1)
            reader, writer = await asyncio.open_connection(sock=await stage.join(), limit=1 << 23)
            assert isinstance(await read(reader), said.Hello)
            seen = [await read(reader) for _ in range(5)]
            assert [frame.done for frame in seen if isinstance(frame, said.Frame)] == [2, 3, 4, 5, 6]
            writer.close()

    asyncio.run(play())


def test_a_face_that_woke_up_sees_the_present() -> None:
    async def play() -> None:
        stage = Play(known=True)
        sleeper = await stage.join()
        await stage.until_made(1)
        with await stage.join() as other:
            waker = asyncio.create_task(drained(other))
            await stage.until_made(6)
            waker.cancel()
        reader, writer = await asyncio.open_connection(sock=sleeper, limit=1 << 23)
        assert isinstance(await read(reader), said.Hello)
        old, new = await read(reader), await read(reader)
        assert isinstance(old, said.Frame) and isinstance(new, said.Frame)
        assert old.done == 1 and new.done > 6
        writer.close()

    asyncio.run(play())


async def drained(sock: socket.socket) -> None:
    reader, _ = await asyncio.open_connection(sock=sock.dup())
    while await reader.read(1 << 20):
        pass


def test_the_last_word_does_not_wait_for_a_sleeper_for_long() -> None:
    async def play() -> None:
        stage = Play(known=True)
        with await stage.join():
            await stage.until_made(1)
            reader, writer = await asyncio.open_connection(sock=await stage.join(), limit=1 << 23)
            ended = said.Ended("done", "", "somewhere")
            async with asyncio.timeout(10.0):
                closing = asyncio.create_task(stage.faces.close(ended, stage.frame(False)))
                while (message := await read(reader)) != ended:
                    assert isinstance(message, said.Hello | said.Frame)
                await closing
            writer.close()

    asyncio.run(play())


def test_faces_that_hang_up_in_that_moment_do_not_cost_the_others_the_last_word() -> None:
    async def play() -> None:
        stage = Play(known=True)
        slow = await stage.join()
        others = [await stage.join() for _ in range(8)]
        await stage.until_made(9)
        ended = said.Ended("done", "", "somewhere")
        hearing = asyncio.create_task(heard(slow, ended))
        for other in others:
            other.close()
        await stage.faces.close(ended, stage.frame(False))
        for writer in stage.writers:
            writer.transport.abort()  # as when the process ends
        await hearing

    asyncio.run(play())


async def heard(sock: socket.socket, ended: said.Ended) -> None:
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 23)
    async with asyncio.timeout(10.0):
        while await read(reader) != ended:
            await asyncio.sleep(0.05)
    writer.close()
