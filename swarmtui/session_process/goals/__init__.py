"""Goals: what a running session works towards. `Stages` runs stages; the goal decides which one comes next."""

from __future__ import annotations

import time
from typing import Literal

from swarmtui.analysis.capacity.cliff import next_level, search_state
from swarmtui.analysis.capacity.scaling import cliff_search_sentence
from swarmtui.model import client_protocol
from swarmtui.model.journal import SearchEntry, SweepEntry
from swarmtui.model.load import MAX_STREAMS, Ramp
from swarmtui.model.session import Level
from swarmtui.prompts.canaries import COUNT as CANARIES
from swarmtui.session_process.goals import capacity
from swarmtui.session_process.stages import Stages
from swarmtui.session_process.steering import Goal
from swarmtui.session_process.task_sources import CanaryTasks, WarmupTasks


async def run_plan(stages: Stages) -> Literal["done", "stopped", "unusable"]:
    """Run warm-up and canaries, then what the goal decides; the user may set another one at any time."""
    steering, load = stages.steering, stages.plan.load
    if load.warmup_requests and not await _warm_up(stages):
        return "stopped" if steering.state() == "stop" else "unusable"
    if load.canary_share:
        await stages.run_stage(1, 0, "canary", CanaryTasks(stages.factory, 1, CANARIES))
    while True:
        if steering.state() == "new_goal":
            steering.resume()
        answered = await _pursue(steering.goal, stages)
        if not answered or steering.state() != "new_goal":
            break
    await stages.levels_computed()
    if not answered:
        return "unusable"
    manual = isinstance(steering.goal, client_protocol.SetConcurrency)
    return "stopped" if steering.state() == "stop" and not manual else "done"


async def _warm_up(stages: Stages) -> bool:
    """Return whether at least one request succeeded, or a command ended it before."""
    count = stages.plan.load.warmup_requests
    streams = min(count, max(stages.plan.load.levels))
    stage = await stages.run_stage(streams, 0, "warmup", WarmupTasks(stages.factory, streams, count))
    state = stages.steering.state()
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
            if (stages.load.mode.rates or levels) != stages.plan.swept:
                stages.journal.write(SweepEntry(t_ns=time.perf_counter_ns(), levels=levels))
            return await _sweep(stages, levels, runs)
        case client_protocol.FindCliff(max_c):
            await _search_cliff(stages, max_c)
        case client_protocol.FindCapacity():
            await capacity.search(stages, goal)
    return True


async def _sweep(stages: Stages, levels: tuple[int, ...], runs: int) -> bool:
    """Run all levels of the plan, run by run, or one ramp over them.

    Return False, and skip the remaining levels, if no request of the first level succeeded.
    """
    await stages.end_streams()
    if isinstance(stages.load.mode, Ramp):
        await _ramp(stages, levels, stages.load.mode.every_s)
        return stages.records.answered
    order = stages.load.run_order(levels, runs)
    for number, (key, run_number) in enumerate(order, 1):
        await stages.run_level(key, run_number, runs)
        if stages.steering.ends_goal:
            return True
        is_last_run = number == len(order) or order[number][0] != key
        if is_last_run and not stages.records.answered:
            return False
    return True


async def _ramp(stages: Stages, levels: tuple[int, ...], every_s: float) -> None:
    """Raise C while requests continue; each C becomes a level if enough requests ended during it."""
    for c in levels:
        if not await stages.run_continuous(c, every_s):
            return
    await stages.drain()


async def _search_cliff(stages: Stages, max_c: int) -> None:
    """Double C until requests queue or throughput stops growing, then bisect the gap."""
    await stages.end_streams()
    state = stages.state
    searched: set[int] = set()

    def measured() -> list[Level]:
        """Levels that were only passed under manual control are measured again."""
        return [level for level in state.levels if level.has_complete_run or level.c in searched]

    def choose() -> int | None:
        c = next_level(measured(), max_c, state.slots)
        found = search_state(measured(), c, state.slots)
        stages.journal.write(SearchEntry(t_ns=time.perf_counter_ns(), search=found))
        return c

    while (c := choose()) is not None:
        searched.add(c)
        await stages.run_level((c, None), 1, 1)
        await stages.levels_computed()
        if stages.steering.ends_goal:
            return
    stages.journal.log_event("cliff", cliff_search_sentence(measured(), state.slots))
