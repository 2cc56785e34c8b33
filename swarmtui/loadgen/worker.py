"""Run the worker process: commands in, frames and records out, over the socket that is its standard input."""

from __future__ import annotations

import gc
import os
import signal
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import perf_counter_ns

from swarmtui.files import raise_open_file_limit
from swarmtui.loadgen.agent import Agent, FinishedRequest
from swarmtui.loadgen.clock import KernelClock, enable_kernel_stamps
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.loadgen.frames import AgentRows, FrameTimer
from swarmtui.loadgen.session_pipe import SessionPipe, UnacknowledgedRecords
from swarmtui.model import worker_protocol as protocol
from swarmtui.model.endpoint import show_url
from swarmtui.model.record import Record
from swarmtui.model.redaction import Secrets
from swarmtui.model.workload import Task
from swarmtui.processes import finished_counts
from swarmtui.processes.exits import redact_stderr


class Schedule:
    """Keeps tasks until their send times."""

    def __init__(self, loop: EventLoop, due: Callable[[Task], None]) -> None:
        self._loop, self._on_due = loop, due
        self._tasks: dict[int, Task] = {}

    @property
    def pending(self) -> int:
        return len(self._tasks)

    def add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self._tasks[task.id] = task
            self._loop.call_at(task.at_ns or 0, partial(self._fire, task.id))

    def take_last(self, count: int) -> list[Task]:
        """Remove and return the tasks added last; their timers are ignored when they fire."""
        ids = list(self._tasks)[max(0, len(self._tasks) - count) :]
        return [self._tasks.pop(task_id) for task_id in ids]

    def _fire(self, task_id: int) -> None:
        if (task := self._tasks.pop(task_id, None)) is not None:
            self._on_due(task)


# Texts are for people: they are sent less often than the frames.
_TAILS_NS = 200_000_000
# The longest time that the first tasks of a stage wait for connections to open.
_CONNECT_GATE_NS = 1_000_000_000
_COPY_NS = 250_000_000
# A common start is not slept for until the end: the system may wake a process late on a busy core.
_SPIN_NS = 5_000_000


