"""What a lower power limit costs and saves, by passes in each of which every limit was measured once.

A pass is a block: what a machine does over minutes is the same for all limits in it. All intervals hold together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import expm1, fsum, log, sqrt

from swarmtui.analysis.compare.verdicts import ALPHA, Estimate, Interval
from swarmtui.analysis.levels.stats import standard_deviation
from swarmtui.model.base import Stored

MIN_PASSES = 3
# The most tok/s that a limit may cost, as a share, to be named.
MAX_COST = 0.05


class PowerEffect(Stored, frozen=True, kw_only=True):
    """The change of tok/s and of J/token at `watts`, compared with the highest limit, `base_w`.

    With fewer than three passes the intervals are null, and only the changes are known.
    """

    watts: float
    base_w: float
    passes: int
    tps: float
    energy: float
    tps_range: Interval | None = None
    energy_range: Interval | None = None

    @property
    def is_worth_it(self) -> bool:
        """Whether it surely saves energy, and surely costs little."""
        tps, energy = self.tps_range, self.energy_range
        return tps is not None and energy is not None and tps.low >= -MAX_COST and energy.high < 0


# tok/s and J/token of each limit, in one pass.
Pass = Mapping[float, tuple[float, float]]


def power_effects(passes: Sequence[Pass]) -> tuple[PowerEffect, ...]:
    """Compare each limit with the highest one; the lowest limit first. Limits that a pass lacks are left out."""
    limits = sorted(set.intersection(*(set(each) for each in passes))) if passes else []
    if len(limits) < 2:
        return ()
    base_w, lower = limits[-1], limits[:-1]
    tps, energy = (_estimates(passes, limits, figure) for figure in (0, 1))
    # Both figures of every limit are one family.
    alpha = ALPHA / (2 * len(lower))
    return tuple(
        PowerEffect(
            watts=watts,
            base_w=base_w,
            passes=len(passes),
            tps=expm1(tps[watts].middle),
            energy=expm1(energy[watts].middle),
            tps_range=tps[watts].interval(alpha) if len(passes) >= MIN_PASSES else None,
            energy_range=energy[watts].interval(alpha) if len(passes) >= MIN_PASSES else None,
        )
        for watts in lower
    )


def best_effect(effects: Sequence[PowerEffect]) -> PowerEffect | None:
    """Return the limit that saves most of those that are worth it."""
    return min((effect for effect in effects if effect.is_worth_it), key=lambda effect: effect.energy, default=None)


def _estimates(passes: Sequence[Pass], limits: Sequence[float], figure: int) -> dict[float, Estimate]:
    """The change of the log of a figure from the highest limit to each other one.

    The spread is what limits and passes, added up, leave unexplained; a limit whose own spread is larger has that.
    """
    n, k = len(passes), len(limits)
    logs = {watts: [log(each[watts][figure]) for each in passes] for watts in limits}
    means = {watts: fsum(values) / n for watts, values in logs.items()}
    blocks = [fsum(logs[watts][i] for watts in limits) / k for i in range(n)]
    overall, df = fsum(blocks) / n, (n - 1) * (k - 1)
    left = fsum((logs[watts][i] - means[watts] - blocks[i] + overall) ** 2 for watts in limits for i in range(n))
    pooled = sqrt(2 * left / df / n) if df else 0.0
    base = limits[-1]
    found = {}
    for watts in limits[:-1]:
        apart = [one - other for one, other in zip(logs[watts], logs[base], strict=True)]
        own = standard_deviation(apart) / sqrt(n) if n > 1 else 0.0
        found[watts] = Estimate(means[watts] - means[base], max(pooled, own), max(df, 1))
    return found
