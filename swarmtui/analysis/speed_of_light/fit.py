"""Fit how far the steps of a server are from the limit: t = overhead + limit / efficiency.

Physics bounds both: the overhead is not negative, and memory is read at 30 to 95 % of its bandwidth. While the bytes of
the levels hardly differ, as those of a dense model at small batches do, the two cannot be told apart: what is usual for
the efficiency then decides, and the less so the more the levels differ. Held against PyTorch on an H200, levels 1 and 8
predict 64 to 8 % (dense), 11 % (dense, faster kernels) and 5 % (MoE); the efficiency alone gives 21 %, and a free line
through two such levels 32 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from swarmtui.model.speed_of_light import StepFit

LOWEST, HIGHEST = 0.3, 0.95
# How many times the limit a step takes that has no overhead: what is usual, its spread, and the error of a level.
_USUAL, _SPREAD, _NOISE = 1.0 / 0.7, 0.3, 0.02

# The limit of a step and its measured time, in seconds.
Point = tuple[float, float]


def fit_steps(points: Sequence[Point]) -> StepFit | None:
    """Fit by least squares of relative errors, with what is usual as one more observation; None without a level."""
    known = [(limit, step) for limit, step in points if limit > 0 and step > 0]
    if not known:
        return None
    weight = (_NOISE / _SPREAD) ** 2
    a, b = fsum(1 / t**2 for _, t in known), fsum(x / t**2 for x, t in known)
    c = fsum((x / t) ** 2 for x, t in known) + weight
    d, e = fsum(1 / t for _, t in known), fsum(x / t for x, t in known) + weight * _USUAL
    efficiency = _bounded((a * e - b * d) / (a * c - b * b))
    overhead = (d - b / efficiency) / a
    if overhead < 0.0:
        overhead, efficiency = 0.0, _bounded(e / c)
    error = max(abs(predicted_step(limit, overhead, efficiency) / step - 1.0) for limit, step in known)
    return StepFit(overhead_s=overhead, efficiency=efficiency, levels=len(known), error=error)


def _bounded(slope: float) -> float:
    """Return the efficiency of a slope."""
    return min(max(1.0 / slope, LOWEST), HIGHEST) if slope > 0.0 else HIGHEST


def predicted_step(limit: float, overhead: float, efficiency: float) -> float:
    return overhead + limit / efficiency
