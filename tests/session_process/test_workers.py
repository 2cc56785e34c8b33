"""Workers are shut down without losing finished requests."""

from __future__ import annotations

import asyncio

from swarmtui.client.spawn import start_worker
from swarmtui.model import worker_protocol
from swarmtui.model.plan import Timeouts
from swarmtui.model.workload import Message, Task
from swarmtui.session_process.workers import WorkerPool

# Larger than the buffers between two processes.
PROMPT = "x" * (1 << 20)


def test_worker_that_still_reads_tasks_exits_by_itself() -> None:
    """A killed worker could not write its finished requests to disk."""

    async def scenario() -> int | None:
        started = start_worker()
        pool = WorkerPool([started], lambda link, report: None, lambda reason: None)
        pool.start(lambda worker, workers: worker_protocol.Setup(worker, workers, (), Timeouts()))
        await asyncio.sleep(0)
        tasks = [Task(id=number, messages=(Message(role="user", content=PROMPT),)) for number in range(32)]
        for task in tasks:
            pool.links[0].send(worker_protocol.Enqueue((task,)))
        await pool.shut_down(0)
        pool.links[0].send(worker_protocol.Enqueue((tasks[0],)))
        return started.process.returncode

    assert asyncio.run(scenario()) == 0
