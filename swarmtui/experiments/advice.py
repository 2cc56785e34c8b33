"""Suggest what to try next, each suggestion with the figures it is based on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swarmtui.analysis.capacity.cliff import MIN_GAIN
from swarmtui.analysis.compare.differences import known_flags
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.machine.server_counters import counter_change
from swarmtui.engines.registry import tensor_parallel_size
from swarmtui.model.base import Stored
from swarmtui.model.findings import Scaling
from swarmtui.model.session import StageEnd, StageStart, Summary
from swarmtui.model.telemetry import ServerState, Telemetry
from swarmtui.numbers import percent, short, signed_percent
from swarmtui.sessions.store import LoadedSession, summarise

KV_FULL = 0.95
POWER_CAPPED = 0.05
LOW_ACCEPTANCE = 0.5
# More slots that add less output tok/s than this only make the streams slower.
NEGLIGIBLE_GAIN = 0.05
_COUNTERS = ("preemptions", "drafts", "draft_tokens", "accepted_tokens", "cache_queries", "cache_hits")


class Advice(Stored, frozen=True, kw_only=True):
    topic: str
    sentence: str
    evidence: str


def session_advice(loaded: LoadedSession) -> tuple[Advice, ...]:
    summary, journal = summarise(loaded), loaded.journal
    counters = {
        level.c: level_counters(level.c, journal.stages, journal.ends, journal.telemetry) for level in summary.levels
    }
    return advise(summary, counters)


def advise(summary: Summary, counters: Mapping[int, ServerState] | None = None) -> tuple[Advice, ...]:
    """Apply all rules: first those about the measurement itself, then those about the server."""
    return tuple(
        found
        for rule in (_client_limit, _prefix_cache, _queue, _kv_cache, _power, _speculative, _slots, _heads)
        for found in rule(summary, counters or {})
    )


def _client_limit(summary: Summary, counters: Mapping[int, ServerState]) -> Iterator[Advice]:
    codes = ("client_cpu", "client_lag", "turnaround")
    lines = [line for line in summary.quality if line.code in codes and line.state not in ("ok", "note")]
    if lines:
        yield Advice(
            topic="client-bound",
            sentence="the client may be the bottleneck: use other cores or fewer streams before changing flags",
            evidence="; ".join(f"{line.name} {line.value}" for line in lines),
        )


def _prefix_cache(summary: Summary, counters: Mapping[int, ServerState]) -> Iterator[Advice]:
    for line in summary.quality:
        if line.code == "cold_cache" and line.state != "ok":
            yield Advice(
                topic="prefix cache",
                sentence="prefix cache hits shorten TTFT: use another --seed, or disable the cache for the measurement",
                evidence=line.value,
            )


def _queue(summary: Summary, counters: Mapping[int, ServerState]) -> Iterator[Advice]:
    """Compare the highest level with a slot for every stream and the highest level overall."""
    slots = summary.scaling.slots if summary.scaling else None
    if slots is None:
        return
    within = [level for level in summary.levels if level.c <= slots.total and level.headline_tps]
    beyond = [level for level in summary.levels if level.c > slots.total and level.headline_tps]
    if not within or not beyond:
        return
    base, highest = within[-1], beyond[-1]
    gain = ratio(highest.headline_tps, base.headline_tps)
    if base.c < slots.total or gain is None or gain - 1.0 >= MIN_GAIN:
        return
    slower = ratio(highest.ttft_s.mean, base.ttft_s.mean)
    ttft = f", mean TTFT ×{short(slower, 2)}" if slower else ""
    yield Advice(
        topic="queue",
        sentence=f"beyond C={slots.total} requests only queue: send fewer at once, or give the server more slots",
        evidence=f"C={highest.c} compared with C={base.c}: {signed_percent(gain - 1.0, 0)} output tok/s{ttft}; {slots}",
    )


def _kv_cache(summary: Summary, counters: Mapping[int, ServerState]) -> Iterator[Advice]:
    for c, seen in sorted(counters.items()):
        if seen.preemptions:
            use = "" if seen.kv_use is None else f", KV cache up to {percent(seen.kv_use)} full"
            yield Advice(
                topic="preemptions",
                sentence="the KV cache is too small for this many requests: use fewer slots, a shorter context or an "
                "fp8 KV cache, or give it more memory",
                evidence=f"C={c}: {seen.preemptions:g} preemptions{use}",
            )
            return
        if seen.kv_use is not None and seen.kv_use >= KV_FULL:
            yield Advice(
                topic="KV full",
                sentence="the KV cache is full: more streams will queue, or cause preemptions",
                evidence=f"C={c}: KV cache up to {percent(seen.kv_use)} full, no preemptions counted",
            )
            return


def _power(summary: Summary, counters: Mapping[int, ServerState]) -> Iterator[Advice]:
    capped = [
        level
        for level in summary.levels
        if level.energy and "power cap" in level.energy.throttle and (level.energy.throttled or 0.0) > POWER_CAPPED
    ]
    if capped:
        level = max(capped, key=lambda level: level.energy.throttled or 0.0 if level.energy else 0.0)
        assert level.energy is not None
        watts = "" if level.energy.mean_w is None else f", {level.energy.mean_w:.0f} W"
        yield Advice(
            topic="power-capped",
            sentence="the GPUs run at their power limit: raising it gives more tok/s, lowering it may improve tokens/J",
            evidence=f"C={level.c}: clocks lowered {percent(level.energy.throttled or 0.0)} of the time{watts}",
        )


def _speculative(summary: Summary, counters: Mapping[int, ServerState]) -> Iterator[Advice]:
    low = []
    for c, seen in sorted(counters.items()):
        rate = ratio(seen.accepted_tokens, seen.draft_tokens)
        if rate is not None and rate < LOW_ACCEPTANCE:
            each = ratio(seen.draft_tokens, seen.drafts)
            of = f" of {short(each, 2)} drafted per step" if each else ""
            low.append((c, f"C={c}: {percent(rate)} accepted{of}"))
    if low:
        yield Advice(
            topic="speculative decoding",
            sentence=f"few draft tokens are accepted at C={','.join(str(c) for c, _ in low)}: draft fewer, or none",
            evidence="; ".join(text for _, text in low),
        )


def _slots(summary: Summary, counters: Mapping[int, ServerState]) -> Iterator[Advice]:
    """Use the fitted step time, but only within the levels that were measured."""
    scaling = summary.scaling
    if scaling is None or scaling.slots is None or scaling.slots.inferred or not summary.levels:
        return
    measured = max(level.c for level in summary.levels)
    total, per = scaling.slots.total, scaling.slots.per_replica
    full = _modelled_rate(scaling, per)
    if full is None or measured < total:
        return
    enough = next(
        (m for m in range(1, per) if (_modelled_rate(scaling, m) or 0.0) >= (1.0 - NEGLIGIBLE_GAIN) * full), per
    )
    if enough > 0.75 * per:
        return
    assert scaling.step_a_s is not None and scaling.step_c_s is not None
    yield Advice(
        topic="slots",
        sentence=f"more than {enough * scaling.slots.replicas} slots add almost no throughput: "
        "they only make streams slower",
        evidence=f"a step takes {short(1e3 * scaling.step_a_s)} + {short(1e3 * scaling.step_c_s)}·b ms "
        f"(fit within {percent(scaling.fit_error or 0.0)}): {enough} of {per} slots give 95 % of the tok/s",
    )


def _modelled_rate(scaling: Scaling, b: int) -> float | None:
    if scaling.step_a_s is None or scaling.step_c_s is None:
        return None
    return b / (scaling.step_a_s + scaling.step_c_s * b)


def _heads(summary: Summary, counters: Mapping[int, ServerState]) -> Iterator[Advice]:
    """Check that tensor parallelism divides the attention heads, which the user gives with --tag heads=40."""
    size, facts = tensor_parallel_size(known_flags(summary) or {}), summary.session.model_facts
    if facts and facts.heads and size and facts.heads % size:
        yield Advice(
            topic="tensor parallel",
            sentence=f"TP={size} does not divide {facts.heads} heads: the server will reject it, or leave GPUs idle",
            evidence=f"--tensor-parallel-size {size}, tag heads={facts.heads}",
        )


def level_counters(
    c: int, stages: Sequence[StageStart], ends: Sequence[StageEnd], telemetry: Sequence[Telemetry]
) -> ServerState:
    """Sum the counters over the runs of a level, each from the last sample before it to the last within it.

    `kv_use` is the maximum.
    """
    ended = {end.number: end.t_ns for end in ends}
    sums: dict[str, Any] = {}
    kv_use: list[float] = []
    samples = [sample for sample in telemetry if sample.servers]
    for stage in stages:
        if stage.phase != "level" or stage.c != c or stage.number not in ended:
            continue
        before = [sample for sample in samples if sample.t_ns <= stage.t_ns][-1:]
        inside = [sample for sample in samples if stage.t_ns < sample.t_ns <= ended[stage.number]]
        kv_use += [server.kv_use for sample in inside for server in sample.servers if server.kv_use is not None]
        span = [*before, *inside]
        found = counter_change(span[0].servers, span[-1].servers) if len(span) > 1 else None
        for name in _COUNTERS:
            value: float | None = getattr(found.state, name) if found else None
            if value is not None:
                sums[name] = sums.get(name, 0.0) + value
    return ServerState(engine="", kv_use=max(kv_use, default=None), **sums)
