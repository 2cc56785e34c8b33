"""Define the load modes: in which order levels run, where their tasks come from, and how tasks are handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from swarmtui.model.plan import LevelKey, LoadModeName, Plan, Requests
from swarmtui.model.workload import Graph
from swarmtui.prompts.sampling import arrival_times
from swarmtui.prompts.traces.recordings import TraceMeans, trace_means
from swarmtui.session_process.recorded_tasks import RecordedTasks
from swarmtui.session_process.task_sources import (
    ClosedLoopTasks,
    GraphTasks,
    MixedTasks,
    NewTasks,
    ScheduledTasks,
    TaskFactory,
    TaskSource,
)


def _recorded_tasks(plan: Plan, factory: TaskFactory, key: LevelKey, run: int) -> RecordedTasks:
    if plan.sessions is None:
        total = None if plan.duration_s else plan.requests.at(key[0])
        return RecordedTasks(factory, key[0], plan, run, total=total, sessions=None)
    every = len(factory.generator.plays.recordings)
    sessions = every if plan.sessions == "all" else plan.sessions.at(key[0])
    return RecordedTasks(factory, key[0], plan, run, total=None, sessions=max(sessions, key[0]))


def _closed_loop_tasks(plan: Plan, factory: TaskFactory, key: LevelKey, run: int) -> TaskSource:
    total = None if plan.duration_s else plan.requests.at(key[0])
    if not plan.preroll:
        return NewTasks(factory, key[0], total)
    return ClosedLoopTasks(factory, key[0], total, plan.canaries)


def _open_loop_tasks(plan: Plan, factory: TaskFactory, key: LevelKey, run: int) -> TaskSource:
    c, rate = key
    assert rate is not None
    if plan.arrival == "recorded":
        times = factory.generator.arrival_times(rate)
    else:
        times = arrival_times(rate, plan.arrival, plan.burst, plan.seed, run)
    return ScheduledTasks(factory, c, times, None if plan.duration_s else plan.requests.at(c), plan.duration_s)


def _graph_tasks(plan: Plan, factory: TaskFactory, key: LevelKey, run: int) -> TaskSource:
    graph = factory.generator.workload
    assert isinstance(graph, Graph)
    return GraphTasks(factory, key[0], graph)


class LoadMode(NamedTuple):
    """How the scheduler runs a level.

    `looping`: a stream sends one request after another. `scheduled`: requests have send times, whether or not streams
    are free. `continuous`: streams continue from one level to the next. `batch`: all tasks of a level start together,
    and can be repeated serially to measure the speed-up.
    """

    make_source: Callable[[Plan, TaskFactory, LevelKey, int], TaskSource]
    looping: bool = False
    scheduled: bool = False
    continuous: bool = False
    batch: bool = False


LOAD_MODES: dict[LoadModeName, LoadMode] = {
    "closed": LoadMode(_closed_loop_tasks, looping=True),
    "barrier": LoadMode(lambda plan, factory, key, run: NewTasks(factory, key[0], key[0]), batch=True),
    "swarm": LoadMode(lambda plan, factory, key, run: NewTasks(factory, key[0], key[0]), batch=True),
    "open": LoadMode(_open_loop_tasks, scheduled=True),
    "ramp": LoadMode(lambda plan, factory, key, run: NewTasks(factory, key[0], None), looping=True, continuous=True),
    "mixed": LoadMode(lambda plan, factory, key, run: MixedTasks(factory, key[0], plan.loop)),
    "dag": LoadMode(_graph_tasks),
    "sessions": LoadMode(_recorded_tasks, scheduled=True),
}


class PlannedLoad:
    """Apply the load mode of a plan: which runs, in which order, with which tasks.

    `mode_name` is the plan's own, until the user takes manual control: then it is a closed loop, unless recorded
    sessions are played.
    """

    def __init__(self, plan: Plan, factory: TaskFactory) -> None:
        self._plan, self._factory = plan, factory
        self.mode_name: LoadModeName = plan.load
        self._current: TaskSource | None = None

    def switch_to_manual(self) -> None:
        self.mode_name = "sessions" if self._plan.load == "sessions" else "closed"

    @property
    def mode(self) -> LoadMode:
        return LOAD_MODES[self.mode_name]

    @property
    def duration_s(self) -> float | None:
        """The duration of a run, if the scheduler ends runs by time."""
        timed = (self.mode.looping and not self.mode.continuous) or self.mode_name == "sessions"
        return self._plan.duration_s if timed else None

    def run_order(self, levels: tuple[int, ...], runs: int) -> list[tuple[LevelKey, int]]:
        """Order the runs by level, or rotate the levels: each run starts with another one, as in a Latin square."""
        keys: list[LevelKey] = [(c, None) for c in levels]
        if self.mode_name == "open":
            keys = [(c, rate) for c in levels for rate in self._plan.rates]
        if not self._plan.rotate:
            return [(key, run) for key in keys for run in range(1, runs + 1)]
        rotated = [keys[run % len(keys) :] + keys[: run % len(keys)] for run in range(runs)]
        return [(key, run) for run, row in enumerate(rotated, 1) for key in row]

    def task_source(self, key: LevelKey, run: int, least: int = 0) -> TaskSource:
        """Return the tasks of a run; a run with a number of requests has at least `least`."""
        plan = self._plan
        if least > plan.requests.at(key[0]):
            plan = msgspec.structs.replace(plan, requests=Requests(count=least, per_stream=False))
        self._current = self.mode.make_source(plan, self._factory, key, run)
        return self._current

    async def trace_means(self) -> TraceMeans:
        """Return the mean tokens in the context of one agent, and of prompts; None unless the workload is a trace."""
        plan = self._plan
        if self.mode_name != "sessions":
            return TraceMeans(None, None)
        recordings, gap_s = self._factory.generator.plays.recordings, plan.max_gap_s
        return await asyncio.to_thread(trace_means, recordings, max_gap_s=gap_s, time_scale=plan.time_scale)

    def continuous_source(self, c: int) -> TaskSource:
        """Return tasks without end, for manual control and ramps; recorded sessions continue if they can."""
        if self.mode_name != "sessions":
            return NewTasks(self._factory, c, None)
        if isinstance(self._current, RecordedTasks) and self._current.continue_with(c):
            return self._current
        self._current = RecordedTasks(self._factory, c, self._plan, 1, total=None, sessions=None)
        return self._current

    def serial_contents(self, c: int, contents: range) -> range:
        """Select the tasks of a batch to repeat serially: all, or a sample to extrapolate from."""
        plan = self._plan
        if c == 1 or not self.mode.batch or plan.serial == "none" or plan.serial_decode_tps:
            return range(0)
        return contents if plan.serial == "measured" else contents[: plan.sample]

    def requests_in_sequence(self, c: int) -> float:
        """How many requests a stream sends one after another in a run of this level, with pre-roll and a filler."""
        if self.mode.looping:
            return self._plan.requests.at(c) / c + 2
        return 1.0 + len(self.serial_contents(c, range(c)))
