"""Fit how far the steps of a server are from the limit: t = overhead + limit / efficiency.

Physics bounds both: the overhead is not negative, and memory is read at 30 to 95 % of its bandwidth. While the bytes of
the levels hardly differ, as those of a dense model at small batches do, the two cannot be told apart: a free fit of two
such levels has a negative overhead, and is off by a third at 64 streams. Until the limits span a factor of 1.5, only
the efficiency is fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

import msgspec

from swarmtui.model.speed_of_light import StepFit

LOWEST, HIGHEST = 0.3, 0.95
SPAN = 1.5

# The limit of a step and its measured time, in seconds.
Point = tuple[float, float]


def fit_steps(points: Sequence[Point]) -> StepFit | None:
    """Fit by least squares of relative errors; None without a level."""
    known = [(limit, step) for limit, step in points if limit > 0 and step > 0]
    if not known:
        return None
    limits = [limit for limit, _ in known]
    separable = max(limits) >= SPAN * min(limits)
    overhead, efficiency = _line(known) if separable else (0.0, _efficiency(known, 0.0))
    if not LOWEST <= efficiency <= HIGHEST or overhead < 0.0:
        # The least squares are on a border: try each.
        efficiency = min(max(efficiency, LOWEST), HIGHEST)
        candidates = [(_overhead(known, bound), bound) for bound in (LOWEST, HIGHEST, efficiency)]
        candidates.append((0.0, min(max(_efficiency(known, 0.0), LOWEST), HIGHEST)))
        if not separable:
            # Faster than any memory, or slower than the lowest efficiency explains.
            candidates = [(_overhead(known, LOWEST) if efficiency == LOWEST else 0.0, efficiency)]
        overhead, efficiency = min(candidates, key=lambda found: _squares(known, *found))
    error = max(abs(predicted_step(limit, overhead, efficiency) / step - 1.0) for limit, step in known)
    return StepFit(overhead_s=overhead, efficiency=efficiency, separable=separable, levels=len(known), error=error)


def refit_overhead(fit: StepFit, limit: float, step: float) -> StepFit:
    """Return the fit for another setup of which one level was measured, as for more GPUs that have to communicate."""
    return msgspec.structs.replace(fit, overhead_s=max(0.0, step - limit / fit.efficiency), levels=1, error=0.0)


def predicted_step(limit: float, overhead: float, efficiency: float) -> float:
    return overhead + limit / efficiency


def _line(points: Sequence[Point]) -> tuple[float, float]:
    """Return overhead and efficiency that minimise Σ((overhead + limit·slope)/t − 1)²."""
    a = fsum(1 / t**2 for _, t in points)
    b = fsum(x / t**2 for x, t in points)
    c = fsum((x / t) ** 2 for x, t in points)
    d, e = fsum(1 / t for _, t in points), fsum(x / t for x, t in points)
    determinant = a * c - b * b
    slope = (a * e - b * d) / determinant
    overhead = (c * d - b * e) / determinant
    return overhead, 1.0 / slope if slope > 0 else float("inf")


def _efficiency(points: Sequence[Point], overhead: float) -> float:
    top = fsum((x / t) ** 2 for x, t in points)
    return top / fsum(x / t * (1.0 - overhead / t) for x, t in points)


def _overhead(points: Sequence[Point], efficiency: float) -> float:
    weights = fsum(1 / t**2 for _, t in points)
    return max(0.0, fsum((1.0 - x / efficiency / t) / t for x, t in points) / weights)


def _squares(points: Sequence[Point], overhead: float, efficiency: float) -> float:
    return fsum((predicted_step(x, overhead, efficiency) / t - 1.0) ** 2 for x, t in points)
