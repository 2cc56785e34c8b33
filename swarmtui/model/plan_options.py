"""What people say beside the workload, as they write it, and the plan that comes of it: the one way to a plan."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from swarmtui.model.load import Closed, Load, Open, make_plan, mode_of
from swarmtui.model.plan import Arrival, Mode, Plan, parse_levels, parse_rates, parse_requests, parse_seconds
from swarmtui.model.schema import BadInput
from swarmtui.model.session_tags import Series
from swarmtui.model.workload import Workload, effective_load, task_count

# Their tasks belong together, and mean nothing one by one.
FIXED_MODES: tuple[Mode, ...] = ("mixed", "dag")

_GAMMA_BURST = 4.0


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """None where nothing was said: then the workload's own load decides.

    `mode`: as the workload says, steered by people, or a search for the cliff. Names are those of the options of the
    command line, and of the fields of the setup screen.
    """

    mode: Literal["sweep", "manual", "cliff"] = "sweep"
    levels: str | None = None
    runs: int | None = None
    requests: str | None = None
    duration: str | None = None
    warmup: str | None = None
    rate: str | None = None
    arrival: Arrival | None = None
    burst: float | None = None
    serial_rates: str | None = None


PROBE = PlanOptions(levels="1", requests="1", warmup="1")
"""Warm-up, and one timed run of one stream."""


def probe_series(endpoints: tuple[str, ...]) -> Series:
    return Series(kind="probe", name=",".join(endpoints))


def build_plan(workload: Workload, asked: PlanOptions, **given: Any) -> Plan:
    """`given` are fields of a plan that no workload has an opinion on. BadInput names what was asked amiss."""
    if asked.requests and asked.duration:
        raise BadInput("give one of requests and duration, not both", key="duration")
    levels = parse_levels(asked.levels) if asked.levels is not None else None
    prompt_tps, decode_tps = _serial_rates(asked.serial_rates)
    return make_plan(
        _load(asked, workload),
        size=task_count(workload),
        mode=None if asked.mode == "sweep" else asked.mode,
        levels=levels,
        runs=asked.runs,
        requests=parse_requests(asked.requests) if asked.requests else None,
        duration_s=parse_seconds(asked.duration, "duration") if asked.duration else None,
        warmup=_warmup(asked.warmup),
        serial_prompt_tps=prompt_tps,
        serial_decode_tps=decode_tps,
        **given,
    )


def _load(asked: PlanOptions, workload: Workload) -> Load:
    """A rate or a search stands for a load of its own; what does not go together is refused."""
    load = effective_load(workload)
    mode = mode_of(load)
    own = asked.mode == "sweep" and asked.rate is None
    if asked.mode == "cliff" and (asked.levels or asked.rate or (asked.runs or 1) > 1):
        raise BadInput("chooses its levels by itself; leave levels, runs and rate out", key="find_cliff")
    if asked.rate is not None and asked.levels:
        raise BadInput("an open loop has a rate and no levels; leave one of the two out", key="rate")
    if not own and mode in FIXED_MODES:
        raise BadInput(f"workload {workload.name} is {mode}, and can be asked in no other way", key="workload")
    if asked.levels and mode in ("dag", "ramp", "open") and asked.mode == "sweep":
        raise BadInput(f"workload {workload.name} is {mode}, which has no levels to choose", key="levels")
    if asked.requests and mode not in ("closed", "open") and own:
        raise BadInput(f"workload {workload.name} is {mode}: the number of its requests is given", key="requests")
    if asked.duration and mode not in ("closed", "open") and own:
        raise BadInput(f"workload {workload.name} is {mode}: it ends by itself", key="duration")
    if asked.serial_rates and mode not in ("barrier", "swarm"):
        raise BadInput(f"workload {workload.name} is {mode}, and has no serial time", key="serial_rates")
    if asked.mode != "sweep":
        return Closed(levels=(1,))
    if asked.rate is not None:
        return _open(asked, load)
    for name, value in (("arrival", asked.arrival), ("burst", asked.burst)):
        if value is not None:
            raise BadInput("is for open loops; give rate with it", key=name)
    return load


def _open(asked: PlanOptions, load: Load) -> Open:
    """Gaps of gamma arrivals clump unless somebody says how much: with a burst of 1 they would be Poisson's."""
    base = load if isinstance(load, Open) else Open(rate=1.0)
    arrival = asked.arrival or base.arrival
    if asked.burst is not None and arrival != "gamma":
        raise BadInput(f"is for gamma arrivals, and these are {arrival}", key="burst")
    burst = asked.burst or (_GAMMA_BURST if asked.arrival == "gamma" and base.burst == 1.0 else base.burst)
    rates = parse_rates(str(asked.rate))
    told = {"requests": None, "duration": None} if asked.requests or asked.duration else {}
    return msgspec.structs.replace(base, rate=rates, arrival=arrival, burst=burst, **told)


def _serial_rates(text: str | None) -> tuple[float | None, float | None]:
    if text is None:
        return None, None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*", text)
    if not match or not float(match.group(1)) or not float(match.group(2)):
        raise BadInput(f"{text!r} is not of the form 85.4,13.4", key="serial_rates")
    return float(match.group(1)), float(match.group(2))


def _warmup(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "none":
        return 0
    if not text.isdigit():
        raise BadInput(f"{text!r} is neither a number nor none", key="warmup")
    return int(text)
