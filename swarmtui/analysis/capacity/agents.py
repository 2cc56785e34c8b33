"""How many agents a server carries within an SLO: the answer of a search, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1, floor
from typing import NamedTuple

import msgspec

from swarmtui.analysis.capacity.judged_levels import JudgedLevel, Visit, best_level, judge, level_margins, met_least
from swarmtui.analysis.capacity.margins import ANOTHER_MINUTE, missed_by_far
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.limits.slo import Slo
from swarmtui.model.findings import Capacity, Finding, Findings, KvCliff
from swarmtui.model.session import Level, Summary
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.numbers import count, fixed, percent, short
from swarmtui.text import count_noun

# A level that was missed by this part of what runs differ by ends the range.
_MISSED = 0.6
# Prompts are evicted at a level if the hit rate is this much lower than at a level with fewer agents.
_HIT_DROP = 0.05


def capacity(
    slo: Slo,
    visits: Sequence[Visit],
    levels: Sequence[Level],
    servers: Sequence[DiscoveredServer] = (),
    *,
    alpha: float,
    context_tokens: float | None = None,
    gpus: int = 0,
    price_per_hour: float | None = None,
) -> Capacity:
    """Return the most agents that keep the SLO, with an interval, and what ends it; 0 `gpus` are not known."""
    judged = judge(visits, alpha)
    failing = next((one for one in judged if not one.passes and not one.dip), None)
    best = best_level(judged)
    agents = best.c if best else 0
    low, high, varied = _bounds(judged, agents, alpha)
    at = next((level for level in levels if level.c == agents), None)
    watts = at.energy.mean_w if at and at.energy else None
    return Capacity(
        slo=str(slo),
        agents=agents,
        low=low,
        high=high,
        next_c=failing.c if failing else None,
        alpha=alpha,
        visits=len(visits),
        requests=sum(visit.slo.n for visit in visits),
        findings=(*_findings(judged, alpha), *varied),
        far_c=_far_missed(judged, levels, agents),
        kv=_kv_cliff(levels, predict_kv_cliff(context_tokens, servers)),
        agents_per_gpu=ratio(agents, gpus),
        agents_per_kw=ratio(agents, watts / 1000.0 if watts else None),
        price_per_million=cost_per_million(at, price_per_hour),
    )


def _bounds(judged: Sequence[JudgedLevel], agents: int, alpha: float) -> tuple[int, int | None, Findings]:
    """Return the levels that are shown to be kept and missed, further apart if another minute may be slower or faster.

    The range is never narrower than these verdicts. A level that was kept at each of several visits is within it,
    unless it is so close to a limit that another minute may miss it.
    """
    low = max((one.c for one in judged if one.kept and one.sure), default=0)
    high = min((one.c - 1 for one in judged if one.kept is False and one.c > agents and not one.dip), default=None)
    margins = level_margins(judged)
    if margins is None:
        return low, high, ()
    another = margins.range(alpha)
    repeated = (one.c for one in judged if one.sure and one.visits_by_verdict(alpha)[0] == len(one.visits) > 1)
    top = high
    if top is not None:
        # What is shown to be missed, and not by next to nothing, is not what may be kept.
        above = [one.c for one in judged if one.c > agents and one.kept is False and not one.dip]
        missed = (c - 1 for c in above if margins.at(c) <= -_MISSED * margins.needed(ANOTHER_MINUTE))
        top = min((*missed, max(top, another[1])))
    wider = min(low, max(another[0], *repeated, 0)), top
    if wider == (low, high) and all(one.kept is None for one in judged if one.near):
        return low, high, ()
    varies = percent(-expm1(-margins.needed(ANOTHER_MINUTE)))  # of a limit, as the room of levels is
    return *wider, (Finding(code="runs_vary", text=f"runs differ by up to {varies}"),)


def _far_missed(judged: Sequence[JudgedLevel], levels: Sequence[Level], agents: int) -> int | None:
    """Return the lowest level that is missed at every visit by more than other work on the host explains."""
    hosts = {level.c: level.host for level in levels}
    above = (one for one in judged if one.c > agents and one.kept is False and not one.near)
    return next((one.c for one in above if all(missed_by_far(visit, hosts.get(one.c)) for visit in one.visits)), None)


def _findings(judged: Sequence[JudgedLevel], alpha: float) -> Findings:
    found = []
    for one in judged:
        if one.dip:
            good, n = met_least(one.visits)
            why = next(above.c for above in judged if above.c > one.c and above.kept)
            text = f"C={one.c} missed it ({good} of {n} requests met it), although C={why} keeps it"
            found.append(Finding(code="dip", text=text))
        elif all(one.visits_by_verdict(alpha)):
            found.append(Finding(code="visits_differ", text=f"C={one.c} kept it in one run and missed it in another"))
    return tuple(found)


def cost_per_million(level: Level | None, price_per_hour: float | None) -> float | None:
    if level is None or price_per_hour is None or not level.headline_tps:
        return None
    return price_per_hour / 3600.0 / level.headline_tps * 1e6


class _HitRate(NamedTuple):
    """The share of prompt tokens that came from the prefix cache at a level, and the highest possible one if known."""

    c: int
    share: float
    most: float | None

    @property
    def relative(self) -> float:
        return self.share / (self.most or 1.0)


def _hit_rate(level: Level) -> _HitRate | None:
    if level.replay is not None:
        hit, most = level.replay.hit_rate, level.replay.max_hit_rate
        return _HitRate(level.c, hit, most) if hit is not None and most else None
    found = ratio(level.cached_tokens, level.tokens_in) if level.cached_tokens is not None else None
    return None if found is None else _HitRate(level.c, found, None)


def _kv_cliff(levels: Sequence[Level], predicted: KvCliff) -> KvCliff | None:
    """Find the lowest level at which the hit rate has fallen; how much is possible differs between sessions.

    It is compared with that of the level below, or with the best one if it fell little by little.
    """
    before: _HitRate | None = None
    best: _HitRate | None = None
    for level in sorted(levels, key=lambda level: level.c):
        found = _hit_rate(level)
        if found is None:
            continue
        for above in (before, best):
            if above is not None and found.relative <= above.relative - _HIT_DROP:
                return msgspec.structs.replace(
                    predicted, c_before=above.c, hit_before=above.share, max_hit_before=above.most,
                    c=found.c, hit_after=found.share, max_hit_after=found.most,
                )  # fmt: skip
        before = found
        best = max(best or found, found, key=lambda hit: hit.relative)
    if before is not None:
        predicted = msgspec.structs.replace(
            predicted, c_before=before.c, hit_before=before.share, max_hit_before=before.most
        )
    return predicted if predicted.pool_tokens else None


def session_kv(summary: Summary) -> KvCliff | None:
    """Return when contexts no longer fit in the KV cache: by the search for the capacity, else by the levels."""
    if summary.capacity is not None:
        return summary.capacity.kv
    contexts = [level.kv.context_tokens for level in summary.levels if level.kv]
    return _kv_cliff(summary.levels, predict_kv_cliff(contexts[0] if contexts else None, summary.servers))


def predict_kv_cliff(context_tokens: float | None, servers: Sequence[DiscoveredServer]) -> KvCliff:
    sizes, slots = [server.kv_tokens for server in servers], [server.slots for server in servers]
    pool = sum(size or 0 for size in sizes) if sizes and all(sizes) else None
    return KvCliff(
        pool_tokens=pool,
        context_tokens=context_tokens,
        predicted=ratio(pool, context_tokens),
        slots=sum(number or 0 for number in slots) if slots and all(slots) else None,
    )


def capacity_sentences(answer: Capacity, *, beside_border: bool = False) -> list[str]:
    """Return levels that contradict others, what was predicted for the KV cache, and the agents per GPU and kW.

    `beside_border`: by how much runs vary is said by the sentence about the levels at the capacity.
    """
    findings = (found for found in answer.findings if not (beside_border and found.code == "runs_vary"))
    per = [
        f"{short(value)} agent{'' if value == 1 else 's'} per {unit}"
        for value, unit in ((answer.agents_per_gpu, "GPU"), (answer.agents_per_kw, "kW"))
        if value
    ]
    if answer.price_per_million is not None:
        per.append(f"{short(answer.price_per_million)} per million output tokens")
    kv = [kv_sentence(answer.kv, answer.next_c)] if answer.kv else []
    return [*map(str, findings), *kv, *(["; ".join(per)] if per else [])]


def kv_sentence(kv: KvCliff, missed_c: int | None = None) -> str:
    """`KV cache: room for 11 contexts of about 1,003 tokens; 16 slots; hit rate 0.94 at C=11, 0.71 at C=12`"""
    text = room_text(kv, missed_c) or "KV cache: its size is not reported, so that no cliff was predicted"
    if kv.c is None or kv.hit_before is None or kv.hit_after is None:
        return f"{text}; {'hit rates are not known' if kv.hit_before is None else 'the hit rate did not fall'}"
    before, after = hit_texts(kv)
    return f"{text}; hit rate {before} at C={kv.c_before}, {after} at C={kv.c}"


def hit_texts(kv: KvCliff) -> tuple[str, str]:
    """Return both hit rates, with the highest possible ones unless these figures show the fall."""
    before, after = fixed(kv.hit_before or 0.0, 2), fixed(kv.hit_after or 0.0, 2)
    if float(after) < float(before) or kv.max_hit_before is None or kv.max_hit_after is None:
        return before, after
    return f"{before} of at most {fixed(kv.max_hit_before, 2)}", f"{after} of at most {fixed(kv.max_hit_after, 2)}"


def room_text(kv: KvCliff, missed_c: int | None = None) -> str:
    """Say for how many contexts there is room, and that it does not end the capacity, if all that are needed fit.

    These are contexts and not agents: one that waits for a slot has none. Empty if nothing can be predicted.
    """
    if kv.predicted is None:
        return ""
    fits = floor(kv.predicted)
    room = f"KV cache: room for {count_noun(fits, 'context')} of about {count(kv.context_tokens)} tokens"
    slots = f"; {count_noun(kv.slots, 'slot')}" if kv.slots else ""
    at_once = min(filter(None, (kv.slots, missed_c)), default=0)
    has_room = missed_c is not None and kv.c is None and fits >= at_once
    return f"{room}{slots}{', so it should not be what limits' if has_room else ''}"
