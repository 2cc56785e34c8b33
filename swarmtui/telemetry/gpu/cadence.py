"""How often GPUs are read, and how deeply. The costs behind these figures: python -m tests.bench.nvml_check."""

from __future__ import annotations

from enum import IntEnum

# What moves is looked at so often: on an H200 that is 0.03 ms a GPU, and what changes seldom 0.1 ms.
LOOK_S = 0.25
STATE_S = 5.0
# The energy counter alone takes 3.3 ms a GPU there. Only its differences count: it is read twice a second, and where
# that would take more than this of a core, so much less often; what moves is looked at as often as before.
WHOLE_S = 0.5
WHOLE_SHARE = 0.012
# An exporter on another host, or the simulator: each look is a page of text, and has everything in it.
PAGE_S = 0.5

# Reading takes no more than this of a core: where every call is slow, all looks are further apart.
SHARE = 0.015
# What a deep look may take at once, to be made good by the cheap ones after it.
_AHEAD_S = SHARE * STATE_S


class Depth(IntEnum):
    """A look holds everything of its own depth and of those above it; of the others the last figures stand."""

    MOVING = 0
    STATE = 1
    WHOLE = 2


class Pace:
    """Says how deep the next look goes, and how long to wait after it. Times are of one monotonic clock."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._owed_s = self._paused_s = 0.0
        self._state_at = self._whole_at = self._looked_at = float("-inf")
        self._depth = Depth.WHOLE

    def depth(self, now: float) -> Depth:
        # A quarter of a look early is in time: the look after it would be far too late.
        soon = now + self._look_s / 4
        if soon >= self._whole_at:
            self._depth, self._whole_at, self._state_at = Depth.WHOLE, now + WHOLE_S, now + STATE_S
        elif soon >= self._state_at:
            self._depth, self._state_at = Depth.STATE, now + STATE_S
        else:
            self._depth = Depth.MOVING
        self._looked_at = now
        return self._depth

    def pause(self, cpu_s: float, wall_s: float) -> float:
        """After a look that took so long."""
        if self._depth == Depth.WHOLE:
            self._whole_at = max(self._whole_at, self._looked_at + cpu_s / WHOLE_SHARE)
        self._owed_s = max(0.0, self._owed_s - SHARE * (self._paused_s + wall_s)) + cpu_s
        late_s = max(0.0, self._owed_s - _AHEAD_S) / SHARE
        self._paused_s = late_s + max(0.0, self._look_s - wall_s)
        return self._paused_s
