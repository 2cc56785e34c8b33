"""Compute the change of server counters and histograms between two samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from swarmtui.analysis.levels.runs import Span
from swarmtui.analysis.levels.stats import ratio
from swarmtui.model.base import Stored
from swarmtui.model.telemetry import Bucket, ServerHistogram, ServerState, Telemetry

COUNTERS = (
    "prompt_tokens", "output_tokens", "cached_tokens", "external_tokens", "evicted_tokens", "cache_queries",
    "cache_hits", "preemptions", "drafts", "draft_tokens", "accepted_tokens", "finished", "prefill_seconds",
)  # fmt: skip
HISTOGRAMS = ("ttft", "itl", "queue", "prefill", "decode", "e2e", "accepted_at")


class CounterChange(Stored, frozen=True, kw_only=True):
    """The change between two samples: differences of counters and histograms, and the gauges of the later sample."""

    state: ServerState
    restarted: bool


def counter_change(before: Sequence[ServerState], after: Sequence[ServerState]) -> CounterChange | None:
    """Sum the changes of all servers, matched by URL; None if no server is in both samples."""
    earlier = {state.url: state for state in before}
    pairs = [(earlier[state.url], state) for state in after if state.url in earlier]
    if not pairs:
        return None
    restarted = any(counters_reset(old, new) for old, new in pairs)
    values: dict[str, Any] = {name: _total([getattr(new, name) for _, new in pairs]) for name in ("running", "waiting")}
    values["kv_use"] = max((new.kv_use for _, new in pairs if new.kv_use is not None), default=None)
    if not restarted:
        for name in COUNTERS:
            counts = [(getattr(old, name), getattr(new, name)) for old, new in pairs]
            values[name] = _total([None if None in (old, new) else new - old for old, new in counts])
        for name in HISTOGRAMS:
            values[name] = merged([histogram_change(getattr(old, name), getattr(new, name)) for old, new in pairs])
    return CounterChange(
        state=msgspec.structs.replace(ServerState(engine=pairs[0][1].engine), **values), restarted=restarted
    )


def change_within(samples: Iterable[Telemetry], start_ns: int, end_ns: int) -> tuple[CounterChange, Span] | None:
    """Return the change between the first and the last sample in this time, and when these were read; None without."""
    inside = [sample for sample in samples if sample.servers and start_ns <= sample.servers_read_ns <= end_ns]
    change = counter_change(inside[0].servers, inside[-1].servers) if len(inside) > 1 else None
    return None if change is None else (change, (inside[0].servers_read_ns, inside[-1].servers_read_ns))


def sum_changes(grown: Sequence[ServerState]) -> ServerState:
    """Sum the changes of several periods; gauges are those of the last."""
    values: dict[str, Any] = {name: _total([getattr(state, name) for state in grown]) for name in COUNTERS}
    values |= {name: merged([getattr(state, name) for state in grown]) for name in HISTOGRAMS}
    return msgspec.structs.replace(grown[-1], **values)


def counters_reset(before: ServerState, after: ServerState, share: float = 1.0) -> bool:
    """Whether a counter is lower than before, or than this share of it, because the server restarted."""
    counters = [(getattr(before, name), getattr(after, name)) for name in COUNTERS]
    times = ((getattr(before, name), getattr(after, name)) for name in HISTOGRAMS)
    counters += [(old.count, new.count) for old, new in times if old is not None and new is not None]
    return any(old is not None and new is not None and new < share * old for old, new in counters)


def histogram_change(before: ServerHistogram | None, after: ServerHistogram | None) -> ServerHistogram | None:
    """Return the observations since `before`: all if that is null, null if the server restarted."""
    if after is None or before is None or after.count < before.count:
        return after if before is None else None
    known = {bucket.le: bucket.count for bucket in before.buckets}
    buckets = tuple(Bucket(le=b.le, count=max(0.0, b.count - known.get(b.le, 0.0))) for b in after.buckets)
    return ServerHistogram(count=after.count - before.count, sum=max(0.0, after.sum - before.sum), buckets=buckets)


def histogram_mean(found: ServerHistogram | None) -> float | None:
    return ratio(found.sum, found.count) if found is not None else None


def _total(values: Sequence[float | None]) -> float | None:
    """Return the sum; null if a value is missing."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def merged(found: Sequence[ServerHistogram | None]) -> ServerHistogram | None:
    histograms = [histogram for histogram in found if histogram is not None]
    if not histograms or len(histograms) < len(found):
        return None
    bounds = {bucket.le for histogram in histograms for bucket in histogram.buckets}
    counts = [{bucket.le: bucket.count for bucket in histogram.buckets} for histogram in histograms]
    buckets = tuple(
        Bucket(le=le, count=sum(count[le] for count in counts))
        for le in sorted(bounds)
        if all(le in count for count in counts)
    )
    return ServerHistogram(
        count=sum(histogram.count for histogram in histograms),
        sum=sum(histogram.sum for histogram in histograms),
        buckets=buckets,
    )
