"""Fit a scaling law to levels: step time, ceiling, sweet spot and cliff, or the reason why there is none.

Also decide whether a server keeps up with the arrival rate of an open loop, and how many requests it runs at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import fsum
from typing import TYPE_CHECKING

import msgspec

from swarmtui.analysis.capacity.cliff import Queues, find_cliff, find_queues, slots_seen, throughput_gain
from swarmtui.model.findings import Cliff, Finding, Findings, QueueingDelay, Scaling, Slots
from swarmtui.model.load import traits
from swarmtui.model.plan import is_open_loop
from swarmtui.model.session import Level, Session
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.numbers import percent, short, signed_percent
from swarmtui.text import count_noun

if TYPE_CHECKING:
    from swarmtui.engines.base import Engine

# A larger drop of throughput while all slots are full is an anomaly.
MAX_DROP = 0.05
# The share of the highest throughput before the cliff that is enough for the best level, the sweet spot.
PLATEAU = 0.95
LEVELS_FOR_FIT = 3
LEVELS_FOR_KNEE = 5
MAX_FIT_ERROR = 0.10

# Completions / arrivals: from the first share on the server keeps up, below the second requests pile up. In between,
# the answers that are still in flight at the end may explain the difference. With fewer arrivals than `MANY_ARRIVALS`
# a server at 90 % of its capacity completes less by chance, so that only the third share decides.
KEEPS_UP_SHARE, PILES_UP_SHARE, SURELY_PILES_UP = 0.97, 0.90, 0.80
MANY_ARRIVALS = 400
# A run shorter than this many mean e2e times ends before a queue shows.
MIN_DURATION_E2E = 10.0


def scaling(levels: Sequence[Level], slots: Slots | None = None) -> Scaling:
    """Return the scaling of the levels with a complete run; without known `slots`, they are inferred from the cliff."""
    complete = [level for level in levels if level.has_complete_run]
    known = sorted((level for level in complete if level.headline_tps), key=lambda level: level.c)
    if levels and not complete:
        return _with_sentence(_refuse(Scaling(), "incomplete", "no level is complete", "scaling"), None)
    if not known:
        return _with_sentence(_refuse(Scaling(), "no_throughput", "no level has a throughput", "scaling"), None)
    if is_open_loop(known):
        why = "an open loop does not hold C"
        found = _refuse(Scaling(), "open_loop", why, "fit", "ceiling", "knee", "sweet spot")
        return msgspec.structs.replace(found, sentence=open_loop_sentence(known))
    agents = any(traits(level.load).replayed for level in known)
    reported = None if agents else slots
    queues, cliff = find_queues(known, reported), find_cliff(known, reported)
    slots = None if agents else slots or _inferred_slots(known, cliff)
    found = Scaling(
        slots=slots,
        cliff=cliff,
        queue_forms=queues.forms.c if queues.forms else None,
        queueing_delay=_queueing_delay(known, slots),
        anomalies=(*_unconfirmed(queues), *_anomalies(known, slots)),
    )
    if agents:
        why = "C counts agents, which pause and have sub-agents, not requests"
        found = _refuse(found, "agents", why, "slots", "fit", "ceiling", "knee")
    else:
        found = _with_fit(found, known, slots)
    found = _with_sweet_spot(found, known, slots)
    return _with_sentence(found, max(_before(known, cliff), key=lambda level: level.headline_tps or 0.0))


def best_level(levels: Sequence[Level], slots: Slots | None = None) -> Level | None:
    """Return the lowest load with 95 % of the highest throughput; None for a single level or an open loop.

    Levels without a complete run do not count. A level past the cliff is never the best, even if its throughput is
    slightly higher: its requests queue. The rates of an open loop are chosen by the user, so none of them is the best.
    If there is a sweet spot, this is the level at it.
    """
    rated = [
        level for level in levels if level.has_complete_run and level.headline_tps is not None and level.rate is None
    ]
    if len(rated) < 2:
        return None
    return _lowest_best(sorted(rated, key=lambda level: level.c), find_cliff(rated, slots))


def _lowest_best(levels: Sequence[Level], cliff: Cliff | None) -> Level:
    before = _before(levels, cliff)
    most = max(level.headline_tps or 0.0 for level in before)
    return next(level for level in before if (level.headline_tps or 0.0) >= PLATEAU * most)


def _before(levels: Sequence[Level], cliff: Cliff | None) -> list[Level]:
    return [level for level in levels if cliff is None or level.c < cliff.c]


def headline_level(levels: Sequence[Level], slots: Slots | None = None) -> Level | None:
    """Return the level with the highest throughput before the cliff, of an open loop that of all rates."""
    rated = [level for level in levels if level.headline_tps is not None]
    measured = [level for level in rated if level.has_complete_run] or rated
    cliff = None if is_open_loop(measured) else find_cliff(measured, slots)
    return max(_before(measured, cliff), key=lambda level: level.headline_tps or 0.0, default=None)


def _inferred_slots(levels: Sequence[Level], cliff: Cliff | None) -> Slots | None:
    """Return the slots that the client sees; else infer them from the cliff: before it, each stream had one."""
    if cliff is None:
        return None
    seen = slots_seen(levels)
    if seen is not None:
        reason = f"never more than {count_noun(seen, 'stream')} received tokens at the same time"
        return Slots(per_replica=seen, inferred=True, reason=f"{reason}, up to C={max(level.c for level in levels)}")
    last = cliff.c - 1
    where = f"{cliff.c_before}" if last == cliff.c_before else f"{cliff.c_before} to {last}"
    return Slots(
        per_replica=cliff.c_before, inferred=True, reason=f"requests wait at C={cliff.c}: there are {where} slots"
    )


def _unconfirmed(queues: Queues) -> Findings:
    """Name the levels that looked like a cliff, but are not known to be one."""
    found = [
        Finding(
            code="disturbed_level",
            text=f"C={level.c} had a long TTFT, which the next higher level does not have: it was disturbed, and is "
            "not the cliff",
        )
        for level in queues.disturbed
    ]
    if queues.queued is not None and not queues.confirmed:
        why = f"C={queues.queued.c} may be the cliff by its TTFT; a higher level has to confirm it"
        found.append(Finding(code="unconfirmed_cliff", text=why))
    return tuple(found)


def _queueing_delay(levels: Sequence[Level], slots: Slots | None) -> tuple[QueueingDelay, ...]:
    within = [level for level in levels if slots and level.c <= slots.total and level.ttft_s.mean]
    if not slots or not within:
        return ()
    base = within[-1].ttft_s.mean or 0.0
    return tuple(
        QueueingDelay(c=level.c, seconds=level.ttft_s.mean - base, factor=level.ttft_s.mean / base)
        for level in levels
        if level.c > slots.total and level.ttft_s.mean is not None
    )


def _anomalies(levels: Sequence[Level], slots: Slots | None) -> Findings:
    if not slots:
        return ()
    # With fewer requests than streams, the throughput is that of a few answers.
    full = [level for level in levels if level.c >= slots.total and level.n >= level.c]
    return tuple(
        Finding(
            code="throughput_drop",
            text=f"throughput fell by {percent(-change)} from C={before.c} to C={after.c} while "
            f"{f'all {slots.total} slots were' if slots.total > 1 else 'the only slot was'} full: queueing alone costs "
            "time to first token, not tok/s",
        )
        for before, after in pairwise(full)
        if (change := throughput_gain(before, after)) < -MAX_DROP
    )


def _with_fit(found: Scaling, levels: Sequence[Level], slots: Slots | None) -> Scaling:
    replicas = slots.replicas if slots else 1
    highest = slots.total if slots else levels[-1].c
    points = [(max(1.0, level.c / replicas), level.tpot_s.mean) for level in levels if level.c <= highest]
    steps = [(b, tpot) for b, tpot in points if tpot]
    batches = len({b for b, _ in steps})
    if len(steps) < LEVELS_FOR_FIT:
        at = f" up to C={highest}, where the slots end" if slots else ""
        known = count_noun(len(steps), "level")
        why = f"{known} with a time per token{at}; {LEVELS_FOR_FIT} are needed"
        return _refuse(found, "too_few_levels", why, "fit", "ceiling", "knee")
    if batches < 2:
        why = "all levels ran with the same number of streams per replica"
        return _refuse(found, "same_batch", why, "fit", "ceiling", "knee")
    a, c = _line(steps)
    error = max(abs(tpot / (a + c * b) - 1.0) if a + c * b > 0 else 1.0 for b, tpot in steps)
    if error > MAX_FIT_ERROR or a < 0:
        why = f"the steps are off a line a + c·b by up to {percent(error)}" if a >= 0 else "the line has a < 0"
        return _refuse(found, "poor_fit", why, "fit", "ceiling", "knee")
    found = msgspec.structs.replace(found, step_a_s=a, step_c_s=c, fit_error=error)
    if c <= 0:
        why = f"a step takes no longer with more streams, up to C={highest}"
        return _refuse(found, "no_slope", why, "ceiling", "knee")
    found = msgspec.structs.replace(found, sigma=c / (a + c), ceiling_tps=replicas / c)
    return _with_knee(found, batches, highest, replicas * a / c)


def _with_knee(found: Scaling, batches: int, highest: int, knee: float) -> Scaling:
    if batches < LEVELS_FOR_KNEE:
        why = f"{batches} levels of different load; {LEVELS_FOR_KNEE} are needed"
        return _refuse(found, "too_few_levels", why, "knee")
    if not 1.0 <= knee <= highest:
        why = f"it would be at C={short(knee)}, outside the measured levels or slots"
        return _refuse(found, "out_of_range", why, "knee")
    return msgspec.structs.replace(found, knee=knee)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return a and c of t = a + c·b, by least squares."""
    n = len(points)
    mean_b, mean_t = fsum(b for b, _ in points) / n, fsum(t for _, t in points) / n
    c = fsum((b - mean_b) * (t - mean_t) for b, t in points) / fsum((b - mean_b) ** 2 for b, _ in points)
    return mean_t - c * mean_b, c


