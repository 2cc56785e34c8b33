"""A sweep: all levels of the plan, run by run, or one ramp over them; and how long the rest of it takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from swarmtui.model.client_protocol import Sweep
from swarmtui.model.load import Ramp
from swarmtui.session_process.live_levels import RequestTimes
from swarmtui.session_process.load_modes import PlannedLoad
from swarmtui.session_process.workers import ActiveStage

if TYPE_CHECKING:
    from swarmtui.session_process.scheduler import Scheduler


async def run(scheduler: Scheduler, levels: tuple[int, ...], runs: int) -> bool:
    """Return False, and skip the remaining levels, if no request of the first level succeeded."""
    await scheduler.drain()
    if isinstance(scheduler.load.mode, Ramp):
        await _ramp(scheduler, levels, scheduler.load.mode.every_s)
        return scheduler.records.answered
    order = scheduler.load.run_order(levels, runs)
    for number, (key, run_number) in enumerate(order, 1):
        await scheduler.run_level(key, run_number, runs)
        if scheduler.steering.ends_goal:
            return True
        is_last_run = number == len(order) or order[number][0] != key
        if is_last_run and not scheduler.records.answered:
            return False
    return True


async def _ramp(scheduler: Scheduler, levels: tuple[int, ...], every_s: float) -> None:
    """Raise C while requests continue; each C becomes a level if enough requests ended during it."""
    for c in levels:
        if not await scheduler.run_continuous(c, every_s):
            return
    await scheduler.drain()


def time_left(
    goal: Sweep, stage: ActiveStage, load: PlannedLoad, times: RequestTimes, slots: int | None
) -> tuple[float | None, bool]:
    """Estimate the seconds to the end of a sweep, and whether they are a lower bound."""
    if stage.phase in ("warmup", "canary"):
        return None, False
    order = load.run_order(goal.levels, goal.runs)
    current = ((stage.c, stage.rate), stage.run)
    next_runs = order[order.index(current) + 1 :] if current in order else []
    if load.duration_s is not None:
        here = load.duration_s if stage.until is None else max(0.0, stage.until - time.monotonic())
        return here + load.duration_s * len(next_runs), False
    if load.mode.scheduled or load.mode.continuous or stage.source.total is None:
        return None, False
    ahead = [(stage.c, max(0, stage.source.total - stage.done) / stage.streams)]
    ahead += [(c, load.requests_in_sequence(c)) for (c, _), _ in next_runs]
    left, at_least = 0.0, False
    for c, in_sequence in ahead:
        found = times.estimate(c, slots)
        if found is None:
            return None, False
        left += found[0] * in_sequence
        at_least = at_least or found[1]
    return left, at_least
