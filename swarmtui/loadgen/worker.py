"""The worker process: commands in, frames and records out, over the stream that is its standard input."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import ssl
import sys
import time
from collections import deque

import msgspec

from swarmtui.loadgen.agent import Agent
from swarmtui.loadgen.clock import KernelClock, ask_for_stamps, monotonic_ns
from swarmtui.loadgen.endpoint_pool import Route
from swarmtui.loadgen.event_loop import READ, WRITE, Loop
from swarmtui.loadgen.lags import Lags
from swarmtui.loadgen.schedule import Schedule
from swarmtui.model.record import Record
from swarmtui.model.session import Request
from swarmtui.model.worker_protocol import (
    Ack,
    Command,
    Drop,
    Enqueue,
    Failed,
    Finished,
    Quit,
    Ready,
    Setup,
    SpoolTo,
    Stretch,
    Unpacker,
    Watch,
    WorkerFrame,
    decode_command,
    pack,
)
from swarmtui.model.workload import Task

FRAME_NS = 100_000_000
_MANY_AGENTS = 256

# Above so many chunks a second the loop naps between looks, for a small part of the gap between a stream's chunks,
# so that two chunks of one stream do not meet in one read.
_BUSY_RATE = 2_000
_GAP_PART = 16
_TOO_BUSY = 0.5
_LONGEST_NAP_S = 0.001

_MOST_WAITING = 64
_CONNECT_GATE_NS = 1_000_000_000


class Worker:
    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        pipe.setblocking(False)
        self._loop = Loop()
        self._clock = KernelClock()
        self._unpacker = Unpacker()
        self._outbox: deque[bytes] = deque()
        self._unacknowledged: dict[int, Record] = {}
        self._finished = 0
        self._setup: Setup | None = None
        self._alone = False
        self._routes: list[Route] = []
        self._agents: list[Agent] = []
        self._resting: set[int] = set()
        self._idle: deque[Agent] = deque()
        self._tasks: deque[Task] = deque()
        self._schedule = Schedule(self._loop, self._due)
        self._stretch = Stretch(0, 0)
        self._connecting = 0
        self._gate_until = 0
        self._watched: int | None = None
        self._newest = 0
        self._lags = Lags()
        self._cpu_ns, self._ticked, self._slept = time.process_time_ns(), monotonic_ns(), False
        self._drops = 0
        self._chunks = 0
        self._shared_reads = 0

    def run(self) -> None:
        # While one socket asks for stamps the kernel makes them for all: the first answer must not come too early.
        with socket.socket() as stamper:
            ask_for_stamps(stamper)
            self._loop.watch(self._pipe.fileno(), READ, self._on_pipe)
            self._loop.after_reads = self._note_lag
            self._say(pack(Ready(os.getpid())))
            self._loop.at(monotonic_ns() + FRAME_NS, self._tick)
            self._loop.run()
        if self._alone:
            self._spool()

    # commands

    def _on_pipe(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        try:
            data = self._pipe.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._orphaned()
            return
        for body in self._unpacker.feed(data):
            self._obey(decode_command(body))

    def _obey(self, command: Command) -> None:
        match command:
            case Setup():
                self._prepare(command)
            case Enqueue(tasks):
                self._tasks.extend(task for task in tasks if task.at_ns is None)
                self._schedule.add([task for task in tasks if task.at_ns is not None])
                self._feed()
            case Stretch():
                self._change(command)
            case Drop(cancel):
                self._tasks.clear()
                self._schedule.clear()
                self._drops += 1
                if cancel:
                    for agent in self._agents:
                        agent.cancel()
            case Ack(number):
                for known in [n for n in self._unacknowledged if n <= number]:
                    del self._unacknowledged[known]
            case Watch(number):
                self._watched = number
                if (watched := self._agent_watched()) is not None:
                    watched.watch_anew()
            case SpoolTo(path) if self._setup is not None:
                self._setup = msgspec.structs.replace(self._setup, spool=path)
            case Quit():
                self._loop.stop()

    def _prepare(self, setup: Setup) -> None:
        self._setup = setup
        try:
            self._routes = [Route(self._loop, self._clock, i, target) for i, target in enumerate(setup.targets)]
        except (OSError, ssl.SSLError) as error:
            self._say(pack(Failed(f"cannot reach {setup.targets[0].url}: {error}")))
            self._loop.stop()

    def _change(self, stretch: Stretch) -> None:
        before, self._stretch = len(self._agents), stretch
        self._schedule.begin(monotonic_ns())
        if stretch.cancel:
            for agent in self._agents[stretch.agents :]:
                agent.cancel()
        while len(self._agents) < stretch.agents:
            self._add_agent()
        for agent in self._agents:
            agent.stretch = stretch
        if not stretch.agents and not any(agent.busy for agent in self._agents):
            # A calm moment: what the collector has to do it does now, and not among time stamps.
            gc.collect()
        new = stretch.agents - before
        self._connect_ahead(new if stretch.ahead is None else min(new, stretch.ahead))
        self._idle = deque(a for a in self._agents[: stretch.agents] if not a.busy and a.number not in self._resting)
        self._feed()

    def _add_agent(self) -> None:
        assert self._setup is not None
        number = self._setup.worker + self._setup.workers * len(self._agents)
        self._agents.append(Agent(number, self._stretch, self._setup.keep_text, self._record, self._free))

    def _connect_ahead(self, count: int) -> None:
        if count <= 0 or not self._routes:
            return
        self._gate_until = monotonic_ns() + _CONNECT_GATE_NS
        self._connecting += count
        for i in range(count):
            self._routes[i % len(self._routes)].open_ahead(self._opened)
        self._loop.at(self._gate_until, self._feed)

    def _opened(self) -> None:
        self._connecting -= 1
        if not self._connecting:
            self._loop.soon(self._feed)

    # the closed loop

    def _feed(self) -> None:
        """Gives tasks to idle agents, one after another, once their connections are open."""
        if self._connecting and monotonic_ns() < self._gate_until:
            return
        if self._idle and self._tasks:
            agent = self._idle.popleft()
            if not agent.busy:
                task = self._tasks.popleft()
                agent.begin(task, self._least_loaded(), self._schedule.due_ns(task))
            # A server on this host may share our core: it gets its turn now, not when our burst is over.
            os.sched_yield()
            self._loop.soon(self._feed)

    def _due(self, task: Task) -> None:
        self._tasks.append(task)
        self._feed()

    def _least_loaded(self) -> Route:
        """Among those with as few in flight, the one that was chosen least often."""
        if len(self._routes) == 1:
            return self._routes[0]
        route = min(self._routes, key=lambda route: (route.in_flight, route.chosen))
        route.chosen += 1
        return route

    def _free(self, agent: Agent, pause: float) -> None:
        if pause:
            self._resting.add(agent.number)
            self._loop.at(monotonic_ns() + int(pause * 1e9), lambda: self._rested(agent))
        elif self._wanted(agent):
            self._idle.append(agent)
            self._feed()

    def _rested(self, agent: Agent) -> None:
        self._resting.discard(agent.number)
        if self._wanted(agent):
            self._idle.append(agent)
            self._feed()

    def _wanted(self, agent: Agent) -> bool:
        assert self._setup is not None
        return agent.number // self._setup.workers < self._stretch.agents and not agent.busy

    # records and frames

    def _record(self, record: Record) -> None:
        self._finished += 1
        self._unacknowledged[self._finished] = record
        self._chunks += record.chunks
        self._shared_reads += record.shared_reads
        self._say(pack(Finished(self._finished, record)))

    def _note_lag(self) -> None:
        """How long the last chunk of a look lay in the kernel before it was dealt with."""
        newest = self._clock.newest
        if newest != self._newest:
            self._newest = newest
            self._lags.note(monotonic_ns() - newest)

    def _tick(self) -> None:
        now = monotonic_ns()
        lag_ms = self._lags.p99_ns() / 1e6
        # A row for each of very many streams costs more than it tells: half as often is enough to watch them.
        frame_ns = FRAME_NS if len(self._agents) <= _MANY_AGENTS else 2 * FRAME_NS
        self._loop.at(now + frame_ns, self._tick)
        self._clock.measure_again()
        if self._setup is None:
            return
        in_flight = waiting = chunks = 0
        rows = []
        # Frames are for watching; when the conductor does not read, only records must reach it.
        crowded = len(self._outbox) > _MOST_WAITING
        # Who was stopped for a while reads first what came meanwhile: no time limit that passed in sleep ends a stream.
        self._slept = now - self._ticked > 5 * frame_ns and not self._slept
        for agent in self._agents:
            if not self._slept:
                agent.check_time(now, self._setup.timeouts)
            if agent.busy:
                in_flight += 1
                waiting += agent.waiting
            if not crowded and (row := agent.changed_row()) is not None:
                rows.append(row)
                chunks += row.chunks
        cpu_ns = time.process_time_ns()
        self._loop.nap_s = _nap(in_flight, chunks * 1e9 / frame_ns, (cpu_ns - self._cpu_ns) / (now - self._ticked))
        self._cpu_ns, self._ticked = cpu_ns, now
        if crowded:
            return
        watched = self._agent_watched()
        self._say(
            pack(
                WorkerFrame(
                    t_ns=now,
                    agents=self._stretch.agents,
                    in_flight=in_flight,
                    waiting=waiting,
                    queued=len(self._tasks) + self._schedule.waiting,
                    rows=tuple(rows),
                    lag_ms=lag_ms,
                    cpu_ns=cpu_ns,
                    chunks=self._chunks,
                    shared_reads=self._shared_reads,
                    clock_steps=self._clock.steps,
                    drops=self._drops,
                    watched=watched.news() if watched else None,
                )
            )
        )

    def _agent_watched(self) -> Agent | None:
        if self._watched is None:
            return None
        return next((agent for agent in self._agents if agent.number == self._watched), None)

    # the pipe

    def _say(self, message: bytes) -> None:
        self._outbox.append(message)
        if len(self._outbox) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._outbox:
            message = self._outbox[0]
            try:
                sent = self._pipe.send(message)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._orphaned()
                return
            if sent < len(message):
                self._outbox[0] = message[sent:]
                self._loop.change(self._pipe.fileno(), READ | WRITE)
                return
            self._outbox.popleft()
        self._loop.change(self._pipe.fileno(), READ)

    def _orphaned(self) -> None:
        self._alone = True
        self._loop.stop()

    def _spool(self) -> None:
        """The conductor is gone: leave what it has not confirmed where a reader of the session will find it."""
        spool = self._setup.spool if self._setup else None
        if spool is None or not self._unacknowledged:
            return
        lines = [msgspec.json.encode(Request(record=record)) for record in self._unacknowledged.values()]
        try:
            handle = os.open(spool, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "ab") as file:
                file.write(b"\n".join([*lines, b""]))
        except OSError as error:
            sys.stderr.write(f"swarmtui worker: {len(lines)} finished requests lost: {spool}: {error}\n")


def _nap(streams: int, rate: float, busy: float) -> float:
    """How long to sleep between looks, given the chunks a second and the share of a core that they took of late.

    Who has hardly time left for naps would never catch up with what came in during one.
    """
    if rate < _BUSY_RATE or busy > _TOO_BUSY:
        return 0.0
    return min(_LONGEST_NAP_S, streams / rate / _GAP_PART)


def raise_file_limit() -> None:
    """As many sockets as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def give_way() -> None:
    """Never interrupt another process to read a token: on the server's own host that would hold up the next one.

    Nothing is lost by reading later, since the kernel stamps arrivals.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    # Ctrl-C and a hang-up are for the face; the conductor says when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_file_limit()
    give_way()
    gc.collect()
    gc.freeze()
    gc.disable()
    with socket.socket(fileno=os.dup(0)) as pipe:
        Worker(pipe).run()


if __name__ == "__main__":
    main()