def _with_sweet_spot(found: Scaling, levels: Sequence[Level], slots: Slots | None) -> Scaling:
    """Add the sweet spot: the best level. It has none if tok/s still grew up to the last level, short of the slots."""
    if len(levels) == 1:
        return _refuse(found, "single_level", "only one level", "sweet spot")
    best = _lowest_best(levels, found.cliff)
    if best.c == levels[-1].c and (slots is None or best.c < slots.total):
        return _refuse(found, "still_growing", f"tok/s still grew up to C={best.c}", "sweet spot")
    return msgspec.structs.replace(found, sweet_spot=best.c)


def _refuse(found: Scaling, code: str, text: str, *figures: str) -> Scaling:
    why = Finding(code=code, text=text)
    return msgspec.structs.replace(found, refused=found.refused | dict.fromkeys(figures, why))


def _with_sentence(found: Scaling, best: Level | None) -> Scaling:
    """`sweet spot C=4 (2×2) = 2 replicas × 2 slots; queue forms at C=5; cliff at C=5: +2 % tok/s for ×9 mean TTFT`"""
    parts = []
    slots, spot, cliff = found.slots, found.sweet_spot, found.cliff
    if spot is not None:
        by_slots = _slots_text(slots, cliff) if slots and spot == slots.total else ""
        enough = f" (at least {percent(PLATEAU)} of the tok/s at C={best.c})" if best and best.c > spot else ""
        parts.append(f"sweet spot C={spot}{by_slots or enough}")
    else:
        parts.append(f"no sweet spot: {found.refused.get('sweet spot') or found.refused.get('scaling', '')}")
    if found.queue_forms is not None:
        parts.append(f"queue forms at C={found.queue_forms}")
    if cliff is not None:
        parts.append(_cliff_text(cliff))
    return msgspec.structs.replace(found, sentence="; ".join([*parts, *map(str, found.anomalies)]))


