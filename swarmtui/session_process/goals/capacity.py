"""A search for the capacity: levels are run until the most agents that keep the SLO are known."""

from __future__ import annotations

import asyncio
import time

import msgspec

from swarmtui.analysis.capacity import agents
from swarmtui.analysis.limits.slo import Slo, parse_slo
from swarmtui.model.record import Record
from swarmtui.model.session import CapacitySearch
from swarmtui.session_process.stages import Stages


async def search(stages: Stages, slo_text: str, max_c: int) -> None:
    """Each run adds to what is known of its level."""
    await stages.drain()
    state, journal, slo = stages.state, stages.journal, parse_slo(slo_text)
    begun = CapacitySearch(t_ns=time.perf_counter_ns(), slo=slo_text)
    journal.write(begun)
    found: dict[int, agents.AgentTally] = {}
    # A large trace is read while the first level runs.
    reading = asyncio.create_task(stages.load.trace_means())
    try:
        while (c := agents.next_level(found, max_c, begun.prompt_tokens)) is not None:
            level = found.setdefault(c, agents.AgentTally(c, slo))
            run = RunTally(c, slo)
            stages.observers.append(run.add)
            least = agents.repeat_requests(slo) if level.runs else 0
            await stages.run_level((c, None), level.runs + 1, level.runs + 1, least=least)
            stages.observers.remove(run.add)
            await stages.levels_computed()
            if stages.steering.ends_goal:
                return
            level.merge(run.tally)
            if not stages.records.answered:
                break
            if len(found) == level.runs == 1:
                # Known before the load that could fill the KV cache.
                means = await reading
                begun = msgspec.structs.replace(
                    begun,
                    context_tokens=means.live_context or level.context_tokens,
                    prompt_tokens=None if means.prompt is None else round(means.prompt),
                )
                journal.write(begun)
    finally:
        reading.cancel()
    answer = agents.capacity(
        slo,
        found,
        state.levels,
        state.servers,
        context_tokens=begun.context_tokens,
        prompt_tokens=begun.prompt_tokens,
    )
    journal.log_event("capacity", answer.sentence)


class RunTally:
    """Adds up the requests of one run; one that a pause interrupted starts again, as another stage."""

    def __init__(self, c: int, slo: Slo) -> None:
        self._c, self._slo, self._stage = c, slo, 0
        self.tally = agents.AgentTally(c, slo, runs=1)

    def add(self, record: Record) -> None:
        if record.phase not in ("level", "unfinished"):
            return
        if record.stage != self._stage:
            self._stage, self.tally = record.stage, agents.AgentTally(self._c, self._slo, runs=1)
        self.tally.add(record)
