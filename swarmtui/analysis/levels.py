"""Records to the figures of each level: throughput, latency, contention, speed-up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import fsum
from typing import Literal, NamedTuple

import msgspec

from swarmtui.analysis.flags import flags
from swarmtui.analysis.serial import Rates, against_serial
from swarmtui.analysis.stats import Tally, mean, median, rates, ratio, spread, spread_of
from swarmtui.analysis.steady import Steady, in_flight, steady
from swarmtui.model.place import Place
from swarmtui.model.plan import Mode
from swarmtui.model.record import CANCELLED, Phase, Record, TokenSource
from swarmtui.model.session import Level, Replica, RunFigures, Spread, StretchEnd, StretchStart
from swarmtui.model.verdict import PASSES


class _Run(NamedTuple):
    """The requests of one run: `finished` ended by themselves, well or not."""

    number: int
    finished: list[Record]
    cancelled: list[Record]
    complete: bool
    end_ns: int | None
    load: Mode
    rate: float | None


def level_figures(
    records: Sequence[Record],
    stretches: Sequence[StretchStart],
    ends: Sequence[StretchEnd],
    rates: Rates | None = None,
) -> tuple[Level, ...]:
    """One level for each C, or for each rate of an open loop.

    Warm-up is in no figure, and the tokens of a failed request are in no rate.
    Each stretch is a run, but for two kinds: those that people steered through on the way to another C, and those
    that were spoilt by a pause and run again. `rates` of one user alone stand in for a serial baseline.
    """
    by_place = _runs_by_place(records, stretches, ends)
    one_by_one = _runs_by_place(records, stretches, ends, "serial")
    levels = [
        _against(_level(place[0], runs), runs, one_by_one.get(place, []), rates)
        for place, runs in sorted(by_place.items(), key=lambda pair: (pair[0][1] or 0.0, pair[0][0]))
    ]
    alone = next((level for level in levels if level.c == 1), None)
    return tuple(_beside(level, alone) for level in levels)


def finished_by_level(
    records: Sequence[Record], stretches: Sequence[StretchStart], ends: Sequence[StretchEnd]
) -> dict[Place, list[Record]]:
    """The requests from which the figures of each level are made, by its `key`."""
    runs = _runs_by_place(records, stretches, ends)
    return {place: [record for run in here for record in run.finished] for place, here in runs.items()}


def _runs_by_place(
    records: Sequence[Record],
    stretches: Sequence[StretchStart],
    ends: Sequence[StretchEnd],
    phase: Phase = "level",
) -> dict[Place, list[_Run]]:
    by_stretch: defaultdict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_stretch[record.stretch].append(record)
    ended = {end.number: end for end in ends}
    runs: defaultdict[Place, list[_Run]] = defaultdict(list)
    all_stretches = _with_lost(stretches, by_stretch)
    latest = {(s.c, s.rate, s.run): s.number for s in all_stretches if s.phase == phase and not s.steered}
    for stretch in sorted(all_stretches, key=lambda s: s.number):
        end = ended.get(stretch.number)
        complete = end is not None and end.complete
        superseded = stretch.steered or latest.get((stretch.c, stretch.rate, stretch.run)) != stretch.number
        if stretch.phase != phase or (superseded and not complete):
            continue
        found = [r for r in by_stretch[stretch.number] if r.phase == phase]
        if stretch.load == "open":
            found = list(map(_as_due, found))
        run = _Run(
            number=len(runs[stretch.c, stretch.rate]) + 1,
            finished=[r for r in found if r.error != CANCELLED],
            cancelled=[r for r in found if r.error == CANCELLED],
            complete=complete,
            end_ns=end.t_ns if end else None,
            load=stretch.load,
            rate=stretch.rate,
        )
        runs[stretch.c, stretch.rate].append(run)
    return runs


def _as_due(record: Record) -> Record:
    """In an open loop time counts from when a request was due: a client that is late hides no queue by it."""
    return msgspec.structs.replace(record, t_sent_ns=record.t_sched_ns, t_headers_ns=record.t_sent_ns)


def _lateness_s(runs: Sequence[_Run]) -> Spread | None:
    """How much later than due requests were sent; `_as_due` has put aside when that was."""
    ok = [record for run in runs for record in run.finished if record.ok and run.rate is not None]
    late = [(r.t_headers_ns - r.t_sent_ns) / 1e9 for r in ok if r.t_headers_ns is not None and r.t_sent_ns is not None]
    return spread(late) if late else None


def _per_s(runs: Sequence[_Run], moment: Callable[[Record], int | None]) -> float | None:
    """So many a second from the first to the last: what an open loop asked for, or got."""
    count, span_ns = 0, 0
    for run in runs:
        moments = [at for at in map(moment, run.finished) if at is not None]
        if len(moments) > 1:
            count += len(moments) - 1
            span_ns += max(moments) - min(moments)
    return ratio(count, span_ns / 1e9)


def _with_lost(stretches: Sequence[StretchStart], by_stretch: dict[int, list[Record]]) -> list[StretchStart]:
    """The stretches, and those whose own line in the journal was damaged, made again from their requests."""
    known = {stretch.number for stretch in stretches}
    lost = [found[0] for number, found in by_stretch.items() if number not in known]
    return [
        *stretches,
        *(StretchStart(number=r.stretch, t_ns=r.t_sent_ns or 0, c=max(1, r.c), run=r.run, phase=r.phase) for r in lost),
    ]


def _level(c: int, runs: list[_Run]) -> Level:
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
        c_achieved=ratio(_sum(_busy_s(run) for run in runs if run.finished), wall_s),
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
        icl_s=spread_of(Tally(gaps, unit=1e6)),
        e2e_s=spread(_known(r.e2e_s for r in ok)),
        longest_stall_s=_longest_s(gaps, ok),
        straggler=ratio(out_tps_wall, None if per_stream.mean is None or rate is not None else c * per_stream.mean),
        contention=None,
        rate_speedup=None,
        wall_speedup=None,
        token_ratio=None,
        pass_rate=ratio(sum(verdict in PASSES for verdict in verdicts), len(verdicts)),
        shared_reads=ratio(sum(r.shared_reads for r in ok), sum(r.chunks for r in ok)),
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


def _against(level: Level, runs: list[_Run], alone: list[_Run], rates: Rates | None) -> Level:
    """The level with what its batches won against the same tasks one by one."""
    if level.load not in ("barrier", "swarm") or level.c == 1:
        return level
    found = against_serial(
        [record for run in runs for record in run.finished],
        level.wall_s,
        [record for run in alone for record in run.finished],
        _sum(map(_wall_s, alone)),
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


def _steady(c: int, run: _Run) -> Steady | None:
    counted = any(record.ok and record.tokens_out is not None for record in run.finished)
    return steady(run.finished, c, run.end_ns) if counted else None


def _run_figures(run: _Run, held: Steady | None) -> RunFigures:
    """`per_stream_tps` is the mean of the streams, `ttft_s` the median of the requests."""
    ok = [record for record in run.finished if record.ok]
    tokens = _count(r.tokens_out for r in ok)
    wall_s = _wall_s(run)
    return RunFigures(
        run=run.number,
        n=len(run.finished),
        ok=len(ok),
        errors=len(run.finished) - len(ok),
        wall_s=wall_s,
        steady_s=held.seconds if held else None,
        c_achieved=ratio(_busy_s(run), wall_s),
        tokens_out=tokens or 0,
        out_tps_wall=ratio(tokens, wall_s),
        out_tps_steady=held.tokens / held.seconds if held else None,
        per_stream_tps=mean(_known(r.decode_tps for r in ok)),
        ttft_s=median(_known(r.ttft_s for r in ok)),
    )


def _window(run: _Run) -> tuple[int, int] | None:
    """The makespan: from the first sent to the last token, of finished requests."""
    spans = [span for span in map(in_flight, run.finished) if span is not None]
    return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None


def _wall_s(run: _Run) -> float | None:
    window = _window(run)
    return (window[1] - window[0]) / 1e9 if window and window[1] > window[0] else None


def _busy_s(run: _Run) -> float | None:
    """Σ time in flight within the window (Little), whatever became of the request: it took a stream's place."""
    window = _window(run)
    if window is None:
        return None
    first, last = window
    spans = (span for span in map(in_flight, [*run.finished, *run.cancelled]) if span is not None)
    return sum(max(0, min(end, last) - max(start, first)) for start, end in spans) / 1e9


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
