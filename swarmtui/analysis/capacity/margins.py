"""Find which agents a server may carry in another minute, by how far the visits of a search were from the limits.

The requests of a visit are alike: they share the speed that the machine has in these seconds, so that 16 of 16 good
ones are no sixteen proofs. How far visits of equal or neighbouring levels are from each other tells how much it varies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, groupby, pairwise
from math import ceil, exp, fsum, inf, log, sqrt
from typing import NamedTuple

from swarmtui.analysis.capacity.slo_search import FIRST_LOOK, Visit
from swarmtui.analysis.compare.distributions import t_quantile
from swarmtui.analysis.levels.stats import falling_means
from swarmtui.analysis.limits.slo import RATE, SloCondition, SloTally
from swarmtui.model.telemetry import HostUse

# How many times slower than its share of the CPU time explains a disturbance may make a server, to be on the safe side.
_SAFE = 1.5
# A visit that is further from a limit than by this factor says no more than that.
_FAR = log(2.0)
# How much the speed of a server usually varies from one visit to the next, and how many visits this counts as: a
# search is too short to know it alone.
_USUAL_SPREAD, _USUAL_DF = 0.07, 4


class LikelyRange(NamedTuple):
    """The agents of another minute; `spread` is that of the speed from visit to visit, as a share."""

    low: int
    high: int
    spread: float


class _Margin(NamedTuple):
    """By which factor the requests of a visit are within a limit, as a logarithm, and its standard error by them."""

    value: float
    error: float
    requests: int


def likely_range(visits: Sequence[Visit], alpha: float) -> LikelyRange | None:
    """Return the levels between those that another visit keeps and misses, both together wrong by `alpha`.

    More agents are never further from a limit: margins that rise are averaged. It is null if no margin is known, as
    where a condition has several limits.
    """
    known = [(visit.c, margin) for visit in visits if (margin := _margin(visit.slo)) is not None]
    if not known or any(len(condition.limits) > 1 for condition in visits[0].slo.slo.conditions):
        return None
    levels = [(c, [margin for _, margin in of]) for c, of in groupby(sorted(known), lambda one: one[0])]
    fitted = falling_means(
        [(fsum(one.requests * one.value for one in of), sum(one.requests for one in of)) for _, of in levels]
    )
    near = [(margin, at) for (_, of), at in zip(levels, fitted, strict=True) for margin in of if abs(at) < _FAR]
    df = len(near) - len({at for _, at in near}) + _USUAL_DF
    by_chance = fsum(margin.error**2 for margin, _ in near)
    squares = fsum((margin.value - at) ** 2 for margin, at in near)
    spread = sqrt((max(0.0, squares - by_chance) + _USUAL_DF * _USUAL_SPREAD**2) / df)
    # Two visits at the border say where it is; the next one scatters as well.
    needed = min(t_quantile(1.0 - alpha / 2.0, df) * spread * sqrt(1.0 + 1.0 / 2.0), _FAR)
    line = [(c, at) for (c, _), at in zip(levels, fitted, strict=True)]
    every = [(c, _at(line, c)) for c in range(1, 1 + ceil(line[-1][0] * exp(2.0 * _FAR)))]
    low = max((c for c, margin in every if margin >= needed), default=0)
    high = min((c - 1 for c, margin in every if margin <= -needed), default=every[-1][0])
    return LikelyRange(low, high, spread)


def missed_by_far(tally: SloTally, use: HostUse | None) -> bool:
    """Return whether a visit missed a limit by more than what else ran on the host explains.

    Other programs and machines that take a share d of the CPU time make all times 1 / (1 − d) times as long.
    """
    if use is None or use.others is None:
        return False
    left = 1.0 - use.others - (use.steal or 0.0)
    return left > 0.0 and any(
        len(values) >= FIRST_LOOK and len(condition.limits) == 1 and _lateness(condition, values) > _SAFE / left
        for number, condition in enumerate(tally.slo.conditions)
        for values in [sorted(tally.least_values(number))]
    )


def _lateness(condition: SloCondition, values: Sequence[float]) -> float:
    """Return by which factor a limit is missed, at the share of the requests that must be within it."""
    ((name, limit),) = condition.limits.items()
    if name == RATE:
        slow = values[min(int(len(values) * (1.0 - condition.share)), len(values) - 1)]
        return limit / slow if slow > 0.0 else inf
    return values[min(int(len(values) * condition.share), len(values) - 1)] / limit


def _margin(tally: SloTally) -> _Margin | None:
    """Return the margin of the nearest limit; null if that is not known: one past it is enough to miss it."""
    found = []
    counted = [sorted(tally.least_values(number)) for number in range(len(tally.slo.conditions))]
    enough = [len(values) >= FIRST_LOOK for values in counted]
    for condition, values in zip(compress(tally.slo.conditions, enough), compress(counted, enough), strict=True):
        ((name, limit),) = condition.limits.items()
        share, sign = (1.0 - condition.share, 1.0) if name == RATE else (condition.share, -1.0)
        chance = sqrt(share * (1.0 - share) / len(values))
        ranks = (int(len(values) * each) for each in (share, share - chance, share + chance))
        at, low, high = (sign * _far(values[min(max(rank, 0), len(values) - 1)] / limit) for rank in ranks)
        found.append(_Margin(at, abs(high - low) / 2.0, len(values)))
    nearest = min(found, default=None)
    return nearest if nearest is not None and (all(enough) or nearest.value < 0.0) else None


def _far(factor: float) -> float:
    """Return the logarithm of a factor, not further from 0 than matters."""
    return log(min(max(factor, exp(-_FAR)), exp(_FAR)))


def _at(line: Sequence[tuple[int, float]], c: int) -> float:
    """Return the margin of a level, between those of the visited ones.

    Above them, each agent takes its part of it; below them nothing says that a level is missed.
    """
    if c < line[0][0]:
        return inf
    if c >= line[-1][0]:
        return line[-1][1] - log(c / line[-1][0])
    below, above = next(pair for pair in pairwise(line) if c < pair[1][0])
    part = log(c / below[0]) / log(above[0] / below[0])
    return below[1] + part * (above[1] - below[1])