def _slots_text(slots: Slots, cliff: Cliff | None) -> str:
    if slots.inferred and cliff is not None and cliff.c - 1 > slots.total == cliff.c_before:
        return f" ({slots.total} to {cliff.c - 1} slots, inferred)"
    return f" ({slots.replicas}×{slots.per_replica}) = {slots}" if slots.replicas > 1 else f" ({slots})"


def _cliff_text(cliff: Cliff) -> str:
    wait = f" for ×{short(cliff.ttft_factor, 2)} mean TTFT" if cliff.ttft_factor is not None else ""
    return f"cliff at C={cliff.c}: {signed_percent(cliff.gain, 0)} tok/s{wait}"


def cliff_search_sentence(levels: Sequence[Level], slots: Slots | None = None) -> str:
    """`sweet spot C=4 (2 replicas × 2 slots); cliff at C=5: +2 % tok/s for ×9 mean TTFT`"""
    if not any(level.ok for level in levels):
        return "no cliff: nothing was measured"
    found = scaling(levels, slots)
    cliff, known = found.cliff, found.slots
    spot = found.sweet_spot or (cliff.c_before if cliff else None)
    reported = f" ({known})" if known and not known.inferred and spot == known.total else ""
    parts = [] if spot is None else [f"sweet spot C={spot}{reported}"]
    unanswered = [level.c for level in levels if not level.ok]
    if cliff is not None:
        parts.append(_cliff_text(cliff))
    else:
        why = "throughput still grows or TTFT holds"
        if unanswered:
            why = f"at C={min(unanswered)} no request was answered"
        parts.append(f"no cliff up to C={max(level.c for level in levels if level.ok)}: {why}")
    return "; ".join([*parts, *map(str, found.anomalies)])


