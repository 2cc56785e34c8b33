"""A search for the cliff: C doubles until requests queue or throughput stops growing, then the gap is bisected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmtui.analysis.capacity.cliff import next_level
from swarmtui.analysis.capacity.scaling import cliff_search_sentence
from swarmtui.model.session import Level

if TYPE_CHECKING:
    from swarmtui.session_process.scheduler import Scheduler


async def search(scheduler: Scheduler, max_c: int) -> None:
    await scheduler.drain()
    state = scheduler.state
    searched: set[int] = set()

    def measured() -> list[Level]:
        """Levels that were only passed under manual control are measured again."""
        return [level for level in state.levels if level.has_complete_run or level.c in searched]

    while (c := next_level(measured(), max_c)) is not None:
        searched.add(c)
        await scheduler.run_level((c, None), 1, 1)
        await scheduler.levels_computed()
        if scheduler.steering.ends_goal:
            return
    state.search_result = cliff_search_sentence(measured(), state.slots)
    scheduler.journal.log_event("cliff", state.search_result)
