"""Start the workers of a session, hand out tasks to them and receive their reports, without ever waiting for them."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from swarmtui.model import worker_protocol
from swarmtui.model.base import BadInput, copy_fields
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.journal import StageStart
from swarmtui.model.load import traits
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.model.workload import Task
from swarmtui.processes.spawn import SPARE_FILES, StartedProcess, wait_or_kill
from swarmtui.session_process.dispatch import Dispatcher
from swarmtui.session_process.task_sources import TaskSource
from swarmtui.sessions.journal import spool_paths
from swarmtui.text import count_noun

if TYPE_CHECKING:
    from swarmtui.hosts.pool import HostLink, HostWorker, HostWorkerProcess

_STREAMS_PER_WORKER = 512
# Connections that an open loop opens before its first request.
_PRECONNECT = 64
# Tasks that a worker may hold per stream, so that a free stream does not wait for the next one.
_LOOPING_DEPTH = 3
# A level that has no answer when its time is up continues for up to this many times as long.
_MOST_DURATIONS = 3.0
_EXIT_TIMEOUT_S = 2.0
# The workers of a batch begin this long after all are ready: none must learn of it too late.
_BEGIN_NS = 5_000_000


def workers_per_host(plan: Plan, cores: Sequence[int]) -> list[int]:
    """Divide C over hosts with these `cores`: one worker per 512 streams, but one core is for everything else."""
    hosts = len(cores)
    if plan.workers is not None:
        return [plan.workers // hosts + (number < plan.workers % hosts) for number in range(hosts)]
    needed = -(-max(plan.load.levels) // (hosts * _STREAMS_PER_WORKER))
    return [max(1, min(needed, each - 1)) for each in cores]


def check_open_file_limit(streams: int, workers: int, hard: int | None) -> None:
    needed = -(-streams // workers) + SPARE_FILES
    if hard is not None and needed > hard:
        most = workers * (hard - SPARE_FILES)
        lower = f", or use at most C={most}" if most > 0 else ""
        problem = f"C={streams} needs {needed} open files and the limit is {hard}: raise it (ulimit -Hn, limits.conf)"
        raise BadInput(problem + lower, key="levels")


def worker_setup(
    request: RunRequest, directory: Path, endpoints: tuple[Endpoint, ...], link: WorkerLink, workers: int
) -> worker_protocol.Setup:
    secrets, target = request.secrets, partial(copy_fields, worker_protocol.Target)
    targets = tuple(
        target(one, url=secrets.urls.get(one.url, one.url), api_key=secrets.api_key, headers=secrets.headers)
        for one in endpoints
    )
    spools, timeouts = link.spools(directory), request.plan.timeouts
    return worker_protocol.Setup(
        link.number, workers, targets, timeouts, spools, request.keep_text, link.clock_offset_ns
    )


class ActiveStage:
    """The stage that is running: what the journal says of its `start`, its tasks, and what has been done of them.

    `streams` is 1 while a batch of C tasks is repeated serially.
    """

    def __init__(
        self, start: StageStart, source: TaskSource, *, duration_s: float | None = None, streams: int | None = None
    ) -> None:
        self.start, self.source, self._load = start, source, traits(start.load)
        self.streams = start.c if streams is None else streams
        self.scheduled = self._load.scheduled
        # All requests of a batch start at the same time.
        self.together = self._load.batch and self.streams > 1
        self._duration_s = duration_s
        self.until: float | None = None
        if not source.preparing:
            self.start_clock()
        self.issued = self.done = self.succeeded = 0
        # Whether it has measured all it should: a command did not end it.
        self.ended = False

    def start_clock(self) -> None:
        """Start the duration: with the first request, or after pre-roll with an answer."""
        if self._duration_s is not None and self.until is None:
            self.until = time.monotonic() + self._duration_s

    @property
    def depth(self) -> int:
        """The tasks that a stream may hold: no reserve in a batch, nor while it is not known what the next task is."""
        return _LOOPING_DEPTH if self._load.holds_c and not self.source.preparing else 1

    @property
    def timed_out(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    @property
    def has_waited(self) -> bool:
        """Whether a measured request has ended, or none of them did in several times the duration.

        Where many agents wait for a slot, the first one may end after it.
        """
        if self.done or self.until is None or self._duration_s is None:
            return True
        return time.monotonic() >= self.until + (_MOST_DURATIONS - 1.0) * self._duration_s

    def next_task(self) -> Task | None:
        task = None if self.timed_out and not self.source.fills else self.source.next_task()
        self.issued += task is not None and task.phase == "level"
        return task

    @property
    def complete(self) -> bool:
        if self._duration_s is not None:
            return self.timed_out
        return not self.source.has_more and self.done >= self.issued


class WorkerLink:
    """One worker process, here or on another host, and the connection to it."""

    def __init__(
        self,
        number: int,
        connection: socket.socket,
        process: subprocess.Popen[bytes] | HostWorkerProcess,
        host: HostLink | None = None,
    ) -> None:
        self.number, self.host = number, host
        self.frame: worker_protocol.WorkerFrame | None = None
        self.received = self.saved = 0
        # The places in the journal of records that are not acknowledged, by the number of the record. One whose answer
        # is being checked has no place yet.
        self.places: dict[int, int] = {}
        self.drops = 0
        self._socket, self.process = connection, process
        self._writer: asyncio.StreamWriter | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self.process.pid if isinstance(self.process, subprocess.Popen) else None

    async def receive(self, on_report: Callable[[worker_protocol.WorkerReport], None]) -> str:
        """Pass on each report until the worker exits; return how it exited."""
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        unpacker = worker_protocol.Unpacker()
        try:
            while data := await reader.read(1 << 20):
                for body in unpacker.feed(data):
                    report = worker_protocol.decode_report(body)
                    on_report(report if self.host is None else self.host.clock.convert(report))
        except OSError:
            pass  # the worker is gone, or its host
        code = await asyncio.to_thread(self.process.wait)
        return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    @property
    def name(self) -> str:
        return f"worker {self.number}" if self.host is None else f"worker {self.number} on {self.host.host.name}"

    def spools(self, directory: Path) -> tuple[str, ...]:
        other_machine = self.host is not None and not self.host.is_this_machine
        return tuple(map(str, spool_paths(directory, self.number, other_machine=other_machine)))

    @property
    def clock_offset_ns(self) -> int:
        """The lead of its host's clock over ours."""
        return 0 if self.host is None else self.host.clock.newest.offset_ns

    def send(self, command: msgspec.Struct) -> None:
        """Send a command. It is dropped silently if the worker has exited or was closed; `receive` reports its exit."""
        if self._closed:
            return
        message = worker_protocol.pack(command)
        if self._writer is not None:
            self._writer.write(message)
            return
        with suppress(OSError):
            self._socket.setblocking(True)
            self._socket.sendall(message)
        self._socket.setblocking(False)

    def send_tasks(self, tasks: tuple[Task, ...]) -> None:
        """Send tasks, with send times by the clock of the worker's host."""
        if self.host is not None:
            tasks = tuple(
                task if task.at_ns is None else msgspec.structs.replace(task, at_ns=task.at_ns + self.clock_offset_ns)
                for task in tasks
            )
        self.send(worker_protocol.Enqueue(tasks))

    def close(self) -> None:
        """Close our side; the worker then writes its unacknowledged records to disk and exits."""
        self._closed = True
        with suppress(OSError):
            if self._writer is not None:
                self._writer.write_eof()
            else:
                self._socket.shutdown(socket.SHUT_WR)


