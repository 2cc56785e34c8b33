"""How much replicates vary. A replicate is a run or a session, never a request."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt

from swarmtui.model.schema import Stored


class Interval(Stored, frozen=True, kw_only=True):
    middle: float
    low: float
    high: float


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of the population from which at least two values were drawn."""
    middle = fsum(values) / len(values)
    return sqrt(fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def variation(values: Sequence[float]) -> float | None:
    """The coefficient of variation; None below two values."""
    middle = fsum(values) / len(values) if values else 0.0
    return deviation(values) / middle if len(values) > 1 and middle else None
