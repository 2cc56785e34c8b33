"""Find the cliff, where more streams add no throughput and only wait, and choose the next C to search it."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.model.findings import Cliff, Slots
from swarmtui.model.session import Level

# A level with a smaller throughput gain and at least this TTFT factor is past the cliff.
MIN_GAIN = 0.05
QUEUED_TTFT_FACTOR = 3.0


def find_cliff(levels: Sequence[Level]) -> Cliff | None:
    """Return the first level with less than 5 % more throughput for at least 3 × the TTFT of the last good one."""
    good, bad = _edges(levels)
    factor = ttft_factor(good, bad) if good and bad else None
    if good is None or bad is None or factor is None:
        return None
    return Cliff(c_before=good.c, c=bad.c, gain=throughput_gain(good, bad), ttft_factor=factor)


def next_level(levels: Sequence[Level], highest: int, slots: Slots | None = None) -> int | None:
    """Double C until a level is past the cliff, or past all slots without a gain; then bisect the gap."""
    if not levels:
        return 1
    tried = sorted(level.c for level in levels)
    _, bad = _edges(levels, slots)
    if bad is None:
        doubled = tried[-1] * 2
        return doubled if doubled <= highest else None
    below = max((c for c in tried if c < bad.c), default=0)
    middle = (below + bad.c) // 2
    return middle if below < middle else None


def throughput_gain(before: Level, after: Level) -> float:
    a, b = before.headline_tps, after.headline_tps
    return b / a - 1.0 if a and b else 0.0


def ttft_factor(before: Level, after: Level) -> float | None:
    """Return the ratio of the median TTFTs, or of the means where a median is missing."""
    for a, b in ((before.ttft_s.p50, after.ttft_s.p50), (before.ttft_s.mean, after.ttft_s.mean)):
        if a and b:
            return b / a
    return None


def _edges(levels: Sequence[Level], slots: Slots | None = None) -> tuple[Level | None, Level | None]:
    """Return the last level with a gain, and the first one past the cliff.

    A level without a gain is no reference for the next one: its TTFT may have grown already, and a level that only
    doubles it again would not reach the factor.
    """
    good: Level | None = None
    for level in sorted(levels, key=lambda level: level.c):
        if not level.ok:
            return good, level
        if good is None or throughput_gain(good, level) >= MIN_GAIN:
            good = level
        elif (ttft_factor(good, level) or 0.0) >= QUEUED_TTFT_FACTOR or (slots is not None and level.c > slots.total):
            return good, level
    return good, None
