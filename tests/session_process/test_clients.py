"""Slow clients get the newest frame, not all of them, and delay nothing."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from swarmtui.model import client_protocol
from swarmtui.model.plan import Plan
from swarmtui.model.session import ClientInfo, Session
from swarmtui.model.worker_protocol import HEADER_BYTES, pack
from swarmtui.session_process.clients import Client, ClientConnections
from swarmtui.state.session_state import SessionState

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
    client=ClientInfo(version="0", python="3", host="here", cores=1),
)


class NumberedFrames(SessionState):
    """Frames that are numbered by `finished`; `made` is set at each."""

    def __init__(self) -> None:
        super().__init__(0)
        self.made = asyncio.Event()

    def frame(self, now: int, *, rows: bool) -> client_protocol.Frame:
        self.finished += 1
        self.made.set()
        return super().frame(0, rows=rows)


class ClientHarness:
    """Clients on real sockets."""

    def __init__(self, known: bool, note: str = BIG) -> None:
        self.state = NumberedFrames()
        self.state.note = note
        self.writers: list[asyncio.StreamWriter] = []
        self.connections = ClientConnections(
            self.state, lambda: client_protocol.Hello(SESSION, "") if known else None, self.handle_command
        )

    def handle_command(self, client: Client, command: client_protocol.ClientCommand) -> None:
        assert isinstance(command, client_protocol.WatchTails)
        client.tails = command.agents

    async def join(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        self.writers.append(writer)
        self.connections.accept(reader, writer)
        theirs.sendall(pack(client_protocol.Subscribe(hz=20.0)))
        return theirs

    async def wait_for_frames(self, count: int) -> None:
        async with asyncio.timeout(60.0):
            while self.state.finished < count:
                self.state.made.clear()
                await self.state.made.wait()


async def read(reader: asyncio.StreamReader) -> client_protocol.SessionMessage:
    size = int.from_bytes(await reader.readexactly(HEADER_BYTES), "big")
    return client_protocol.decode_message(await reader.readexactly(size))


@pytest.mark.parametrize(("known", "note"), [(True, BIG), (False, BIG), (True, "short")])
def test_client_that_does_not_read_gets_no_second_frame_and_delays_no_other(known: bool, note: str) -> None:
    """Also before the hello: checking the endpoint can take minutes."""

    async def scenario() -> None:
        harness = ClientHarness(known, note)
        with await harness.join():
            await harness.wait_for_frames(1)
            reader, writer = await asyncio.open_connection(sock=await harness.join(), limit=1 << 23)
            if known:
                assert isinstance(await read(reader), client_protocol.Hello)
            seen = [await read(reader) for _ in range(5)]
            assert [frame.finished for frame in seen if isinstance(frame, client_protocol.Frame)] == [2, 3, 4, 5, 6]
            writer.close()

    asyncio.run(scenario())


def test_client_that_reads_again_gets_the_newest_frame() -> None:
    async def scenario() -> None:
        harness = ClientHarness(known=True)
        stalled = await harness.join()
        await harness.wait_for_frames(1)
        with await harness.join() as other:
            draining = asyncio.create_task(drain(other))
            await harness.wait_for_frames(6)
            draining.cancel()
        reader, writer = await asyncio.open_connection(sock=stalled, limit=1 << 23)
        assert isinstance(await read(reader), client_protocol.Hello)
        old, new = await read(reader), await read(reader)
        assert isinstance(old, client_protocol.Frame) and isinstance(new, client_protocol.Frame)
        assert old.finished == 1 and new.finished > 6
        writer.close()

    asyncio.run(scenario())


async def drain(sock: socket.socket) -> None:
    reader, _ = await asyncio.open_connection(sock=sock.dup())
    while await reader.read(1 << 20):
        pass


def test_stalled_client_delays_the_end_only_briefly() -> None:
    async def scenario() -> None:
        harness = ClientHarness(known=True)
        with await harness.join():
            await harness.wait_for_frames(1)
            reader, writer = await asyncio.open_connection(sock=await harness.join(), limit=1 << 23)
            ended = client_protocol.Ended("done", "", "somewhere")
            async with asyncio.timeout(60.0):
                closing = asyncio.create_task(harness.connections.close(ended))
                while (message := await read(reader)) != ended:
                    assert isinstance(message, client_protocol.Hello | client_protocol.Frame)
                await closing
            writer.close()

    asyncio.run(scenario())


def test_clients_that_disconnect_at_the_end_do_not_affect_others() -> None:
    async def scenario() -> None:
        harness = ClientHarness(known=True)
        slow = await harness.join()
        others = [await harness.join() for _ in range(8)]
        await harness.wait_for_frames(9)
        ended = client_protocol.Ended("done", "", "somewhere")
        receiving = asyncio.create_task(read_until(slow, ended))
        for other in others:
            other.close()
        await harness.connections.close(ended)
        for writer in harness.writers:
            writer.transport.abort()  # as at the exit of the process
        await receiving

    asyncio.run(scenario())


async def read_until(sock: socket.socket, ended: client_protocol.Ended) -> None:
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 23)
    async with asyncio.timeout(60.0):
        while await read(reader) != ended:
            await asyncio.sleep(0.05)
    writer.close()


def test_texts_are_watched_for_all_clients_until_they_disconnect() -> None:
    async def scenario() -> None:
        harness = ClientHarness(known=True)

        async def watched(*agents: int) -> None:
            async with asyncio.timeout(60.0):
                while harness.connections.watched_tails() != agents:
                    await asyncio.sleep(0.01)

        with await harness.join() as one, await harness.join() as other:
            one.sendall(pack(client_protocol.WatchTails((3, 1))))
            await watched(1, 3)
            other.sendall(pack(client_protocol.WatchTails((3, 7))))
            await watched(1, 3, 7)
            one.close()
            await watched(3, 7)
            other.sendall(pack(client_protocol.WatchTails(())))
            await watched()

    asyncio.run(scenario())


def test_the_processes_of_clients_are_known() -> None:
    async def scenario() -> None:
        harness = ClientHarness(known=True, note="short")
        with await harness.join():
            assert harness.connections.pids() == (os.getpid(),)

    asyncio.run(scenario())