def keeps_up(level: Level) -> bool | None:
    """Return whether completions follow arrivals; None if that cannot be decided."""
    if not level.arrived_per_s or not level.served_per_s:
        return None
    share = level.served_per_s / level.arrived_per_s
    if share < (PILES_UP_SHARE if level.n >= MANY_ARRIVALS else SURELY_PILES_UP):
        return False
    mean = level.e2e_s.mean or level.e2e_s.p50
    long_enough = bool(mean) and level.n / level.arrived_per_s >= MIN_DURATION_E2E * (mean or 0.0)
    return True if share >= KEEPS_UP_SHARE and long_enough else None


def piles_up(level: Level) -> bool:
    """Return whether requests wait longer and longer; those that failed do not wait."""
    answered = (level.arrived_per_s or 0.0) * level.ok / max(1, level.n)
    return keeps_up(level) is False and (level.served_per_s or 0.0) < PILES_UP_SHARE * answered


def open_loop_sentence(levels: Sequence[Level]) -> str:
    """`keeps up with 8 requests/s; at 12/s it completes 9.1 requests/s, and the queue grows`"""
    found = [(level, keeps_up(level)) for level in sorted(levels, key=lambda level: level.offered_load)]
    behind = next((level for level, kept in found if kept is False), None)
    sustained = [
        level for level, kept in found if kept and (behind is None or level.offered_load < behind.offered_load)
    ]
    parts = [f"keeps up with {sustained[-1].offered_load:g} requests/s"] if sustained else []
    if behind is not None:
        why = "the queue grows" if piles_up(behind) else f"{behind.n - behind.ok} of {behind.n} failed"
        parts.append(f"at {behind.name} it completes {short(behind.served_per_s)} requests/s, and {why}")
    undecided = [level.name for level, kept in found if kept is None]
    if undecided:
        parts.append(f"not sure yet at {', '.join(undecided)}: use a longer run")
    return "; ".join(parts)


def _spellings(engine: Engine, flag: str) -> str:
    """Return a pattern for a flag, its short forms, and underscores in place of dashes."""
    short = [f"-{short}" for short, name in engine.short_flags.items() if f"--{name}" == flag]
    return "|".join([flag[:2] + flag[2:].replace("-", "[-_]"), *short])


@cache
def _slot_flags() -> tuple[tuple[str, str], ...]:
    # Not needed for the first paint of the app.
    from swarmtui.engines.registry import ENGINES

    return tuple((flag, _spellings(engine, flag)) for engine in ENGINES for flag in engine.slot_flags)


def slots_from_flags(flags: str, replicas: int = 1) -> Slots | None:
    """Return the slots that a flag sets; `replicas` are the endpoints, or the engines behind one."""
    for name, pattern in _slot_flags():
        found = re.search(rf"(?:^|\s)(?:{pattern})[=\s]+(\d+)(?=\s|$)", flags)
        if found and int(found.group(1)) > 0:
            return Slots(per_replica=int(found.group(1)), replicas=max(1, replicas), reason=f"the server's {name}")
    return None


def server_slots(session: Session, servers: Sequence[DiscoveredServer]) -> Slots | None:
    """Return the slots as the servers report them, else from the flags that the user gave, which may be outdated."""
    known = [server.slots for server in servers]
    if not known or known[0] is None or any(slots != known[0] for slots in known):
        return slots_from_flags(session.server_flags, len(session.endpoints))
    inside = (servers[0].flags or {}).get("replicas", "")
    per_server = int(inside) if inside.isdigit() and int(inside) and known[0] % int(inside) == 0 else 1
    return Slots(per_replica=known[0] // per_server, replicas=len(known) * per_server, reason="as the server reports")
