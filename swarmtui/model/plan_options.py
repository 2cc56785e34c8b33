"""Options of a plan as the user writes them, and the plan that they and the workload give."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from swarmtui.model.base import BadInput
from swarmtui.model.endpoint import show_url
from swarmtui.model.load import Closed, Load, Open, Sessions, make_plan, mode_of, replays
from swarmtui.model.plan import (
    Arrival,
    LoadModeName,
    Plan,
    PlanMode,
    Rules,
    parse_canaries,
    parse_levels,
    parse_rates,
    parse_requests,
    parse_seconds,
)
from swarmtui.model.session_tags import Series
from swarmtui.model.workload import Workload, effective_load, task_count

# Tasks of these modes depend on each other, so the load mode cannot be changed.
FIXED_MODES: tuple[LoadModeName, ...] = ("mixed", "dag")

_GAMMA_BURST = 4.0

# Pauses of at most 10 s, at recorded speed; the run ends when the trace has no session left for a slot.
_AGENTX = Sessions(max_gap="10s", time_scale=1.0, sessions="all")


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the load, which plans and run requests share; None: the workload decides."""

    levels: str | None = None
    requests: str | None = None
    duration: str | None = None
    warmup: str | None = None
    rate: str | None = None
    arrival: Arrival | None = None
    burst: float | None = None
    serial_rates: str | None = None
    canaries: str | None = None
    max_gap: str | None = None
    time_scale: float | None = None
    rules: Rules | None = None


class PlanOptions(LoadOptions, frozen=True, kw_only=True):
    """The options of a plan. `mode`: sweep, as the workload says, manual control, or a search for cliff or capacity."""

    mode: PlanMode = "sweep"
    runs: int | None = None
    preroll: bool = True


PROBE = PlanOptions(levels="1", requests="1", warmup="1", preroll=False)
"""A warm-up, and one timed run of one stream."""


def probe_series(endpoints: tuple[str, ...]) -> Series:
    return Series(kind="probe", name=",".join(map(show_url, endpoints)))


def build_plan(workload: Workload, options: PlanOptions, **given: Any) -> Plan:
    """Build a plan; `given` are fields that workloads do not set. Raise BadInput for options that do not fit."""
    if options.requests and options.duration:
        raise BadInput("give requests or duration, not both", key="duration")
    levels = parse_levels(options.levels) if options.levels is not None else None
    canaries = parse_canaries(options.canaries) if options.canaries else None
    load = _choose_load(options, workload)
    if canaries and (options.mode == "manual" or mode_of(load) != "closed"):
        raise BadInput("only for the levels of a closed loop", key="canaries")
    prompt_tps, decode_tps = _parse_serial_rates(options.serial_rates)
    return make_plan(
        load,
        size=task_count(workload),
        mode=None if options.mode == "sweep" else options.mode,
        levels=levels,
        runs=options.runs,
        requests=parse_requests(options.requests) if options.requests else None,
        duration_s=parse_seconds(options.duration, "duration") if options.duration else None,
        warmup=_parse_warmup(options.warmup),
        serial_prompt_tps=prompt_tps,
        serial_decode_tps=decode_tps,
        preroll=options.preroll,
        canaries=canaries,
        rules=options.rules,
        **given,
    )


