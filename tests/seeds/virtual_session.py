"""Run a whole session in virtual time, with the tasks of a workload and the engine of the simulator.

The stages run in the same order as in the session process, with a millisecond from an answer to the next request. The
figures are derived from the records by the same code as those of any saved session.
"""

from __future__ import annotations

import asyncio
import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec

from swarmtui.analysis.answers import check_answer
from swarmtui.analysis.capacity.cliff import next_level
from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.limits.slo import DEFAULT_SLO
from swarmtui.client.plan_builder import QUICK_ALPHA, QUICK_BUDGET_S, QUICK_MAX_TOKENS
from swarmtui.model.client_protocol import FindCapacity
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.findings import Capacity
from swarmtui.model.journal import End, Head, ServerEntry, StageEnd, StageStart
from swarmtui.model.load import ERROR_PAUSE_S
from swarmtui.model.plan import DEFAULT_WORKLOAD, LevelKey, Plan
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.model.session import ClientInfo, Level, Session, Summary
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.model.workload import Message, Task, Workload, effective_load
from swarmtui.prompts.filler_text import (
    Calibration,
    calibration_texts,
    extend_calibration,
    fit_calibration,
    longest_prompt,
    needs_calibration,
)
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import WorkloadFile, find_workload, workload_digest
from swarmtui.session_process.goals.capacity import search
from swarmtui.session_process.load_modes import PlannedLoad
from swarmtui.session_process.precision import PrecisionGoal
from swarmtui.session_process.stages import Stages
from swarmtui.session_process.task_sources import NewTasks, RepeatedTasks, TaskFactory, TaskSource, WarmupTasks
from swarmtui.sessions.journal import Journal
from swarmtui.sessions.store import LoadedSession, summarise
from swarmtui.sim.apis.openai import parse_chat
from swarmtui.sim.batching import BatchingEngine, Job
from swarmtui.sim.presets import Preset, fault_for, parse_spec
from swarmtui.sim.requests import ParsedRequest
from swarmtui.sim.tokens import chat_pieces, pieces

_THINK_S = 0.001
_GOLDEN = (math.sqrt(5) - 1) / 2


def simulate_session(simulator: str, workload: str, *, seed: int = 1, **given: Any) -> Summary:
    """Simulate `swarmtui run --endpoint sim:… --workload …`; `given` are fields of the plan or of its load."""
    journal = simulate_journal(simulator, workload, seed=seed, **given)
    return summarise(LoadedSession(directory=Path("virtual"), journal=journal))


def simulate_journal(simulator: str, workload: str, *, seed: int = 1, eos: float = 0.0, **given: Any) -> Journal:
    """`eos` is the share of answers whose last token no chunk carries."""
    preset, _ = parse_spec(simulator)
    found = find_workload(workload)
    plan, factory = _plan(found, seed, **given)
    factory.slots = preset.slots * preset.replicas
    planned, client = PlannedLoad(plan, factory), _VirtualClient(preset, eos, seed)
    load = plan.load
    client.run_stage(max(load.levels), 0, "warmup", WarmupTasks(factory, max(load.levels), load.warmup_requests))
    for (c, rate), run in planned.run_order(load.levels, load.runs):
        source = planned.task_source((c, rate), run)
        client.run_stage(c, run, "level", source, load=load.name)
        if isinstance(source, NewTasks) and (serial := planned.serial_contents(c, source.contents)):
            client.run_stage(c, run, "serial", RepeatedTasks(factory, c, serial), load=load.name, streams=1)
    session = Session(
        id="virtual",
        created="2026-11-15T01:44:55Z",
        t0_ns=0,
        endpoints=(Endpoint(url="http://127.0.0.1:1", model=preset.model),),
        workload=found.workload.name,
        workload_digest=workload_digest(found),
        workload_spec={},
        plan=plan,
        client=ClientInfo(version="0", python="3.11", host="box", cores=2),
        simulated=True,
    )
    return Journal(
        head=Head(session=session, pid=1),
        entries=(*client.starts, *client.ends, ServerEntry(endpoint=0, server=_discovered(preset))),
        stages=tuple(client.starts),
        ends=tuple(client.ends),
        records=tuple(client.records),
        servers=(_discovered(preset),),
        end=End(t_ns=_ns(client.now), state="done"),
    )


class Freeze(NamedTuple):
    """The server stops for some `seconds` in the `number`-th stage, after a share of its time."""

    number: int
    share: float
    seconds: float


def simulate_cliff_search(
    simulator: str, workload: str, *, seed: int = 1, max_c: int = 512, freeze: Freeze | None = None
) -> tuple[Level, ...]:
    """Simulate `swarmtui run --find-cliff` without known slots, and return the levels that it tried."""
    return _simulate_levels(simulator, workload, lambda levels: next_level(levels, max_c), seed, freeze)