class Worker:
    def __init__(self, sock: socket.socket) -> None:
        self._loop = EventLoop()
        self._clock = KernelClock()
        self._pipe = SessionPipe(self._loop, sock, self._handle, self._on_parent_gone)
        self._unreported: deque[FinishedRequest] = deque()
        self._unacknowledged = UnacknowledgedRecords()
        self._finished, self._counts = 0, finished_counts.inherited()
        self._setup: protocol.Setup | None = None
        self._parent_gone = False
        self._pools: list[EndpointPool] = []
        self._agents: list[Agent] = []
        self._frames = FrameTimer(self._loop, self._clock, self._agents, self._pipe.keeps_up, self._send_frame)
        self._backing_off: set[int] = set()
        self._idle: deque[Agent] = deque()
        self._tasks: deque[Task] = deque()
        self._schedule = Schedule(self._loop, self._on_due)
        self._stage = protocol.StartStage(0, 0)
        self._connecting = 0
        self._gate_until = 0
        # When requests may start; None while the stage is on hold.
        self._begin_ns: int | None = 0
        self._ready = False
        self._watched: int | None = None
        self._tail_agents: tuple[int, ...] = ()
        self._tails_due = 0
        self._drops = 0

    def run(self) -> None:
        # The kernel stamps packets only while some socket asks for it: ask before the first response can arrive.
        with socket.socket() as stamper:
            enable_kernel_stamps(stamper)
            self._loop.run()
        while self._unreported:
            self._report_next()
        if self._parent_gone:
            self._unacknowledged.spool()

    # commands from the session process

    def _handle(self, command: protocol.WorkerCommand) -> None:
        match command:
            case protocol.Setup():
                self._set_up(command)
            case protocol.Enqueue(tasks):
                self._tasks.extend(task for task in tasks if task.at_ns is None)
                self._schedule.add([task for task in tasks if task.at_ns is not None])
                self._assign_tasks()
            case protocol.StartStage():
                self._start_stage(command)
            case protocol.Begin(number, at_ns) if number == self._stage.number:
                self._begin_ns = at_ns
                self._loop.call_at(at_ns - _SPIN_NS, self._assign_tasks)
            case protocol.TakeBack(count):
                self._return_tasks(count)
            case protocol.Drop(cancel):
                self._return_tasks(len(self._tasks) + self._schedule.pending)
                self._drops += 1
                if cancel:
                    for agent in self._agents:
                        agent.cancel()
            case protocol.Ack(number):
                self._unacknowledged.acknowledge(number)
            case protocol.WatchAgent(number):
                self._watched = number
                if (watched := self._watched_agent()) is not None:
                    watched.restart_watch()
            case protocol.SendTails(agents):
                self._tail_agents = agents
                for agent in self._agents_of(agents):
                    agent.restart_tail()
            case protocol.SpoolTo(paths, clock_offset_ns):
                self._unacknowledged.spool_to(paths, clock_offset_ns)

    def _return_tasks(self, count: int) -> None:
        """Return the last tasks of the queue, in its order; those with a send time come after the others."""
        later = self._schedule.take_last(count)
        sooner = [self._tasks.pop() for _ in range(min(count - len(later), len(self._tasks)))]
        self._send(protocol.Returned(tuple(task.id for task in (*reversed(sooner), *later))))

    def _set_up(self, setup: protocol.Setup) -> None:
        self._setup = setup
        for target in setup.targets[:1]:
            redact_stderr(Secrets(api_key=target.api_key, headers=target.headers, urls={target.url: target.url}))
        self._unacknowledged.spool_to(setup.spools, setup.clock_offset_ns)
        self._frames.start(setup.timeouts)
        self._copy_overdue()
        try:
            self._pools = [EndpointPool(self._loop, self._clock, i, target) for i, target in enumerate(setup.targets)]
        except (OSError, ssl.SSLError) as error:
            self._send(protocol.Failed(f"cannot reach {show_url(setup.targets[0].url)}: {error}"))
            self._loop.stop()

    def _copy_overdue(self) -> None:
        self._unacknowledged.copy_overdue()
        self._loop.call_at(perf_counter_ns() + _COPY_NS, self._copy_overdue)

    def _start_stage(self, stage: protocol.StartStage) -> None:
        before, self._stage = len(self._agents), stage
        self._begin_ns, self._ready = None if stage.hold else 0, False
        if stage.cancel:
            for agent in self._agents[stage.agents :]:
                agent.cancel()
        for place in range(before, stage.agents):
            assert self._setup is not None
            number = self._setup.worker + self._setup.workers * place
            self._agents.append(Agent(number, stage, self._setup.keep_text, self._on_finished, self._on_agent_free))
        for agent in self._agents:
            agent.stage = stage
        if not stage.agents and not any(agent.busy for agent in self._agents):
            # Collect garbage while nothing is in flight, not between timestamps.
            gc.collect()
        new = stage.agents - before
        self._preconnect(new if stage.preconnect is None else min(new, stage.preconnect))
        self._idle = deque(a for a in self._agents[: stage.agents] if not a.busy and a.number not in self._backing_off)
        self._assign_tasks()

    def _preconnect(self, count: int) -> None:
        if count <= 0 or not self._pools:
            return
        self._gate_until = perf_counter_ns() + _CONNECT_GATE_NS
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
        if self._connecting and perf_counter_ns() < self._gate_until:
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
                self._send(protocol.Ready(self._stage.number))
            return True
        if (left_ns := self._begin_ns - perf_counter_ns()) > 0:
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
            self._loop.call_at(perf_counter_ns() + int(pause * 1e9), partial(self._on_agent_free, agent, 0.0))
            return
        assert self._setup is not None
        self._backing_off.discard(agent.number)
        if agent.number // self._setup.workers < self._stage.agents and not agent.busy:
            self._idle.append(agent)
            self._assign_tasks()

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
        if self._counts is not None and self._setup is not None and not record.cancelled:
            self._finished += 1
            finished_counts.write_count(self._counts, self._setup.worker, self._finished)
        self._pipe.send(self._unacknowledged.add(record))

    def _send_frame(self, rows: AgentRows, lag_ms: float, cpu_ns: int) -> None:
        watched = self._watched_agent()
        self._send(
            protocol.WorkerFrame(
                t_ns=rows.t_ns,
                agents=self._stage.agents,
                in_flight=rows.in_flight,
                waiting=rows.waiting,
                queued=len(self._tasks) + self._schedule.pending,
                rows=tuple(rows.rows),
                lag_ms=lag_ms,
                cpu_ns=cpu_ns,
                clock_steps=self._clock.steps,
                drops=self._drops,
                watched=watched.watched_update() if watched else None,
                measured=rows.measured,
                tails=self._changed_tails(rows.t_ns) if self._tail_agents else (),
            )
        )

    def _changed_tails(self, now: int) -> tuple[protocol.TextTail, ...]:
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

    def _send(self, report: protocol.WorkerReport) -> None:
        self._pipe.send(protocol.pack(report))

    def _on_parent_gone(self) -> None:
        self._parent_gone = True
        self._loop.stop()


def main() -> None:
    # Ctrl-C and SIGHUP are handled by the client; the session process decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_open_file_limit()
    # Never preempt another process to read a token: on the server's host that would delay the next token. Reading later
    # loses no accuracy, since the kernel stamps arrivals.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    gc.collect()
    gc.freeze()
    gc.disable()
    with socket.socket(fileno=os.dup(0)) as sock:
        Worker(sock).run()


if __name__ == "__main__":
    main()
