"""Goals: what a running session works towards. `Stages` runs stages; the goal decides which one comes next."""

from __future__ import annotations

from typing import Literal

from swarmtui.model import client_protocol
from swarmtui.model.load import MAX_STREAMS
from swarmtui.prompts.canaries import COUNT as CANARIES
from swarmtui.session_process.goals import capacity, cliff, sweep
from swarmtui.session_process.stages import Stages
from swarmtui.session_process.steering import Goal
from swarmtui.session_process.task_sources import CanaryTasks, WarmupTasks


async def run_plan(stages: Stages) -> Literal["done", "stopped", "unusable"]:
    """Run warm-up and canaries, then what the goal decides; the user may set another one at any time."""
    steering, load = stages.steering, stages.plan.load
    if load.warmup_requests and not await _warm_up(stages):
        return "stopped" if steering.state == "stop" else "unusable"
    if load.canary_share:
        await stages.run_stage(1, 0, "canary", CanaryTasks(stages.factory, 1, CANARIES))
    while True:
        if steering.current_state() == "new_goal":
            steering.resume()
        if not await _pursue(steering.goal, stages):
            return "unusable"
        if steering.current_state() != "new_goal":
            break
    await stages.levels_computed()
    manual = isinstance(steering.goal, client_protocol.SetConcurrency)
    return "stopped" if steering.state == "stop" and not manual else "done"


async def _warm_up(stages: Stages) -> bool:
    """Return whether at least one request succeeded, or a command ended it before."""
    count = stages.plan.load.warmup_requests
    streams = min(count, max(stages.plan.load.levels))
    stage = await stages.run_stage(streams, 0, "warmup", WarmupTasks(stages.factory, streams, count))
    state = stages.steering.current_state()
    if state == "next":
        stages.steering.resume()
    return state != "stop" and (state != "run" or stage.succeeded > 0)


async def _pursue(goal: Goal, stages: Stages) -> bool:
    """Run stages until the goal is reached or a command ends it; return False if no request was answered."""
    match goal:
        case client_protocol.SetConcurrency(c):
            # Manual control: C streams stay busy until the user changes C or sets another goal.
            while await stages.run_continuous(min(MAX_STREAMS, max(1, c)), None):
                pass
        case client_protocol.Sweep(levels, runs):
            return await sweep.run(stages, levels, runs)
        case client_protocol.FindCliff(max_c):
            await cliff.search(stages, max_c)
        case client_protocol.FindCapacity():
            await capacity.search(stages, goal)
    return True
