"""Estimate how much the runs of a session drift with time, and how much less their mean is worth for that.

What disturbs one run (heat, a neighbour, memory) often lasts into the next one of whatever level. The model is a
correlation ρ between one run and the next, ρ² with the one after that, and so on. ρ is estimated from all levels and
sides together, in the order in which they ran: the runs of a single level are too few for that. The estimate is
corrected for its bias: deviations from the mean of a few correlated runs look less correlated than the runs are.
It cannot be estimated from one level, and only badly from two or three: there a correlation of up to 0.7 is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

# Steps of ρ between which the expected value of the estimate is interpolated.
_GRID = tuple(k / 20 for k in range(20))
# A little more than the factor of a correlation of 0.7 from one run to the next: no more is assumed.
_MAX_FACTOR = 6.6
# The correlation that runs of a single level are taken to have, by their number. With these, equal sides whose runs
# correlate by up to 0.7 are said to differ in at most 5 % of cases. Four v four independent runs find a change of five
# times their CV in 67 % of cases then, where no rule with as few false claims finds it in more than 73 %; six v six
# find it in 95 % (`python -m tests.bench.verdicts tradeoff`).
_ASSUMED, _MOST_ASSUMED = {2: 0.2, 3: 0.58, 4: 0.65, 5: 0.68, 6: 0.69}, 0.71
# The least correlation of the runs of several levels, by the number of levels.
_LEAST = {2: 0.6, 3: 0.5}

# Runs whose squared deviations sum to less are equal.
_ROUNDING = 1e-18
# Estimates this close are the same: two runs of a level have −1/2, whatever ρ is.
_SAME = 1e-9

Order = tuple[tuple[int, int], ...]
"""Runs in the order of time: the position and the level of each."""


def positions(level: int, levels: int, runs: Sequence[int], rotates: bool) -> list[int]:
    """Return when the runs (numbered from 1) of a level took place, counted in runs of all levels."""
    if not rotates:
        return [level * max(runs, default=0) + run - 1 for run in runs]
    return [(run - 1) * levels + (level - run + 1) % levels for run in runs]


def correlation(sides: Sequence[Sequence[tuple[Sequence[int], Sequence[float]]]]) -> float:
    """Return ρ, at least 0. A side has for each level the positions of its runs, and their values."""
    found, orders = [], []
    for side in sides:
        known = [(at, values, sum(values) / len(values)) for at, values in side if len(values) > 1 and sum(values) > 0]
        runs = sorted(
            (position, number, value / middle - 1.0)
            for number, (at, values, middle) in enumerate(known)
            for position, value in zip(at, values, strict=True)
        )
        squares = sum(apart * apart for *_, apart in runs)
        if squares > _ROUNDING:
            found.append(sum(one[2] * next_[2] for one, next_ in pairwise(runs)) / squares)
            orders.append(tuple((position, number) for position, number, _ in runs))
    if not found:
        return 0.0
    estimate = sum(found) / len(found)
    expected = [sum(curve) / len(orders) for curve in zip(*map(_expected, orders), strict=True)]
    below = 0.0
    for (low, at_low), (high, at_high) in pairwise(zip(_GRID, expected, strict=True)):
        if estimate <= at_low + _SAME:
            break
        below = high if estimate >= at_high else low + (high - low) * (estimate - at_low) / (at_high - at_low)
    return below


def assumed_correlation(levels: int, runs: int, estimate: float) -> float:
    """Return the ρ to reckon with: `estimate` is that of all levels, `runs` the fewest runs of a level."""
    if levels == 1:
        return _ASSUMED.get(runs, _MOST_ASSUMED)
    return max(estimate, _LEAST.get(levels, 0.0))


def variance_factor(at: Sequence[int], rho: float) -> float:
    """Return by how much correlation raises the variance of the mean of runs above that of as many independent ones.

    For many runs in succession it is (1 + ρ) / (1 − ρ). It includes that correlated runs differ less from their mean.
    """
    n = len(at)
    if n < 2 or rho <= 0.0:
        return 1.0
    effect = sum(rho ** abs(one - other) for one in at for other in at) / n
    return min(_MAX_FACTOR, effect * (n - 1) / (n - effect)) if effect < n else _MAX_FACTOR


@lru_cache(maxsize=64)
def _expected(order: Order) -> tuple[float, ...]:
    """Return the expected value of the estimate for each ρ of the grid."""
    by_level: dict[int, list[int]] = {}
    for position, level in order:
        by_level.setdefault(level, []).append(position)
    return tuple(_expected_at(rho, order, by_level) for rho in _GRID)


def _expected_at(rho: float, order: Order, by_level: Mapping[int, Sequence[int]]) -> float:
    def related(ones: Sequence[int], others: Sequence[int]) -> float:
        """Return the mean of the correlations between two groups of runs."""
        return sum(rho ** abs(one - other) for one in ones for other in others) / (len(ones) * len(others))

    squares = sum(len(at) * (1.0 - related(at, at)) for at in by_level.values())
    products = 0.0
    for (one, level), (other, next_level) in pairwise(order):
        here, there = by_level[level], by_level[next_level]
        products += related([one], [other]) - related([one], there) - related(here, [other]) + related(here, there)
    return products / squares
