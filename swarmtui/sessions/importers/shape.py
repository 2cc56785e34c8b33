"""What results of other tools become here: one summary of levels, of which much was never measured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from swarmtui.analysis.levels.stats import SMALLEST_N, ratio
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.plan import Plan, Requests
from swarmtui.model.schema import SCHEMA_VERSION, BadInput
from swarmtui.model.session import ClientInfo, Event, Level, RateSummary, RunFigures, Session, Spread, Summary

PARTS = ("min", "p50", "p90", "p95", "p99", "max")

_LARGEST = 1e300

_N = TypeVar("_N", int, float)


class Measured(NamedTuple):
    """One benchmark of another tool, in our units. `c` is what it was to hold; `rate` makes it an open loop."""

    c: int
    ok: int
    failed: int = 0
    cancelled: int = 0
    wall_s: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    out_tps: float | None = None
    ttft: Spread = Spread(n=0)
    ttfo: Spread = Spread(n=0)
    tpot: Spread = Spread(n=0)
    icl: Spread = Spread(n=0)
    e2e: Spread = Spread(n=0)
    rate: float | None = None
    complete: bool = True


class Found(NamedTuple):
    """A whole file. `notes` say what it lacks."""

    tool: str
    model: str
    created: str
    measured: list[Measured]
    notes: list[str]


def build_summary(found: Found, path: Path) -> Summary:
    """Its workload is known only by its lengths: two files with the same lengths may be compared, no others."""
    if not found.measured:
        raise BadInput(f"a result of {found.tool} in which nothing was measured", source=str(path))
    levels, notes = _levels(found.measured)
    session = Session(
        id=path.name,
        created=found.created,
        t0_ns=0,
        endpoints=(Endpoint(url="", model=found.model),),
        workload=found.tool,
        workload_digest=_digest(found.tool, levels),
        workload_spec={},
        plan=Plan(levels=tuple(level.c for level in levels), requests=Requests(count=levels[0].n, per_stream=False)),
        client=ClientInfo(version=found.tool, python="", host="", cores=0),
        tags={"imported": found.tool},
    )
    said = [f"imported from {found.tool}: wall rates only, no steady ones; stream rates are 1 / tpot"]
    events = tuple(Event(t_ns=0, name="imported", detail=note) for note in (*said, *found.notes, *notes))
    return Summary(
        schema=SCHEMA_VERSION, state="done", message="", session=session, levels=levels, warmup_requests=0,
        events=events,
    )  # fmt: skip


def spread_of(n: int, mean: float | None, parts: Mapping[str, float | None], unit: float) -> Spread:
    """With no percentile that its n cannot carry, whatever the tool printed. All nought is not measured."""
    kept = {
        part: value * unit
        for part, value in parts.items()
        if value is not None and (part not in SMALLEST_N or n >= SMALLEST_N[part])
    }
    if not mean and not any(kept.values()):
        return Spread(n=0)
    return Spread(n=n, mean=None if mean is None else mean * unit, **kept)


def _levels(measured: Sequence[Measured]) -> tuple[tuple[Level, ...], list[str]]:
    """What was measured again under the same load is another run of it."""
    by_load: dict[tuple[float, int], list[Measured]] = {}
    for one in measured:
        by_load.setdefault((one.rate or 0.0, one.c), []).append(one)
    levels = tuple(_level(runs) for _, runs in sorted(by_load.items()))
    again = [level for level in levels if level.runs > 1]
    return levels, [f"{at.name} was measured {at.runs} times: means over them, no percentiles" for at in again]


def _level(runs: Sequence[Measured]) -> Level:
    by_run = tuple(_run(number, one) for number, one in enumerate(runs, start=1))
    ok, failed = sum(one.ok for one in runs), sum(one.failed for one in runs)
    wall_s = _sum([one.wall_s for one in runs])
    tokens_in, tokens_out = _sum([one.tokens_in for one in runs]), _sum([one.tokens_out for one in runs])
    all_tokens = None if tokens_in is None or tokens_out is None else tokens_in + tokens_out
    ttft, ttfo, tpot, icl, e2e = (
        _joined([getattr(one, name) for one in runs]) for name in ("ttft", "ttfo", "tpot", "icl", "e2e")
    )
    rate = runs[0].rate
    stream = ratio(1.0, tpot.p50 if tpot.p50 is not None else tpot.mean)
    return Level(
        c=runs[0].c, runs=len(runs), n=ok + failed, ok=ok, errors=failed,
        cancelled=sum(one.cancelled for one in runs), error_counts={"not told": failed} if failed else {}, cap_hits=0,
        degenerate=0, complete=all(one.complete for one in runs), wall_s=wall_s, steady_s=None,
        c_achieved=None if e2e.mean is None else ratio(e2e.mean * ok, wall_s), token_source=None,
        tokens_in=tokens_in, tokens_out=tokens_out, cached_tokens=None,
        out_tps_wall=ratio(tokens_out, wall_s) or runs[0].out_tps, out_tps_steady=None,
        prompt_tps=ratio(tokens_in, wall_s), total_tps=ratio(all_tokens, wall_s), per_stream_tps=RateSummary(mean=stream),
        per_stream_tps_clean=RateSummary(), ttft_s=ttft, ttfo_s=ttfo, tpot_s=tpot, icl_s=icl, e2e_s=e2e,
        longest_stall_s=icl.max, straggler=None, contention=None, rate_speedup=None, wall_speedup=None,
        token_ratio=None, pass_rate=None, coalesced_chunks=None, stamp=None, flags=(), by_run=by_run,
        load="closed" if rate is None else "open", rate=rate,
    )  # fmt: skip


def _run(number: int, one: Measured) -> RunFigures:
    return RunFigures(
        run=number, n=one.ok + one.failed, ok=one.ok, errors=one.failed, wall_s=one.wall_s, steady_s=None,
        c_achieved=None if one.e2e.mean is None else ratio(one.e2e.mean * one.ok, one.wall_s),
        tokens_out=one.tokens_out or 0, out_tps_wall=ratio(one.tokens_out, one.wall_s) or one.out_tps,
        out_tps_steady=None, per_stream_tps=ratio(1.0, one.tpot.p50 if one.tpot.p50 is not None else one.tpot.mean),
        ttft_s=one.ttft.p50 if one.ttft.p50 is not None else one.ttft.mean,
    )  # fmt: skip


def _joined(spreads: Sequence[Spread]) -> Spread:
    """Of several runs: ends and mean; percentiles of parts do not make one of the whole."""
    if len(spreads) == 1:
        return spreads[0]
    known = [one for one in spreads if one.n and one.mean is not None]
    n = sum(one.n for one in known)
    lows, highs = [one.min for one in known if one.min is not None], [one.max for one in known if one.max is not None]
    return Spread(
        n=n,
        mean=ratio(sum((one.mean or 0.0) * one.n for one in known), n),
        min=min(lows) if lows and len(lows) == len(known) else None,
        max=max(highs) if highs and len(highs) == len(known) else None,
    )


def _digest(tool: str, levels: Iterable[Level]) -> str:
    lengths = [
        f"{level.tokens_in / level.ok:.2g}/{level.tokens_out / level.ok:.2g}"
        for level in levels
        if level.ok and level.tokens_in is not None and level.tokens_out is not None
    ]
    return hashlib.sha256(f"{tool} {sorted(set(lengths))}".encode()).hexdigest() if lengths else ""


def find(value: Any, *path: str) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
        return None
    return float(value) if isfinite(value) else None


def count(value: Any) -> int | None:
    found = number(value)
    return None if found is None or found < 0 else round(found)


def product(n: int, each: float | None) -> int | None:
    return None if each is None else round(n * each)


def text(*values: Any) -> str:
    """The first that is text."""
    return next((value for value in values if isinstance(value, str) and value), "")


def _sum(values: Sequence[_N | None]) -> _N | None:
    """Null where one is missing: a sum of some is not the sum of all."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(values) else None
