"""Fit a curve to the shares of good requests of runs around a border, and find where it falls below a limit."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

# A run counts as this many independent requests at most, since its requests are alike.
RUN_SIZE = 80
# The prior of slope 0 weighs as much as this many requests.
_PRIOR_SIZE = 0.01
# The unit of the load: a relative difference of 10 %.
_UNIT = 0.1
_STEPS = 60


class RunShare(NamedTuple):
    """A run of C agents: its requests, how many of them were good, and the mean length of their prompts."""

    c: int
    good: int
    n: int
    prompt_tokens: float


def crossing(runs: Sequence[RunShare], required: float, prompt_tokens: float | None = None) -> float | None:
    """Return the C at which the mean share of good requests falls below `required`; None if it does not fall.

    `prompt_tokens` is the mean length of the prompts of a trace. By chance, some runs have longer prompts, which
    explains most of the difference between runs: contexts fill the KV cache. So a logistic curve over C times the
    prompt length is fitted; the share at a C is the mean over prompt lengths that vary like those of the runs, around
    the mean of the trace.
    """
    if all(run.good >= required * run.n for run in runs):
        return float("inf")
    middle = sum(run.c for run in runs) / len(runs)
    mean = sum(run.prompt_tokens for run in runs) / len(runs)
    lengths = [run.prompt_tokens / mean if prompt_tokens else 1.0 for run in runs]
    longer = mean / prompt_tokens if prompt_tokens else 1.0

    def load(c: float, length: float) -> float:
        return (c / middle * length - 1.0) / _UNIT

    loads = [load(run.c, length * longer) for run, length in zip(runs, lengths, strict=True)]
    level, slope = _fit(loads, runs)
    if slope >= 0.0:
        return None
    low, high = 0.0, 2.0 * middle
    for _ in range(_STEPS):
        c = (low + high) / 2
        share = sum(_logistic(level + slope * load(c, length)) for length in lengths) / len(lengths)
        low, high = (c, high) if share >= required else (low, c)
    return low


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + exp(-max(-30.0, min(30.0, value))))


def _fit(loads: Sequence[float], runs: Sequence[RunShare]) -> tuple[float, float]:
    """Fit the level and the slope of a logistic curve with Newton's method."""
    level = slope = 0.0
    sizes, shares = [min(run.n, RUN_SIZE) for run in runs], [run.good / run.n for run in runs]
    for _ in range(_STEPS):
        fitted = [_logistic(level + slope * load) for load in loads]
        weights = [size * max(1e-9, share * (1.0 - share)) for size, share in zip(sizes, fitted, strict=True)]
        errors = [size * (share - by_curve) for size, share, by_curve in zip(sizes, shares, fitted, strict=True)]
        a, b = sum(errors), sum(e * x for e, x in zip(errors, loads, strict=True)) - _PRIOR_SIZE * slope
        aa, ab = sum(weights), sum(w * x for w, x in zip(weights, loads, strict=True))
        bb = sum(w * x * x for w, x in zip(weights, loads, strict=True)) + _PRIOR_SIZE
        size = aa * bb - ab * ab
        steps = (bb * a - ab * b) / size, (aa * b - ab * a) / size
        longest = max(map(abs, steps))
        limit = min(1.0, 2.0 / longest) if longest else 1.0
        level, slope = level + limit * steps[0], slope + limit * steps[1]
        if longest < 1e-6:
            break
    return level, slope
