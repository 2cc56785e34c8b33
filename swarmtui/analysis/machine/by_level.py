"""Machine figures of levels: energy, the parts of times, the KV cache, and counters of servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from swarmtui.analysis.levels.runs import LevelRun, Span, group_by_stage, runs_by_level
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.levels.traces import reuse, server_block_size
from swarmtui.analysis.machine.energy import energy_used, server_gpus
from swarmtui.analysis.machine.server_counters import change_within, counter_change, merged
from swarmtui.analysis.machine.ttft_split import estimate_split, level_split, request_ends
from swarmtui.analysis.machine.waterfall import kv_figures, level_waterfall
from swarmtui.model.journal import StageEnd, StageStart
from swarmtui.model.record import Record
from swarmtui.model.session import Level, TraceFigures
from swarmtui.model.telemetry import DiscoveredServer, ServerState, Speculation, Telemetry


def add_machine_figures(
    levels: Sequence[Level],
    stages: Sequence[StageStart],
    ends: Sequence[StageEnd],
    telemetry: Sequence[Telemetry],
    records: Sequence[Record],
    servers: Sequence[DiscoveredServer] = (),
) -> tuple[Level, ...]:
    """Add energy and TTFT parts; energy is that of all GPUs in use if it is not known which of them `servers` use."""
    used = server_gpus(telemetry, servers)
    started, ended = {start.number: start.t_ns for start in stages}, {end.number: end.t_ns for end in ends}
    runs = runs_by_level(records, stages, ends)
    single = next((level for level in levels if level.c == 1), None)
    samples = sorted((sample for sample in telemetry if sample.servers), key=lambda sample: sample.servers_read_ns)
    by_stage = group_by_stage(records)
    gpus, block_size = len(used.uuids), server_block_size(servers)
    all_ends = request_ends(records) if samples else []
    found = []
    for level in levels:
        counted = [run for run in runs.get(level.key, ()) if run.finished]
        measured = [run.stage for run in counted]
        timed = [number for number in measured if number in started and number in ended]
        spans, tokens = _output_windows(level, counted)
        parts = level_split([by_stage[number] for number in timed], all_ends, samples)
        if parts is None and single is not None:
            parts = estimate_split(level.ttft_s.mean, ratio(level.tokens_in, level.ok), single)
        replay = _trace_figures(level, gpus, [(by_stage[n], started[n], ended[n]) for n in timed], samples)
        replayed = msgspec.structs.replace(level, replay=replay)
        seen = level_counters(level.c, stages, ends, samples)
        found.append(
            msgspec.structs.replace(
                replayed,
                energy=energy_used(telemetry, spans, tokens, used) if telemetry else None,
                ttft_split=parts,
                waterfall=level_waterfall(counted, block_size, parts),
                kv=kv_figures(replayed, counted, seen, servers, block_size),
                speculation=_speculation(level, [r for run in counted for r in run.finished if r.ok], seen),
            )
        )
    return tuple(found)


def _output_windows(level: Level, runs: Sequence[LevelRun]) -> tuple[list[Span], float | None]:
    """Return the windows of the main throughput, and the tokens in them: power and throughput are of the same time."""
    if level.headline_is_steady:
        steady = {figures.run for figures in level.by_run if figures.steady_s}
        windows = [run.steady_window for run in runs if run.number in steady]
        seconds = level.steady_s
    else:
        windows, seconds = [run.window for run in runs], level.wall_s
    tokens = level.headline_tps * seconds if level.headline_tps and seconds else None
    return [window for window in windows if window is not None], tokens


def _trace_figures(
    level: Level, gpus: int, stages: Sequence[tuple[list[Record], int, int]], samples: Sequence[Telemetry]
) -> TraceFigures | None:
    """Add the jobs per GPU, and the hit rate by the counters of the server if answers do not report cached tokens.

    Counters include unmeasured requests. What share of the possible hits there were is taken for the measured ones.
    """
    found = level.replay
    if found is None:
        return None
    found = msgspec.structs.replace(found, jobs_per_h_gpu=ratio(found.jobs_per_h, gpus))
    if found.hit_rate is not None:
        return found
    hits = queries = reusable = sent = 0.0
    for records, start, end in stages:
        if (within := change_within(samples, start, end)) is None:
            return found
        change, window = within
        if change.state.cache_queries is None or change.state.cache_hits is None:
            return found
        hits, queries = hits + change.state.cache_hits, queries + change.state.cache_queries
        part = reuse(records, window, found.block_size)
        reusable, sent = reusable + part[0], sent + part[1]
    kept = ratio(ratio(hits, queries), ratio(reusable, sent))
    if kept is None or found.max_hit_rate is None:
        return found
    hit_rate, prompt = min(1.0, kept) * found.max_hit_rate, level.tokens_in or found.recorded_tokens
    return msgspec.structs.replace(
        found,
        hit_rate=hit_rate,
        hit_rate_by="server",
        cached_tokens=round(hit_rate * prompt),
        fresh_tokens=prompt - round(hit_rate * prompt),
    )


# Counters of a level that an answer uses.
_COUNTERS = (
    "preemptions", "drafts", "draft_tokens", "accepted_tokens", "cache_queries", "cache_hits", "prompt_tokens",
    "output_tokens", "external_tokens", "evicted_tokens",
)  # fmt: skip


def level_counters(
    c: int, stages: Sequence[StageStart], ends: Sequence[StageEnd], telemetry: Sequence[Telemetry]
) -> ServerState:
    """Sum the counters over the runs of a level, each from the last sample before it to the last within it."""
    ended = {end.number: end.t_ns for end in ends}
    sums: dict[str, Any] = {}
    kv_use: list[float] = []
    running: list[float] = []
    samples = [sample for sample in telemetry if sample.servers]
    for stage in stages:
        if stage.phase != "level" or stage.c != c or stage.number not in ended:
            continue
        before = [sample for sample in samples if sample.t_ns <= stage.t_ns][-1:]
        inside = [sample for sample in samples if stage.t_ns < sample.t_ns <= ended[stage.number]]
        kv_use += [server.kv_use for sample in inside for server in sample.servers if server.kv_use is not None]
        for sample in inside:
            known = [server.running for server in sample.servers]
            running += [sum(number or 0.0 for number in known)] if None not in known else []
        span = [*before, *inside]
        found = counter_change(span[0].servers, span[-1].servers) if len(span) > 1 else None
        if found and found.state.accepted_at:
            sums["accepted_at"] = merged([*filter(None, [sums.get("accepted_at")]), found.state.accepted_at])
        for name in _COUNTERS:
            value: float | None = getattr(found.state, name) if found else None
            if value is not None:
                sums[name] = sums.get(name, 0.0) + value
    return ServerState(engine="", running=max(running, default=None), kv_use=max(kv_use, default=None), **sums)


def _speculation(level: Level, ok: Sequence[Record], seen: ServerState) -> Speculation | None:
    """Tell tokens per step, which the text decides, from steps per second; None without any draft."""
    told = [(record, record.engine) for record in ok if record.engine and record.engine.draft_tokens is not None]
    drafted, accepted, tokens = seen.draft_tokens or 0.0, seen.accepted_tokens or 0.0, seen.output_tokens or 0.0
    if told:
        drafted = float(sum(engine.draft_tokens or 0 for _, engine in told))
        accepted = float(sum(engine.accepted_tokens or 0 for _, engine in told))
        tokens = float(sum(record.tokens_out or 0 for record, _ in told))
    # A step writes the tokens that were accepted, and one more; some draft nothing.
    if not drafted or tokens <= accepted:
        return None
    tokens_per_step = tokens / (tokens - accepted)
    positions = seen.accepted_at.buckets if seen.accepted_at else ()
    return Speculation(
        tokens_per_step=tokens_per_step,
        steps_per_s=ratio(level.per_stream_tps.mean, tokens_per_step),
        drafted_per_step=drafted / (tokens - accepted),
        acceptance=accepted / drafted,
        by_position=tuple(bucket.count / seen.drafts for bucket in positions) if seen.drafts else (),
    )
