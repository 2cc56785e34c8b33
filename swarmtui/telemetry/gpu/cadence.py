"""Decide how often and how deeply GPUs are read. Measure the costs with: python -m tests.bench.nvml_check."""

from __future__ import annotations

from enum import IntEnum

# On an H200 a fast read takes 0.03 ms per GPU, one of slowly changing values 0.1 ms.
SAMPLE_S = 0.25
STATE_S = 5.0
# The energy counter alone takes 3.3 ms per GPU there. Only its differences matter, so it is read twice per second, and
# less often where that would take more than this share of a core.
FULL_S = 0.5
FULL_SHARE = 0.012
# For an exporter on another host, or the simulator: each read is one page that contains everything.
EXPORTER_S = 0.5

# Reads take no more than this share of a core: where every call is slow, all reads are further apart.
CPU_SHARE = 0.015
# What a deep read may spend in advance; the cheap ones after it make up for it.
_BURST_S = CPU_SHARE * STATE_S


class Depth(IntEnum):
    """The depth of a read; each one includes the ones before it."""

    FAST = 0
    STATE = 1
    FULL = 2


class ReadCadence:
    """Choose the depth of the next read and the pause after it. Times are of one monotonic clock."""

    def __init__(self, sample_s: float = SAMPLE_S) -> None:
        self._sample_s = sample_s
        self._debt_s = self._pause_s = 0.0
        self._state_at = self._full_at = self._read_at = float("-inf")
        self._depth = Depth.FULL

    def next_depth(self, now: float) -> Depth:
        # A quarter of a period early counts as on time: the next read would be far too late.
        due = now + self._sample_s / 4
        if due >= self._full_at:
            self._depth, self._full_at, self._state_at = Depth.FULL, now + FULL_S, now + STATE_S
        elif due >= self._state_at:
            self._depth, self._state_at = Depth.STATE, now + STATE_S
        else:
            self._depth = Depth.FAST
        self._read_at = now
        return self._depth

    def pause(self, cpu_s: float, wall_s: float) -> float:
        """Return how long to wait after a read that took this long."""
        if self._depth == Depth.FULL:
            self._full_at = max(self._full_at, self._read_at + cpu_s / FULL_SHARE)
        self._debt_s = max(0.0, self._debt_s - CPU_SHARE * (self._pause_s + wall_s)) + cpu_s
        extra_s = max(0.0, self._debt_s - _BURST_S) / CPU_SHARE
        self._pause_s = extra_s + max(0.0, self._sample_s - wall_s)
        return self._pause_s
