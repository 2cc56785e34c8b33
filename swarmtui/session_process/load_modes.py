"""Apply the load of a plan: in which order levels run, and where their tasks come from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import assert_never

import msgspec

from swarmtui.model.load import MOST_CYCLES, Barrier, Closed, Dag, Load, Mixed, Open, Ramp, Sessions, Swarm
from swarmtui.model.plan import LevelKey, Plan
from swarmtui.model.workload import Graph
from swarmtui.prompts.sampling import arrival_times
from swarmtui.prompts.traces.recordings import live_context
from swarmtui.session_process.graph_tasks import GraphTasks
from swarmtui.session_process.recorded_tasks import RecordedTasks
from swarmtui.session_process.task_sources import (
    ClosedLoopTasks,
    MixedTasks,
    NewTasks,
    ScheduledTasks,
    TaskFactory,
    TaskSource,
)


def make_source(load: Load, factory: TaskFactory, key: LevelKey, run: int, seed: int) -> TaskSource:
    c = key[0]
    requests = load.per_run.at(c, equal=factory.keeps_in_step)
    total = None if load.duration_s is not None else requests
    match load:
        case Closed(preroll=True):
            goal = None if load.half_width is None else (load.half_width, requests)
            total = total if goal is None else MOST_CYCLES * c
            return ClosedLoopTasks(factory, c, total, load.canary_share, complete=load.waits, precision=goal)
        case Closed():
            return NewTasks(factory, c, total)
        case Barrier() | Swarm():
            return NewTasks(factory, c, c)
        case Open():
            return ScheduledTasks(factory, c, _arrivals(load, factory, key, run, seed), total, load.duration_s)
        case Ramp():
            return NewTasks(factory, c, None)
        case Mixed():
            return MixedTasks(factory, c, load.loop)
        case Dag():
            graph = factory.generator.workload
            assert isinstance(graph, Graph)
            return GraphTasks(factory, c, graph)
        case Sessions():
            return _recorded_tasks(load, factory, c, run, total)
    assert_never(load)


def _arrivals(load: Open, factory: TaskFactory, key: LevelKey, run: int, seed: int) -> Iterator[float]:
    rate = key[1]
    assert rate is not None
    if load.arrival == "recorded":
        return factory.generator.arrival_times(rate)
    count = load.per_run.count if load.duration_s is None else max(1, round(rate * load.duration_s))
    return iter(arrival_times(rate, load.arrival, load.burst, count, seed, run))


def _recorded_tasks(load: Sessions, factory: TaskFactory, c: int, run: int, total: int | None) -> RecordedTasks:
    limit = load.session_limit
    if limit is None:
        return RecordedTasks(factory, c, load, run, total=total, sessions=None)
    sessions = len(factory.generator.plays.recordings) if limit == "all" else limit.at(c)
    return RecordedTasks(factory, c, load, run, total=None, sessions=max(sessions, c))


class PlannedLoad:
    """Applies the load of a plan: which runs, in which order, with which tasks.

    `mode` is the plan's own load, until the user takes manual control. `complete`: the answers of closed loops are
    needed, so that no level ends before them.
    """

    def __init__(self, plan: Plan, factory: TaskFactory, *, complete: bool = False) -> None:
        self._seed, self._factory, self.complete = plan.seed, factory, complete
        self.mode: Load = plan.load
        self._current: TaskSource | None = None

    @property
    def duration_s(self) -> float | None:
        """The duration of a run, if time ends it; arrivals of an open loop end by themselves."""
        return None if self.mode.by_rate else self.mode.duration_s

    def run_order(self, levels: tuple[int, ...], runs: int) -> list[tuple[LevelKey, int]]:
        """Order the runs by level, or rotate the levels: each run starts with another one, as in a Latin square."""
        keys: list[LevelKey] = [(c, rate) for c in levels for rate in self.mode.rates or (None,)]
        if not self.mode.rotates:
            return [(key, run) for key in keys for run in range(1, runs + 1)]
        rotated = [keys[run % len(keys) :] + keys[: run % len(keys)] for run in range(runs)]
        return [(key, run) for run, row in enumerate(rotated, 1) for key in row]

    def task_source(self, key: LevelKey, run: int, least: int = 0, *, jobs: bool = False) -> TaskSource:
        """Return the tasks of a run; one with a number of requests has at least `least`, or as many `jobs`."""
        load = self.mode
        by_sessions = isinstance(load, Sessions) and load.session_limit is not None
        if isinstance(load, Sessions) and jobs:
            # Those of the beginning are not whole, and those in flight at the end are cut off.
            load = msgspec.structs.replace(load, sessions=least + key[0], requests=None, duration=None)
        elif isinstance(load, Closed | Sessions) and not by_sessions and least > load.per_run.at(key[0]):
            load = msgspec.structs.replace(load, requests=least)
        if isinstance(load, Closed) and self.complete:
            load = msgspec.structs.replace(load, complete=True)
        self._current = make_source(load, self._factory, key, run, self._seed)
        return self._current

    def measured_requests(self, c: int) -> int:
        """Return the requests that a run of this level measures at least; one per agent is cancelled at its end."""
        load = self.mode
        return max(0, load.per_run.at(c) - c) if isinstance(load, Closed) else 0

    async def live_context(self) -> float | None:
        """Return the mean tokens in the context of one agent; None unless the workload is a trace."""
        load = self.mode
        if not isinstance(load, Sessions):
            return None
        recordings, gap_s = self._factory.generator.plays.recordings, load.max_gap_s
        return await asyncio.to_thread(live_context, recordings, max_gap_s=gap_s, time_scale=load.time_scale)

    def continuous_source(self, c: int) -> TaskSource:
        """Return tasks without end, for manual control and ramps; recorded sessions continue if they can."""
        if not isinstance(self.mode, Sessions):
            return NewTasks(self._factory, c, None)
        if isinstance(self._current, RecordedTasks) and self._current.continue_with(c):
            return self._current
        self._current = RecordedTasks(self._factory, c, self.mode, 1, total=None, sessions=None)
        return self._current

    def serial_contents(self, c: int, contents: range) -> range:
        """Select the tasks of a batch to repeat serially: all, or a sample to extrapolate from."""
        return range(0) if c == 1 else contents[: self.mode.serial_tasks]

    def requests_in_sequence(self, c: int) -> float:
        """Return how many requests a stream sends in sequence in a run of this level, with pre-roll and a filler."""
        if isinstance(self.mode, Closed):
            unmeasured = (c > 1) + (self.complete or self.mode.complete)
            return self.mode.per_run.at(c) / c + (unmeasured if self.mode.preroll else 0)
        return 1.0 + len(self.serial_contents(c, range(c)))
