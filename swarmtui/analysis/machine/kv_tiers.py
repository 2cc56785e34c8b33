"""Tell where the prompt tokens of a level came from: the KV cache, a store elsewhere, or computed, perhaps again."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.levels.runs import LevelRun
from swarmtui.analysis.levels.stats import count_known, ratio
from swarmtui.analysis.levels.traces import reusable_tokens
from swarmtui.model.record import Record
from swarmtui.model.session import KvFigures, Level
from swarmtui.model.telemetry import DiscoveredServer, ServerState


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
    """Return how many tokens of a prompt the server has read or written before, in this job; None if not counted.

    `before` is the request before it, in the same conversation if this is not the first turn.
    """
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
