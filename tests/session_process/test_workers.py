"""Workers are shut down without losing finished requests."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

from swarmtui.hosts.clocks import HostClock
from swarmtui.model import worker_protocol
from swarmtui.model.hosts import ClockOffset
from swarmtui.model.plan import Timeouts
from swarmtui.model.workload import Message, Task
from swarmtui.processes.spawn import start_worker
from swarmtui.session_process.workers import WorkerLink, WorkerPool

# Larger than the buffers between two processes.
PROMPT = "x" * (1 << 20)


def test_worker_that_still_reads_tasks_exits_by_itself() -> None:
    """A killed worker could not write its finished requests to disk."""

    async def scenario() -> int | None:
        started = start_worker()
        pool = WorkerPool([started], lambda reason: None)
        pool.start(
            lambda link, workers: worker_protocol.Setup(link.number, workers, (), Timeouts()), lambda link, report: None
        )
        await asyncio.sleep(0)
        tasks = [Task(id=number, messages=(Message(role="user", content=PROMPT),)) for number in range(32)]
        for task in tasks:
            pool.links[0].send(worker_protocol.Enqueue((task,)))
        await pool.shut_down(0)
        pool.links[0].send(worker_protocol.Enqueue((tasks[0],)))
        return started.process.returncode

    assert asyncio.run(scenario()) == 0


def test_send_times_are_converted_to_the_clock_of_the_host() -> None:
    clock = HostClock()
    clock.add(ClockOffset(t_ns=0, offset_ns=5_000, bound_ns=1))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = WorkerLink(0, ours, cast(Any, None), cast(Any, SimpleNamespace(clock=clock)))
        link.send_tasks((Task(id=1, messages=(), at_ns=100), Task(id=2, messages=())))
        (body,) = worker_protocol.Unpacker().feed(theirs.recv(1 << 16))
    command = worker_protocol.decode_command(body)
    assert isinstance(command, worker_protocol.Enqueue)
    assert [task.at_ns for task in command.tasks] == [5_100, None]