def simulate_sweep(
    simulator: str, workload: str, planned: Sequence[int], *, seed: int = 1, freeze: Freeze | None = None
) -> tuple[Level, ...]:
    """Simulate the levels of a sweep without known slots."""

    def choose(levels: tuple[Level, ...]) -> int | None:
        return planned[len(levels)] if len(levels) < len(planned) else None

    return _simulate_levels(simulator, workload, choose, seed, freeze)


def simulate_quick(simulator: str, *, seed: int = 1, workload: str = DEFAULT_WORKLOAD) -> Capacity:
    """Simulate `swarmtui quick`: the search of the session process, with its budget in virtual time."""
    goal = FindCapacity(slo=DEFAULT_SLO, alpha=QUICK_ALPHA, budget_s=QUICK_BUDGET_S)
    return _simulate_search(simulator, goal, seed, workload)[0]


def simulate_time_left(simulator: str, goal: FindCapacity, *, seed: int = 1) -> list[tuple[float, float]]:
    """Return the time that a search says it still takes, before each visit, and what it then takes."""
    _, stages = _simulate_search(simulator, goal, seed, DEFAULT_WORKLOAD)
    end = stages.clock()
    return [(expected - at, end - at) for at, expected in stages.expected_ends if expected is not None and at < end]


def _simulate_search(simulator: str, goal: FindCapacity, seed: int, workload: str) -> tuple[Capacity, _VirtualStages]:
    preset, _ = parse_spec(simulator)
    plan, factory = _plan(find_workload(workload), seed, levels=(1,), max_tokens=QUICK_MAX_TOKENS)
    stages = _VirtualStages(preset, PlannedLoad(plan, factory), factory, seed)
    found = asyncio.run(search(cast(Stages, stages), goal))
    assert found is not None
    return found, stages


class _VirtualStages:
    """Offers a search for the capacity what it needs of `Stages`, in virtual time."""

    def __init__(self, preset: Preset, load: PlannedLoad, factory: TaskFactory, seed: int) -> None:
        self.load, self._client = load, _VirtualClient(preset, seed=seed)
        slots = factory.slots = preset.slots * preset.replicas
        self.state = SimpleNamespace(
            slots=SimpleNamespace(total=slots),
            levels=(),
            servers=(_discovered(preset),),
            was_disturbed=False,
            is_disturbed=lambda now: False,
        )
        self.journal = SimpleNamespace(write=lambda entry: None, log_event=lambda kind, text: None)
        self.steering, self.records = SimpleNamespace(ends_goal=False), SimpleNamespace(in_memory=False, answered=True)
        self.observers: list[Callable[[Record], None]] = []
        self.expected_ends: list[tuple[float, float | None]] = []

    @property
    def expected_end(self) -> float | None:
        return self.expected_ends[-1][1] if self.expected_ends else None

    @expected_end.setter
    def expected_end(self, expected: float | None) -> None:
        self.expected_ends.append((self.clock(), expected))

    @property
    def last_number(self) -> int:
        return len(self._client.starts)

    def clock(self) -> float:
        return self._client.now

    async def end_streams(self) -> None:
        pass

    async def levels_computed(self) -> None:
        client = self._client
        self.state.levels = level_figures(client.records, client.starts, client.ends)

    async def run_level(
        self, key: LevelKey, run: int, runs: int, *, least: int, enough: Callable[[], bool], jobs: bool
    ) -> None:
        def observe(record: Record) -> None:
            for observer in self.observers:
                observer(record)

        source = self.load.task_source(key, run, least, jobs=jobs)
        self._client.run_stage(key[0], run, "level", source, observe=observe, enough=enough)


def _simulate_levels(
    simulator: str,
    workload: str,
    choose: Callable[[tuple[Level, ...]], int | None],
    seed: int,
    freeze: Freeze | None,
) -> tuple[Level, ...]:
    plan, factory = _plan(find_workload(workload), seed, levels=(1,))
    planned, client = PlannedLoad(plan, factory), _VirtualClient(parse_spec(simulator)[0])
    levels: tuple[Level, ...] = ()
    while (c := choose(levels)) is not None:
        client.run_stage(c, 1, "level", planned.task_source((c, None), 1))
        if freeze is not None and freeze.number == len(client.starts):
            client.freeze(freeze)
        levels = level_figures(client.records, client.starts, client.ends)
    return levels


def _plan(found: WorkloadFile, seed: int, **given: Any) -> tuple[Plan, TaskFactory]:
    of_load = {name: given.pop(name) for name in list(given) if name not in Plan.__struct_fields__}
    plan = Plan(load=msgspec.structs.replace(effective_load(found.workload), **of_load), seed=seed, **given)
    source = TaskGenerator(found, seed=seed, calibration=_calibrate(found.workload, seed), max_tokens=plan.max_tokens)
    return plan, TaskFactory(source)


