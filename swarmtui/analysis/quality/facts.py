"""Gather the facts about the conditions of a measurement, while it runs and from its journal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from swarmtui.analysis.levels.stats import median, ratio
from swarmtui.analysis.machine.energy import throttled_share
from swarmtui.analysis.machine.server_counters import counter_change, counters_reset
from swarmtui.model.record import Record
from swarmtui.model.session import Level, QualityEntry, Session
from swarmtui.model.telemetry import QualityFacts, ServerState, Telemetry

# Clocks drop between levels: only samples of a busy GPU show whether they were lowered.
_BUSY = 0.5
_CLOSED_LOOP = ("closed", "ramp")


def merge_facts(*parts: QualityFacts) -> QualityFacts:
    """Combine facts; where several know the same one, the last of them counts."""
    known: dict[str, Any] = {}
    for part in parts:
        known |= {name: value for name, value in msgspec.structs.asdict(part).items() if value not in (None, ())}
    restarted = any(part.restarted for part in parts)
    return QualityFacts(**(known | {"restarted": restarted}))


def session_facts(
    session: Session,
    levels: Sequence[Level],
    records: Sequence[Record],
    telemetry: Sequence[Telemetry],
    measured: QualityEntry | None = None,
) -> QualityFacts:
    """Return the facts of a whole session; `measured` adds what only its own process could see."""
    live = QualityFacts()
    if measured is not None:
        live = measured.facts or QualityFacts(lag_p99_s=measured.lag_p99_s, worker_cpu=measured.cpu)
    return merge_facts(
        live,
        _telemetry_facts(records, telemetry, sum(level.tokens_in or 0 for level in levels)),
        record_facts([record for record in records if record.ok and record.phase == "level"]),
        level_facts(levels),
        QualityFacts(cold_expected=session.workload_spec.get("cache") != "warm"),
    )


def record_facts(answered: Collection[Record]) -> QualityFacts:
    """Return what the answered requests of levels show."""
    chunks = sum(record.chunks for record in answered)
    cached = [record.cached_tokens for record in answered if record.cached_tokens is not None]
    return QualityFacts(
        tpot_s=median(record.tpot_s for record in answered if record.tpot_s is not None),
        kernel_stamps=all(record.stamp == "kernel" for record in answered) if answered else None,
        engine_ratio=median(
            found for record in answered if (found := ratio(record.engine_decode_tps, record.decode_tps)) is not None
        ),
        cached_share=ratio(sum(cached), sum(record.tokens_in or 0 for record in answered)) if cached else None,
        coalesced_chunks=ratio(sum(record.coalesced_chunks for record in answered), chunks),
    )


def level_facts(levels: Sequence[Level]) -> QualityFacts:
    """Return the load, its furthest distance from the planned concurrency, and the token sources."""
    closed = [level for level in levels if level.load in _CLOSED_LOOP]
    off = [(abs(level.c_achieved / level.c - 1.0), level) for level in closed if level.c_achieved is not None]
    known = bool(off) and len(off) == len(closed)
    furthest = max(off, key=lambda pair: pair[0])[1] if known else None
    return QualityFacts(
        load=levels[-1].load if levels else None,
        c=furthest.c if furthest else None,
        c_achieved=furthest.c_achieved if furthest else None,
        token_sources=tuple(sorted({level.token_source or "not known" for level in levels})),
    )


def other_clients(samples: Sequence[tuple[float, float]]) -> float | None:
    """Count requests of other clients from several samples of (our requests in flight, the server's running + waiting).

    Both numbers of a sample are never read at the same instant, so that one sample may be off by the requests that
    began or ended in between; the smallest excess of several samples was there all the time.
    """
    return max(0.0, min(server - ours for ours, server in samples)) if samples else None


def counter_facts(growth: ServerState | None, prompt_tokens: float = 0.0) -> QualityFacts:
    """Return what the server's counters show; `prompt_tokens` replaces a missing count of cache queries."""
    if growth is None:
        return QualityFacts()
    hits = growth.cache_hits
    return QualityFacts(
        preemptions=growth.preemptions,
        cached_share=0.0 if hits == 0 else ratio(hits, growth.cache_queries or prompt_tokens),
    )


def _telemetry_facts(records: Sequence[Record], telemetry: Sequence[Telemetry], prompt_tokens: float) -> QualityFacts:
    sent = [record.t_sent_ns for record in records if record.t_sent_ns is not None]
    if not sent:
        return QualityFacts()
    first_ns, last_ns = min(sent), max(record.t_done_ns or record.t_last_ns or 0 for record in records)
    before = [sample for sample in telemetry if sample.t_ns < first_ns]
    during = [sample for sample in telemetry if first_ns <= sample.t_ns <= last_ns]
    after = [sample for sample in telemetry if sample.t_ns > last_ns]
    throttled, reasons = throttled_share([sample.gpus for sample in during])
    return merge_facts(
        QualityFacts(
            throttled=throttled,
            throttle=reasons,
            clock_spread=_clock_spread(during),
            idle_before=_idle(before),
            other_requests=_other_requests(records, before, after),
        ),
        counter_facts(_growth(telemetry), prompt_tokens),
    )


def _clock_spread(during: Sequence[Telemetry]) -> float | None:
    by_gpu: dict[str, list[int]] = {}
    for sample in during:
        for gpu in sample.gpus:
            if gpu.sm_mhz and (gpu.utilisation is None or gpu.utilisation >= _BUSY):
                by_gpu.setdefault(gpu.uuid, []).append(gpu.sm_mhz)
    spreads = [(max(clocks) - min(clocks)) / max(clocks) for clocks in by_gpu.values() if len(clocks) > 1]
    return max(spreads, default=None)


def _idle(before: Sequence[Telemetry]) -> bool | None:
    """Whether the last sample before the first request shows no request on the server."""
    servers = before[-1].servers if before else ()
    busy = [server.running + (server.waiting or 0.0) for server in servers if server.running is not None]
    return not any(busy) if busy else None


def _other_requests(records: Sequence[Record], before: Sequence[Telemetry], after: Sequence[Telemetry]) -> float | None:
    """Requests that finished on the server beyond ours, from the last sample before to the first one after."""
    ends = (*before[-1:], *after[:1])
    if len(ends) < 2 or not ends[0].servers or any(s.finished is None for sample in ends for s in sample.servers):
        return None
    counts = [sum(server.finished or 0.0 for server in sample.servers) for sample in ends]
    ours = sum(record.finish_reason is not None for record in records)
    growth = counts[1] - counts[0]
    return max(0.0, growth - ours) if growth >= 0 else None


def _growth(telemetry: Sequence[Telemetry]) -> ServerState | None:
    """Growth of the servers' counters from the first sample to the last; None where one was restarted."""
    samples = [sample.servers for sample in telemetry if sample.servers]
    if len(samples) < 2:
        return None
    for earlier, later in pairwise(samples):
        before = {state.url: state for state in earlier}
        if any(counters_reset(before.get(state.url, state), state) for state in later):
            return None
    whole = counter_change(samples[0], samples[-1])
    return None if whole is None else whole.state
