"""Find which agents a server may carry in another minute, by how far the visits of a search were from the limits.

The requests of a visit are alike: they share the speed that the machine has in these seconds, so that 16 of 16 good
ones are no sixteen proofs. How far visits of equal or neighbouring levels are from each other tells how much it varies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress, groupby, pairwise
from math import ceil, exp, expm1, floor, fsum, inf, log, sqrt
from statistics import stdev
from typing import NamedTuple

from swarmtui.analysis.compare.distributions import t_quantile
from swarmtui.analysis.levels.stats import falling_means
from swarmtui.analysis.limits.slo import RATE, SloCondition, SloTally
from swarmtui.model.findings import VisitSpread
from swarmtui.model.telemetry import HostUse

# The number of requests after which a visit says something about its level.
FIRST_LOOK = 4
# How many times slower than its share of the CPU time explains a disturbance may make a server, to be on the safe side.
_SAFE = 1.5
# A level during which others had no more than this share of the CPU time was not disturbed, whatever happened later.
_UNDISTURBED = 0.03
# A visit that is further from a limit than by this factor says no more than that.
_FAR = log(2.0)
# What is left of a limit at a level that is as far from it, on either side.
LEAST_ROOM, MOST_ROOM = -expm1(_FAR), -expm1(-_FAR)
# Requests that scatter so much that their margin is less certain than this say more by how many of them kept a limit.
_UNCLEAR = 0.2
# How much the speed of a server usually varies from one visit to the next, and how many visits this counts as: a
# search is too short to know it alone, or what other minutes are like.
_USUAL_SPREAD, _USUAL_DF = 0.09, 4
# Both ends of what another minute may give are together wrong in this part of the searches.
ANOTHER_MINUTE = 0.1

# A share of the requests by which a whole number of them is one despite the rounding.
_ROUNDING = 1e-9


class Margins(NamedTuple):
    """How far the visited levels are from the limits, as logarithms of factors that never rise with the agents.

    `own` are those of each level by itself, of the requests of all its visits: their p90 stands beside it.
    """

    line: tuple[tuple[int, float], ...]
    own: dict[int, float]
    visits: VisitSpread

    def needed(self, alpha: float) -> float:
        """Return the margin at which another visit has the same outcome, but for `alpha` on both sides together.

        Two visits at the border say where it is; the next one scatters as well.
        """
        spread, df = usual_spread([self.visits])
        return min(t_quantile(1.0 - alpha / 2.0, df) * spread * sqrt(1.0 + 1.0 / 2.0), _FAR)

    def is_near(self, c: int, *, alone: bool = True) -> bool:
        """Return whether a level may keep a limit in one minute and miss it in another.

        It is judged `alone`, if it has enough requests for a margin, or by the levels beside it.
        """
        known = not alone or any(level == c for level, _ in self.line)
        return known and abs(self.at(c)) < self.needed(ANOTHER_MINUTE)

    def room(self, c: int) -> float | None:
        """Return by which share of a limit the visits of a level kept it; below 0 if they missed it."""
        margin = self.own.get(c)
        return None if margin is None else -expm1(-margin)

    def range(self, alpha: float) -> tuple[int, int]:
        """Return the most agents that another visit keeps, and the most that it may keep; the first is 0 if none is."""
        needed, highest = self.needed(alpha), self.line[-1][0]
        every = [(c, self.at(c)) for c in range(1, 1 + ceil(highest * exp(2.0 * _FAR)))]
        low = max((c for c, margin in every if margin >= needed), default=0)
        return low, min((c - 1 for c, margin in every if margin <= -needed), default=every[-1][0])

    def at(self, c: int) -> float:
        """Return the margin of a level, between those of the visited ones.

        Above them, each agent takes its part of it; below them nothing says that a level is missed.
        """
        line = self.line
        if c < line[0][0]:
            return inf
        if c >= line[-1][0]:
            return line[-1][1] - log(c / line[-1][0])
        below, above = next(pair for pair in pairwise(line) if c < pair[1][0])
        part = log(c / below[0]) / log(above[0] / below[0])
        return below[1] + part * (above[1] - below[1])


class _Margin(NamedTuple):
    """By which factor the requests of a visit are within a limit, or how fast they are, as a logarithm.

    `error` is its standard error by these requests.
    """

    value: float
    error: float
    requests: int


def fit_margins(visits: Sequence[tuple[int, SloTally]]) -> Margins | None:
    """Return how far the levels of these visits are from the limits; margins that rise are averaged.

    How much visits differ is also seen in the speed of their answers, which never rises with the agents either: that is
    known of levels far from the limits, too.
    """
    known = [(c, margin) for c, tally in visits if (margin := _margin([tally])) is not None]
    if not known:
        return None
    margins = _fit(known)
    near = _scatter([(margin, at) for _, margin, at in margins if abs(at) < _FAR])
    rates = [(c, speed) for c, tally in visits if (speed := _speed(tally)) is not None]
    speeds = _scatter([(speed, at) for _, speed, at in _fit(rates)])
    by_level = groupby(sorted(visits, key=lambda one: one[0]), lambda one: one[0])
    together = [(c, _margin([tally for _, tally in of])) for c, of in by_level]
    own = {c: margin.value for c, margin in together if margin is not None}
    spread = VisitSpread(near.squares + speeds.squares, near.freedom + speeds.freedom)
    return Margins(tuple(dict.fromkeys((c, at) for c, _, at in margins)), own, spread)


def _fit(known: Sequence[tuple[int, _Margin]]) -> list[tuple[int, _Margin, float]]:
    """Return each value with what is fitted to its level: means that never rise with the agents."""
    levels = [(c, [one for _, one in of]) for c, of in groupby(sorted(known), lambda one: one[0])]
    sums = [(fsum(one.requests * one.value for one in of), sum(one.requests for one in of)) for _, of in levels]
    return [(c, one, at) for (c, of), at in zip(levels, falling_means(sums), strict=True) for one in of]


def _scatter(fitted: Sequence[tuple[_Margin, float]]) -> VisitSpread:
    """Return how far values are from what is fitted to them, less what their requests explain."""
    freedom = len(fitted) - len({at for _, at in fitted})
    if not freedom:
        return VisitSpread()
    by_chance = fsum(one.error**2 for one, _ in fitted) * freedom / len(fitted)
    return VisitSpread(max(0.0, fsum((one.value - at) ** 2 for one, at in fitted) - by_chance), freedom)


def _speed(tally: SloTally) -> _Margin | None:
    """Return the logarithm of the tok/s of an agent while it writes, with its error by how much answers differ."""
    if len(tally.decoded) < FIRST_LOOK:
        return None
    rates = [log(tokens / seconds) for tokens, seconds in tally.decoded]
    tokens, seconds = (fsum(of) for of in zip(*tally.decoded, strict=True))
    return _Margin(log(tokens / seconds), stdev(rates) / sqrt(len(rates)), len(rates))


def usual_spread(searches: Sequence[VisitSpread]) -> tuple[float, int]:
    """Return how much visits differ by these searches and by what is usual, and how many visits tell."""
    df = sum(one.freedom for one in searches) + _USUAL_DF
    return sqrt((fsum(one.squares for one in searches) + _USUAL_DF * _USUAL_SPREAD**2) / df), df


def missed_by_far(tally: SloTally, use: HostUse | None) -> bool:
    """Return whether a visit missed a limit by more than what else ran on the host explains.

    Other programs and machines that take a share d of the CPU time make all times 1 / (1 − d) times as long.
    """
    if use is None or use.others is None:
        return False
    taken = use.others + (use.steal or 0.0)
    left, safe = 1.0 - taken, _SAFE if taken > _UNDISTURBED else 1.0
    return left > 0.0 and any(
        len(values) >= FIRST_LOOK and len(condition.limits) == 1 and _lateness(condition, values) > safe / left
        for condition, least in zip(tally.slo.conditions, tally.least_values, strict=True)
        for values in [sorted(least)]
    )


def _lateness(condition: SloCondition, values: Sequence[float]) -> float:
    """Return by which factor a limit is missed, at the share of the requests that must be within it."""
    ((name, limit),) = condition.limits.items()
    at = values[_rank(name, condition.share, len(values))]
    if name == RATE:
        return limit / at if at > 0.0 else inf
    return at / limit


def _rank(name: str, share: float, n: int) -> int:
    """Return which of `n` sorted values has to be within a limit, so that this share of them is: 18 of 20 are 90 %."""
    others = min(max(floor(n * (1.0 - share) + _ROUNDING), 0), n - 1)
    return others if name == RATE else n - 1 - others


def _margin(visits: Sequence[SloTally]) -> _Margin | None:
    """Return the margin of the nearest limit for these visits of a level, with all their requests.

    Null if that is not known: one limit that is missed is enough.
    """
    conditions = visits[0].slo.conditions
    if any(len(condition.limits) > 1 for condition in conditions):
        return None
    found = []
    counted = [sorted(chain(*of)) for of in zip(*(tally.least_values for tally in visits), strict=True)]
    enough = [len(values) >= FIRST_LOOK for values in counted]
    for condition, values in zip(compress(conditions, enough), compress(counted, enough), strict=True):
        ((name, limit),) = condition.limits.items()
        share, sign = condition.share, 1.0 if name == RATE else -1.0
        chance = sqrt(share * (1.0 - share) / len(values))
        ranks = (_rank(name, each, len(values)) for each in (share, share - chance, share + chance))
        at, low, high = (sign * _far(values[rank] / limit) for rank in ranks)
        found.append(_Margin(at, abs(high - low) / 2.0, len(values)))
    nearest = min(found, default=None)
    if nearest is None or nearest.error > _UNCLEAR:
        return None
    return nearest if all(enough) or nearest.value < 0.0 else None


def _far(factor: float) -> float:
    """Return the logarithm of a factor, not further from 0 than matters."""
    return log(min(max(factor, exp(-_FAR)), exp(_FAR)))