class _RequestInFlight(msgspec.Struct, kw_only=True):
    """A request in flight, and the times of its tokens."""

    task: Task
    turn: int
    agent: int
    messages: tuple[Message, ...]
    request: ParsedRequest
    job: Job
    sent: float
    times: list[float] = msgspec.field(default_factory=list)

    @property
    def reasoning(self) -> str:
        return (
            self.request.words.text(0, self.request.reasoning_tokens).decode() if self.request.reasoning_tokens else ""
        )

    @property
    def content(self) -> str:
        return self.request.words.text(0, self.request.output_tokens).decode()[len(self.reasoning) :]


class _VirtualClient:
    def __init__(self, preset: Preset, eos: float = 0.0, seed: int = 0) -> None:
        self._preset, self._engine, self._eos = preset, BatchingEngine(preset, seed), eos
        self._seed = seed
        self._jobs = 0
        self.now = 0.0
        self.starts: list[StageStart] = []
        self.ends: list[StageEnd] = []
        self.records: list[Record] = []

    def run_stage(
        self,
        c: int,
        run: int,
        phase: Phase,
        source: TaskSource,
        *,
        load: str = "closed",
        streams: int | None = None,
        observe: Callable[[Record], None] = lambda record: None,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run a stage until its tasks have ended or are `enough`; `observe` gets each record."""
        number, known = len(self.starts) + 1, len(self.records)
        self.starts.append(
            StageStart(number=number, t_ns=_ns(self.now), c=c, run=run, phase=phase, of=source.to_finish, load=load)
        )
        flights: dict[int, _RequestInFlight] = {}
        free = deque((self.now, agent) for agent in range(streams or c))
        turns: deque[tuple[float, _RequestInFlight]] = deque()
        idle: list[int] = []
        measured = 0
        goal = None if source.precision is None else PrecisionGoal(self.starts[-1], *source.precision)
        while free or turns or flights:
            waits = source.fills and source.may_end is None
            for record in self.records[known:]:
                observe(record)
            known = len(self.records)
            done = source.over or (goal and goal.reached and not free) or enough()
            if done or (waits and not source.has_more and not measured):
                self._cancel(flights.values(), number, c, run)
                break
            end = self._engine.next_end() or math.inf
            if turns and turns[0][0] < end:
                at, before = turns.popleft()
                flight = self._send(before.task, before.turn + 1, before.agent, _history(before), at)
                flights[flight.job.number] = flight
                continue
            if free and free[0][0] < end:
                at, agent = free.popleft()
                self.now = max(self.now, at)
                if (task := source.next_task()) is None:
                    idle.append(agent)
                    continue
                if fault_for(self._jobs, self._preset.failures, self._seed) is not None:
                    self._jobs += 1
                    failed = self._failed(task, agent, number, c, run, task.phase if phase == "level" else phase, at)
                    self.records.append(failed)
                    source.task_finished(task, failed)
                    insort(free, (at + ERROR_PAUSE_S, agent))
                    continue
                flight = self._send(task, 0, agent, task.messages, at)
                flights[flight.job.number] = flight
                measured += task.phase == "level"
                source.request_sent(task.id)
                continue
            for step in self._engine.advance(end):
                for job, count in step.tokens:
                    flights[job.number].times += [step.end] * count
                    source.first_token(flights[job.number].task.id)
                for job in [job for job, _ in step.tokens if job.done]:
                    self.now = step.end
                    flight = flights.pop(job.number)
                    record = self._record(flight, number, c, run, flight.task.phase if phase == "level" else phase)
                    self.records.append(record)
                    if goal is not None:
                        goal.add(record)
                    if flight.turn < len(flight.task.followups):
                        turns.append((step.end + _THINK_S, flight))
                        continue
                    measured -= flight.task.phase == "level"
                    source.task_finished(flight.task, record)
                    for agent in (flight.agent, *idle):
                        insort(free, (step.end + _THINK_S, agent))
                    idle.clear()
        for record in self.records[known:]:
            observe(record)
        self.now += _THINK_S
        self.ends.append(StageEnd(number=number, t_ns=_ns(self.now), complete=True))

    def freeze(self, freeze: Freeze) -> None:
        """Delay everything after a moment of the last stage: a closed loop sends nothing while it waits."""
        start_ns, end = self.starts[-1].t_ns, self.ends[-1]
        at_ns, length_ns = start_ns + int(freeze.share * (end.t_ns - start_ns)), _ns(freeze.seconds)

        def later(t_ns: int | None) -> int | None:
            return None if t_ns is None else t_ns + length_ns * (t_ns > at_ns)

        def frozen(record: Record) -> Record:
            times = [later(t_ns) or 0 for t_ns in record.chunk_times_ns()]
            moved = {name: later(getattr(record, name)) for name in record.__struct_fields__ if name.endswith("_ns")}
            gaps = tuple(round((b - a) / 1e3) for a, b in zip([*times[:1], *times], times, strict=False))
            return msgspec.structs.replace(record, **moved, chunk_us=gaps)

        number = self.starts[-1].number
        self.records = [frozen(record) if record.stage == number else record for record in self.records]
        self.ends[-1] = msgspec.structs.replace(end, t_ns=end.t_ns + length_ns)
        self.now += freeze.seconds

    def _cancel(self, flights: Iterable[_RequestInFlight], stage: int, c: int, run: int) -> None:
        for flight in flights:
            self._engine.cancel(flight.job)
            times = flight.times
            phase: Phase = "unfinished" if flight.task.phase == "level" else flight.task.phase
            cut = msgspec.structs.replace(
                self._record(flight, stage, c, run, phase), error=CANCELLED, tokens_out=len(times) or None
            )
            self.records.append(msgspec.structs.replace(cut, t_done_ns=_ns(self.now), finish_reason=None))

    def _send(self, task: Task, turn: int, agent: int, messages: tuple[Message, ...], at: float) -> _RequestInFlight:
        body: dict[str, Any] = {"messages": messages, **task.extra}
        if task.max_tokens is not None:
            body["max_tokens"] = task.max_tokens
        ask = parse_chat(msgspec.json.encode(body), self._preset, 0)
        job = Job(self._jobs, len(ask.prompt), ask.output_tokens)
        self._jobs += 1
        self._engine.submit(job, at)
        return _RequestInFlight(task=task, turn=turn, agent=agent, messages=messages, request=ask, job=job, sent=at)

    def _failed(self, task: Task, agent: int, stage: int, c: int, run: int, phase: Phase, at: float) -> Record:
        return Record(
            task=task.id, stage=stage, c=c, run=run, phase=phase, agent=agent, t_sched_ns=_ns(at), t_sent_ns=_ns(at),
            t_done_ns=_ns(at + _THINK_S), error="http_500",
        )  # fmt: skip

    def _record(self, flight: _RequestInFlight, stage: int, c: int, run: int, phase: Phase) -> Record:
        task, ask, times = flight.task, flight.request, flight.times
        ended = len(times) == ask.output_tokens
        # The last token of these answers is not shown: it arrives with the finish reason.
        hidden = ended and len(times) > 1 and (flight.job.number + self._seed) * _GOLDEN % 1.0 < self._eos
        finish_ns, times = (_ns(times[-1]), times[:-1]) if hidden else (None, times)
        last = flight.turn == len(task.followups)
        cut = ask.finish_reason == "length"
        judged = None
        if last and task.check is not None and phase != "warmup":
            judged = check_answer(task.check, flight.content, flight.reasoning, cut=cut)
        return Record(
            task=task.id,
            turn=flight.turn,
            type=task.type,
            stage=stage,
            c=c,
            run=run,
            phase=phase,
            agent=flight.agent,
            t_sched_ns=_ns(flight.sent),
            t_sent_ns=_ns(flight.sent),
            t_headers_ns=_ns(flight.sent),
            t_first_ns=_ns(times[0]) if times else None,
            t_last_ns=_ns(times[-1]) if times else None,
            t_finish_ns=finish_ns,
            t_done_ns=finish_ns or (_ns(times[-1]) if times else None),
            stamp="kernel",
            chunks=len(times),
            chunk_us=tuple(round(1e6 * (b - a)) for a, b in zip([*times[:1], *times], times, strict=False)),
            first_tokens=1 if times else None,
            tokens_in=len(ask.prompt),
            tokens_out=ask.output_tokens,
            token_source="usage",
            finish_reason=ask.finish_reason,
            cap_hit=cut and not task.exact,
            verdict=judged,
        )


def _history(flight: _RequestInFlight) -> tuple[Message, ...]:
    answer = Message(role="assistant", content=flight.content)
    return (*flight.messages, answer, Message(role="user", content=str(flight.task.followups[flight.turn])))


def _calibrate(workload: Workload, seed: int) -> Calibration | None:
    if not needs_calibration(workload):
        return None
    texts = calibration_texts(seed)
    found = fit_calibration(texts, [len(chat_pieces([("user", text)])) for text in texts], "tokenize")
    return extend_calibration(found, lambda text: len(pieces(text)), longest_prompt(workload))


def _discovered(preset: Preset) -> DiscoveredServer:
    flags = {"slots": str(preset.slots), "replicas": str(preset.replicas)}
    return DiscoveredServer(url="http://127.0.0.1:1", slots=preset.slots * preset.replicas, flags=flags)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
