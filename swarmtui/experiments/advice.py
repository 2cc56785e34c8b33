"""What to try next, from facts alone: each piece of advice stands with the figures it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from swarmtui.analysis.capacity.cliff import LEAST_GAIN
from swarmtui.analysis.compare.differences import flags_of
from swarmtui.analysis.machine.server_counters import change
from swarmtui.model.findings import Scaling
from swarmtui.model.schema import Stored
from swarmtui.model.session import StretchEnd, StretchStart, Summary
from swarmtui.model.telemetry import Telemetry
from swarmtui.sessions.store import Loaded, summarise
from swarmtui.text import signed

KV_FULL = 0.95
CAPPED = 0.05
ACCEPTED = 0.5
# Seats that bring so little more tok/s only make streams slower.
SMALL_GAIN = 0.05
_BOTH_COUNTERS = ("draft_tokens", "accepted_tokens")


class Advice(Stored, frozen=True, kw_only=True):
    topic: str
    sentence: str
    evidence: str


class Served(Stored, frozen=True, kw_only=True):
    """What servers counted while a level ran; null is not told. `kv_use` is the highest seen."""

    kv_use: float | None = None
    preemptions: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    drafts: float | None = None


def advice_of(loaded: Loaded) -> tuple[Advice, ...]:
    summary, journal = summarise(loaded), loaded.journal
    served = {level.c: _served(level.c, journal.stretches, journal.ends, journal.telemetry) for level in summary.levels}
    return advise(summary, served)


def advise(summary: Summary, served: Mapping[int, Served] | None = None) -> tuple[Advice, ...]:
    """In the order in which they are worth reading: first what makes the figures wrong, then what to change."""
    told = served or {}
    return tuple(
        found
        for rule in (_client, _cache, _queue, _kv, _power, _speculative, _seats, _heads)
        for found in rule(summary, told)
    )


def _client(summary: Summary, served: Mapping[int, Served]) -> Iterator[Advice]:
    lines = [line for line in summary.trust if line.name in ("client CPU", "client lag") and line.state != "ok"]
    if lines:
        yield Advice(
            topic="client-bound",
            sentence="the client may be the limit: run it on other cores, or with fewer streams, before changing flags",
            evidence="; ".join(f"{line.name} {line.value}" for line in lines),
        )


def _cache(summary: Summary, served: Mapping[int, Served]) -> Iterator[Advice]:
    for line in summary.trust:
        if line.name == "cold cache" and line.state != "ok":
            yield Advice(
                topic="prefix cache",
                sentence="the prefix cache contaminates TTFT: use another --seed, or switch it off for the measurement",
                evidence=line.value,
            )


def _queue(summary: Summary, served: Mapping[int, Served]) -> Iterator[Advice]:
    """Of the highest level that all had seats at, and the highest beyond it."""
    scaling = summary.scaling
    seats = scaling.seats if scaling else None
    seated = [level for level in summary.levels if seats and level.c <= seats.total and level.lead_tps]
    queued = [level for level in summary.levels if seats and level.c > seats.total and level.lead_tps]
    if not seats or not seated or not queued:
        return
    base, most = seated[-1], queued[-1]
    gain = _ratio(most.lead_tps, base.lead_tps)
    if base.c < seats.total or gain is None or gain - 1.0 >= LEAST_GAIN:
        return
    slower = _ratio(most.ttft_s.mean, base.ttft_s.mean)
    ttft = f", TTFT ×{slower:.2g}" if slower else ""
    yield Advice(
        topic="queue",
        sentence=f"C beyond {seats.total} only queues: send no more at once, or give the server more seats",
        evidence=f"C={most.c} against C={base.c}: {signed(gain - 1.0, 0)} output tok/s{ttft}; {seats}",
    )


def _kv(summary: Summary, served: Mapping[int, Served]) -> Iterator[Advice]:
    for c, seen in sorted(served.items()):
        if seen.preemptions:
            use = "" if seen.kv_use is None else f", KV cache up to {_percent(seen.kv_use)} full"
            yield Advice(
                topic="preemptions",
                sentence="the KV cache is too small for so many: fewer seats, a shorter context, an fp8 KV cache, "
                "or more memory for it",
                evidence=f"C={c}: {seen.preemptions:g} preemptions{use}",
            )
            return
        if seen.kv_use is not None and seen.kv_use >= KV_FULL:
            yield Advice(
                topic="KV full",
                sentence="the KV cache is full: more streams will wait, or throw others out",
                evidence=f"C={c}: KV cache up to {_percent(seen.kv_use)} full, no preemptions counted",
            )
            return


def _power(summary: Summary, served: Mapping[int, Served]) -> Iterator[Advice]:
    capped = [
        level
        for level in summary.levels
        if level.energy and "power cap" in level.energy.throttle and (level.energy.throttled or 0.0) > CAPPED
    ]
    if capped:
        level = max(capped, key=lambda level: level.energy.throttled or 0.0 if level.energy else 0.0)
        assert level.energy is not None
        watts = "" if level.energy.mean_w is None else f", {level.energy.mean_w:.0f} W"
        yield Advice(
            topic="power-capped",
            sentence="the GPUs run at their power limit: more is faster, less may save more than it costs",
            evidence=f"C={level.c}: clocks lowered {_percent(level.energy.throttled or 0.0)} of the time{watts}",
        )


def _speculative(summary: Summary, served: Mapping[int, Served]) -> Iterator[Advice]:
    low = []
    for c, seen in sorted(served.items()):
        rate = _ratio(seen.accepted_tokens, seen.draft_tokens)
        if rate is not None and rate < ACCEPTED:
            each = _ratio(seen.draft_tokens, seen.drafts)
            of = f" of {each:.2g} drafted a step" if each else ""
            low.append((c, f"C={c}: {_percent(rate)} accepted{of}"))
    if low:
        yield Advice(
            topic="speculative decoding",
            sentence=f"few drafts are accepted at C={','.join(str(c) for c, _ in low)}: draft fewer tokens, or none",
            evidence="; ".join(text for _, text in low),
        )


def _seats(summary: Summary, served: Mapping[int, Served]) -> Iterator[Advice]:
    """By the fitted step time, and only within the levels that were measured."""
    scaling = summary.scaling
    if scaling is None or scaling.seats is None or scaling.seats.inferred or not summary.levels:
        return
    measured = max(level.c for level in summary.levels)
    seats, per = scaling.seats.total, scaling.seats.per_replica
    full = _modelled(scaling, per)
    if full is None or measured < seats:
        return
    enough = next((m for m in range(1, per) if (_modelled(scaling, m) or 0.0) >= (1.0 - SMALL_GAIN) * full), per)
    if enough > 0.75 * per:
        return
    assert scaling.step_a_s is not None and scaling.step_c_s is not None
    yield Advice(
        topic="seats",
        sentence=f"seats above {enough * scaling.seats.replicas} bring next to nothing: they only make streams slower",
        evidence=f"a step takes {1e3 * scaling.step_a_s:.3g} + {1e3 * scaling.step_c_s:.3g}·b ms "
        f"(fit within {_percent(scaling.fit_error or 0.0)}): {enough} of {per} seats give 95 % of the tok/s",
    )


def _modelled(scaling: Scaling, b: int) -> float | None:
    if scaling.step_a_s is None or scaling.step_c_s is None:
        return None
    return b / (scaling.step_a_s + scaling.step_c_s * b)


def _heads(summary: Summary, served: Mapping[int, Served]) -> Iterator[Advice]:
    """Nobody but the model's file knows its heads: people say them with --tag heads=40."""
    flags, told = flags_of(summary) or {}, summary.session.tags.get("heads", "")
    names = ("tensor-parallel-size", "--tensor-parallel-size", "-tp", "tp", "--tp")
    size = next((flags[name] for name in names if name in flags), "")
    if re.fullmatch(r"[1-9]\d*", told) and re.fullmatch(r"[1-9]\d*", size) and int(told) % int(size):
        yield Advice(
            topic="tensor parallel",
            sentence=f"TP={size} does not divide {told} heads: the server will refuse it, or leave GPUs idle",
            evidence=f"--tensor-parallel-size {size}, tag heads={told}",
        )


def _served(
    c: int, stretches: Sequence[StretchStart], ends: Sequence[StretchEnd], telemetry: Sequence[Telemetry]
) -> Served:
    """From the last look before each run of the level to the last within it, added up."""
    ended = {end.number: end.t_ns for end in ends}
    sums: dict[str, float] = {}
    highest: list[float] = []
    looks = [seen for seen in telemetry if seen.servers]
    for stretch in stretches:
        if stretch.phase != "level" or stretch.c != c or stretch.number not in ended:
            continue
        before = [seen for seen in looks if seen.t_ns <= stretch.t_ns][-1:]
        inside = [seen for seen in looks if stretch.t_ns < seen.t_ns <= ended[stretch.number]]
        highest += [server.kv_use for seen in inside for server in seen.servers if server.kv_use is not None]
        span = [*before, *inside]
        found = change(span[0].servers, span[-1].servers) if len(span) > 1 else None
        for name in ("preemptions", "drafts", *_BOTH_COUNTERS):
            value: float | None = getattr(found.state, name) if found else None
            if value is not None:
                sums[name] = sums.get(name, 0.0) + value
    return Served(kv_use=max(highest, default=None), **sums)


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