def _choose_load(options: PlanOptions, workload: Workload) -> Load:
    """Return the load of the workload, or that of a rate or search; refuse options that do not fit together."""
    load = effective_load(workload)
    mode = mode_of(load)
    own = options.mode == "sweep" and options.rate is None

    def refuse(key: str, why: str) -> BadInput:
        return BadInput(f"workload {workload.name} has load mode {mode}, which {why}", key=key)

    if options.mode in ("cliff", "capacity") and (options.levels or options.rate or (options.runs or 1) > 1):
        raise BadInput("chooses its own levels; do not give levels, runs or rate", key="find_cliff")
    if options.rate is not None and options.levels:
        raise BadInput("an open loop has a rate and no levels; give one of them", key="rate")
    if not own and mode in FIXED_MODES:
        raise refuse("workload", "cannot be changed")
    if options.levels and mode in ("dag", "ramp", "open") and options.mode == "sweep":
        raise refuse("levels", "has no levels to choose")
    if options.requests and mode not in ("closed", "open", "sessions") and own:
        raise refuse("requests", "sets the number of requests")
    if options.duration and mode not in ("closed", "open", "sessions") and own:
        raise refuse("duration", "has no duration")
    if options.serial_rates and mode not in ("barrier", "swarm"):
        raise refuse("serial_rates", "has no serial baseline")
    if options.rate is not None and mode == "sessions":
        raise refuse("rate", "has no arrival times")
    load = _replay(options, load)
    if options.mode == "capacity" and isinstance(load, Closed):
        return msgspec.structs.replace(load, levels=(1,), runs=1)
    if options.mode != "sweep":
        return msgspec.structs.replace(load, levels=(1,)) if isinstance(load, Sessions) else Closed(levels=(1,))
    if options.rate is not None:
        return _open_loop(options, load)
    for name, value in (("arrival", options.arrival), ("burst", options.burst)):
        if value is not None:
            raise BadInput("only for open loops; give rate too", key=name)
    return load


def _replay(options: PlanOptions, load: Load) -> Load:
    """Apply the options of traces; refuse them for other workloads."""
    given = {"max_gap": options.max_gap, "time_scale": options.time_scale, "rules": options.rules}
    for name, value in given.items():
        if value is not None and not isinstance(load, Sessions) and (name != "time_scale" or not replays(load)):
            raise BadInput("only for traces of agent sessions", key=name)
    if isinstance(load, Open) and options.time_scale is not None:
        if options.rate is not None:
            raise BadInput("an open loop has a rate or a time scale; give one of them", key="time_scale")
        rates = load.rate if isinstance(load.rate, tuple) else (load.rate,)
        return msgspec.structs.replace(load, rate=tuple(rate * options.time_scale for rate in rates))
    if not isinstance(load, Sessions):
        return load
    limits = {"requests": options.requests, "duration": options.duration}
    if options.rules is not None:
        for name, value in (given | limits | {"rules": None}).items():
            if value is not None:
                raise BadInput(f"set by the rules of {options.rules}", key=name)
        return msgspec.structs.replace(_AGENTX, levels=load.levels, runs=load.runs, warmup=load.warmup)
    chosen = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(load, **chosen, **(limits if options.requests or options.duration else {}))


def _open_loop(options: PlanOptions, load: Load) -> Open:
    """Gamma arrivals get a default burst above 1: with 1 they would be Poisson arrivals."""
    base = load if isinstance(load, Open) else Open(rate=1.0)
    arrival = options.arrival or base.arrival
    if options.burst is not None and arrival != "gamma":
        raise BadInput(f"only for gamma arrivals, not {arrival}", key="burst")
    burst = options.burst or (_GAMMA_BURST if options.arrival == "gamma" and base.burst == 1.0 else base.burst)
    rates = parse_rates(str(options.rate))
    cleared = {"requests": None, "duration": None} if options.requests or options.duration else {}
    return msgspec.structs.replace(base, rate=rates, arrival=arrival, burst=burst, **cleared)


def _parse_serial_rates(text: str | None) -> tuple[float | None, float | None]:
    if text is None:
        return None, None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*", text)
    if not match or not float(match.group(1)) or not float(match.group(2)):
        raise BadInput(f"{text!r} is not a pair of rates like 85.4,13.4", key="serial_rates")
    return float(match.group(1)), float(match.group(2))


def _parse_warmup(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "none":
        return 0
    if not text.isdigit():
        raise BadInput(f"{text!r} is neither a number nor none", key="warmup")
    return int(text)
