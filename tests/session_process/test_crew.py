"""Workers are let go so that nothing they had finished is lost."""

from __future__ import annotations

import asyncio

from swarmtui.client.spawn import start_worker
from swarmtui.model import worker_protocol
from swarmtui.model.plan import Timeouts
from swarmtui.model.workload import Message, Task
from swarmtui.session_process.workers import Crew

# Far more than the buffers between two processes hold.
PROMPT = "x" * (1 << 20)


def test_a_worker_that_still_reads_its_tasks_at_the_end_leaves_by_itself() -> None:
    """One that was killed could not leave on disk what it had finished."""

    async def play() -> int | None:
        started = start_worker()
        crew = Crew(1, started, lambda link, report: None, lambda link, how: None)
        crew.start(lambda worker, workers: worker_protocol.Setup(worker, workers, (), Timeouts()))
        await asyncio.sleep(0)
        tasks = [Task(id=number, messages=(Message(role="user", content=PROMPT),)) for number in range(32)]
        for task in tasks:
            crew.give(crew.links[0], (task,))
        await crew.end()
        crew.give(crew.links[0], (tasks[0],))
        return started.process.returncode

    assert asyncio.run(play()) == 0
