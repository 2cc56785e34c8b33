"""Track what the user wants from a run: the plan's own goal, until a client sends another one.

`wait_unless` and `run_unless` wait for what a user who stops the run does not want to wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal, TypeVar, TypeVarTuple

from swarmtui.model import client_protocol
from swarmtui.model.plan import Plan

Args = TypeVarTuple("Args")
Result = TypeVar("Result")

Goal = client_protocol.SetConcurrency | client_protocol.Sweep | client_protocol.FindCliff | client_protocol.FindCapacity

# run: continue; next: end this run; new_goal: end it, run the new goal; pause: send nothing; stop: end the session.
SteeringState = Literal["run", "next", "new_goal", "pause", "stop"]


def goal_of(plan: Plan, border: tuple[int, ...] = ()) -> Goal:
    """`border` has the levels of the search that a search for the capacity is compared with."""
    match plan.goal:
        case "sweep":
            return client_protocol.Sweep(plan.load.levels, plan.load.runs)
        case "manual":
            return client_protocol.SetConcurrency(plan.load.levels[0])
        case "cliff":
            return client_protocol.FindCliff(plan.max_c)
        case "capacity":
            return client_protocol.FindCapacity(plan.slo, plan.max_c, plan.alpha, plan.budget_s, border)


class Steering:
    """The user's current request: `state()` decides what happens to the running stage, `goal` which stage is next.

    `grace_s` is how long a stop waits for requests in flight; `stop_now` is set by a second stop, or one without grace.
    """

    def __init__(self, plan: Plan, border: tuple[int, ...] = ()) -> None:
        self._state: SteeringState = "run"
        self.goal = goal_of(plan, border)
        self.grace_s = 0.0
        self.stop_now = asyncio.Event()
        # Set whenever the running stage has to look at what happened: a command, a report of a worker.
        self.changed = asyncio.Event()
        self._fixed = plan.load.fixed

    def stop(self, grace_s: float) -> None:
        stopping = self._state == "stop"
        if stopping or not grace_s:
            self.stop_now.set()
        self.grace_s = min(grace_s, self.grace_s) if stopping else grace_s
        self._set("stop")

    def set_goal(self, goal: Goal) -> bool:
        """Return whether the goal changes: a session that stops, or whose tasks are fixed, accepts none."""
        if self._fixed or self._state == "stop":
            return False
        self.goal = goal
        self._set("new_goal")
        return True

    def end_run(self) -> None:
        if self._state != "stop":
            self._set("next")

    def pause(self) -> None:
        if self._state == "run":
            self._set("pause")

    def end_pause(self) -> None:
        if self._state == "pause":
            self._set("run")

    def _set(self, state: SteeringState) -> None:
        self._state = state
        self.changed.set()

    def state(self) -> SteeringState:
        """Return the state. A method: a type checker would assume that an attribute stays as it is during an await."""
        return self._state

    @property
    def ends_goal(self) -> bool:
        return self._state in ("stop", "new_goal")

    def resume(self) -> None:
        self._state = "run"


async def wait_unless(event: asyncio.Event, work: asyncio.Future[Any]) -> bool:
    """Wait until the work is done or the event is set, whichever is first; return whether it is done."""
    setting = asyncio.create_task(event.wait())
    await asyncio.wait((work, setting), return_when=asyncio.FIRST_COMPLETED)
    setting.cancel()
    return work.done()


async def run_unless(event: asyncio.Event, work: Callable[[*Args], Result], *args: *Args) -> Future[Result]:
    """Run blocking work in a thread; return when it is done or the event is set, whichever is first."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: Future[Result]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(done.set)

    # A separate executor: work that nobody waits for must not block other work. Its future is not one of asyncio, which
    # would log the exception of abandoned work.
    working = ThreadPoolExecutor(1).submit(work, *args)
    working.add_done_callback(wake)
    waiting = asyncio.create_task(done.wait())
    await wait_unless(event, waiting)
    waiting.cancel()
    return working
