"""A search for the cliff: C doubles until requests queue or throughput stops growing, then the gap is bisected."""

from __future__ import annotations

import time

from swarmtui.analysis.capacity.cliff import next_level, search_state
from swarmtui.analysis.capacity.scaling import cliff_search_sentence
from swarmtui.model.journal import SearchEntry
from swarmtui.model.session import Level
from swarmtui.session_process.stages import Stages


async def search(stages: Stages, max_c: int) -> None:
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
