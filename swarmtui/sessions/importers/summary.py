"""Convert results of other tools into a summary."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from swarmtui.analysis.levels.stats import ratio
from swarmtui.model.base import SCHEMA_VERSION, BadInput
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.session import ClientInfo, Event, Level, RateSummary, RunFigures, Session, Spread, Summary

_N = TypeVar("_N", int, float)


class ImportedBenchmark(NamedTuple):
    """One benchmark in swarmtui's units. `c` is the planned concurrency; with a `rate` it is an open loop."""

    c: int
    ok: int
    failed: int = 0
    unfinished: int = 0
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


def build_summary(
    path: Path, tool: str, model: str, created: str, benchmarks: Sequence[ImportedBenchmark], missing: Sequence[str]
) -> Summary:
    """Build a summary. The workload is identified by its token lengths, so only files with equal ones compare."""
    if not benchmarks:
        raise BadInput(f"is a result of {tool} without measurements", source=str(path))
    levels, notes = _levels(benchmarks)
    session = Session(
        id=path.name,
        created=created,
        t0_ns=0,
        endpoints=(Endpoint(url="", model=model),),
        workload=tool,
        workload_digest=_digest(tool, levels),
        workload_spec={},
        plan=Plan(load=Closed(levels=tuple(level.c for level in levels), requests=levels[0].n)),
        client=ClientInfo(version=tool, python="", host="", cores=0),
        tags={"imported": tool},
    )
    remarks = [f"imported from {tool}: wall rates only, no steady rates"]
    events = tuple(Event(t_ns=0, name="imported", detail=note) for note in (*remarks, *missing, *notes))
    return Summary(
        schema=SCHEMA_VERSION, state="done", message="", session=session, levels=levels, warmup_requests=0,
        events=events,
    )  # fmt: skip


def _levels(measured: Sequence[ImportedBenchmark]) -> tuple[tuple[Level, ...], list[str]]:
    """Group benchmarks by load; several with the same load are runs of one level."""
    by_load: dict[tuple[float, int], list[ImportedBenchmark]] = {}
    for one in measured:
        by_load.setdefault((one.rate or 0.0, one.c), []).append(one)
    levels = tuple(_level(runs) for _, runs in sorted(by_load.items()))
    notes = [f"{one.name} was measured {one.runs} times: means, no percentiles" for one in levels if one.runs > 1]
    if any(level.per_stream_tps.mean is None and level.tpot_s.n for level in levels):
        notes.append("no mean e2e: stream and mean TPOT are null, since its mean TPOT is not weighted by tokens")
    return levels, notes


def _level(runs: Sequence[ImportedBenchmark]) -> Level:
    by_run = tuple(_run(number, one) for number, one in enumerate(runs, start=1))
    ok, failed = sum(one.ok for one in runs), sum(one.failed for one in runs)
    wall_s = _sum_if_known([one.wall_s for one in runs])
    tokens_in = _sum_if_known([one.tokens_in for one in runs])
    tokens_out = _sum_if_known([one.tokens_out for one in runs])
    all_tokens = None if tokens_in is None or tokens_out is None else tokens_in + tokens_out
    ttft, ttfo, tpot, icl, e2e = (
        _merge_spreads([getattr(one, name) for one in runs]) for name in ("ttft", "ttfo", "tpot", "icl", "e2e")
    )
    rate, stream = runs[0].rate, _stream_tps(runs)
    return Level(
        c=runs[0].c, runs=len(runs), n=ok + failed, ok=ok, errors=failed,
        unfinished=sum(one.unfinished for one in runs), error_counts={"not reported": failed} if failed else {},
        cap_hits=0, degenerate=0, complete=all(one.complete for one in runs), wall_s=wall_s, steady_s=None,
        c_achieved=None if e2e.mean is None else ratio(e2e.mean * ok, wall_s), token_source=None,
        tokens_in=tokens_in, tokens_out=tokens_out, cached_tokens=None,
        out_tps_wall=ratio(tokens_out, wall_s) or runs[0].out_tps, out_tps_steady=None,
        prompt_tps=ratio(tokens_in, wall_s), total_tps=ratio(all_tokens, wall_s),
        per_stream_tps=RateSummary(mean=stream), per_stream_tps_clean=RateSummary(),
        ttft_s=ttft, ttfo_s=ttfo, tpot_s=msgspec.structs.replace(tpot, mean=ratio(1.0, stream)), icl_s=icl, e2e_s=e2e,
        longest_stall_s=icl.max, straggler=None, contention=None, rate_speedup=None, wall_speedup=None,
        token_ratio=None, pass_rate=None, coalesced_chunks=None, stamp=None, flags=(), by_run=by_run,
        load="closed" if rate is None else "open", rate=rate,
    )  # fmt: skip


def _run(number: int, one: ImportedBenchmark) -> RunFigures:
    return RunFigures(
        run=number, n=one.ok + one.failed, ok=one.ok, errors=one.failed, wall_s=one.wall_s, steady_s=None,
        c_achieved=None if one.e2e.mean is None else ratio(one.e2e.mean * one.ok, one.wall_s),
        tokens_out=one.tokens_out or 0, out_tps_wall=ratio(one.tokens_out, one.wall_s) or one.out_tps,
        out_tps_steady=None, per_stream_tps=_stream_tps([one]),
        ttft_s=one.ttft.median,
    )  # fmt: skip


def _stream_tps(runs: Sequence[ImportedBenchmark]) -> float | None:
    """Return Σ (n − first token) / Σ (e2e − TTFT), as for levels; null without these: a mean TPOT is over requests."""
    tokens, seconds = 0.0, 0.0
    for one in runs:
        if one.tokens_out is None or one.e2e.mean is None or one.ttft.mean is None:
            return None
        tokens += one.tokens_out - one.ok
        seconds += one.ok * (one.e2e.mean - one.ttft.mean)
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def _merge_spreads(spreads: Sequence[Spread]) -> Spread:
    """Merge minimum, maximum and mean of several runs; percentiles cannot be merged."""
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


def _sum_if_known(values: Sequence[_N | None]) -> _N | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(values) else None
