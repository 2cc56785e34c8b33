"""The load of a session: how requests are sent, by load mode, and the traits that tell the modes apart.

A load is the `[load]` table of a workload. With what the user chose instead, it is part of a plan.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from msgspec import Meta

from swarmtui.model.base import BadInput, InputStruct
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.run_length import DefaultRequests, Requests, parse_percentage, parse_requests

MAX_STREAMS = 20_000

Arrival = Literal["poisson", "constant", "gamma", "recorded"]
Rules = Literal["agentx"]
Streams = Annotated[int, Meta(ge=1, le=MAX_STREAMS)]
Levels = Annotated[tuple[Streams, ...], Meta(min_length=1)]
PositiveFloat = Annotated[float, Meta(gt=0.0)]

# More warm-up requests than this cost time and change nothing.
_MAX_WARMUP = 8
# A run that has to reach a half-width ends after this many requests per stream if it does not.
MOST_CYCLES = 16
# A stream pauses this long after an error, twice as long after each further one, so that a failed server is not flooded
# with requests.
ERROR_PAUSE_S = 0.05
# The smallest and the largest share that can be chosen, in per cent.
_CANARIES, _PRECISION = (1.0, 20.0), (0.5, 20.0)


class SerialRates(InputStruct, frozen=True, kw_only=True):
    """The rates of a single user, measured elsewhere."""

    prompt_tps: PositiveFloat
    decode_tps: PositiveFloat


class LoadBase(InputStruct, frozen=True, kw_only=True, tag_field="mode"):
    """Base of all load modes: their traits, and the keys that apply to each of them.

    `holds_c`: each stream sends its next request when the previous one ends, so that C are in flight until the end of
    a level, and its main throughput is the steady one. `scheduled`: requests have send times, whether or not streams
    are free. `by_rate`: levels are rates, not numbers of streams. `continuous`: streams continue from one level to the
    next. `batch`: all tasks of a level start together, and can be repeated serially to measure the speed-up.
    `replayed`: recorded sessions are played. `fixed`: tasks depend on each other, so that no other load can send them.
    `primary`: the first task of a level is the one that matters. `by_type`: the figures of interest are those of each
    type of task. `prompt_heavy`: prompts and output are compared. `levels_key` is the key that `--levels` replaces.
    `title` names the mode in a list of plans, and `sentence` is part of the description of a plan.

    `rotate`: each run starts with a different level, so that no level always comes first. By default levels rotate if
    there are several runs: the runs of a level are then spread over the session.
    """

    holds_c: ClassVar[bool] = False
    scheduled: ClassVar[bool] = False
    by_rate: ClassVar[bool] = False
    continuous: ClassVar[bool] = False
    batch: ClassVar[bool] = False
    replayed: ClassVar[bool] = False
    fixed: ClassVar[bool] = False
    primary: ClassVar[bool] = False
    by_type: ClassVar[bool] = False
    prompt_heavy: ClassVar[bool] = False
    levels_key: ClassVar[str | None] = None
    title: ClassVar[str] = ""
    sentence: ClassVar[str] = ""
    # Values that are parsed from text, and raise BadInput if it is wrong.
    parsed: ClassVar[tuple[str, ...]] = ("per_run", "duration_s", "canary_share")

    runs: Annotated[int, Meta(ge=1, le=1000)] = 1
    warmup: Annotated[int, Meta(ge=0)] | None = None
    rotate: bool | None = None

    @classmethod
    def has(cls, key: str) -> bool:
        """Return whether the mode has this key, for example a number of requests that can be chosen."""
        return key in cls.__struct_fields__

    @property
    def name(self) -> str:
        """The name of the mode, as in stages, levels and frames."""
        return str(self.__struct_config__.tag)

    @property
    def levels(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def rates(self) -> tuple[float, ...]:
        return ()

    @property
    def serial_rates(self) -> SerialRates | None:
        return None

    @property
    def serial_tasks(self) -> int | None:
        """The number of tasks of a batch that are repeated serially; None: all of them."""
        return 0

    @property
    def per_run(self) -> Requests:
        """The number of requests of a run, where neither its duration nor its tasks decide."""
        return Requests()

    @property
    def duration_s(self) -> float | None:
        return None

    @property
    def canary_share(self) -> float:
        return 0.0

    @property
    def follows_trace(self) -> bool:
        """Whether requests are sent at the times of a recorded trace."""
        return self.replayed

    @property
    def run_length(self) -> str:
        """The length of a run as text: 30 s, 4C requests, 2C sessions."""
        if self.duration_s is not None:
            return f"{self.duration_s:g} s"
        return self.per_run.text

    def describe(self, template: str) -> str:
        """Fill in a `title` or `sentence`."""
        levels, rates = ",".join(map(str, self.levels)), ",".join(f"{rate:g}" for rate in self.rates)
        return template.format(load=self, levels=levels, rates=rates)

    @property
    def rotates(self) -> bool:
        return self.runs > 1 and not self.continuous if self.rotate is None else self.rotate

    @property
    def warmup_requests(self) -> int:
        """One warm-up request per stream if the number was not chosen, but not many."""
        return min(_MAX_WARMUP, 1 if self.by_rate else max(self.levels)) if self.warmup is None else self.warmup

    def steered(self) -> Load:
        """Return the load under manual control, and of goals that the user sets then: a closed loop."""
        return Closed(runs=self.runs, warmup=self.warmup, rotate=self.rotates)

    def find_problem(self) -> None:
        """Raise BadInput for what the types do not exclude; its key is that of the load."""
        for name in self.parsed:
            getattr(self, name)
        if len(set(self.levels)) < len(self.levels):
            raise BadInput("duplicate level; use runs to repeat levels", key="levels")


class LimitedLoad(LoadBase, frozen=True, kw_only=True):
    """A load whose runs end after a number of `requests` (a multiple of C is written 4C), or after a `duration`."""

    default_requests: ClassVar[str] = "4C"

    requests: str | int | None = None
    duration: str | None = None

    @property
    def per_run(self) -> Requests:
        return parse_requests(str(self.requests or self.default_requests))

    @property
    def duration_s(self) -> float | None:
        return parse_seconds(self.duration, "duration") if self.duration else None

    def find_problem(self) -> None:
        super().find_problem()
        if self.requests is not None and self.duration is not None:
            raise BadInput("give requests or duration, not both", key="duration")


class Closed(LimitedLoad, frozen=True, kw_only=True, tag="closed"):
    """C agents, each of which sends its next request when the previous one ends.

    `preroll`: unmeasured requests keep C in flight before and after the measured ones; a run then ends with its steady
    window, and what is still in flight is cancelled, unless it is to be `complete`. `canaries` is the share of
    additional questions with known answers, such as "2%". `precision`: instead of a number of requests, each run lasts
    until the half-width of its steady rate is at most this share of it, but no longer than 16 requests per stream.
    """

    holds_c = True
    levels_key = "levels"
    title, sentence = "sweep: one level after the other", "closed loop, C={levels}"

    levels: Levels = (1, 2, 4, 8)
    preroll: bool = True
    complete: bool = False
    canaries: str = "none"
    precision: str | None = None

    @property
    def per_run(self) -> Requests:
        return super().per_run if self.requests else DefaultRequests()

    @property
    def canary_share(self) -> float:
        return 0.0 if self.canaries == "none" else parse_percentage(self.canaries, _CANARIES, "canaries")

    @property
    def waits(self) -> bool:
        """Whether a run waits for all its requests, instead of ending with its steady window."""
        return self.complete or self.canary_share > 0 or not self.preroll

    def counted(self, c: int) -> int:
        """The requests of a run that end in its steady window, at least, and are counted."""
        requests = self.per_run.at(c)
        return requests if self.waits else max(1, requests - c + 1)

    @property
    def half_width(self) -> float | None:
        """The half-width at which a run ends."""
        return None if self.precision is None else parse_percentage(self.precision, _PRECISION, "precision")

    @property
    def run_length(self) -> str:
        if self.half_width is None:
            return super().run_length
        return f"until ± {100 * self.half_width:g} %, {self.per_run} to {MOST_CYCLES}C requests"

    def find_problem(self) -> None:
        super().find_problem()
        if self.half_width is not None and (self.requests or self.duration or not self.preroll):
            raise BadInput("decides how long a run is; give no requests or duration", key="precision")

    def steered(self) -> Load:
        return self


class Barrier(LoadBase, frozen=True, kw_only=True, tag="barrier"):
    """C tasks start together and the batch ends with the last; `serial`: the same tasks in sequence, as a baseline.

    With `serial_rates` their time is extrapolated instead.
    """

    batch = True
    levels_key = "levels"
    title, sentence = "batches: C tasks at once, per level", "batches, C={levels}"

    levels: Levels = (1, 2, 3, 4)
    serial: Literal["measured", "none"] = "measured"
    serial_rates: SerialRates | None = None

    @property
    def serial_tasks(self) -> int | None:
        return None if self.serial == "measured" and self.serial_rates is None else 0


class Swarm(LoadBase, frozen=True, kw_only=True, tag="swarm"):
    """`agents` tasks at once. Their serial time is extrapolated from `sample` tasks run alone, or from rates."""

    batch = True
    prompt_heavy = True
    levels_key = "agents"
    title, sentence = "swarm: {levels} agents at once", "{levels} agents at once"

    agents: Streams | Levels
    sample: Annotated[int, Meta(ge=0)] = 1
    serial_rates: SerialRates | None = None

    @property
    def levels(self) -> tuple[int, ...]:
        return self.agents if isinstance(self.agents, tuple) else (self.agents,)

    @property
    def serial_tasks(self) -> int | None:
        return self.sample if self.serial_rates is None else 0


class Open(LimitedLoad, frozen=True, kw_only=True, tag="open"):
    """`rate` requests per second, however fast the server answers, with at most `streams` in flight.

    Several rates are several levels. `burst` is the squared coefficient of variation of gamma gaps: 1 is Poisson, more
    gives bursts.
    """

    scheduled = True
    by_rate = True
    default_requests = "100"
    title, sentence = "open loop: {rates} requests/s, {load.arrival}", "open loop, {rates} requests/s, {load.arrival}"

    rate: PositiveFloat | Annotated[tuple[PositiveFloat, ...], Meta(min_length=1)]
    arrival: Arrival = "poisson"
    burst: PositiveFloat = 1.0
    streams: Streams = 512

    @property
    def levels(self) -> tuple[int, ...]:
        return (self.streams,)

    @property
    def rates(self) -> tuple[float, ...]:
        return self.rate if isinstance(self.rate, tuple) else (self.rate,)

    @property
    def follows_trace(self) -> bool:
        return self.arrival == "recorded"

    def steered(self) -> Load:
        limit = None if self.duration else str(self.per_run)
        return Closed(runs=self.runs, warmup=self.warmup, rotate=self.rotates, requests=limit, duration=self.duration)

    def find_problem(self) -> None:
        super().find_problem()
        if len(set(self.rates)) < len(self.rates):
            raise BadInput("duplicate rate; use runs to repeat rates", key="rate")
        if self.per_run.per_stream:
            raise BadInput("an open loop has no C; give a number", key="requests")


class Ramp(LoadBase, frozen=True, kw_only=True, tag="ramp"):
    """C grows from `start` to `to` without a pause: by `step`, or doubled, after each `every`."""

    holds_c = True
    continuous = True
    parsed = (*LoadBase.parsed, "every_s")
    title, sentence = "ramp: C grows from {load.start} to {load.to}", "C={levels}, {load.every} each"

    to: Streams
    start: Streams = 1
    by: Literal["linear", "doubling"] = "doubling"
    step: Streams = 1
    every: str = "10s"

    @property
    def levels(self) -> tuple[int, ...]:
        steps = [self.start]
        while steps[-1] < self.to:
            following = steps[-1] * 2 if self.by == "doubling" else steps[-1] + self.step
            steps.append(min(self.to, following))
        return tuple(steps)

    @property
    def every_s(self) -> float:
        return parse_seconds(self.every, "every")

    def find_problem(self) -> None:
        super().find_problem()
        if self.to < self.start:
            raise BadInput("is below start", key="to")


class Mixed(LoadBase, frozen=True, kw_only=True, tag="mixed"):
    """A primary conversation with C − 1 concurrent side tasks; `loop`: these repeat until the primary has ended."""

    fixed = True
    primary = True
    levels_key = "levels"
    title, sentence = "mixed: a primary task with side tasks", "a primary task with side tasks, C={levels}"

    levels: Levels = (1, 2, 3, 5)
    loop: bool = False


class Dag(LoadBase, frozen=True, kw_only=True, tag="dag"):
    """Every task of the graph once, each as soon as the tasks that it depends on are done.

    `size` is their number, which the workload decides.
    """

    fixed = True
    by_type = True
    title, sentence = "graph: {levels} dependent tasks", "a graph of {levels} tasks"

    size: Annotated[int, Meta(ge=1)] = 1

    @property
    def levels(self) -> tuple[int, ...]:
        return (self.size,)


class Sessions(LimitedLoad, frozen=True, kw_only=True, tag="sessions"):
    """C recorded sessions at a time, each an agent with its sub-agents; one that ends is replaced by the next.

    A request is due when the answer before it has ended and the recorded pause has passed: at most `max_gap` of it,
    divided by `time_scale`. A run ends when no session is left of `sessions` (a number, a multiple of C, or "all" of
    the trace), after a number of requests, or after a time. `rules`: the benchmark whose rules decide all of this.
    """

    scheduled = True
    replayed = True
    levels_key = "levels"
    parsed = (*LoadBase.parsed, "session_limit", "max_gap_s")
    title, sentence = "sessions: C recorded agents at a time", "recorded sessions, C={levels}"

    levels: Levels = (1, 2, 4, 8)
    sessions: str | int = "2C"
    max_gap: str = "10s"
    time_scale: PositiveFloat = 1.0
    rules: Rules | None = None

    @property
    def max_gap_s(self) -> float:
        return parse_seconds(self.max_gap, "max_gap")

    @property
    def session_limit(self) -> Requests | Literal["all"] | None:
        """The number of sessions of a run; None if requests or a duration limit it."""
        if self.requests is not None or self.duration is not None:
            return None
        if self.sessions == "all":
            return "all"
        try:
            return parse_requests(str(self.sessions))
        except BadInput:
            problem = f"{self.sessions!r} is neither a number nor a multiple of C like 2C nor all"
            raise BadInput(problem, key="sessions") from None

    @property
    def run_length(self) -> str:
        return super().run_length if self.session_limit is None else f"{self.session_limit} sessions"

    def steered(self) -> Load:
        return self

    def find_problem(self) -> None:
        super().find_problem()
        if self.rules is not None:
            ruled = RULES[self.rules]
            for key in ("max_gap", "time_scale", "sessions", "requests", "duration"):
                if getattr(self, key) != getattr(ruled, key):
                    raise BadInput(f"set by the rules of {self.rules}", key=key)


# Pauses of at most 10 s, at recorded speed; the run ends when the trace has no session left for a slot.
RULES: dict[Rules, Sessions] = {"agentx": Sessions(max_gap="10s", time_scale=1.0, sessions="all", rules="agentx")}

Load = Closed | Barrier | Swarm | Open | Ramp | Mixed | Dag | Sessions

_TRAITS: dict[str, type[LoadBase]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Load)}


def traits(name: str) -> type[LoadBase]:
    """Return the traits of the load mode that a stage, level or frame names; an unknown one has none."""
    return _TRAITS.get(name, LoadBase)
