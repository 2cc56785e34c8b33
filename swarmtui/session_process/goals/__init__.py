"""Goals: what a running session works towards. The scheduler runs stages; the goal decides which one comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmtui.model import client_protocol
from swarmtui.model.load import MAX_STREAMS
from swarmtui.model.plan import Plan
from swarmtui.session_process.goals import capacity, cliff, manual, sweep

if TYPE_CHECKING:
    from swarmtui.session_process.scheduler import Scheduler

Goal = client_protocol.SetConcurrency | client_protocol.Sweep | client_protocol.FindCliff | client_protocol.FindCapacity


def goal_of(plan: Plan) -> Goal:
    """Return the goal that a session starts with."""
    match plan.goal:
        case "sweep":
            return client_protocol.Sweep(plan.load.levels, plan.load.runs)
        case "manual":
            return client_protocol.SetConcurrency(plan.load.levels[0])
        case "cliff":
            return client_protocol.FindCliff(plan.max_c)
        case "capacity":
            return client_protocol.FindCapacity(plan.slo, plan.max_c)


async def pursue(goal: Goal, scheduler: Scheduler) -> bool:
    """Run stages until the goal is reached or a command ends it; return False if no request was answered."""
    match goal:
        case client_protocol.SetConcurrency(c):
            await manual.hold(scheduler, min(MAX_STREAMS, max(1, c)))
        case client_protocol.Sweep(levels, runs):
            return await sweep.run(scheduler, levels, runs)
        case client_protocol.FindCliff(max_c):
            await cliff.search(scheduler, max_c)
        case client_protocol.FindCapacity(slo, max_c):
            await capacity.search(scheduler, slo, max_c)
    return True