class WorkerPool:
    """All workers of the session; `on_failure` gets a sentence on one that exited early or cannot continue."""

    def __init__(self, started: Iterable[StartedProcess | HostWorker], on_failure: Callable[[str], None]) -> None:
        self.links = [WorkerLink(number, *one) for number, one in enumerate(started)]
        self.on_failure = on_failure
        self.dispatcher = Dispatcher(len(self.links))
        self._shutting_down = False
        self._following: list[asyncio.Task[None]] = []
        # The stage that is on hold, its workers that have tasks, and those that are ready to start them.
        self._held_stage: int | None = None
        self._supplied: set[int] = set()
        self._ready: set[int] = set()

    def start(
        self,
        setup: Callable[[WorkerLink, int], worker_protocol.Setup],
        on_report: Callable[[WorkerLink, worker_protocol.WorkerReport], None],
    ) -> asyncio.Future[list[None]]:
        """Return a future that is done when all workers have exited, or when handling their reports has raised."""
        self._following = [asyncio.create_task(self._follow(link, on_report)) for link in self.links]
        for link in self.links:
            link.send(setup(link, len(self.links)))
        return asyncio.gather(*self._following)

    async def _follow(
        self, link: WorkerLink, on_report: Callable[[WorkerLink, worker_protocol.WorkerReport], None]
    ) -> None:
        how = await link.receive(partial(on_report, link))
        if not self._shutting_down:
            self.on_failure(f"{link.name} exited {how}{unfinished([link])}")

    def start_stage(self, stage: ActiveStage, *, c: int | None = None, cancel: bool = False) -> None:
        """Divide the streams of a stage evenly among workers; `c` changes the level of the running stage."""
        start, hold = stage.start, stage.together and c is None and len(self.links) > 1
        self._held_stage, self._supplied, self._ready = start.number if hold else None, set(), set()
        for link, agents in zip(self.links, self.dispatcher.set_streams(c or stage.streams), strict=True):
            link.send(
                worker_protocol.StartStage(
                    start.number,
                    agents,
                    c=c or start.c,
                    run=start.run,
                    phase=start.phase,
                    cancel=cancel,
                    preconnect=_PRECONNECT if stage.scheduled else None,
                    hold=hold,
                )
            )

    def supply(self, stage: ActiveStage) -> None:
        """Give the workers as many tasks as they may hold; take back queued ones if another worker runs out of them."""
        # The first requests are sent while the reserve is still being generated.
        for depth in (None,) if stage.scheduled else (1, stage.depth):
            for number, tasks in self.dispatcher.hand_out(stage.next_task, depth).items():
                self.links[number].send_tasks(tasks)
                self._supplied.add(number)
        for number, count in self.dispatcher.take_back().items():
            self.links[number].send(worker_protocol.TakeBack(count))

    def worker_ready(self, link: WorkerLink, stage: int) -> None:
        """Let all workers begin when the last one is ready, as soon as each can know of it."""
        self._ready.add(link.number)
        if stage != self._held_stage or not self._supplied <= self._ready:
            return
        self._held_stage = None
        delay_ns = max(0 if link.host is None else link.host.clock.newest.bound_ns for link in self.links)
        begin_ns = time.perf_counter_ns() + _BEGIN_NS + 4 * delay_ns
        for link in self.links:
            link.send(worker_protocol.Begin(stage, begin_ns + link.clock_offset_ns))

    def drop(self, cancel: bool) -> None:
        """Drop all queued tasks; `cancel` also aborts requests in flight. At most one task per stream is left."""
        self.dispatcher.drop()
        for link in self.links:
            link.drops += 1
        self.send(worker_protocol.Drop(cancel))

    @property
    def idle(self) -> bool:
        """Whether all workers have reported, since the last `drop`, that nothing is in flight."""
        return all(frame is not None and not frame.in_flight for frame in self._frames())

    @property
    def measured_ended(self) -> bool:
        """Whether all workers have reported, since the last `drop`, that no measured request is in flight."""
        return all(frame is not None and not frame.measured for frame in self._frames())

    def _frames(self) -> Iterator[worker_protocol.WorkerFrame | None]:
        """Yield the newest frame of each worker; None if it is from before the last `drop`."""
        for link in self.links:
            yield link.frame if link.frame is not None and link.frame.drops == link.drops else None

    def acknowledge(self, saved: int) -> None:
        """Acknowledge the records among the first `saved` entries of the journal."""
        for link in self.links:
            before = link.saved
            while link.places.get(link.saved + 1, saved + 1) <= saved:
                link.saved += 1
                del link.places[link.saved]
            if link.saved > before:
                link.send(worker_protocol.Ack(link.saved))

    def send(self, command: worker_protocol.WorkerCommand) -> None:
        for link in self.links:
            link.send(command)

    def spool_to(self, directory: Path) -> None:
        for link in self.links:
            link.send(worker_protocol.SpoolTo(link.spools(directory), link.clock_offset_ns))

    async def shut_down(self, saved: int) -> list[WorkerLink]:
        """Wait in threads: the event loop still has to send the last commands and receive the last reports.

        The exit of a worker on another host can be known before its last reports have arrived. Return those whose
        connection did not end.
        """
        self._shutting_down = True
        self.acknowledge(saved)
        for link in self.links:
            link.close()
        await asyncio.gather(*(asyncio.to_thread(wait_or_kill, link.process, _EXIT_TIMEOUT_S) for link in self.links))
        if self._following:
            await asyncio.wait(self._following, timeout=_EXIT_TIMEOUT_S)
        return [link for link, task in zip(self.links, self._following, strict=False) if not task.done()]


def unfinished(links: Iterable[WorkerLink]) -> str:
    """Return what is missing from workers that are gone, as the end of a sentence."""
    in_flight = sum(link.frame.in_flight for link in links if link.frame is not None)
    return f"; {count_noun(in_flight, 'request')} in flight there did not finish" if in_flight else ""
