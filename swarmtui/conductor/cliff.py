"""The search for the cliff: which C to try next, given the levels so far; and the answer in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.model.session import Level

# Below this gain more streams bring nothing; at this factor those that wait notice it.
LEAST_GAIN = 0.05
TTFT_FACTOR = 3.0


def next_level(levels: Sequence[Level], highest: int) -> int | None:
    """Doubles C until the edge is passed, then halves the gap between the last good and the first bad level."""
    tried = {level.c: level for level in levels}
    if not tried:
        return 1
    good, bad = edges(levels)
    if bad is None:
        doubled = max(tried) * 2
        return doubled if doubled <= highest and _answered(tried[max(tried)]) else None
    low = good.c if good is not None else 0
    middle = (low + bad.c) // 2
    return middle if low < middle < bad.c and middle not in tried else None


def edges(levels: Sequence[Level]) -> tuple[Level | None, Level | None]:
    """The last level that was worth its streams, and the first beyond the edge.

    A level that brought nothing becomes no measure for the next: its TTFT has grown already, and one that doubles from
    there on would never be found to have grown enough.
    """
    good: Level | None = None
    for level in sorted(levels, key=lambda level: level.c):
        if good is not None and _beyond(good, level):
            return good, level
        if _rate(level) and (good is None or _gained(good, level)):
            good = level
    return good, None


def answer(levels: Sequence[Level]) -> str:
    good, bad = edges(levels)
    if good is None:
        return "no cliff: nothing was measured"
    if bad is None:
        return f"no cliff up to C={max(level.c for level in levels)}: throughput still grows or TTFT holds"
    gain = (_rate(bad) / _rate(good) - 1) * 100
    factor = _ttft(bad) / _ttft(good) if _ttft(good) else 0.0
    return f"sweet spot C={good.c}; cliff at C={bad.c}: {gain:+.0f} % tok/s for ×{factor:.1f} TTFT"


def _beyond(good: Level, level: Level) -> bool:
    """Judged for a doubling: a step of one stream cannot be asked for the gain of twice as many."""
    if not _answered(level):
        return True
    return not _gained(good, level) and _ttft(level) >= TTFT_FACTOR * _ttft(good)


def _gained(good: Level, level: Level) -> bool:
    return _rate(level) >= _rate(good) * (1 + LEAST_GAIN * min(1.0, level.c / good.c - 1))


def _answered(level: Level) -> bool:
    return level.ok > 0


def _rate(level: Level) -> float:
    return level.lead_tps or 0.0


def _ttft(level: Level) -> float:
    return level.ttft_s.p50 or level.ttft_s.mean or 0.0
