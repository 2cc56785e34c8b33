"""Estimate how long requests of later levels take, from those of the levels so far."""

from __future__ import annotations

from collections import defaultdict


class RequestTimes:
    """The mean time of the requests at each C."""

    def __init__(self) -> None:
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._count: defaultdict[int, int] = defaultdict(int)

    def add(self, c: int, e2e_s: float) -> None:
        self._seconds[c] += e2e_s
        self._count[c] += 1

    def estimate(self, c: int, slots: int | None) -> tuple[float, bool] | None:
        """Return the expected time of a request at `c`, and whether it is a lower bound; None before the first one.

        A decode step takes a + b·C, so that two levels give the line; a single one says nothing about its slope. Beyond
        the slots of the server, requests wait in proportion to C.
        """
        known = sorted(level for level in self._count if level <= c) or sorted(self._count)[:1]
        if not known:
            return None
        if c in self._count:
            return self._mean(c), False
        full = min(c, slots) if slots else c
        nearest = known[-1]
        seconds = self._mean(nearest)
        if len(known) > 1 and full > nearest:
            before = known[-2]
            slope = max(0.0, (seconds - self._mean(before)) / (nearest - before))
            seconds += slope * (full - nearest)
        return seconds * max(1.0, c / max(full, nearest)), len(known) == 1 and full > nearest

    def _mean(self, c: int) -> float:
        return self._seconds[c] / self._count[c]
