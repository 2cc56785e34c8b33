"""The cliff: where more streams bring nothing and wait for it; and the search, which C to try next."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.model.findings import Cliff, Slots
from swarmtui.model.session import Level

# Below this gain more streams bring nothing; at this factor those that wait notice it.
MIN_GAIN = 0.05
QUEUED_TTFT_FACTOR = 3.0


def find_cliff(levels: Sequence[Level]) -> Cliff | None:
    """The first level with less than 5 % more throughput for at least three times the TTFT of the last good one."""
    good, bad = _edges(levels)
    factor = ttft_factor(good, bad) if good and bad else None
    if good is None or bad is None or factor is None:
        return None
    return Cliff(c_before=good.c, c=bad.c, gain=throughput_gain(good, bad), ttft_factor=factor)


def next_level(levels: Sequence[Level], highest: int, seats: Slots | None = None) -> int | None:
    """Doubles C until the edge is passed or all seats are taken and more bring nothing, then halves the gap."""
    if not levels:
        return 1
    tried = sorted(level.c for level in levels)
    _, bad = _edges(levels, seats)
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
    """Of the medians; of the means where a median is not to be had at both."""
    for a, b in ((before.ttft_s.p50, after.ttft_s.p50), (before.ttft_s.mean, after.ttft_s.mean)):
        if a and b:
            return b / a
    return None


def _edges(levels: Sequence[Level], seats: Slots | None = None) -> tuple[Level | None, Level | None]:
    """The last level that was worth its streams, and the first beyond the edge.

    A level that brought nothing becomes no measure for the next: its TTFT has grown already, and one that doubles from
    there on would never be found to have grown enough.
    """
    good: Level | None = None
    for level in sorted(levels, key=lambda level: level.c):
        if not level.ok:
            return good, level
        if good is None or throughput_gain(good, level) >= MIN_GAIN:
            good = level
        elif (ttft_factor(good, level) or 0.0) >= QUEUED_TTFT_FACTOR or (seats is not None and level.c > seats.total):
            return good, level
    return good, None
