"""Find the cliff, from which more streams only queue, and choose the next C in the search for it."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.levels.stats import median, ratio
from swarmtui.model.findings import Cliff
from swarmtui.model.session import Level

# A level queues if its TTFT is this multiple of that of the last calm levels, and its throughput gain less than this
# share of the ideal one, which is that of C.
QUEUED_TTFT_FACTOR = 3.0
QUEUED_GAIN = 0.5
_REFERENCE_LEVELS = 3

# Without a level that queues, doubling ends when two steps together gain less than this.
MIN_GAIN = 0.05
# The search ends when the levels on both sides of the cliff are this close.
_PRECISION = 0.06


def find_cliff(levels: Sequence[Level]) -> Cliff | None:
    """Return the lowest level that queues, compared with the calm ones below it."""
    calm, queued = _split(levels)
    factor = _ttft_factor(queued, calm) if queued else None
    if queued is None or factor is None:
        return None
    return Cliff(c_before=calm[-1].c, c=queued.c, gain=throughput_gain(calm[-1], queued), ttft_factor=factor)


def next_level(levels: Sequence[Level], highest: int) -> int | None:
    """Double C until a level queues or two steps give no gain; then bisect between calm and queued levels.

    Before that, the step to the first level with a long TTFT is bisected: if it goes from fewer streams than slots to
    more, its throughput still grows.
    """
    if not levels:
        return 1
    calm, queued = _split(levels)
    waiting = next((n for n in range(1, len(calm)) if _waits(calm[n], calm[:n])), None)
    if waiting is not None and (middle := _middle(calm[waiting - 1].c, calm[waiting].c)) is not None:
        return middle
    if queued is not None:
        return _middle(calm[-1].c if calm else 0, queued.c)
    doubled = 2 * calm[-1].c
    grows = len(calm) < 3 or throughput_gain(calm[-3], calm[-1]) >= MIN_GAIN
    return doubled if grows and doubled <= highest else None


def _middle(low: int, high: int) -> int | None:
    middle = (low + high) // 2
    return middle if low < middle and high - low > _PRECISION * high else None


def throughput_gain(before: Level, after: Level) -> float:
    a, b = before.headline_tps, after.headline_tps
    return b / a - 1.0 if a and b else 0.0


def _split(levels: Sequence[Level]) -> tuple[list[Level], Level | None]:
    """Return the calm levels below the lowest one that queues or has no answer, and that one."""
    calm: list[Level] = []
    for level in sorted(levels, key=lambda level: level.c):
        if not level.ok or _queues(level, calm):
            return calm, level
        calm.append(level)
    return calm, None


def _queues(level: Level, calm: Sequence[Level]) -> bool:
    return _waits(level, calm) and throughput_gain(calm[-1], level) < QUEUED_GAIN * (level.c / calm[-1].c - 1.0)


def _waits(level: Level, calm: Sequence[Level]) -> bool:
    factor = _ttft_factor(level, calm)
    return factor is not None and factor >= QUEUED_TTFT_FACTOR


def _ttft_factor(level: Level, calm: Sequence[Level]) -> float | None:
    """Return the mean TTFT over the median of the last calm levels: a single one may be off by chance.

    Behind several replicas less than half of the requests may wait, so that their median would not show it.
    """
    means = (before.ttft_s.mean for before in calm[-_REFERENCE_LEVELS:])
    return ratio(level.ttft_s.mean, median(mean for mean in means if mean is not None))
