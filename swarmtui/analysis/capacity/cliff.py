"""Find the cliff, from which more streams only queue, and choose the next C in the search for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swarmtui.analysis.levels.stats import median, ratio
from swarmtui.model.findings import Cliff
from swarmtui.model.session import Level

# A level queues if its TTFT is at least this multiple of that of the last levels that do not queue, and its throughput
# grows by less than this share of the growth of C.
QUEUED_TTFT_FACTOR = 3.0
QUEUED_GAIN = 0.5
_REFERENCE_LEVELS = 3
# Between close levels TTFT may grow little although requests queue: it is compared with levels this factor apart, too.
# It also grows with the time of a decode step, which is no queue: it must then grow by the other factor more. On the
# simulator, cliffs were found far below the slots with 2, and more of them above the slots with 2.5 and 3.
_REFERENCE_STEP = 2
_STEPS_FACTOR = 2.25

# Without a level that queues, doubling ends when two steps together gain less than this.
MIN_GAIN = 0.05
# The search ends when the levels on both sides of the cliff are this close.
_PRECISION = 0.06


def find_cliff(levels: Sequence[Level]) -> Cliff | None:
    """Return the lowest level that queues, compared with those below it."""
    unqueued, queued = _split(levels)
    factor = _wait_factor(queued, unqueued) if queued else None
    if queued is None or factor is None:
        return None
    return Cliff(c_before=unqueued[-1].c, c=queued.c, gain=throughput_gain(unqueued[-1], queued), ttft_factor=factor)


def next_level(levels: Sequence[Level], highest: int) -> int | None:
    """Double C until a level queues or two steps give no gain; then bisect between the levels on both sides.

    Before that, bisect the step to the first level with a long TTFT: a step from fewer streams than slots to more can
    still increase throughput.
    """
    if not levels:
        return 1
    unqueued, queued = _split(levels)
    waiting = next((n for n in range(1, len(unqueued)) if _wait_factor(unqueued[n], unqueued[:n])), None)
    if waiting is not None and (middle := middle_level(unqueued[waiting - 1].c, unqueued[waiting].c)) is not None:
        return middle
    if queued is not None:
        return middle_level(unqueued[-1].c if unqueued else 0, queued.c)
    doubled = 2 * unqueued[-1].c
    grows = len(unqueued) < 3 or throughput_gain(unqueued[-3], unqueued[-1]) >= MIN_GAIN
    return doubled if grows and doubled <= highest else None


def middle_level(low: int, high: int, precision: float = _PRECISION) -> int | None:
    """Return the level to bisect with; None if the two are close enough."""
    middle = (low + high) // 2
    return middle if low < middle and high - low > precision * high else None


def throughput_gain(before: Level, after: Level) -> float:
    a, b = before.headline_tps, after.headline_tps
    return b / a - 1.0 if a and b else 0.0


def _split(levels: Sequence[Level]) -> tuple[list[Level], Level | None]:
    """Return the levels below the lowest one that queues or has no answer, and that one."""
    unqueued: list[Level] = []
    for level in sorted(levels, key=lambda level: level.c):
        if not level.ok or _queues(level, unqueued):
            return unqueued, level
        unqueued.append(level)
    return unqueued, None


def _queues(level: Level, unqueued: Sequence[Level]) -> bool:
    if _wait_factor(level, unqueued) is None:
        return False
    last = unqueued[-1]
    return throughput_gain(last, level) < QUEUED_GAIN * (level.c / last.c - 1.0)


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
