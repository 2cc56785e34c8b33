"""Measure how many streams this machine can read, with a real worker and a server that only sends tokens at a set pace.

Run as a module this file is that server: it prints its URL, and exits when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time

from swarmtui.model import worker_protocol
from swarmtui.model.base import Stored
from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Record
from swarmtui.model.workload import Message, Task
from swarmtui.processes.exits import set_at_end_of_stdin
from swarmtui.processes.spawn import ServerProcess, start_worker

STREAMS, TICK_S, TOKENS = 256, 0.01, 100
TYPICAL_TPS = 50.0
MAX_CPU = 0.7
# On a quiet machine it takes two seconds; a busy one should be measured, too.
_TIMEOUT_S = 60.0


class ClientSpeed(Stored, frozen=True, kw_only=True):
    """`token_us` is the CPU time per token; `streams` is how many streams of 50 tok/s all cores but one can read."""

    token_us: float
    streams: int
    coalesced_chunks: float


class SelfTestFailed(Exception):
    """The self-test itself failed."""


def measure_client_speed() -> ClientSpeed:
    """Tokens arrive one at a time, as real ones do: bursts are cheaper to read, and would give too high a result."""
    server = ServerProcess(__name__)
    pipe, worker, _ = start_worker()
    try:
        url = server.url()
        if not url:
            raise SelfTestFailed("the pacing server did not start")
        with pipe:
            records, cpu_s = _drive(pipe, url)
    except OSError as error:
        raise SelfTestFailed(str(error)) from None
    finally:
        worker.kill()
        worker.wait()
        server.end()
    failed = [record for record in records if not record.ok]
    if failed:
        raise SelfTestFailed(
            f"{len(failed)} of {len(records)} streams failed: {failed[0].error} {failed[0].error_detail}"
        )
    chunks = sum(record.chunks for record in records)
    token_us = 1e6 * cpu_s / max(chunks, 1)
    workers = max(1, (os.cpu_count() or 2) - 1)
    return ClientSpeed(
        token_us=token_us,
        streams=int(workers * MAX_CPU * 1e6 / token_us / TYPICAL_TPS) if token_us else 0,
        coalesced_chunks=sum(record.coalesced_chunks for record in records) / max(chunks, 1),
    )


def _drive(pipe: socket.socket, url: str) -> tuple[list[Record], float]:
    """Return the records, and the worker's CPU time from the first request to the last."""
    message = Message(role="user", content="say something")
    tasks = tuple(Task(id=number, messages=(message,), max_tokens=TOKENS) for number in range(STREAMS))
    pipe.settimeout(_TIMEOUT_S)
    pipe.sendall(
        worker_protocol.pack(worker_protocol.Setup(0, 1, (worker_protocol.Target(url, "pace"),), Timeouts()))
        + worker_protocol.pack(worker_protocol.Enqueue(tasks))
    )
    unpacker = worker_protocol.Unpacker()
    records: list[Record] = []
    started = ended = None
    deadline = time.monotonic() + _TIMEOUT_S
    while ended is None:
        data = pipe.recv(1 << 20)
        if not data or time.monotonic() > deadline:
            raise SelfTestFailed("the worker exited" if not data else f"not finished within {_TIMEOUT_S:g} s")
        for body in unpacker.feed(data):
            match worker_protocol.decode_report(body):
                case worker_protocol.WorkerFrame(cpu_ns=cpu_ns) if started is None:
                    started = cpu_ns
                    pipe.sendall(worker_protocol.pack(worker_protocol.StartStage(1, STREAMS, STREAMS)))
                case worker_protocol.WorkerFrame(cpu_ns=cpu_ns) if len(records) == STREAMS:
                    ended = cpu_ns
                case worker_protocol.Finished(number=number, record=record):
                    records.append(record)
                    pipe.sendall(worker_protocol.pack(worker_protocol.Ack(number)))
                case worker_protocol.Failed(problem=problem):
                    raise SelfTestFailed(problem)
    return records, (ended - (started or 0)) / 1e9


def _chunk(data: str) -> bytes:
    body = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(body), body)


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_TOKEN = _chunk(
    '{"id":"p","object":"chat.completion.chunk","model":"pace","choices":[{"index":0,"delta":{"content":" so"}}]}'
)
_END = (
    _chunk('{"id":"p","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}')
    + _chunk(f'{{"id":"p","choices":[],"usage":{{"prompt_tokens":3,"completion_tokens":{TOKENS}}}}}')
    + _chunk("[DONE]")
    + b"0\r\n\r\n"
)


class _PacedStream(asyncio.Protocol):
    """One connection; only the start of its request is read."""

    def __init__(self, streams: list[_PacedStream]) -> None:
        self._streams = streams
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"POST"):
            self.transport.write(_HEAD)
            self._streams.append(self)


async def _serve() -> None:
    """Send one token per tick on all streams, as soon as all are connected."""
    loop = asyncio.get_running_loop()
    streams: list[_PacedStream] = []
    listening = await loop.create_server(lambda: _PacedStream(streams), "127.0.0.1", 0, backlog=4 * STREAMS)
    sys.stdout.write(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    stdin_closed = asyncio.Event()
    set_at_end_of_stdin(stdin_closed)
    while len(streams) < STREAMS and not stdin_closed.is_set():
        await asyncio.sleep(TICK_S)
    due = loop.time()
    for _ in range(TOKENS):
        for stream in streams:
            stream.transport.write(_TOKEN)
        due += TICK_S
        await asyncio.sleep(max(0.0, due - loop.time()))
    for stream in streams:
        stream.transport.write(_END)
    await stdin_closed.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
