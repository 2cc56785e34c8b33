"""A search for the capacity: levels are visited until the most agents that keep the SLO are known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from swarmtui.analysis.answer.answer import capacity_headline
from swarmtui.analysis.capacity.agents import capacity
from swarmtui.analysis.capacity.judged_levels import Visit, visit_kept
from swarmtui.analysis.capacity.margins import FIRST_LOOK
from swarmtui.analysis.capacity.search_time import search_seconds
from swarmtui.analysis.capacity.slo_search import CONFIRMING, NextVisit, next_visit, search_end, search_state
from swarmtui.analysis.limits.shares import least_n
from swarmtui.analysis.limits.slo import Slo, SloTally, parse_slo
from swarmtui.model.client_protocol import FindCapacity
from swarmtui.model.findings import Capacity, SearchState
from swarmtui.model.journal import CapacitySearch, SearchEntry
from swarmtui.model.record import LEVEL_PHASES, Record
from swarmtui.session_process.stages import Stages

# While C doubles, a level ends after one request per stream if all kept limits that are stricter by this factor. In a
# quick search these requests may give the answer its lower end, so that it has this share of the budget first.
_ROOM = 1.5
_CLIMB_SHARE = 1 / 12
# Such a level has at least these requests, or this time if they take longer: what a few short ones show is chance.
_CLIMB_REQUESTS, _CLIMB_S = 16, 3.0
# A visit ends early as missed if limits that are looser by this factor are missed, too: near the limit, a few seconds
# in which the server is slower would decide it.
_NEAR = 1.1
# A run measures at least this part of a request per stream: those that are sent within a short time are alike.
_CYCLE = 2


async def search(stages: Stages, goal: FindCapacity) -> Capacity | None:
    """Return what was found, or None if a command ended the search.

    Each visit is a run of a level; it ends early when its requests show that the SLO is missed.

    With a budget, a visit also ends when they show that it is kept, or when the time is up; one that only confirms what
    is known is left out if it would take longer than what is left.
    """
    await stages.end_streams()
    state, journal, slo, alpha = stages.state, stages.journal, parse_slo(goal.slo), goal.alpha
    begun = CapacitySearch(t_ns=time.perf_counter_ns(), slo=goal.slo, alpha=alpha)
    journal.write(begun)
    visits: list[Visit] = []
    seconds: list[float] = []
    found: SearchState | None = None
    runs: list[VisitTally] = []

    observe = partial(count_request, runs)
    clock, quick = stages.clock, goal.budget_s is not None
    budget = Budget(goal.budget_s, clock)

    def choose() -> NextVisit | None:
        nonlocal found
        slots = state.slots.total if state.slots else None
        following = next_visit(visits, slo, goal.max_c, alpha, quick=quick, slots=slots, near=goal.near)
        end = search_end(visits, alpha) if following is None else None
        if following is not None and not budget.allows(following):
            following, end = None, "no_time"
        found = search_state(visits, following, alpha, end, disturbed=state.was_disturbed, before=found)
        journal.write(SearchEntry(t_ns=time.perf_counter_ns(), search=found))
        stages.expected_end = budget.deadline
        if not quick:
            planned = stages.load.measured_requests
            left_s = search_seconds(visits, seconds, following, slo, goal.max_c, alpha, planned)
            stages.expected_end = None if left_s is None else clock() + left_s
        return following

    # A large trace is read while the first level runs.
    reading = asyncio.create_task(stages.load.live_context())
    stages.observers.append(observe)
    try:
        while (following := choose()) is not None:
            c = following.c
            run = VisitTally(c, slo, alpha, after=stages.last_number)
            runs.append(run)
            number = 1 + sum(visit.c == c for visit in visits)

            started = clock()
            # One request per stream is cancelled at the end.
            short = _CLIMB_REQUESTS if following.step == "climb" and not slo.has_jobs else 0
            least = max(following.requests, c // _CYCLE, short) + c
            ended = partial(is_enough, stages, run, following, budget, started)
            await stages.run_level((c, None), number, 1, least=least, enough=ended, jobs=slo.has_jobs)
            budget.add(run.visit, clock() - started)
            if stages.steering.ends_goal:
                return None
            if stages.records.in_memory:
                await stages.levels_computed()  # they tell whether the server froze
            run.visit.disturbed = state.is_disturbed(time.perf_counter_ns())
            visits.append(run.visit)
            seconds.append(clock() - started)
            if not stages.records.answered or not run.visit.slo.n:
                break  # nothing that an SLO could judge
            if len(visits) == 1:
                # Known before the load that could fill the KV cache.
                context = await reading
                begun = msgspec.structs.replace(begun, context_tokens=context or run.visit.context_tokens)
                journal.write(begun)
    finally:
        reading.cancel()
        stages.observers.remove(observe)
    await stages.levels_computed()
    answer = capacity(slo, visits, state.levels, state.servers, alpha=alpha, context_tokens=begun.context_tokens)
    journal.log_event("capacity", capacity_headline(answer, slo))
    return answer


def count_request(runs: Sequence[VisitTally], record: Record) -> None:
    """Count a request for the visit that sent it: those that are cancelled may be reported after its end."""
    sent_by = next((run for run in reversed(runs) if record.stage > run.after), None)
    if sent_by is not None:
        sent_by.add(record)


def is_enough(stages: Stages, run: VisitTally, following: NextVisit, budget: Budget, started: float) -> bool:
    """Return whether a visit that has `started` can end: its requests decide, or are enough to go on to more agents."""
    run.begin(stages.last_number)
    if run.missed or budget.ends(run):
        return True
    if following.step != "climb":
        return False
    since = stages.clock() - started
    has_asked = run.visit.slo.n >= following.requests
    return since >= _CLIMB_S and (has_asked or (run.has_room and since >= _CLIMB_SHARE * budget.seconds))


class Budget:
    """The time of a quick search by its `clock`; without one, there is no `deadline`."""

    def __init__(self, seconds: float | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seconds = seconds or 0.0
        self.deadline = None if seconds is None else clock() + seconds
        self._request_s: float | None = None

    def add(self, visit: Visit, seconds: float) -> None:
        """Remember the time per request of the fastest visit: a server that froze in another one does so seldom.

        One request per stream comes before the measured ones.
        """
        request_s = seconds / (visit.slo.n + visit.c)
        self._request_s = min(request_s, self._request_s or request_s)

    def ends(self, run: VisitTally) -> bool:
        """Whether a visit ends: the time is up, or its requests show that the SLO is kept."""
        return self.deadline is not None and (self._clock() >= self.deadline or run.is_kept())

    def allows(self, following: NextVisit) -> bool:
        """Whether there is time for a visit: one that decides may be cut short, but not before its first look."""
        if self.deadline is None or self._request_s is None:
            return True
        least = following.requests if following.step in CONFIRMING else FIRST_LOOK
        return self._clock() + self._request_s * (least + following.c) <= self.deadline


class VisitTally:
    """Adds up the requests of one run; one that a pause interrupted starts again, as another stage.

    Whether they show that the SLO is missed is looked at when their number has doubled: each look can be wrong. Its
    stages have higher numbers than `after`.
    """

    def __init__(self, c: int, slo: Slo, alpha: float, after: int = 0) -> None:
        self._c, self._slo, self._alpha, self.after = c, slo, alpha, after
        self._decide = max(least_n(condition.share, alpha) for condition in slo.conditions)
        self._stage = -1
        self.begin(0)

    def begin(self, stage: int) -> None:
        """Start again from zero if this stage is later than the one that is counted."""
        if stage <= self._stage:
            return
        self._stage = stage
        self.visit = Visit(self._c, self._slo)
        self._room = SloTally(self._slo.stricter(_ROOM))
        self._loose = SloTally(self._slo.stricter(1 / _NEAR))
        self._next_look, self.missed = FIRST_LOOK, False

    def add(self, record: Record) -> None:
        if record.phase not in LEVEL_PHASES or record.stage < self._stage:
            return
        self.begin(record.stage)
        self.visit.add(record)
        self._room.add(record)
        self._loose.add(record)
        if self.visit.slo.n >= self._next_look:
            self._next_look *= 2
            clear = self.visit.slo.n >= self._decide or visit_kept(self._loose, self._alpha) is False
            self.missed = self.missed or (clear and visit_kept(self.visit.slo, self._alpha) is False)

    def is_kept(self) -> bool:
        return visit_kept(self.visit.slo, self._alpha) is True

    @property
    def has_room(self) -> bool:
        """Whether a request per stream, and at least a few, kept the SLO with much room, and all others did."""
        return self._room.good == self._room.n >= max(self._c, FIRST_LOOK)
