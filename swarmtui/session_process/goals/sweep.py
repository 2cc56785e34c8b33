"""A sweep: all levels of the plan, run by run, or one ramp over them."""

from __future__ import annotations

from swarmtui.model.load import Ramp
from swarmtui.session_process.stages import Stages


async def run(stages: Stages, levels: tuple[int, ...], runs: int) -> bool:
    """Return False, and skip the remaining levels, if no request of the first level succeeded."""
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
