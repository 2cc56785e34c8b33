"""Build the plan of a run from its workload and what the user typed."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from swarmtui.analysis.limits.slo import DEFAULT_SLO, validate_slo
from swarmtui.client.choices import RunChoices
from swarmtui.model.base import BadInput
from swarmtui.model.load import MAX_STREAMS, RULES, Closed, Load, Open, SerialRates, Sessions
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.plan import Plan, PlanGoal, Timeouts, TooLong
from swarmtui.model.workload import KINDS_WITH_JOBS, Prompts, Trace, Workload, effective_load

_MAX_RUNS = 1000
_GAMMA_BURST = 4.0
# The error of the bounds of a quick search, and its time.
QUICK_ALPHA, QUICK_BUDGET_S = 0.2, 60.0
# A minute is too short for long answers: those of a quick search end here, if the workload has no limit of its own.
QUICK_MAX_TOKENS = 128


def build_plan(workload: Workload, choices: RunChoices, seed: int = 0) -> Plan:
    """Build a plan. Raise BadInput, whose key is the choice, for what is wrong or does not fit together."""
    goal: PlanGoal = "sweep"
    if choices.plan in ("manual", "cliff"):
        goal = choices.plan
    elif choices.plan in ("quick", "capacity"):
        goal = "capacity"
    if choices.plan == "open" and not choices.rate:
        raise BadInput("enter the requests per second, for example 4, or 2,4,8", key="rate")
    quick = choices.plan == "quick"
    limited = workload.max_tokens is not None or not isinstance(workload, Prompts)
    return Plan(
        goal=goal,
        load=build_load(workload, choices, goal),
        max_tokens=choices.max_tokens or (QUICK_MAX_TOKENS if quick and not limited else None),
        temperature=choices.temperature,
        seed=seed,
        timeouts=parse_timeouts(choices.timeout, choices.idle_timeout),
        workers=choices.workers,
        slo=_slo(workload, choices, goal),
        agent_header=choices.agent_header,
        too_long=_parse_too_long(choices.too_long, workload),
        max_c=choices.max_c or Plan().max_c,
        alpha=QUICK_ALPHA if quick else Plan().alpha,
        budget_s=parse_seconds(choices.budget, "budget") if quick else None,
        price_per_hour=choices.price_per_hour,
    )


def _slo(workload: Workload, choices: RunChoices, goal: PlanGoal) -> str:
    """Return what was chosen; for a search for the capacity else that of the workload, or the default."""
    has_jobs = workload.__struct_config__.tag in KINDS_WITH_JOBS
    if choices.slo or goal != "capacity":
        return validate_slo(choices.slo, has_jobs=has_jobs)
    try:
        return validate_slo(workload.slo, has_jobs=has_jobs) or DEFAULT_SLO
    except BadInput as error:
        raise BadInput(f"slo: {error.problem}", key="workload") from None


def build_load(workload: Workload, choices: RunChoices, goal: PlanGoal) -> Load:
    """Return the load of the workload, with what was chosen instead; or that of a rate or search."""
    probe = choices.plan == "probe"
    if probe:  # a warm-up, and one timed request of one stream
        choices = RunChoices(levels="1", requests="1", warmup="1", runs=choices.runs)
    runs = _number_of_runs(choices.runs) if choices.runs is not None else None
    levels = parse_levels(choices.levels) if choices.levels is not None else None
    Closed(canaries=choices.canaries or "none").find_problem()
    load = _choose_load(effective_load(workload), workload.name, choices, goal, runs)
    for key in ("canaries", "complete", "precision"):
        if getattr(choices, key) not in (None, "", "none", False) and (goal == "manual" or not load.has(key)):
            raise BadInput("only for the levels of a closed loop", key=key)
    changes: dict[str, Any] = {"runs": runs, "warmup": _parse_warmup(choices.warmup)}
    changes |= {"canaries": choices.canaries, "preroll": False if probe else None} if load.has("canaries") else {}
    changes |= {"complete": True} if choices.complete else {}
    changes |= {load.levels_key: levels} if load.levels_key else {}
    changes |= {"serial_rates": _parse_serial_rates(choices.serial_rates)} if load.batch else {}
    changes = {key: value for key, value in changes.items() if value is not None}
    if choices.requests or choices.duration or choices.precision:
        changes |= {"requests": choices.requests, "duration": choices.duration}
    if choices.precision:
        changes |= {"precision": choices.precision}
    load = msgspec.structs.replace(load, **changes)
    load.find_problem()
    return load


def _choose_load(load: Load, name: str, choices: RunChoices, goal: PlanGoal, runs: int | None) -> Load:
    """Return the load of the workload, or that of a rate or search; refuse options that do not fit together."""
    sweep, rate = goal == "sweep", choices.rate
    own = sweep and rate is None

    def refuse(key: str, why: str) -> BadInput:
        return BadInput(f"workload {name} has load mode {load.name}, which {why}", key=key)

    if goal in ("cliff", "capacity") and (choices.levels or rate or (runs or 1) > 1):
        raise BadInput("chooses its own levels; do not give levels, runs or rate", key="find_cliff")
    if rate is not None and choices.levels:
        raise BadInput("an open loop has a rate and no levels; give one of them", key="rate")
    if not own and load.fixed:
        raise refuse("workload", "cannot be changed")
    if choices.levels and load.levels_key is None and sweep:
        raise refuse("levels", "has no levels to choose")
    if choices.requests and not load.has("requests") and own:
        raise refuse("requests", "sets the number of requests")
    if choices.duration and not load.has("duration") and own:
        raise refuse("duration", "has no duration")
    if choices.serial_rates and not load.batch:
        raise refuse("serial_rates", "has no serial baseline")
    if rate is not None and load.replayed:
        raise refuse("rate", "has no arrival times")
    load = _apply_trace_options(load, choices)
    if goal == "capacity" and isinstance(load, Closed):
        # The search adds the requests that it needs for a decision.
        chosen = (load.requests, load.duration, load.precision) if choices.plan != "quick" else ()
        length = {} if any(chosen) else {"requests": "1C", "duration": None, "precision": None}
        return msgspec.structs.replace(load, levels=(1,), runs=1, **length)
    if not sweep:
        return msgspec.structs.replace(load, levels=(1,)) if isinstance(load, Sessions) else Closed(levels=(1,))
    if rate is not None:
        return _open_loop(load, choices, rate)
    for key, value in (("arrival", choices.arrival), ("burst", choices.burst)):
        if value is not None:
            raise BadInput("only for open loops; give rate too", key=key)
    return load


def _apply_trace_options(load: Load, choices: RunChoices) -> Load:
    """Apply the options of traces; refuse them for other workloads."""
    given = {"max_gap": choices.max_gap, "time_scale": choices.time_scale, "rules": choices.rules}
    for key, value in given.items():
        if value is not None and not load.replayed and (key != "time_scale" or not load.follows_trace):
            raise BadInput("only for traces of agent sessions", key=key)
    if isinstance(load, Open) and choices.time_scale is not None:
        if choices.rate is not None:
            raise BadInput("an open loop has a rate or a time scale; give one of them", key="time_scale")
        return msgspec.structs.replace(load, rate=tuple(rate * choices.time_scale for rate in load.rates))
    if not isinstance(load, Sessions):
        return load
    if choices.rules is not None:
        limits = {"requests": choices.requests, "duration": choices.duration}
        for key, value in (given | limits | {"rules": None}).items():
            if value is not None:
                raise BadInput(f"set by the rules of {choices.rules}", key=key)
        return msgspec.structs.replace(RULES[choices.rules], levels=load.levels, runs=load.runs, warmup=load.warmup)
    return msgspec.structs.replace(load, **{key: value for key, value in given.items() if value is not None})


def _open_loop(load: Load, choices: RunChoices, rate: str) -> Open:
    """Gamma arrivals get a default burst above 1: with 1 they would be Poisson arrivals."""
    base = load if isinstance(load, Open) else Open(rate=1.0)
    arrival = choices.arrival or base.arrival
    if choices.burst is not None and arrival != "gamma":
        raise BadInput(f"only for gamma arrivals, not {arrival}", key="burst")
    burst = choices.burst or (_GAMMA_BURST if choices.arrival == "gamma" and base.burst == 1.0 else base.burst)
    return msgspec.structs.replace(base, rate=parse_rates(rate), arrival=arrival, burst=burst)


# what the user types


def parse_levels(text: str) -> tuple[int, ...]:
    levels = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*\d+\s*", part):
            raise BadInput(f"{part.strip()!r} is not a whole number; expected a list like 1,2,4,8", key="levels")
        level = int(part)
        if not 1 <= level <= MAX_STREAMS:
            raise BadInput(f"level {level} is not between 1 and {MAX_STREAMS}", key="levels")
        if level in levels:
            raise BadInput(f"duplicate level {level}; use --runs to repeat levels", key="levels")
        levels.append(level)
    return tuple(levels)


def parse_rates(text: str) -> tuple[float, ...]:
    """Parse requests per second, each rate a level: `4`, or `2,4,8`."""
    rates: list[float] = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", part) or not float(part):
            raise BadInput(f"{part.strip()!r} is not a positive rate; expected 4, or several like 2,4,8", key="rate")
        if float(part) in rates:
            raise BadInput(f"duplicate rate {float(part):g}; use runs to repeat it", key="rate")
        rates.append(float(part))
    return tuple(rates)


def parse_timeouts(total: str, idle: str) -> Timeouts:
    """Parse timeouts; a total other than the default is also the limit for the first token."""
    default = Timeouts()
    total_s = parse_seconds(total, "timeout")
    return Timeouts(
        connect=min(default.connect, total_s),
        first_token=min(default.first_token, total_s) if total_s == default.total else total_s,
        idle=parse_seconds(idle, "idle-timeout"),
        total=total_s,
    )


def _parse_too_long(text: str | None, workload: Workload) -> TooLong | None:
    if text is None:
        return None
    if not isinstance(workload, Trace):
        raise BadInput("only for traces", key="too_long")
    if text not in ("skip", "truncate"):
        raise BadInput(f"{text!r} is neither skip nor truncate", key="too_long")
    return "skip" if text == "skip" else "truncate"


def _number_of_runs(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= _MAX_RUNS:
        raise BadInput(f"enter a number from 1 to {_MAX_RUNS}", key="runs")
    return int(text)


def _parse_serial_rates(text: str | None) -> SerialRates | None:
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*", text)
    if not match or not float(match.group(1)) or not float(match.group(2)):
        raise BadInput(f"{text!r} is not a pair of rates like 85.4,13.4", key="serial_rates")
    return SerialRates(prompt_tps=float(match.group(1)), decode_tps=float(match.group(2)))


def _parse_warmup(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "none":
        return 0
    if not text.isdigit():
        raise BadInput(f"{text!r} is neither a number nor none", key="warmup")
    return int(text)
