"""Compute the figures of each level, and of its task types: throughput, latency, slowdown, speed-up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

import msgspec

from swarmtui.analysis.levels.canaries import with_canaries
from swarmtui.analysis.levels.flags import flag_misfits, level_flags
from swarmtui.analysis.levels.jobs import whole_jobs
from swarmtui.analysis.levels.runs import LevelRun, SteadyPart, mean_in_flight, runs_by_level, steady
from swarmtui.analysis.levels.serial import compare_with_serial
from swarmtui.analysis.levels.stats import (
    Tally,
    count_gaps_us,
    count_known,
    mean,
    median,
    rate_summary,
    ratio,
    spread,
    stream_rate,
    sum_known,
    survival_spread,
)
from swarmtui.analysis.levels.traces import server_block_size, trace_figures
from swarmtui.analysis.levels.window import (
    Rejections,
    are_synchronised,
    find_rejections,
    first_tokens_in,
    steady_half_width,
    window_stream_rate,
)
from swarmtui.analysis.limits.slo import SloTally, read_slo
from swarmtui.analysis.machine.host import host_use_within
from swarmtui.analysis.quality.doubts import with_host_use
from swarmtui.analysis.quality.silence import with_silences
from swarmtui.model.answer_check import PASSES
from swarmtui.model.findings import Finding
from swarmtui.model.journal import CapacitySearch, StageEnd, StageStart
from swarmtui.model.load import SerialRates, traits
from swarmtui.model.plan import LevelKey
from swarmtui.model.record import Record
from swarmtui.model.session import FASTER_TOLERANCE, Level, Replica, RunFigures, Spread, TaskFigures
from swarmtui.model.telemetry import DiscoveredServer, HostLoad, Telemetry
from swarmtui.numbers import short_percent

# More types than this are not worth a table.
_MAX_TYPES = 64
# Fewer readings do not show the queue of a server.
_MIN_READINGS = 3


class LevelReading(NamedTuple):
    """What a sample shows about levels: the queue of the servers, when they were read, and the counters of the host."""

    t_ns: int
    waiting: float | None = None
    host: HostLoad | None = None


def level_figures(
    records: Sequence[Record],
    stages: Sequence[StageStart],
    ends: Sequence[StageEnd],
    single_stream: SerialRates | None = None,
    servers: Sequence[DiscoveredServer] = (),
    readings: Sequence[LevelReading] = (),
    search: CapacitySearch | None = None,
) -> tuple[Level, ...]:
    """Return one level for each C, or for each rate of an open loop.

    Warm-up is in no figure; pre-roll and fillers only in the steady rate. Each stage is a run, except stages that the
    user steered through on the way to another C if that level was measured completely at another time, and those
    repeated after a pause, of which only errors count. The rates of a `single_stream` replace a measured serial
    baseline. `servers` report the block size of their prefix cache; the `readings` are in the order of time. `search`
    is the last one for the capacity, whose SLO judged some of the requests.
    """
    block_size = server_block_size(servers)
    runs_by_key = runs_by_level(records, stages, ends)
    serial_by_key = runs_by_level(records, stages, ends, "serial")
    rejections = find_rejections([run for runs in runs_by_key.values() for run in runs if run.has_cycles])
    levels = [
        _with_serial(
            msgspec.structs.replace(
                _level(key[0], runs, block_size, readings, rejections), judged_ttft_s=_judged_first_tokens(runs, search)
            ),
            runs,
            serial_by_key.get(key, []),
            single_stream,
        )
        for key, runs in sorted(runs_by_key.items(), key=lambda pair: (pair[0][1] or 0.0, pair[0][0]))
    ]
    hosts = [reading.host for reading in readings if reading.host is not None]
    levels = with_silences(levels, runs_by_key, hosts)
    ended = {end.number: end.t_ns for end in ends}
    spans = {start.number: (start.t_ns, ended[start.number]) for start in stages if start.number in ended}
    for at, level in enumerate(levels):
        timed = [spans[run.stage] for run in runs_by_key[level.key] if run.finished and run.stage in spans]
        levels[at] = with_host_use(level, host_use_within(hosts, timed))
    single = next((level for level in levels if level.c == 1), None)
    asked = [[r for run in runs_by_key[level.key] for r in run.unmeasured] for level in levels]
    before = {stage.number for stage in stages if stage.phase == "canary"}
    alone = [record for record in records if record.stage in before]
    return flag_misfits([_with_contention(level, single) for level in with_canaries(levels, asked, alone)])


def _events_per_s(runs: Sequence[LevelRun], time_ns: Callable[[Record], int | None]) -> float | None:
    """Return the rate of events from the first to the last: arrivals or completions of an open loop."""
    count, span_ns = 0, 0
    for run in runs:
        times = [t_ns for t_ns in map(time_ns, run.finished) if t_ns is not None]
        if len(times) > 1:
            count += len(times) - 1
            span_ns += max(times) - min(times)
    return ratio(count, span_ns / 1e9)


def _level(
    c: int, runs: list[LevelRun], block_size: int | None, readings: Sequence[LevelReading], rejections: Rejections
) -> Level:
    counted = [run for run in runs if run.finished]
    steady_parts = [steady(run.records, c, run.steady_window) if run.has_counts else None for run in counted]
    by_run = tuple(map(_run_figures, counted, steady_parts))
    delays = [delay for run in runs for delay in run.send_delays_s]
    finished = [record for run in runs for record in run.finished]
    failed = [record for run in runs for record in run.failed]
    unfinished = [record for run in runs for record in run.unfinished]
    ok = [record for record in finished if record.ok]
    verdicts = [record.verdict for record in finished if record.verdict is not None]
    wall_s = sum_known(run.wall_s for run in by_run)
    tokens_in, tokens_out = count_known(r.tokens_in for r in ok), count_known(r.tokens_out for r in ok)
    tokens_in_of_all = tokens_in if all(r.tokens_in is not None for r in ok) else None
    steady_s = sum_known(part.seconds if part else None for part in steady_parts)
    in_window = [run for run in counted if run.has_cycles]
    per_stream, per_stream_clean, first_tokens = rate_summary(ok), rate_summary([r for r in ok if not r.cap_hit]), ok
    if in_window:
        per_stream = msgspec.structs.replace(per_stream, mean=window_stream_rate(in_window))
        clean_rate = window_stream_rate(in_window, clean=True)
        per_stream_clean = msgspec.structs.replace(per_stream_clean, mean=clean_rate)
        first_tokens = [record for run in in_window for record in first_tokens_in(run)]
    half_width = steady_half_width(c, in_window, rejections)
    out_tps_wall = ratio(sum_known(map(_wall_tokens, counted)), wall_s)
    out_tps_steady = ratio(sum_known(part.tokens if part else None for part in steady_parts), steady_s)
    gaps = count_gaps_us(ok)
    # Some requests have only their longest gap stored.
    longest_us = max((*_known(r.stall_us for r in ok), *gaps), default=None)
    jobs = [seconds for run in runs for seconds, _ in whole_jobs(run.records)]
    load, rate = runs[-1].load, runs[-1].rate
    level = Level(
        c=c,
        runs=len(by_run),
        n=len(finished),
        ok=len(ok),
        errors=len(failed),
        unfinished=len(unfinished),
        error_counts=dict(sorted(Counter(r.error for r in failed if r.error is not None).items())),
        cap_hits=sum(r.cap_hit for r in ok),
        degenerate=sum(r.degenerate for r in ok),
        empty=sum(r.t_first_ns is None and not r.ended_at_once for r in ok),
        complete=all(run.complete for run in runs),
        wall_s=wall_s,
        steady_s=steady_s,
        c_achieved=ratio(sum_known(run.busy_s for run in counted), wall_s),
        c_held=_c_held(counted),
        streaming=max((run.streaming for run in counted if traits(run.load).holds_c), default=0) or None,
        queued=_mean_queue(counted, readings),
        token_source=_single_or_mixed({r.token_source for r in ok if r.token_source is not None}),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cached_tokens=count_known(r.cached_tokens for r in ok),
        out_tps_wall=out_tps_wall,
        out_tps_steady=out_tps_steady,
        out_tps_steady_hw=half_width,
        prompt_tps=None,
        total_tps=None,
        per_stream_tps=per_stream,
        per_stream_tps_clean=per_stream_clean,
        # If a level ended before its requests, some first tokens were still awaited.
        ttft_s=spread(_known(r.ttft_s for r in first_tokens))
        if finished
        else survival_spread(
            _known(r.ttft_s for r in unfinished), [record.age_s for record in unfinished if record.t_first_ns is None]
        ),
        ttfo_s=spread(_known(r.ttfo_s for r in first_tokens)),
        tpot_s=msgspec.structs.replace(spread(_known(r.tpot_s for r in ok)), mean=ratio(1.0, per_stream.mean)),
        icl_s=spread(Tally(gaps, unit=1e6)),
        e2e_s=survival_spread(_known(r.e2e_s for r in ok), [record.age_s for record in unfinished]),
        job_s=spread(jobs),
        longest_stall_s=None if longest_us is None else longest_us / 1e6,
        straggler=ratio(out_tps_wall, None if per_stream.mean is None or rate is not None else c * per_stream.mean),
        contention=None,
        rate_speedup=None,
        wall_speedup=None,
        token_ratio=None,
        pass_rate=ratio(sum(verdict in PASSES for verdict in verdicts), len(verdicts)),
        coalesced_chunks=ratio(sum(r.coalesced_chunks for r in ok), sum(r.chunks for r in ok)),
        first_coalesced=ratio(sum(r.first_coalesced > 0 for r in ok), sum(r.chunks > 0 for r in ok)),
        first_error_s=mean(_known(r.first_error_s for r in ok)),
        miscounted=sum(r.miscounted for r in ok),
        stamp=_single_or_mixed({r.stamp for r in ok if r.chunks}),
        flags=(),
        by_run=by_run,
        load=load,
        rate=rate,
        send_delay_s=spread(delays) if delays else None,
        arrived_per_s=None if rate is None else _events_per_s(runs, lambda record: record.t_sent_ns),
        served_per_s=None if rate is None else _events_per_s(runs, lambda r: r.t_last_ns if r.ok else None),
        verdicts=dict(sorted(Counter(verdicts).items())),
        replicas=_replicas(counted, wall_s),
        replay=trace_figures(runs, block_size, len(jobs)),
    )
    uncounted = sum(r.tokens_out is None for r in ok)
    unmeasured_errors = sum(record.phase in ("preroll", "filler") for record in failed)
    prompt_tps = ratio(tokens_in_of_all, level.output_s)
    if in_window and tokens_in_of_all is not None:
        # Prompts are read before the first token; those of cancelled answers were not counted, but are as long.
        prompt_tps = ratio(tokens_in_of_all / max(1, len(ok)) * len(first_tokens), steady_s)
    return msgspec.structs.replace(
        level,
        prompt_tps=prompt_tps,
        total_tps=None if prompt_tps is None or level.headline_tps is None else prompt_tps + level.headline_tps,
        flags=level_flags(level, uncounted, unmeasured_errors, synchronised=are_synchronised(c, in_window)),
    )


def _with_serial(
    level: Level, runs: list[LevelRun], serial_runs: list[LevelRun], single_stream: SerialRates | None
) -> Level:
    if not traits(level.load).batch or level.c == 1:
        return level
    found = compare_with_serial(
        [record for run in runs for record in run.finished],
        level.wall_s,
        [record for run in serial_runs for record in run.finished],
        sum_known(run.wall_s for run in serial_runs),
        single_stream,
    )
    if found is None:
        return level
    serial, token_ratio = found
    flags = [Finding(code="serial_extrapolated", text=f"serial time {serial.how}")] if serial.extrapolated else []
    return msgspec.structs.replace(
        level, serial=serial, wall_speedup=serial.speedup, token_ratio=token_ratio, flags=(*level.flags, *flags)
    )


def _replicas(runs: Sequence[LevelRun], wall_s: float | None) -> tuple[Replica, ...]:
    """Return the figures of each endpoint; empty for a single one."""
    finished = [record for run in runs for record in run.finished]
    failed = Counter(record.endpoint for run in runs for record in run.failed)
    numbers = sorted({record.endpoint for record in finished} | set(failed))
    if numbers in ([], [0]):
        return ()
    in_window = [run for run in runs if run.has_cycles]
    replicas = []
    for number in numbers:
        own = [record for record in finished if record.endpoint == number]
        ok = [record for record in own if record.ok]
        tokens = count_known(r.tokens_out for r in ok)
        first_tokens = [r for run in in_window for r in first_tokens_in(run, number)] if in_window else ok
        replicas.append(
            Replica(
                endpoint=number,
                n=len(own),
                ok=len(ok),
                errors=failed[number],
                tokens_out=tokens,
                out_tps_wall=ratio(sum_known(_wall_tokens(run, number) for run in runs), wall_s),
                per_stream_tps=window_stream_rate(in_window, endpoint=number) if in_window else stream_rate(ok),
                ttft_s=spread(_known(r.ttft_s for r in first_tokens)),
            )
        )
    return tuple(replicas)


def _with_contention(level: Level, single: Level | None) -> Level:
    """Add the slowdown per stream, and the scaling, relative to a single stream."""
    if single is None:
        return level
    kept = ratio(level.per_stream_tps.mean, single.per_stream_tps.mean)
    contention, flags = None if kept is None else 1.0 - kept, level.flags
    if contention is not None and contention < -FASTER_TOLERANCE:
        text = f"a stream was {short_percent(-contention)} faster than at C=1"
        flags = (*flags, Finding(code="faster_stream", text=text))
    rates = ((x.out_tps_steady if traits(level.load).holds_c else x.out_tps_wall) for x in (level, single))
    return msgspec.structs.replace(level, flags=flags, contention=contention, rate_speedup=ratio(*rates))


def _judged_first_tokens(runs: Sequence[LevelRun], search: CapacitySearch | None) -> Spread | None:
    """Return the first tokens of the requests that a search judged; None if it judged none, or does not limit them."""
    slo = read_slo(search.slo) if search is not None else None
    if search is None or slo is None:
        return None
    visits = [run for run in runs if run.start_ns >= search.t_ns and not run.steered]
    found = SloTally(slo, [record for run in visits for record in run.requests]).first_tokens()
    return found if found.n else None


def _wall_tokens(run: LevelRun, endpoint: int | None = None) -> float | None:
    """Return the output tokens of a run within its makespan, which unmeasured requests share with the measured ones."""
    if not run.filled and not run.steered:
        return count_known(r.tokens_out for r in run.finished if r.ok and endpoint in (None, r.endpoint))
    if not run.has_counts:
        return None
    part = steady([r for r in run.records if endpoint in (None, r.endpoint)], 0, run.window)
    return part.tokens if part else None


def _c_held(runs: Sequence[LevelRun]) -> float | None:
    """Return the mean in flight over the time in which the client had work for C streams.

    A stream is taken until its response ends: a server may end it long after the last token.
    """
    known = []
    for run in runs:
        spans = [(r.t_sent_ns, r.left_ns) for r in run.records if r.t_sent_ns is not None]
        if (window := run.held_window) is not None and (held := mean_in_flight(spans, window)) is not None:
            known.append((held, window[1] - window[0]))
    return ratio(fsum(held * length for held, length in known), sum(length for _, length in known))


def level_readings(samples: Iterable[Telemetry]) -> list[LevelReading]:
    """Return of each sample what levels are computed from."""
    found = (LevelReading(sample.servers_read_ns, sample.waiting, sample.host) for sample in samples)
    return [reading for reading in found if reading.waiting is not None or reading.host is not None]


def _mean_queue(runs: Sequence[LevelRun], readings: Sequence[LevelReading]) -> float | None:
    """Return the mean of the readings while C were in flight; None if there are too few."""
    windows = [window for run in runs if (window := run.steady_window or run.window) is not None]
    # Servers are read less often than there are samples.
    queue = {reading.t_ns: reading.waiting for reading in readings if reading.waiting is not None}
    found = [length for t_ns, length in queue.items() if any(first <= t_ns <= last for first, last in windows)]
    return mean(found) if len(found) >= _MIN_READINGS else None


def _run_figures(run: LevelRun, part: SteadyPart | None) -> RunFigures:
    ok = [record for record in run.finished if record.ok]
    windowed, wall_s = run.has_cycles, run.wall_s
    return RunFigures(
        run=run.number,
        complete=run.complete,
        n=len(run.finished),
        ok=len(ok),
        errors=len(run.failed),
        wall_s=wall_s,
        steady_s=part.seconds if part else None,
        c_achieved=ratio(run.busy_s, wall_s),
        c_held=_c_held([run]),
        tokens_out=count_known(r.tokens_out for r in ok) or 0,
        out_tps_wall=ratio(_wall_tokens(run), wall_s),
        out_tps_steady=part.tokens / part.seconds if part else None,
        per_stream_tps=window_stream_rate([run]) if windowed else stream_rate(ok),
        ttft_s=median(_known(r.ttft_s for r in (first_tokens_in(run) if windowed else ok))),
    )


def _single_or_mixed(values: set[str]) -> Any:
    """Return the only value, `mixed` if there are several, and null if there is none."""
    return "mixed" if len(values) > 1 else next(iter(values), None)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def task_figures(measured: Mapping[LevelKey, Sequence[Record]]) -> tuple[TaskFigures, ...]:
    """Return figures by level, type and turn, in order; empty if no task has a type or a check."""
    found: list[TaskFigures] = []
    for (c, rate), requests in sorted(measured.items(), key=lambda pair: (pair[0][1] or 0.0, pair[0][0])):
        records = [record for record in requests if record.phase == "level"]
        parts: defaultdict[tuple[str, int], list[Record]] = defaultdict(list)
        for record in sorted(records, key=lambda record: (record.task, record.turn)):
            parts[record.type, record.turn].append(record)
        if len(parts) > _MAX_TYPES or not any(r.type or r.verdict for r in records):
            continue
        found += [_figures(c, rate, kind, turn, part) for (kind, turn), part in parts.items()]
    return tuple(found)


def _figures(c: int, rate: float | None, kind: str, turn: int, records: Sequence[Record]) -> TaskFigures:
    ok = [record for record in records if record.ok]
    return TaskFigures(
        c=c,
        rate=rate,
        type=kind,
        turn=turn,
        n=len(records),
        ok=len(ok),
        ttft_s=spread([r.ttft_s for r in ok if r.ttft_s is not None]),
        per_stream_tps=stream_rate(ok),
        e2e_s=median(r.e2e_s for r in ok if r.e2e_s is not None),
        tokens_out=mean([r.tokens_out for r in ok if r.tokens_out is not None]),
        verdicts=dict(sorted(Counter(r.verdict for r in records if r.verdict is not None).items())),
    )
