"""Levels to a scaling law: what a step costs, where the ceiling, the sweet spot and the cliff are; or why not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import fsum

import msgspec

from swarmtui.analysis.capacity.cliff import find_cliff, throughput_gain
from swarmtui.analysis.capacity.open_loop import open_loop_sentence
from swarmtui.model.findings import Cliff, QueueingDelay, Scaling, Slots
from swarmtui.model.session import Level

QUEUE_TTFT = 1.5
FELL = 0.05
PLATEAU = 0.95
LEVELS_FOR_FIT = 3
LEVELS_FOR_KNEE = 5
MOST_FIT_ERROR = 0.10
SAME = 0.01


def scaling(levels: Sequence[Level], seats: Slots | None = None) -> Scaling:
    """`seats` as somebody said; without them they are inferred where the curve has a cliff, and the reason is given."""
    known = sorted((level for level in levels if _rate(level)), key=lambda level: level.c)
    if not known:
        return _said(Scaling(refused={"scaling": "no level has a throughput"}))
    if any(level.rate is not None for level in known):
        why = "in an open loop nobody holds C"
        refused = dict.fromkeys(("fit", "ceiling", "knee", "sweet spot"), why)
        return Scaling(refused=refused, sentence=open_loop_sentence(known))
    cliff = find_cliff(known)
    seats = seats or _inferred(cliff)
    found = Scaling(
        slots=seats, cliff=cliff, queueing_delay=_queue_tax(known, seats), anomalies=_anomalies(known, seats)
    )
    found = _with_fit(found, known, seats)
    found = _with_sweet_spot(found, known, seats)
    return _said(found)


def best_level(levels: Sequence[Level]) -> Level | None:
    """The lowest load with the most throughput: what is within 1 % of it is the same. None with nothing to choose.

    Past the cliff a last percent is bought with waiting: that is not best. In an open loop the rate decides, not we.
    """
    rated = [level for level in levels if level.headline_tps is not None and level.rate is None]
    cliff = find_cliff(rated)
    before = [level for level in rated if cliff is None or level.c < cliff.c]
    most = max((level.headline_tps or 0.0 for level in before), default=0.0)
    near = [level for level in before if (level.headline_tps or 0.0) >= (1.0 - SAME) * most]
    return min(near, key=lambda level: level.offered_load) if len(rated) > 1 else None


def headline_level(levels: Sequence[Level]) -> Level | None:
    """The best; where there is none to choose, as of one level or of an open loop, the one with the most."""
    rated = [level for level in levels if level.headline_tps is not None]
    return best_level(levels) or max(rated, key=lambda level: level.headline_tps or 0.0, default=None)


def _rate(level: Level) -> float | None:
    return level.headline_tps


def _inferred(cliff: Cliff | None) -> Slots | None:
    """Requests wait from somewhere between the two levels on; the lower one is certain to have had seats."""
    if cliff is None:
        return None
    last = cliff.c - 1
    where = f"{cliff.c_before}" if last == cliff.c_before else f"{cliff.c_before} to {last}"
    grew = f"TTFT grew ×{cliff.ttft_factor:.3g} from C={cliff.c_before} to C={cliff.c}"
    return Slots(per_replica=cliff.c_before, inferred=True, reason=f"{grew}: there are {where} seats")


def _queue_tax(levels: Sequence[Level], seats: Slots | None) -> tuple[QueueingDelay, ...]:
    seated = [level for level in levels if seats and level.c <= seats.total and level.ttft_s.mean]
    if not seats or not seated:
        return ()
    base = seated[-1].ttft_s.mean or 0.0
    return tuple(
        QueueingDelay(c=level.c, seconds=level.ttft_s.mean - base, factor=level.ttft_s.mean / base)
        for level in levels
        if level.c > seats.total and level.ttft_s.mean is not None
    )


def _anomalies(levels: Sequence[Level], seats: Slots | None) -> tuple[str, ...]:
    if not seats:
        return ()
    full = [level for level in levels if level.c >= seats.total]
    return tuple(
        f"throughput fell by {-100 * change:.0f} % from C={before.c} to C={after.c} while all {seats.total} seats were "
        "full: waiting alone costs time to first token, not tok/s"
        for before, after in pairwise(full)
        if (change := throughput_gain(before, after)) < -FELL
    )


def _with_fit(found: Scaling, levels: Sequence[Level], seats: Slots | None) -> Scaling:
    replicas = seats.replicas if seats else 1
    most = seats.total if seats else levels[-1].c
    points = [(max(1.0, level.c / replicas), level.tpot_s.mean) for level in levels if level.c <= most]
    steps = [(b, tpot) for b, tpot in points if tpot]
    why = _no_fit(steps, most, seats)
    if why:
        return _refuse(found, why, "fit", "ceiling", "knee")
    a, c = _line(steps)
    error = max(abs(tpot / (a + c * b) - 1.0) if a + c * b > 0 else 1.0 for b, tpot in steps)
    if error > MOST_FIT_ERROR or a < 0:
        worst = f"the steps are off a line a + c·b by up to {100 * error:.0f} %" if a >= 0 else "the line has a < 0"
        return _refuse(found, worst, "fit", "ceiling", "knee")
    found = msgspec.structs.replace(found, step_a_s=a, step_c_s=c, fit_error=error)
    if c <= 0:
        return _refuse(found, "a step takes no longer with more streams, up to what was tried", "ceiling", "knee")
    found = msgspec.structs.replace(found, sigma=c / (a + c), ceiling_tps=replicas / c)
    return _with_knee(found, len({b for b, _ in steps}), most, replicas * a / c)


def _no_fit(steps: Sequence[tuple[float, float]], most: int, seats: Slots | None) -> str:
    if len(steps) < LEVELS_FOR_FIT:
        at = f" up to C={most}, where seats end" if seats else ""
        return f"{len(steps)} levels with a time per token{at}; {LEVELS_FOR_FIT} are needed"
    if len({b for b, _ in steps}) < 2:
        return "all levels ran with the same number of streams a replica"
    return ""


def _with_knee(found: Scaling, batches: int, most: int, knee: float) -> Scaling:
    if batches < LEVELS_FOR_KNEE:
        return _refuse(found, f"{batches} levels of different load; {LEVELS_FOR_KNEE} are needed", "knee")
    if not 1.0 <= knee <= most:
        return _refuse(found, f"it would lie at C={knee:.3g}, outside what was tried or has seats", "knee")
    return msgspec.structs.replace(found, knee=knee)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: t = a + c·b."""
    n = len(points)
    mean_b, mean_t = fsum(b for b, _ in points) / n, fsum(t for _, t in points) / n
    c = fsum((b - mean_b) * (t - mean_t) for b, t in points) / fsum((b - mean_b) ** 2 for b, _ in points)
    return mean_t - c * mean_b, c


