"""Decide by counts whether a share is kept: its bounds by Clopper and Pearson, and how many requests they need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from math import ceil, log

from swarmtui.analysis.compare.distributions import incomplete_beta

# The error of a bound, unless another one is chosen.
GOODPUT_ALPHA = 0.05


def dispersion(runs: Sequence[tuple[int, int]]) -> float:
    """Return by how much the shares of runs vary more than independent requests would; at least 1.

    Requests of one run are alike: this many of them count as one. `runs` are the good requests and all of each.
    """
    good, n = sum(one for one, _ in runs), sum(size for _, size in runs)
    if len(runs) < 2 or not 0 < good < n:
        return 1.0
    share = good / n
    squares = sum((one - size * share) ** 2 / size for one, size in runs if size)
    return max(1.0, squares / (share * (1.0 - share)) / (len(runs) - 1))


def all_kept(conditions: Collection[bool | None]) -> bool | None:
    """Return whether all conditions are kept: False if one is missed, None if that is not decided."""
    return False if False in conditions else None if None in conditions else True


@lru_cache(maxsize=1024)  # a search asks for the same levels again and again
def share_bounds(good: float, n: float) -> tuple[float | None, float | None]:
    """Return the one-sided 95 % bounds of a share by Clopper and Pearson, from below and from above."""
    if not n:
        return None, None
    low = 0.0 if not good else _bisect(lambda p: incomplete_beta(good, n - good + 1, p) - GOODPUT_ALPHA)
    high = 1.0 if good == n else _bisect(lambda p: incomplete_beta(good + 1, n - good, p) - (1 - GOODPUT_ALPHA))
    return low, high


def _bisect(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


@lru_cache(maxsize=4096)
def is_kept(good: float, n: float, share: float, alpha: float = GOODPUT_ALPHA) -> bool | None:
    """Decide by the bounds; None is undecided. A share of 100 % is about the measured requests alone."""
    if not n:
        return None
    if share == 1.0:
        return good == n
    if good and incomplete_beta(good, n - good + 1, share) <= alpha:
        return True
    return False if good < n and incomplete_beta(good + 1, n - good, share) > 1 - alpha else None


def least_n(share: float, alpha: float = GOODPUT_ALPHA) -> int:
    """Return how many requests show that a share is kept if all of them meet the limits."""
    return 1 if share == 1.0 else ceil(log(alpha) / log(share))
