"""A sweep: all levels of the plan, run by run, or one ramp over them."""

from __future__ import annotations

from swarmtui.analysis.capacity.cliff import confirming_level
from swarmtui.model.load import MAX_STREAMS, Closed, Ramp
from swarmtui.session_process.stages import Stages


async def run(stages: Stages, levels: tuple[int, ...], runs: int) -> bool:
    """Return False, and skip the remaining levels, if no request of the first level succeeded."""
    await stages.drain()
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
    await _confirm_cliff(stages)
    return True


async def _confirm_cliff(stages: Stages) -> None:
    """Run one more level if only the TTFT of the highest one says that requests queue there: it may be by chance."""
    if not isinstance(stages.load.mode, Closed):
        return
    await stages.levels_computed()
    levels = [level for level in stages.state.levels if level.has_complete_run]
    c = confirming_level(levels, MAX_STREAMS, stages.state.slots)
    if c is not None:
        stages.journal.log_event("cliff_check", f"C={c} follows, to confirm or rule out a cliff at the highest level")
        await stages.run_level((c, None), 1, 1)


async def _ramp(stages: Stages, levels: tuple[int, ...], every_s: float) -> None:
    """Raise C while requests continue; each C becomes a level if enough requests ended during it."""
    for c in levels:
        if not await stages.run_continuous(c, every_s):
            return
    await stages.drain()
