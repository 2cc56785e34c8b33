"""Divide the time of requests and jobs: queue, prefill, recomputed prefill, decode, tools, client.

And tell where the prompt tokens of a level came from: the KV cache, a store elsewhere, or computed, perhaps again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from swarmtui.analysis.levels.jobs import whole_jobs
from swarmtui.analysis.levels.runs import LevelRun
from swarmtui.analysis.levels.stats import count_known, ratio
from swarmtui.analysis.levels.traces import reusable_tokens
from swarmtui.analysis.machine.ttft_split import split_by_timings
from swarmtui.model.record import WATERFALL_PARTS, Record, Waterfall
from swarmtui.model.session import Level
from swarmtui.model.telemetry import DiscoveredServer, KvFigures, ServerState, TtftSplit


def waterfall(
    records: Iterable[Record], block_size: int | None = None, before: Record | None = None
) -> Waterfall | None:
    """Divide the time of the requests of one agent or job, from the first send, or the end of the request `before`.

    Requests that are in flight at the same time share that time. What passes between them is a pause of the recorded
    session, or else the client's. None if no request was answered.
    """
    answered = sorted(
        (
            r
            for r in records
            if r.ok and r.t_sent_ns is not None and r.t_first_ns is not None and r.t_last_ns is not None
        ),
        key=lambda record: record.t_sent_ns or 0,
    )
    if not answered:
        return None
    now = (answered[0].t_sent_ns or 0) if before is None else before.left_ns
    idle = "client_s" if answered[0].replayed is None else "tool_s"
    earlier = (before, *answered[:-1])
    segments = [one for pair in zip(earlier, answered, strict=True) for one in _segments(*pair, block_size)]
    changes = [change for part, start, end in segments for change in ((start, 1, part), (end, -1, part))]
    # What is known to be nothing is not missing.
    sums = {part: 0.0 for part, _, _ in segments}
    active: Counter[str] = Counter()
    for t_ns, step, part in sorted(changes):
        if t_ns > now:
            shared = active.total()
            for name, count in (active if shared else Counter([idle])).items():
                sums[name] = sums.get(name, 0.0) + (t_ns - now) * count / max(1, shared) / 1e9
            now = t_ns
        active[part] += step
    return msgspec.structs.replace(Waterfall(n=len(answered)), **sums)


def level_waterfall(runs: Sequence[LevelRun], block_size: int | None, split: TtftSplit | None) -> Waterfall | None:
    """Return the mean over the jobs of a level, or over its requests if none has several of them.

    Where answers do not report queueing and prefill, the time to the first token is divided as that of the level.
    """
    jobs = [job for run in runs for _, job in whole_jobs(run.records)]
    per_job = [one for job in jobs if (one := waterfall(job, block_size))]
    found = per_job or [one for run in runs for record in run.finished if (one := waterfall([record], block_size))]
    if not found:
        return None
    sums: dict[str, float] = {}
    for one in found:
        for field in WATERFALL_PARTS:
            if (value := getattr(one, field)) is not None:
                sums[field] = sums.get(field, 0.0) + value
    means: dict[str, Any] = {field: value / len(found) for field, value in sums.items()}
    mean = Waterfall(n=len(found), per="job" if per_job else "request", **means)
    return _divided(mean, split) if split is not None and not split.estimated else mean


def _divided(mean: Waterfall, split: TtftSplit) -> Waterfall:
    whole = mean.first_token_s
    if not whole or mean.queue_s is not None or mean.prefill_s is not None:
        return mean
    queue_s, prefill_s, rest_s = split.queue_s, split.prefill_s, split.rest_s
    total = sum(part or 0.0 for part in (queue_s, prefill_s, rest_s))
    if queue_s is None or prefill_s is None or rest_s is None or not total:
        return mean
    share = whole / total
    return msgspec.structs.replace(
        mean,
        queue_s=queue_s * share,
        prefill_s=prefill_s * share,
        first_token_s=None,
        client_s=(mean.client_s or 0.0) + rest_s * share,
    )


def _segments(before: Record | None, record: Record, block_size: int | None) -> Iterator[tuple[str, int, int]]:
    """Yield the parts of a request with their times: late sends, and all from the send to the last token."""
    sent, first, last = record.t_sent_ns or 0, record.t_first_ns or 0, record.t_last_ns or 0
    if record.t_sched_ns is not None and record.t_sched_ns < sent:
        yield "client_s", record.t_sched_ns, sent
    parts = list(_first_token_parts(record, sent_before(before, record, block_size)))
    at = [sent]
    for _, part_s in parts:
        at.append(min(first, at[-1] + round(part_s * 1e9)))
    at[-1] = first
    yield from ((name, *times) for (name, _), times in zip(parts, pairwise(at), strict=True))
    yield "decode_s", first, last


def _first_token_parts(record: Record, known: int | None) -> Iterator[tuple[str, float]]:
    """Yield the parts of the time to the first token, the last of which has what is left of it."""
    split, ttft_s = split_by_timings([record]), record.ttft_s or 0.0
    queue_s = split.queue_s if split else record.engine.queue_s if record.engine else None
    prefill_s = split.prefill_s if split and split.prefill_s is not None else None
    reported = (queue_s or 0.0) + (prefill_s or 0.0)
    # The clocks of client and server differ a little.
    fit = min(1.0, ttft_s / reported) if reported else 1.0
    if queue_s is not None:
        yield "queue_s", queue_s * fit
    if prefill_s is not None:
        again = recomputed_tokens(record, known)
        share = again[0] / again[1] if again and again[1] > 0 else 0.0
        yield "prefill_s", prefill_s * fit * (1.0 - share)
        if again is not None:
            yield "recomputed_s", prefill_s * fit * share
    yield "first_token_s" if queue_s is None or prefill_s is None else "client_s", ttft_s - reported * fit


def kv_figures(
    level: Level, runs: Sequence[LevelRun], seen: ServerState, servers: Sequence[DiscoveredServer], block: int | None
) -> KvFigures | None:
    """Return what is known by the answers of a level, else by the counters of its servers; None if nothing is."""
    ok = [record for run in runs for record in run.finished if record.ok]
    before = {(record.task, record.turn + 1): record for record in ok}
    again = [recomputed_tokens(one, sent_before(before.get((one.task, one.turn)), one, block)) for one in ok]
    cached = level.cached_tokens
    if cached is None and level.replay is not None:
        cached = level.replay.cached_tokens
    if cached is None:
        cached = _part(level.tokens_in, seen.cache_hits, seen.cache_queries)
    external = count_known(record.engine.external_cached_tokens for record in ok if record.engine)
    if external is None:
        external = _part(level.tokens_in, seen.external_tokens, seen.prompt_tokens)
    blocks = count_known(record.engine.evicted_blocks for record in ok if record.engine)
    evicted = blocks * block if blocks is not None and block else seen.evicted_tokens
    if cached is None and evicted is None and seen.kv_use is None:
        return None
    live = ratio(level.replay.live_context, level.c) if level.replay else None
    context = live or ratio((level.tokens_in or 0) + (level.tokens_out or 0), level.ok)
    sizes = [server.kv_tokens for server in servers]
    return KvFigures(
        cached_tokens=cached,
        external_tokens=external,
        recomputed_tokens=count_known(found[0] if found else None for found in again) if None not in again else None,
        evicted_tokens=None if evicted is None else round(evicted),
        preemptions=seen.preemptions,
        kv_use=seen.kv_use,
        context_tokens=context,
        fits=ratio(sum(size or 0 for size in sizes) if sizes and all(sizes) else None, context),
    )


def _part(tokens: int | None, part: float | None, whole: float | None) -> int | None:
    """Return which part of the tokens of the measured requests is like that of all that a server counted."""
    share = ratio(part, whole)
    return None if tokens is None or share is None else round(tokens * share)


def sent_before(before: Record | None, record: Record, block_size: int | None) -> int | None:
    """Return how many tokens of a prompt the server has read or written before, in this job; None if not counted."""
    if record.replayed is not None:
        return reusable_tokens(record.replayed, record.tokens_in, block_size)
    if before is None or not record.turn:
        return 0
    if before.tokens_in is None or before.tokens_out is None:
        return None
    return (before.tokens_in + before.tokens_out) // (block_size or 1) * (block_size or 1)


def recomputed_tokens(record: Record, sent_before: int | None) -> tuple[int, int] | None:
    """Return how many tokens of a prompt were read again, and how many in all; None if the cache is not known."""
    engine, prompt = record.engine, record.tokens_in
    found = (engine.local_cached_tokens, engine.external_cached_tokens) if engine else (None, None)
    cached = record.cached_tokens if found == (None, None) else sum(part or 0 for part in found)
    if prompt is None or sent_before is None or (cached is None and sent_before):
        return None
    computed = engine.computed_tokens if engine and engine.computed_tokens is not None else prompt - (cached or 0)
    new = max(0, prompt - max(sent_before, cached or 0))
    return max(0, computed - new), computed
