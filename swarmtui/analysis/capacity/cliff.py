"""Find the cliff, from which more streams only queue, and choose the next C in the search for it.

Whether requests of a level wait is said, in this order, by the queue that the server reported, the slots that it
reports, the slots that the client sees, or a rule on TTFT. Only the last can mistake a disturbed level for one that
queues, so that the next higher level has to confirm it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from swarmtui.analysis.levels.stats import median, ratio
from swarmtui.model.findings import Cliff, SearchedLevel, SearchState, Slots
from swarmtui.model.load import traits
from swarmtui.model.session import Level

# A server whose queue is longer on average has more requests than slots.
QUEUED = 0.2
# A level queues by the rule on TTFT if that is at least this multiple of the last levels that do not queue, and its
# throughput grows by less than this share of the growth of C.
QUEUED_TTFT_FACTOR = 3.0
QUEUED_GAIN = 0.5
_REFERENCE_LEVELS = 3
# A level that confirms another one has at least this share of its TTFT.
_CONFIRMED_TTFT = 0.5
# Between close levels TTFT may grow little although requests queue: it is compared with levels this factor apart, too.
# It also grows with the time of a decode step, which is no queue: it must then grow by the other factor more. On the
# simulator, cliffs were found far below the slots with 2, and more of them above the slots with 2.5 and 3.
_REFERENCE_STEP = 2
_STEPS_FACTOR = 2.25
# The client sees the slots at levels with this many times as many streams: below that, some may be in prefill.
_SEEN_FACTOR = 2

# Without a level that queues, doubling ends when two steps together gain less than this, or three if at least this
# share of the streams receives tokens at once.
MIN_GAIN = 0.05
_ALL_STREAMING = 0.9
# The search ends when the levels on both sides of the cliff are this close.
_PRECISION = 0.06


def slots_seen(levels: Sequence[Level]) -> int | None:
    """Return the most streams that received tokens at the same time, if twice as many tried to; else None."""
    most = max((level.streaming or 0 for level in levels), default=0)
    return most if most and any(level.c >= _SEEN_FACTOR * most for level in levels if level.streaming) else None


class Queues(NamedTuple):
    """Separates the levels below, at which no requests queue, from the lowest one at which they do, `queued`.

    `confirmed`: that one is known by more than its own TTFT. `disturbed` ones looked like it, but the next higher level
    does not queue. `forms` is the lowest level at which requests wait, even if throughput still grows.
    """

    calm: list[Level]
    queued: Level | None = None
    confirmed: bool = False
    disturbed: tuple[Level, ...] = ()
    forms: Level | None = None


def find_queues(levels: Sequence[Level], slots: Slots | None = None) -> Queues:
    """Split the levels at the lowest one that queues or has no answer; `slots` are those that the server reports."""
    ordered = sorted(levels, key=lambda level: level.c)
    seen = slots_seen(ordered)
    known = [_waits(level, slots, seen) for level in ordered]
    # The queue of the lowest level may have formed below it.
    found = Queues([], forms=next((ordered[at] for at in range(1, len(ordered)) if known[at] and not known[0]), None))
    for at, level in enumerate(ordered):
        calm = found.calm
        if not level.ok:
            return found._replace(queued=level, confirmed=True)
        above = ordered[at + 1] if at + 1 < len(ordered) else None
        if known[at] and calm and not _grows(level, calm, above):
            return found._replace(queued=level, confirmed=True)
        if known[at] is None and _queues_by_ttft(level, calm):
            if above is None:
                return found._replace(queued=level)
            following = known[at + 1]
            if _confirms(above, level, calm) if following is None else following:
                return found._replace(queued=level, confirmed=True, forms=found.forms or level)
            found = found._replace(disturbed=(*found.disturbed, level))
            continue
        calm.append(level)
    return found


def _waits(level: Level, slots: Slots | None, seen: int | None) -> bool | None:
    """Return whether requests of a level wait for others; None if only TTFT can tell."""
    if level.queued is not None:
        return level.queued > QUEUED
    if slots is not None and traits(level.load).holds_c:
        return level.c > slots.total
    return None if seen is None else level.c > seen


def _grows(level: Level, calm: Sequence[Level], above: Level | None) -> bool:
    """Whether streams bring throughput although some wait, at this level and the next, compared with calm levels."""
    last = calm[-_REFERENCE_LEVELS:]
    if above is not None and not _brings_gain(above, level):
        return False
    return throughput_gain(last[-1], level) >= MIN_GAIN and all(_brings_gain(level, before) for before in last)


def _brings_gain(level: Level, before: Level) -> bool:
    return throughput_gain(before, level) >= QUEUED_GAIN * (level.c / before.c - 1.0)


def _queues_by_ttft(level: Level, calm: Sequence[Level]) -> bool:
    return _wait_factor(level, calm) is not None and not _brings_gain(level, calm[-1])


def _confirms(above: Level, level: Level, calm: Sequence[Level]) -> bool:
    """Whether the next higher level queues, too, and about as long: more streams do not wait less."""
    longer = ratio(above.ttft_s.mean, level.ttft_s.mean)
    return _queues_by_ttft(above, calm) and longer is not None and longer >= _CONFIRMED_TTFT


def find_cliff(levels: Sequence[Level], slots: Slots | None = None) -> Cliff | None:
    """Return the lowest level that queues, if it is confirmed, compared with those below it."""
    found = find_queues(levels, slots)
    level, calm = found.queued, found.calm
    if level is None or not level.ok or not calm or not found.confirmed:
        return None
    factor = _wait_factor(level, calm) or _ttft_factor(level, calm)
    return Cliff(c_before=calm[-1].c, c=level.c, gain=throughput_gain(calm[-1], level), ttft_factor=factor)


def _above(c: int, highest: int) -> int | None:
    return min(2 * c, highest) if c < highest else None


def next_level(levels: Sequence[Level], highest: int, slots: Slots | None = None) -> int | None:
    """Double C until a level queues or two or three steps give no gain; then bisect between the levels on both sides.

    Before that, bisect the step to the first level with a long TTFT: a step from fewer streams than slots to more can
    still increase throughput. Slots that are known or seen by then are measured instead, with one stream more.
    """
    if not levels:
        return 1
    found = find_queues(levels, slots)
    calm, queued = found.calm, found.queued
    total = slots.total if slots is not None else slots_seen(levels)
    if total is None:
        by_ttft = (n for n in range(1, len(calm)) if calm[n].queued is None and _wait_factor(calm[n], calm[:n]))
        waiting = next(by_ttft, None)
        if waiting is not None and (middle := middle_level(calm[waiting - 1].c, calm[waiting].c)) is not None:
            return middle
    tried = max(level.c for level in levels)
    if queued is not None:
        most = max(level.streaming or 0 for level in levels)
        if total is None and queued.queued is None and queued.ok and tried < min(_SEEN_FACTOR * most, highest):
            # Twice as many streams show the slots, which a TTFT does not.
            return _above(tried, highest)
        low = calm[-1].c if calm else 0
        middle = middle_level(low, queued.c)
        if middle is not None and total is not None and low < min(total + (low == total), queued.c - 1):
            middle = min(total + (low == total), queued.c - 1)
        if middle is None and not found.confirmed:
            return _above(queued.c, highest)
        return middle
    # While all streams receive tokens at once, the slots are not reached.
    steps = 3 if calm and (calm[-1].streaming or 0) >= _ALL_STREAMING * calm[-1].c else 2
    # The last level alone may be disturbed.
    grows = len(calm) <= steps or any(throughput_gain(calm[-1 - steps], level) >= MIN_GAIN for level in calm[-2:])
    return 2 * tried if grows and 2 * tried <= highest else None


def search_state(levels: Sequence[Level], next_c: int | None, slots: Slots | None = None) -> SearchState:
    """Return what the search knows so far, for screens: a level that does not queue is kept."""
    found = find_queues(levels, slots)
    words: dict[int, Literal["kept", "missed", "unsure", "dip"]] = {level.c: "kept" for level in found.calm}
    words |= {level.c: "dip" for level in found.disturbed}
    if found.queued is not None and not found.confirmed:
        words[found.queued.c] = "unsure"
    return SearchState(
        goal="cliff",
        low=found.calm[-1].c if found.calm else None,
        high=found.queued.c if found.queued else None,
        visits=sum(level.runs for level in levels),
        next_c=next_c,
        levels=tuple(
            SearchedLevel(c=one.c, visits=one.runs, n=one.n, good=None, state=words.get(one.c, "missed"))
            for one in sorted(levels, key=lambda level: level.c)
        ),
    )


def middle_level(low: int, high: int, precision: float = _PRECISION) -> int | None:
    """Return the level to bisect with; None if the two are close enough."""
    middle = (low + high) // 2
    return middle if low < middle and high - low > precision * high else None


def throughput_gain(before: Level, after: Level) -> float:
    a, b = before.headline_tps, after.headline_tps
    return b / a - 1.0 if a and b else 0.0


def _wait_factor(level: Level, unqueued: Sequence[Level]) -> float | None:
    """Return the factor by which TTFT grew, if that means that requests wait for others; otherwise None."""
    factor = _ttft_factor(level, unqueued)
    if factor is not None and factor >= QUEUED_TTFT_FACTOR:
        return factor
    apart = _levels_apart(level, unqueued)
    factor, steps = _ttft_factor(level, apart), _factor(level, apart, lambda level: level.tpot_s.mean)
    return factor if factor is not None and factor >= max(QUEUED_TTFT_FACTOR, _STEPS_FACTOR * (steps or 1.0)) else None


def _ttft_factor(level: Level, unqueued: Sequence[Level]) -> float | None:
    """Return the factor of the mean TTFT: with several replicas less than half of the requests may wait."""
    return _factor(level, unqueued, lambda level: level.ttft_s.mean)


def _factor(level: Level, unqueued: Sequence[Level], figure: Callable[[Level], float | None]) -> float | None:
    """Return a figure over its median at the last levels that do not queue: a single one may be off by chance."""
    known = [value for before in unqueued[-_REFERENCE_LEVELS:] if (value := figure(before)) is not None]
    return ratio(figure(level), median(known))


def _levels_apart(level: Level, unqueued: Sequence[Level]) -> Sequence[Level]:
    """Return the levels at up to 1/2, 1/4, 1/8 … of C, in ascending order."""
    found = [level]
    for before in reversed(unqueued):
        if before.c * _REFERENCE_STEP <= found[-1].c:
            found.append(before)
    return found[:0:-1]
