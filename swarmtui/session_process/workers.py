"""The workers of a session: started, told what to do, heard, and never waited for."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from swarmtui.client.spawn import Started, environment, start_worker
from swarmtui.model import worker_protocol
from swarmtui.model.record import Phase
from swarmtui.model.schema import BadInput
from swarmtui.model.workload import Task

_PER_WORKER = 512

# Standard streams, the pipe, epoll, libraries: files of a worker that are no streams.
_SPARE_FILES = 64


def workers_for(streams: int) -> int:
    """About one for each 512 streams, and a core left for everything else."""
    return max(1, min(-(-streams // _PER_WORKER), (os.cpu_count() or 2) - 1))


def check_files(streams: int, workers: int) -> None:
    """Each stream is an open file of its worker, which raises its own limit as far as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = -(-streams // workers) + _SPARE_FILES
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise BadInput(
            f"C={streams} needs {needed} open files and the limit is {hard}: raise it (ulimit -Hn, limits.conf), "
            f"or stay below C={max(1, workers * (hard - _SPARE_FILES))}",
            key="levels",
        )


class Link:
    """One worker process, and the stream between us."""

    def __init__(self, number: int, started: Started) -> None:
        self.number = number
        self.agents = 0
        self.outstanding = 0
        self.frame: worker_protocol.WorkerFrame | None = None
        self.last_record = 0
        self.acknowledged = 0
        self.drops = 0
        self._socket, self._process = started
        self._writer: asyncio.StreamWriter | None = None
        self._dismissed = False

    async def listen(self, hear: Callable[[Link, worker_protocol.Report], None]) -> str:
        """Hands on each report; returns how the worker ended."""
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        unpacker = worker_protocol.Unpacker()
        try:
            while data := await reader.read(1 << 20):
                for body in unpacker.feed(data):
                    hear(self, worker_protocol.decode_report(body))
        except ConnectionError:
            pass
        code = await asyncio.to_thread(self._process.wait)
        return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    def say(self, command: msgspec.Struct) -> None:
        """To nobody, where the worker is gone or dismissed: whoever listens to it hears that."""
        if self._dismissed:
            return
        message = worker_protocol.pack(command)
        if self._writer is not None:
            self._writer.write(message)
            return
        with suppress(OSError):
            self._socket.setblocking(True)
            self._socket.sendall(message)
        self._socket.setblocking(False)

    def dismiss(self) -> None:
        """At the end of the stream a worker leaves on disk what we have not confirmed, and goes."""
        self._dismissed = True
        with suppress(OSError):
            if self._writer is not None:
                self._writer.write_eof()
            else:
                self._socket.shutdown(socket.SHUT_WR)

    def wait(self) -> None:
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Crew:
    """All workers as one. `hear` gets their records and frames, `lost` that one of them died."""

    def __init__(
        self,
        count: int,
        first: Started,
        hear: Callable[[Link, worker_protocol.Report], None],
        lost: Callable[[Link, str], None],
    ) -> None:
        self.links = [Link(0, first), *(Link(number, start_worker()) for number in range(1, count))]
        self._hear, self._lost = hear, lost
        self._ending = False

    def start(self, setup: Callable[[int, int], worker_protocol.Setup]) -> asyncio.Future[list[None]]:
        """What it returns is done when all of them have ended, or with a fault of our own."""
        following = [asyncio.create_task(self._follow(link)) for link in self.links]
        for link in self.links:
            link.say(setup(link.number, len(self.links)))
        return asyncio.gather(*following)

    async def _follow(self, link: Link) -> None:
        how = await link.listen(self._hear)
        if not self._ending:
            self._lost(link, how)

    def stretch(
        self,
        number: int,
        streams: int,
        run: int,
        phase: Phase,
        *,
        c: int,
        cancel: bool = False,
        ahead: int | None = None,
    ) -> None:
        """So many streams in all, divided as evenly as it goes; `c` is the level that they are part of."""
        count = len(self.links)
        for link in self.links:
            link.agents = streams // count + (link.number < streams % count)
            link.say(
                worker_protocol.Stretch(number, link.agents, c=c, run=run, phase=phase, cancel=cancel, ahead=ahead)
            )

    def room(self, link: Link, depth: int) -> int:
        """How many more tasks a worker should hold: what it does, and what its streams are to find in wait."""
        return max(0, depth * link.agents - link.outstanding)

    def give(self, link: Link, tasks: tuple[Task, ...]) -> None:
        link.outstanding += len(tasks)
        link.say(worker_protocol.Enqueue(tasks))

    def drop(self, cancel: bool) -> None:
        for link in self.links:
            link.drops += 1
            link.say(worker_protocol.Drop(cancel))

    @property
    def idle(self) -> bool:
        """Nothing in flight and nothing queued, as told since the last `drop`."""
        return all(
            link.frame is not None and link.frame.drops == link.drops and not link.frame.in_flight
            for link in self.links
        )

    def acknowledge(self) -> None:
        for link in self.links:
            if link.last_record > link.acknowledged:
                link.acknowledged = link.last_record
                link.say(worker_protocol.Ack(link.last_record))

    def watch(self, agent: int | None) -> None:
        for link in self.links:
            link.say(worker_protocol.Watch(agent))

    def spool_to(self, directory: Path) -> None:
        for link in self.links:
            link.say(worker_protocol.SpoolTo(str(spool_path(directory, link.number))))

    async def end(self) -> None:
        """Waited for beside the loop: what they were told last still has to reach them, and what they say us."""
        self._ending = True
        self.acknowledge()
        for link in self.links:
            link.dismiss()
        await asyncio.gather(*(asyncio.to_thread(link.wait) for link in self.links))


class Simulator:
    """The embedded endpoint, in a process of its own that ends with us."""

    def __init__(self, spec: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "swarmtui.sim", spec, "--watch-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )

    def url(self) -> str:
        """Waits until it listens; empty when it did not start."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def spool_path(directory: Path, worker: int) -> Path:
    return directory / f"spool-{worker}.jsonl"
