"""How sure a figure is: intervals from replicates. A replicate is a run or a session, never a request."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, exp, fsum, log, sqrt

from swarmtui.analysis.student import t_quantile
from swarmtui.model.schema import Stored

CONFIDENCE = 0.95


class Interval(Stored, frozen=True, kw_only=True):
    middle: float
    low: float
    high: float


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Of the geometric mean, t on logs; None below two values or where one is not above nought."""
    if len(values) < 2 or min(values) <= 0:
        return None
    logs = [log(value) for value in values]
    middle = fsum(logs) / len(logs)
    half = t_quantile((1 + confidence) / 2, len(logs) - 1) * deviation(logs) / sqrt(len(logs))
    return Interval(middle=exp(middle), low=exp(middle - half), high=exp(middle + half))


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """By order statistics, whatever the distribution; None where n is too small for that confidence (below 6)."""
    ordered, n = sorted(values), len(values)
    rank, tail = -1, 0.0
    while rank + 1 < n // 2 and tail + comb(n, rank + 1) / 2**n <= (1 - confidence) / 2:
        rank += 1
        tail += comb(n, rank) / 2**n
    if rank < 0:
        return None
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return Interval(middle=middle, low=ordered[rank], high=ordered[n - 1 - rank])


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of the population from which at least two values were drawn."""
    middle = fsum(values) / len(values)
    return sqrt(fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def variation(values: Sequence[float]) -> float | None:
    """The coefficient of variation; None below two values."""
    middle = fsum(values) / len(values) if values else 0.0
    return deviation(values) / middle if len(values) > 1 and middle else None