def _with_sweet_spot(found: Scaling, levels: Sequence[Level], seats: Slots | None) -> Scaling:
    """Seats where they bind; else the first level with 95 % of the most before a cliff, if more was tried."""
    cliff = found.cliff
    before = [level for level in levels if cliff is None or level.c < cliff.c]
    best = max(before, key=lambda level: _rate(level) or 0.0)
    enough = next(level for level in before if (_rate(level) or 0.0) >= PLATEAU * (_rate(best) or 0.0))
    bind = seats is not None and levels[-1].c >= seats.total and (cliff is None or seats.total < cliff.c)
    if seats and bind and enough.c >= min(seats.total, _highest(levels, seats.total)):
        return msgspec.structs.replace(found, sweet_spot=seats.total)
    if enough.c == levels[-1].c:
        end = f"tok/s still grew at C={enough.c}, the highest level"
        return _refuse(found, end if len(levels) > 1 else "one level only", "sweet spot")
    return msgspec.structs.replace(found, sweet_spot=enough.c)


def _highest(levels: Sequence[Level], most: int) -> int:
    return max((level.c for level in levels if level.c <= most), default=most)


def _refuse(found: Scaling, why: str, *what: str) -> Scaling:
    return msgspec.structs.replace(found, refused=found.refused | dict.fromkeys(what, why))


def _said(found: Scaling) -> Scaling:
    """`sweet spot C=4 (2×2) = 2 replicas × 2 seats; queue forms at C=5; cliff at C=5: +2 % tok/s for ×9 TTFT`"""
    parts = []
    seats, spot, cliff = found.slots, found.sweet_spot, found.cliff
    if spot is not None:
        parts.append(f"sweet spot C={spot}" + (_made_of(seats) if seats and spot == seats.total else ""))
    else:
        parts.append(f"no sweet spot: {found.refused.get('sweet spot') or found.refused.get('scaling', '')}")
    queued = next((tax.c for tax in found.queueing_delay if tax.factor >= QUEUE_TTFT), None)
    if queued is not None:
        parts.append(f"queue forms at C={queued}")
    if cliff is not None:
        parts.append(_cliff_words(cliff))
    return msgspec.structs.replace(found, sentence="; ".join([*parts, *found.anomalies]))


def _made_of(seats: Slots) -> str:
    """Several replicas as people write it, and in words."""
    return f" ({seats.replicas}×{seats.per_replica}) = {seats}" if seats.replicas > 1 else f" ({seats})"


def _cliff_words(cliff: Cliff) -> str:
    change = f"{100 * cliff.gain:+.0f}".replace("-0", "+0").replace("-", "−")
    return f"cliff at C={cliff.c}: {change} % tok/s for ×{cliff.ttft_factor:.2g} TTFT"


def cliff_search_sentence(levels: Sequence[Level], seats: Slots | None = None) -> str:
    """What a search for the cliff came to: `sweet spot C=4 (2 replicas × 2 seats); cliff at C=5: +2 % tok/s …`"""
    if not any(level.ok for level in levels):
        return "no cliff: nothing was measured"
    found = scaling(levels, seats)
    cliff, known = found.cliff, found.slots
    spot = found.sweet_spot or (cliff.c_before if cliff else None)
    told = f" ({known})" if known and not known.inferred and spot == known.total else ""
    parts = [] if spot is None else [f"sweet spot C={spot}{told}"]
    silent = [level.c for level in levels if not level.ok]
    if cliff is not None:
        parts.append(_cliff_words(cliff))
    else:
        why = f"at C={min(silent)} no request was answered" if silent else "throughput still grows or TTFT holds"
        parts.append(f"no cliff up to C={max(level.c for level in levels if level.ok)}: {why}")
    return "; ".join(parts)
