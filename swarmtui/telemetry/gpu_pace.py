"""How often GPUs are read, and how deeply. The costs behind these figures: python -m tests.bench.nvml_check."""

from __future__ import annotations

from enum import IntEnum

# What moves is looked at so often; energy counters, whose differences are all that counts, and the rest more seldom.
LOOK_S = 0.25
COUNTERS_S = 1.0
WHOLE_S = 5.0
# An exporter on another host, or the simulator: each look is a page of text, and has everything in it.
PAGE_S = 0.5

# Reading takes no more than this of a core: where the driver is slow or GPUs are many, looks are further apart.
SHARE = 0.015
# What a deep look may take at once, to be made good by the cheap ones after it.
_AHEAD_S = SHARE * WHOLE_S


class Depth(IntEnum):
    """A look holds everything of its own depth and of those above it; of the others the last figures stand."""

    MOVING = 0
    COUNTERS = 1
    WHOLE = 2


class Pace:
    """Says how deep the next look goes, and how long to wait after it. Times are of one monotonic clock."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._owed_s = self._paused_s = 0.0
        self._counters_at = self._whole_at = float("-inf")

    def depth(self, now: float) -> Depth:
        # A quarter of a look early is in time: the look after it would be far too late.
        soon = now + self._look_s / 4
        if soon >= self._whole_at:
            self._whole_at, self._counters_at = now + WHOLE_S, now + COUNTERS_S
            return Depth.WHOLE
        if soon >= self._counters_at:
            self._counters_at = now + COUNTERS_S
            return Depth.COUNTERS
        return Depth.MOVING

    def pause(self, cpu_s: float, wall_s: float) -> float:
        """After a look that took so long."""
        self._owed_s = max(0.0, self._owed_s - SHARE * (self._paused_s + wall_s)) + cpu_s
        late_s = max(0.0, self._owed_s - _AHEAD_S) / SHARE
        self._paused_s = late_s + max(0.0, self._look_s - wall_s)
        return self._paused_s
