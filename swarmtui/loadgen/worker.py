"""Run the worker process: commands in, frames and records out, over the socket that is its standard input."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import ssl
import time
from collections import deque
from itertools import islice
from pathlib import Path

import msgspec

from swarmtui.files import append_whole, is_private_directory, make_private_directory
from swarmtui.loadgen.agent import Agent
from swarmtui.loadgen.clock import KernelClock, enable_kernel_stamps, monotonic_ns
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.event_loop import READ, WRITE, EventLoop
from swarmtui.loadgen.finished_request import FinishedRequest
from swarmtui.loadgen.schedule import Schedule
from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Record, shift_times
from swarmtui.model.session import RequestEntry
from swarmtui.model.worker_protocol import (
    HEADER_BYTES,
    Ack,
    Begin,
    Drop,
    Enqueue,
    Failed,
    Finished,
    Ready,
    Returned,
    SendTails,
    Setup,
    SpoolTo,
    StartStage,
    StreamRow,
    TakeBack,
    TextTail,
    Unpacker,
    WatchAgent,
    WorkerCommand,
    WorkerFrame,
    decode_command,
    decode_report,
    pack,
)
from swarmtui.model.workload import Task
from swarmtui.text import echo

FRAME_NS = 100_000_000
# Above this many agents a frame takes twice as long.
_MANY_AGENTS = 256
# A frame is made of this many agents at a time, with reads in between.
_AGENTS_AT_ONCE = 64

# Texts are for people: they are sent less often than the frames.
_TAILS_NS = 200_000_000

# Above this many chunks per second the loop sleeps before each poll. Sleeping and reading together take a fraction of
# the gap between two chunks of a stream, so that both do not end up in one read.
_POLL_DELAY_RATE = 2_000
_GAP_FRACTION = 8
_MAX_POLL_DELAY_S = 0.002

# Messages that wait to be sent; beyond this no frames are sent, only records.
_MAX_OUTBOX = 64

# Unacknowledged records beyond this size, while the disk of the session is full, are written to a spool file.
_MAX_UNACKNOWLEDGED = 64 << 20
# The longest time that the first tasks of a stage wait for connections to open.
_CONNECT_GATE_NS = 1_000_000_000
# A common start is not slept for until the end: the system may wake a process late on a busy core.
_SPIN_NS = 5_000_000


class LoopLag:
    """Tracks how long the newest chunk of each poll had been in the kernel before it was read."""

    # A p99 needs at least a hundred samples; with a thousand, one outlier does not decide it.
    SAMPLES = 1000

    def __init__(self) -> None:
        self._new: list[int] = []
        self._previous: list[int] = []

    def add(self, lag_ns: int) -> None:
        self._new.append(lag_ns)

    def p99_ns(self) -> int:
        """Return the p99 of all samples since the last call, filled up with earlier ones; 0 without samples."""
        samples = (self._previous + self._new)[-max(self.SAMPLES, len(self._new)) :]
        self._new, self._previous = [], samples[-self.SAMPLES :]
        return sorted(samples)[len(samples) * 99 // 100] if samples else 0


class AgentRows:
    """Counts the agents and collects the rows that changed, some agents at a time: reading must not wait for all."""

    def __init__(self, agents: list[Agent], now: int, *, timeouts: Timeouts | None, with_rows: bool) -> None:
        self._left = iter(agents)
        self._timeouts = timeouts
        self.t_ns, self.with_rows = now, with_rows
        self.in_flight = self.waiting = self.measured = self.chunks = 0
        self.rows: list[StreamRow] = []

    def add(self, count: int) -> bool:
        """Check the timeouts of the next agents and add them; return whether more are left."""
        seen = 0
        for agent in islice(self._left, count):
            seen += 1
            if self._timeouts is not None:
                agent.check_timeouts(self.t_ns, self._timeouts)
            if agent.busy:
                self.in_flight += 1
                self.waiting += agent.waiting
                self.measured += agent.measured
            if self.with_rows and (row := agent.row_if_changed()) is not None:
                self.rows.append(row)
                self.chunks += row.chunks
        return seen == count


class Worker:
    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        pipe.setblocking(False)
        self._loop = EventLoop()
        self._clock = KernelClock()
        self._unpacker = Unpacker()
        self._outbox: deque[bytes] = deque()
        self._unreported: deque[FinishedRequest] = deque()
        self._unacknowledged: deque[tuple[int, bytes]] = deque()
        self._unacknowledged_bytes = 0
        self._finished = 0
        self._setup: Setup | None = None
        self._parent_gone = False
        self._pools: list[EndpointPool] = []
        self._agents: list[Agent] = []
        self._backing_off: set[int] = set()
        self._idle: deque[Agent] = deque()
        self._tasks: deque[Task] = deque()
        self._schedule = Schedule(self._loop, self._on_due)
        self._stage = StartStage(0, 0)
        self._connecting = 0
        self._gate_until = 0
        # When requests may start; None while the stage is on hold.
        self._begin_ns: int | None = 0
        self._ready = False
        self._watched: int | None = None
        self._tail_agents: tuple[int, ...] = ()
        self._tails_due = 0
        self._last_stamp = 0
        self._lag = LoopLag()
        self._cpu_ns, self._last_tick, self._was_suspended = time.process_time_ns(), monotonic_ns(), False
        self._frame: AgentRows | None = None
        self._drops = 0
        self._coalesced_chunks = 0

    def run(self) -> None:
        # The kernel stamps packets only while some socket asks for it: ask before the first response can arrive.
        with socket.socket() as stamper:
            enable_kernel_stamps(stamper)
            self._loop.add_fd(self._pipe.fileno(), READ, self._on_pipe)
            self._loop.after_reads = self._record_lag
            self._loop.call_at(monotonic_ns() + FRAME_NS, self._tick)
            self._loop.run()
        while self._unreported:
            self._report_next()
        if self._parent_gone:
            self._spool()

    # commands from the session process

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
            self._on_parent_gone()
            return
        for body in self._unpacker.feed(data):
            self._handle(decode_command(body))

    def _handle(self, command: WorkerCommand) -> None:
        match command:
            case Setup():
                self._set_up(command)
            case Enqueue(tasks):
                self._tasks.extend(task for task in tasks if task.at_ns is None)
                self._schedule.add([task for task in tasks if task.at_ns is not None])
                self._assign_tasks()
            case StartStage():
                self._start_stage(command)
            case Begin(number, at_ns) if number == self._stage.number:
                self._begin_ns = at_ns
                self._loop.call_at(at_ns - _SPIN_NS, self._assign_tasks)
            case TakeBack(count):
                self._return_tasks(count)
            case Drop(cancel):
                self._return_tasks(len(self._tasks) + self._schedule.pending)
                self._drops += 1
                if cancel:
                    for agent in self._agents:
                        agent.cancel()
            case Ack(number):
                while self._unacknowledged and self._unacknowledged[0][0] <= number:
                    self._forget_oldest()
            case WatchAgent(number):
                self._watched = number
                if (watched := self._watched_agent()) is not None:
                    watched.restart_watch()
            case SendTails(agents):
                self._tail_agents = agents
                for agent in self._agents_of(agents):
                    agent.restart_tail()
            case SpoolTo(paths, offset_ns) if self._setup is not None:
                self._setup = msgspec.structs.replace(self._setup, spools=paths, clock_offset_ns=offset_ns)

    def _return_tasks(self, count: int) -> None:
        """Return the last tasks of the queue, in its order; those with a send time come after the others."""
        later = self._schedule.take_last(count)
        sooner = [self._tasks.pop() for _ in range(min(count - len(later), len(self._tasks)))]
        self._send(pack(Returned(tuple(task.id for task in (*reversed(sooner), *later)))))

    def _set_up(self, setup: Setup) -> None:
        self._setup = setup
        try:
            self._pools = [EndpointPool(self._loop, self._clock, i, target) for i, target in enumerate(setup.targets)]
        except (OSError, ssl.SSLError) as error:
            self._send(pack(Failed(f"cannot reach {setup.targets[0].url}: {error}")))
            self._loop.stop()

    def _start_stage(self, stage: StartStage) -> None:
        before, self._stage = len(self._agents), stage
        self._begin_ns, self._ready = None if stage.hold else 0, False
        if stage.cancel:
            for agent in self._agents[stage.agents :]:
                agent.cancel()
        while len(self._agents) < stage.agents:
            self._add_agent()
        for agent in self._agents:
            agent.stage = stage
        if not stage.agents and not any(agent.busy for agent in self._agents):
            # Collect garbage while nothing is in flight, not between timestamps.
            gc.collect()
        new = stage.agents - before
        self._preconnect(new if stage.preconnect is None else min(new, stage.preconnect))
        self._idle = deque(a for a in self._agents[: stage.agents] if not a.busy and a.number not in self._backing_off)
        self._assign_tasks()

    def _add_agent(self) -> None:
        assert self._setup is not None
        number = self._setup.worker + self._setup.workers * len(self._agents)
        self._agents.append(Agent(number, self._stage, self._setup.keep_text, self._on_finished, self._on_agent_free))

    def _preconnect(self, count: int) -> None:
        if count <= 0 or not self._pools:
            return
        self._gate_until = monotonic_ns() + _CONNECT_GATE_NS
        self._connecting += count
        for i in range(count):
            self._pools[i % len(self._pools)].preconnect(self._on_preconnected)
        self._loop.call_at(self._gate_until, self._assign_tasks)

    def _on_preconnected(self) -> None:
        self._connecting -= 1
        if not self._connecting:
            self._loop.call_soon(self._assign_tasks)

    # assigning tasks to agents

    def _assign_tasks(self) -> None:
        """Assign the next task to an idle agent, once connections are open; the rest follows deferred."""
        if self._connecting and monotonic_ns() < self._gate_until:
            return
        if self._begin_ns != 0 and self._is_held():
            return
        if self._idle and self._tasks:
            agent = self._idle.popleft()
            if not agent.busy:
                task = self._tasks.popleft()
                agent.start(task, self._pool_for(task), task.at_ns)
            # Let a server on the same core run now rather than after the whole burst.
            os.sched_yield()
            self._loop.call_soon(self._assign_tasks)

    def _is_held(self) -> bool:
        """Whether the other workers are not ready yet, or the common start is still ahead."""
        if self._begin_ns is None:
            if self._tasks and not self._ready:
                self._ready = True
                self._send(pack(Ready(self._stage.number)))
            return True
        if (left_ns := self._begin_ns - monotonic_ns()) > 0:
            if left_ns <= _SPIN_NS:
                self._loop.call_soon(self._assign_tasks)
            return True
        self._begin_ns = 0
        return False

    def _on_due(self, task: Task) -> None:
        self._tasks.append(task)
        self._assign_tasks()

    def _pool_for(self, task: Task) -> EndpointPool:
        """Return the endpoint with the fewest requests in flight; among equals, the one assigned least often.

        All requests of a recorded session go to the same one, whose prefix cache has their beginning.
        """
        if len(self._pools) == 1:
            return self._pools[0]
        if task.replayed is not None:
            return self._pools[task.replayed.play % len(self._pools)]
        pool = min(self._pools, key=lambda pool: (pool.in_flight, pool.assigned))
        pool.assigned += 1
        return pool

    def _on_agent_free(self, agent: Agent, pause: float) -> None:
        if pause:
            self._backing_off.add(agent.number)
            self._loop.call_at(monotonic_ns() + int(pause * 1e9), lambda: self._on_backoff_over(agent))
        elif self._is_active(agent):
            self._idle.append(agent)
            self._assign_tasks()

    def _on_backoff_over(self, agent: Agent) -> None:
        self._backing_off.discard(agent.number)
        if self._is_active(agent):
            self._idle.append(agent)
            self._assign_tasks()

    def _is_active(self, agent: Agent) -> bool:
        assert self._setup is not None
        return agent.number // self._setup.workers < self._stage.agents and not agent.busy

    # records and frames

    def _on_finished(self, request: FinishedRequest) -> None:
        """Make its record after the requests that can be started now: streams often end together."""
        self._unreported.append(request)
        if len(self._unreported) == 1:
            self._loop.call_soon(self._report_next)

    def _report_next(self) -> None:
        request = self._unreported.popleft()
        try:
            self._report(request.record())
        except Exception as error:  # noqa: BLE001 — a response that cannot be recorded ends its own request only
            self._report(request.faulty_record(error))
        if self._unreported:
            self._loop.call_soon(self._report_next)

    def _report(self, record: Record) -> None:
        message = pack(Finished(self._finished + 1, record))
        self._finished += 1
        self._unacknowledged.append((self._finished, message))
        self._unacknowledged_bytes += len(message)
        if self._unacknowledged_bytes > _MAX_UNACKNOWLEDGED:
            self._spool()
        self._coalesced_chunks += record.coalesced_chunks
        self._send(message)

    def _record_lag(self) -> None:
        """Record how long the last chunk of a poll waited in the kernel."""
        stamp = self._clock.last_stamp
        if stamp != self._last_stamp:
            self._last_stamp = stamp
            self._lag.add(monotonic_ns() - stamp)

    def _tick(self) -> None:
        now = monotonic_ns()
        # With many streams, half the frame rate halves the cost of their rows.
        frame_ns = FRAME_NS if len(self._agents) <= _MANY_AGENTS else 2 * FRAME_NS
        self._loop.call_at(now + frame_ns, self._tick)
        self._clock.resync()
        if self._setup is None or self._frame is not None:
            return
        # After a suspension, read what has arrived before timeouts are checked: suspended time must not end a stream.
        self._was_suspended = now - self._last_tick > 5 * frame_ns and not self._was_suspended
        # Drop frames while the session process does not read; records must still reach it.
        self._frame = AgentRows(
            self._agents,
            now,
            timeouts=None if self._was_suspended else self._setup.timeouts,
            with_rows=len(self._outbox) <= _MAX_OUTBOX,
        )
        self._continue_frame()

    def _continue_frame(self) -> None:
        """Add the next agents to the frame, and send it when it has all of them."""
        assert self._frame is not None
        if self._frame.add(_AGENTS_AT_ONCE):
            self._loop.call_soon(self._continue_frame)
            return
        frame, self._frame = self._frame, None
        lag_ms, cpu_ns = self._lag.p99_ns() / 1e6, time.process_time_ns()
        elapsed_ns = frame.t_ns - self._last_tick
        self._loop.poll_delay_s = _poll_delay_s(
            frame.in_flight, frame.chunks * 1e9 / elapsed_ns, (cpu_ns - self._cpu_ns) / elapsed_ns
        )
        self._cpu_ns, self._last_tick = cpu_ns, frame.t_ns
        if not frame.with_rows:
            return
        watched = self._watched_agent()
        self._send(
            pack(
                WorkerFrame(
                    t_ns=frame.t_ns,
                    agents=self._stage.agents,
                    in_flight=frame.in_flight,
                    waiting=frame.waiting,
                    queued=len(self._tasks) + self._schedule.pending,
                    rows=tuple(frame.rows),
                    lag_ms=lag_ms,
                    cpu_ns=cpu_ns,
                    coalesced_chunks=self._coalesced_chunks,
                    clock_steps=self._clock.steps,
                    drops=self._drops,
                    watched=watched.watched_update() if watched else None,
                    measured=frame.measured,
                    tails=self._changed_tails(frame.t_ns) if self._tail_agents else (),
                )
            )
        )

    def _changed_tails(self, now: int) -> tuple[TextTail, ...]:
        if now < self._tails_due:
            return ()
        self._tails_due = now + _TAILS_NS
        changed = (agent.tail_if_changed() for agent in self._agents_of(self._tail_agents))
        return tuple(tail for tail in changed if tail is not None)

    def _watched_agent(self) -> Agent | None:
        return next(iter(self._agents_of((self._watched,))), None) if self._watched is not None else None

    def _agents_of(self, numbers: tuple[int, ...]) -> list[Agent]:
        """Return those of the agents with these numbers that this worker has."""
        assert self._setup is not None
        first, step = self._setup.worker, self._setup.workers
        places = [divmod(number - first, step) for number in numbers if number >= first]
        return [self._agents[index] for index, rest in places if not rest and index < len(self._agents)]

    # sending to the session process

    def _send(self, message: bytes) -> None:
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
                self._on_parent_gone()
                return
            if sent < len(message):
                self._outbox[0] = message[sent:]
                self._loop.modify_fd(self._pipe.fileno(), READ | WRITE)
                return
            self._outbox.popleft()
        self._loop.modify_fd(self._pipe.fileno(), READ)

    def _on_parent_gone(self) -> None:
        self._parent_gone = True
        self._loop.stop()

    def _forget_oldest(self) -> None:
        _, message = self._unacknowledged.popleft()
        self._unacknowledged_bytes -= len(message)

    def _spool(self) -> None:
        """Write the unacknowledged records to spool files, which readers of the session include, and forget them.

        Those that fit nowhere are only in the memory of the session process, if it is still alive.
        """
        spools = list(self._setup.spools) if self._setup else []
        offset_ns = self._setup.clock_offset_ns if self._setup else 0
        lost, problem = 0, ""
        while self._unacknowledged:
            line = _journal_line(self._unacknowledged[0][1], offset_ns)
            while spools:
                try:
                    append_whole(spools[0], line)
                    break
                except OSError as error:
                    problem = f"{spools.pop(0)}: {error.strerror}"
                    self._make_spool_directory(spools)
            else:
                lost += 1
            self._forget_oldest()
        if lost and problem:
            echo(f"swarmtui worker: {lost} finished requests could not be spooled: {problem}", err=True)

    @staticmethod
    def _make_spool_directory(spools: list[str]) -> None:
        """Create the directory of the next path, which is not that of the session; skip one that others can access."""
        while spools:
            directory = Path(spools[0]).parent
            with contextlib.suppress(OSError):
                make_private_directory(directory)
            if is_private_directory(directory):
                return
            del spools[0]


def _journal_line(message: bytes, clock_offset_ns: int) -> bytes:
    report = decode_report(message[HEADER_BYTES:])
    assert isinstance(report, Finished)
    return msgspec.json.encode(RequestEntry(record=shift_times(report.record, -clock_offset_ns))) + b"\n"


def _poll_delay_s(streams: int, rate: float, cpu_share: float) -> float:
    """Return how long to sleep before each poll, given the chunks per second and the share of a core in use.

    What arrives during the sleep and while it is read is read next: the busier the worker, the shorter the sleep.
    """
    if rate < _POLL_DELAY_RATE:
        return 0.0
    return min(_MAX_POLL_DELAY_S, streams / rate / _GAP_FRACTION * max(0.0, 1 - cpu_share))


def raise_file_limit() -> None:
    """Allow as many open sockets as the system permits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def set_batch_scheduling() -> None:
    """Never preempt another process to read a token: on the server's host that would delay the next token.

    Reading later loses no accuracy, since the kernel stamps arrivals.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    # Ctrl-C and SIGHUP are handled by the client; the session process decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_file_limit()
    set_batch_scheduling()
    gc.collect()
    gc.freeze()
    gc.disable()
    with socket.socket(fileno=os.dup(0)) as pipe:
        Worker(pipe).run()


if __name__ == "__main__":
    main()
