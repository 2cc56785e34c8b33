"""The `[load]` table of a workload, by mode. Options of the command line override it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from swarmtui.model.base import BadInput, InputStruct
from swarmtui.model.plan import MAX_STREAMS, Arrival, Plan, Requests, parse_requests, parse_seconds

Streams = Annotated[int, Meta(ge=1, le=MAX_STREAMS)]
Levels = Annotated[tuple[Streams, ...], Meta(min_length=1)]
PositiveFloat = Annotated[float, Meta(gt=0.0)]

# More warm-up requests than this cost time and change nothing.
_MAX_WARMUP = 8


class _LoadBase(InputStruct, frozen=True, kw_only=True):
    """Keys of all load modes. `rotate`: each run starts with a different level, so that no level always comes first.

    By default levels rotate if there are several runs: the runs of a level are then spread over the session.
    """

    runs: Annotated[int, Meta(ge=1, le=1000)] = 1
    warmup: Annotated[int, Meta(ge=0)] | None = None
    rotate: bool | None = None


class Closed(_LoadBase, frozen=True, kw_only=True, tag_field="mode", tag="closed"):
    """C agents, each of which sends its next request when the previous one ends."""

    levels: Levels = (1, 2, 4, 8)
    requests: str | int = "4C"
    duration: str | None = None


class Barrier(_LoadBase, frozen=True, kw_only=True, tag_field="mode", tag="barrier"):
    """C tasks start together and the batch ends with the last; `serial`: the same tasks in sequence, as a baseline."""

    levels: Levels = (1, 2, 3, 4)
    serial: Literal["measured", "none"] = "measured"


class SerialRates(InputStruct, frozen=True, kw_only=True):
    """The rates of a single user, measured elsewhere."""

    prompt_tps: PositiveFloat
    decode_tps: PositiveFloat


class Swarm(_LoadBase, frozen=True, kw_only=True, tag_field="mode", tag="swarm"):
    """`agents` tasks at once. Their serial time is extrapolated from `sample` tasks run alone, or from rates."""

    agents: Streams
    sample: Annotated[int, Meta(ge=0)] = 1
    serial_rates: SerialRates | None = None


class Open(_LoadBase, frozen=True, kw_only=True, tag_field="mode", tag="open"):
    """`rate` requests per second, however fast the server answers, with at most `streams` in flight.

    Several rates are several levels. `burst` is the squared coefficient of variation of gamma gaps: 1 is Poisson, more
    gives bursts.
    """

    rate: PositiveFloat | Annotated[tuple[PositiveFloat, ...], Meta(min_length=1)]
    arrival: Arrival = "poisson"
    burst: PositiveFloat = 1.0
    requests: Annotated[int, Meta(ge=1)] | None = None
    duration: str | None = None
    streams: Streams = 512


class Ramp(_LoadBase, frozen=True, kw_only=True, tag_field="mode", tag="ramp"):
    """C grows from `start` to `to` without a pause: by `step`, or doubled, after each `every`."""

    to: Streams
    start: Streams = 1
    by: Literal["linear", "doubling"] = "doubling"
    step: Streams = 1
    every: str = "10s"


class Mixed(_LoadBase, frozen=True, kw_only=True, tag_field="mode", tag="mixed"):
    """A primary conversation with C − 1 concurrent side tasks; `loop`: these repeat until the primary has ended."""

    levels: Levels = (1, 2, 3, 5)
    loop: bool = False


class Dag(_LoadBase, frozen=True, kw_only=True, tag_field="mode", tag="dag"):
    """Every task of the graph once, each as soon as the tasks that it depends on are done."""


class Sessions(_LoadBase, frozen=True, kw_only=True, tag_field="mode", tag="sessions"):
    """C recorded sessions at a time, each an agent with its sub-agents; one that ends is replaced by the next.

    A request is due when the answer before it has ended and the recorded pause has passed: at most `max_gap` of it,
    divided by `time_scale`. A run ends when no session is left of `sessions` (a number, a multiple of C, or "all" of
    the trace), after a number of requests, or after a time.
    """

    levels: Levels = (1, 2, 4, 8)
    sessions: str | int = "2C"
    requests: str | int | None = None
    duration: str | None = None
    max_gap: str = "10s"
    time_scale: PositiveFloat = 1.0


Load = Closed | Barrier | Swarm | Open | Ramp | Mixed | Dag | Sessions


def replays(load: Load) -> bool:
    """Whether the load follows the times of a recorded trace."""
    return isinstance(load, Sessions) or (isinstance(load, Open) and load.arrival == "recorded")


def mode_of(load: Load) -> str:
    return str(load.__struct_config__.tag)


def validate_load(load: Load, source: str) -> None:
    """Raise BadInput for what the types do not exclude."""
    try:
        make_plan(load, size=1)
    except BadInput as problem:
        raise BadInput(problem.problem, source=source, key=f"load.{problem.key}") from None
    levels = getattr(load, "levels", ())
    if len(set(levels)) < len(levels):
        raise BadInput("duplicate level; use runs to repeat levels", source=source, key="load.levels")


def make_plan(load: Load, *, size: int, **overrides: Any) -> Plan:
    """Make the plan of a load; `size` is the number of tasks of a graph, `overrides` are fields chosen by the user."""
    fields: dict[str, Any] = {"load": mode_of(load), "runs": load.runs}
    match load:
        case Closed():
            fields |= {"levels": load.levels, "requests": parse_requests(str(load.requests))}
            fields["duration_s"] = parse_seconds(load.duration, "duration") if load.duration else None
        case Barrier():
            fields |= {"levels": load.levels, "serial": load.serial}
        case Swarm():
            fields |= {"levels": (load.agents,), "sample": load.sample}
            fields["serial"] = "extrapolated" if load.sample or load.serial_rates else "none"
            if load.serial_rates is not None:
                fields |= {
                    "serial_prompt_tps": load.serial_rates.prompt_tps,
                    "serial_decode_tps": load.serial_rates.decode_tps,
                }
        case Open():
            rates = load.rate if isinstance(load.rate, tuple) else (load.rate,)
            if len(set(rates)) < len(rates):
                raise BadInput("duplicate rate; use runs to repeat rates", key="rate")
            fields |= {"levels": (load.streams,), "rates": rates, "arrival": load.arrival, "burst": load.burst}
            fields["requests"] = parse_requests(str(load.requests or 100))
            fields["duration_s"] = parse_seconds(load.duration, "duration") if load.duration else None
            if load.requests is not None and load.duration is not None:
                raise BadInput("give requests or duration, not both", key="duration")
        case Ramp():
            if load.to < load.start:
                raise BadInput("is below start", key="to")
            fields |= {"levels": _ramp_levels(load), "every_s": parse_seconds(load.every, "every")}
        case Mixed():
            fields |= {"levels": load.levels, "loop": load.loop}
        case Dag():
            fields["levels"] = (size,)
        case Sessions():
            fields |= {"levels": load.levels, "time_scale": load.time_scale, "sessions": _session_limit(load)}
            fields["requests"] = parse_requests(str(load.requests or "4C"))
            fields["duration_s"] = parse_seconds(load.duration, "duration") if load.duration else None
            fields["max_gap_s"] = parse_seconds(load.max_gap, "max_gap")
    fields |= {name: value for name, value in overrides.items() if value is not None}
    by_default = fields["runs"] > 1 and not isinstance(load, Ramp)
    fields["rotate"] = by_default if load.rotate is None else load.rotate
    if isinstance(load, Open) and fields["requests"].per_stream:
        raise BadInput("an open loop has no C; give a number", key="requests")
    most = 1 if load.warmup is None and mode_of(load) == "open" else max(fields["levels"])
    fields.setdefault("warmup", min(_MAX_WARMUP, most) if load.warmup is None else load.warmup)
    return msgspec.structs.replace(Plan(), **fields)


def _session_limit(load: Sessions) -> Requests | Literal["all"] | None:
    if load.requests is not None and load.duration is not None:
        raise BadInput("give requests or duration, not both", key="duration")
    if load.requests is not None or load.duration is not None:
        return None
    if load.sessions == "all":
        return "all"
    try:
        return parse_requests(str(load.sessions))
    except BadInput:
        raise BadInput(
            f"{load.sessions!r} is neither a number nor a multiple of C like 2C nor all", key="sessions"
        ) from None


def _ramp_levels(load: Ramp) -> tuple[int, ...]:
    steps = [load.start]
    while steps[-1] < load.to:
        following = steps[-1] * 2 if load.by == "doubling" else steps[-1] + load.step
        steps.append(min(load.to, following))
    return tuple(steps)
