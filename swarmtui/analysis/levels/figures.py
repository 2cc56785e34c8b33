"""Records to the figures of each level: throughput, latency, contention, speed-up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import fsum
from typing import Literal

import msgspec

from swarmtui.analysis.levels.flags import flags
from swarmtui.analysis.levels.runs import LevelRun, runs_by_level
from swarmtui.analysis.levels.serial import Rates, compare_with_serial
from swarmtui.analysis.levels.stats import Tally, mean, median, rates, ratio, spread, tally_spread
from swarmtui.analysis.levels.steady import Steady, steady
from swarmtui.model.answer_check import PASSES
from swarmtui.model.record import Record, TokenSource
from swarmtui.model.session import Level, Replica, RunFigures, Spread, StageEnd, StageStart


def level_figures(
    records: Sequence[Record],
    stretches: Sequence[StageStart],
    ends: Sequence[StageEnd],
    rates: Rates | None = None,
) -> tuple[Level, ...]:
    """One level for each C, or for each rate of an open loop.

    Warm-up is in no figure, and the tokens of a failed request are in no rate.
    Each stretch is a run, but for two kinds: those that people steered through on the way to another C, and those
    that were spoilt by a pause and run again. `rates` of one user alone stand in for a serial baseline.
    """
    by_place = runs_by_level(records, stretches, ends)
    one_by_one = runs_by_level(records, stretches, ends, "serial")
    levels = [
        _against(_level(place[0], runs), runs, one_by_one.get(place, []), rates)
        for place, runs in sorted(by_place.items(), key=lambda pair: (pair[0][1] or 0.0, pair[0][0]))
    ]
    alone = next((level for level in levels if level.c == 1), None)
    return tuple(_beside(level, alone) for level in levels)


def _lateness_s(runs: Sequence[LevelRun]) -> Spread | None:
    """How much later than due requests were sent; `runs_by_place` has put aside when that was."""
    ok = [record for run in runs for record in run.finished if record.ok and run.rate is not None]
    late = [(r.t_headers_ns - r.t_sent_ns) / 1e9 for r in ok if r.t_headers_ns is not None and r.t_sent_ns is not None]
    return spread(late) if late else None


def _per_s(runs: Sequence[LevelRun], moment: Callable[[Record], int | None]) -> float | None:
    """So many a second from the first to the last: what an open loop asked for, or got."""
    count, span_ns = 0, 0
    for run in runs:
        moments = [at for at in map(moment, run.finished) if at is not None]
        if len(moments) > 1:
            count += len(moments) - 1
            span_ns += max(moments) - min(moments)
    return ratio(count, span_ns / 1e9)


def _level(c: int, runs: list[LevelRun]) -> Level:
    held = [_steady(c, run) for run in runs if run.finished]
    by_run = tuple(map(_run_figures, (run for run in runs if run.finished), held))
    finished = [record for run in runs for record in run.finished]
    ok = [record for record in finished if record.ok]
    verdicts = [record.verdict for record in finished if record.verdict is not None]
    wall_s = _sum(run.wall_s for run in by_run)
    tokens_in, tokens_out = _count(r.tokens_in for r in ok), _count(r.tokens_out for r in ok)
    tokens_in_of_all = tokens_in if all(r.tokens_in is not None for r in ok) else None
    all_tokens = None if tokens_in_of_all is None or tokens_out is None else tokens_in_of_all + tokens_out
    steady_s = _sum(part.seconds if part else None for part in held)
    per_stream = rates(_known(r.decode_tps for r in ok))
    out_tps_wall = ratio(tokens_out, wall_s)
    gaps = _gaps_us(ok)
    load, rate = runs[-1].load, runs[-1].rate
    level = Level(
        c=c,
        runs=len(by_run),
        n=len(finished),
        ok=len(ok),
        errors=len(finished) - len(ok),
        cancelled=sum(len(run.cancelled) for run in runs),
        error_counts=dict(sorted(Counter(r.error for r in finished if r.error is not None).items())),
        cap_hits=sum(r.cap_hit for r in ok),
        degenerate=sum(r.degenerate for r in ok),
        complete=all(run.complete for run in runs),
        wall_s=wall_s,
        steady_s=steady_s,
        c_achieved=ratio(_sum(run.busy_s for run in runs if run.finished), wall_s),
        token_source=_token_source(ok),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cached_tokens=_count(r.cached_tokens for r in ok),
        out_tps_wall=out_tps_wall,
        out_tps_steady=ratio(_sum(part.tokens if part else None for part in held), steady_s),
        prompt_tps=ratio(tokens_in_of_all, wall_s),
        total_tps=ratio(all_tokens, wall_s),
        per_stream_tps=per_stream,
        per_stream_tps_clean=rates(_known(r.decode_tps for r in ok if not r.cap_hit)),
        ttft_s=spread(_known(r.ttft_s for r in ok)),
        ttfo_s=spread(_known(r.ttfo_s for r in ok)),
        tpot_s=spread(_known(r.tpot_s for r in ok)),
        icl_s=tally_spread(Tally(gaps, unit=1e6)),
        e2e_s=spread(_known(r.e2e_s for r in ok)),
        longest_stall_s=_longest_s(gaps, ok),
        straggler=ratio(out_tps_wall, None if per_stream.mean is None or rate is not None else c * per_stream.mean),
        contention=None,
        rate_speedup=None,
        wall_speedup=None,
        token_ratio=None,
        pass_rate=ratio(sum(verdict in PASSES for verdict in verdicts), len(verdicts)),
        coalesced_chunks=ratio(sum(r.coalesced_chunks for r in ok), sum(r.chunks for r in ok)),
        stamp=_stamp(ok),
        flags=(),
        by_run=by_run,
        load=load,
        rate=rate,
        lateness_s=_lateness_s(runs),
        arrived_per_s=_per_s(runs, lambda record: record.t_sent_ns) if rate is not None else None,
        served_per_s=_per_s(runs, lambda record: record.t_last_ns if record.ok else None) if rate is not None else None,
        verdicts=dict(sorted(Counter(verdicts).items())),
        replicas=_replicas(finished, wall_s),
    )
    uncounted = sum(r.tokens_out is None for r in ok)
    return msgspec.structs.replace(level, flags=flags(level, uncounted))


def _against(level: Level, runs: list[LevelRun], alone: list[LevelRun], rates: Rates | None) -> Level:
    """The level with what its batches won against the same tasks one by one."""
    if level.load not in ("barrier", "swarm") or level.c == 1:
        return level
    found = compare_with_serial(
        [record for run in runs for record in run.finished],
        level.wall_s,
        [record for run in alone for record in run.finished],
        _sum(run.wall_s for run in alone),
        rates,
    )
    if found is None:
        return level
    serial, token_ratio = found
    said = (f"its serial time is {serial.how}",) if serial.extrapolated else ()
    return msgspec.structs.replace(
        level,
        serial=serial,
        wall_speedup=serial.speedup,
        token_ratio=token_ratio,
        flags=(*level.flags, *said),
    )


def _replicas(finished: Sequence[Record], wall_s: float | None) -> tuple[Replica, ...]:
    """Nothing where there was but one endpoint."""
    numbers = sorted({record.endpoint for record in finished})
    if numbers in ([], [0]):
        return ()
    made = []
    for number in numbers:
        here = [record for record in finished if record.endpoint == number]
        ok = [record for record in here if record.ok]
        tokens = _count(r.tokens_out for r in ok)
        made.append(
            Replica(
                endpoint=number,
                n=len(here),
                ok=len(ok),
                errors=len(here) - len(ok),
                tokens_out=tokens,
                out_tps_wall=ratio(tokens, wall_s),
                per_stream_tps=mean(_known(r.decode_tps for r in ok)),
                ttft_s=spread(_known(r.ttft_s for r in ok)),
            )
        )
    return tuple(made)


def _beside(level: Level, alone: Level | None) -> Level:
    """The level with what it lost and won against one stream alone."""
    if alone is None:
        return level
    kept = ratio(level.per_stream_tps.mean, alone.per_stream_tps.mean)
    batches = level.load not in ("closed", "ramp")
    return msgspec.structs.replace(
        level,
        contention=None if kept is None else 1.0 - kept,
        rate_speedup=ratio(level.out_tps_wall, alone.out_tps_wall)
        if batches
        else ratio(level.out_tps_steady, alone.out_tps_steady),
    )


def _steady(c: int, run: LevelRun) -> Steady | None:
    counted = any(record.ok and record.tokens_out is not None for record in run.finished)
    return steady(run.finished, c, run.end_ns) if counted else None


def _run_figures(run: LevelRun, held: Steady | None) -> RunFigures:
    """`per_stream_tps` is the mean of the streams, `ttft_s` the median of the requests."""
    ok = [record for record in run.finished if record.ok]
    tokens = _count(r.tokens_out for r in ok)
    wall_s = run.wall_s
    return RunFigures(
        run=run.number,
        n=len(run.finished),
        ok=len(ok),
        errors=len(run.finished) - len(ok),
        wall_s=wall_s,
        steady_s=held.seconds if held else None,
        c_achieved=ratio(run.busy_s, wall_s),
        tokens_out=tokens or 0,
        out_tps_wall=ratio(tokens, wall_s),
        out_tps_steady=held.tokens / held.seconds if held else None,
        per_stream_tps=mean(_known(r.decode_tps for r in ok)),
        ttft_s=median(_known(r.ttft_s for r in ok)),
    )


def _gaps_us(ok: Iterable[Record]) -> Counter[int]:
    gaps: Counter[int] = Counter()
    for record in ok:
        gaps.update(islice(record.chunk_us, 1, None))
    return gaps


def _longest_s(gaps: Counter[int], ok: Iterable[Record]) -> float | None:
    """Also of requests of which only the longest gap was kept."""
    longest = max((*(record.stall_us for record in ok if record.stall_us is not None), *gaps), default=None)
    return None if longest is None else longest / 1e6


def _token_source(ok: Iterable[Record]) -> TokenSource | Literal["mixed"] | None:
    sources = {record.token_source for record in ok if record.token_source is not None}
    return "mixed" if len(sources) > 1 else next(iter(sources), None)


def _stamp(ok: Iterable[Record]) -> Literal["kernel", "read", "mixed"] | None:
    stamps = {record.stamp for record in ok if record.chunks}
    return "mixed" if len(stamps) > 1 else next(iter(stamps), None)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _sum(values: Iterable[float | None]) -> float | None:
    """Of what is known; null when nothing is."""
    known = _known(values)
    return fsum(known) if known else None


def _count(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
