"""Fit a curve to the shares of good requests of runs around a border, and find where it falls below a limit."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

# A run counts as so many independent requests: its requests are alike.
_RUN_SIZE = 80
# Differences of C and of prompts, relative to their means, that count as one.
_C_UNIT, _PROMPT_UNIT = 0.1, 0.05
# How much the curve is held back from a slope, and from an effect of the prompts, that few runs show.
_PENALTIES = (0.0, 0.01, 0.3)
_STEPS = 60


class RunShare(NamedTuple):
    """A run of C agents: its requests, how many of them were good, and the mean length of their prompts."""

    c: int
    good: int
    n: int
    prompt_tokens: float


def crossing(runs: Sequence[RunShare], required: float, prompt_tokens: float) -> float | None:
    """Return the C at which the mean share of good requests falls below `required`; None if it does not fall.

    Prompts of some runs are longer than those of others by chance, as sessions of agents differ, which explains most of
    what runs differ in. A logistic curve over C and the length of prompts accounts for it: the share is that of runs
    with prompts as different as these and a mean of `prompt_tokens`, which should be that of many more requests.
    """
    if all(run.good >= required * run.n for run in runs):
        return float("inf")
    middle = sum(run.c for run in runs) / len(runs)
    mean = sum(run.prompt_tokens for run in runs) / len(runs)
    unit = _PROMPT_UNIT * prompt_tokens or 1.0
    rows = [
        ((1.0, (run.c / middle - 1.0) / _C_UNIT, (run.prompt_tokens - prompt_tokens) / unit), run.good / run.n)
        for run in runs
    ]
    level, slope, effect = _fit(rows)
    if slope >= 0.0:
        return None
    prompts = [effect * (run.prompt_tokens - mean) / unit for run in runs]
    low, high = -1.0 / _C_UNIT, 1.0 / _C_UNIT
    for _ in range(_STEPS):
        at = (low + high) / 2
        kept = sum(_logistic(level + slope * at + prompt) for prompt in prompts) / len(prompts) >= required
        low, high = (at, high) if kept else (low, at)
    return middle * (1.0 + _C_UNIT * low)


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + exp(-max(-30.0, min(30.0, value))))


def _fit(rows: Sequence[tuple[tuple[float, ...], float]]) -> list[float]:
    """Fit logistic regression coefficients to features and shares with Newton's method."""
    found = [0.0] * len(_PENALTIES)
    for _ in range(_STEPS):
        gradient = [-penalty * value for penalty, value in zip(_PENALTIES, found, strict=True)]
        curvature = [[penalty * (i == j) for j in range(len(found))] for i, penalty in enumerate(_PENALTIES)]
        for features, share in rows:
            fitted = _logistic(sum(a * b for a, b in zip(features, found, strict=True)))
            weight = _RUN_SIZE * max(1e-9, fitted * (1.0 - fitted))
            for i, feature in enumerate(features):
                gradient[i] += _RUN_SIZE * feature * (share - fitted)
                for j, other in enumerate(features):
                    curvature[i][j] += weight * feature * other
        step = _solve(curvature, gradient)
        longest = max(map(abs, step))
        found = [
            value + part * min(1.0, 2.0 / longest if longest else 1.0) for value, part in zip(found, step, strict=True)
        ]
        if longest < 1e-7:
            break
    return found


def _solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve linear equations with a positive definite matrix."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(len(rows)):
        pivot = rows[i] = [value / rows[i][i] for value in rows[i]]
        for j, row in enumerate(rows):
            if j != i:
                rows[j] = [b - row[i] * a for a, b in zip(pivot, row, strict=True)]
    return [row[-1] for row in rows]
