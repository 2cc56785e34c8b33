"""Summarise samples; a percentile needs a minimum number of values."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from math import ceil, fsum, inf, isfinite, sqrt
from typing import Any, Protocol

from swarmtui.analysis.compare.distributions import incomplete_beta
from swarmtui.model.record import Record
from swarmtui.model.session import RateSummary, Spread

SMALLEST_N = {"p50": 5, "p90": 29, "p95": 59, "p99": 299}
_TAIL, _Z = 0.025, 1.96
# From this standard deviation of a rank on, the normal approximation is used.
_NORMAL_FROM = 3.0
_SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


class Ordered(Protocol):
    """Values in ascending order, accessed by rank."""

    def __len__(self) -> int: ...

    def __getitem__(self, rank: int, /) -> float: ...


class Tally:
    """Values with their counts, in ascending order, without a sorted list of millions."""

    def __init__(self, counts: Mapping[int, int], unit: float = 1.0) -> None:
        self._values = sorted(counts)
        self._ranks = list(accumulate(counts[value] for value in self._values))
        self._unit = unit
        self.total = sum(value * count for value, count in counts.items()) / unit

    def __len__(self) -> int:
        return self._ranks[-1] if self._ranks else 0

    def __getitem__(self, rank: int, /) -> float:
        if rank < 0:
            rank += len(self)
        return self._values[bisect_right(self._ranks, rank)] / self._unit


def count_gaps_us(records: Iterable[Record]) -> Counter[int]:
    gaps: Counter[int] = Counter()
    for record in records:
        gaps.update(islice(record.chunk_us, 1, None))
    return gaps


def percentile(ordered: Ordered, q: float) -> float:
    """Interpolate linearly between the two nearest ranks; `q` is a share from 0 to 1, `ordered` is not empty."""
    position = q * (len(ordered) - 1)
    rank = int(position)
    low = ordered[rank]
    rest = position - rank
    return low + rest * (ordered[rank + 1] - low) if rest else low


def falling_means(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Return means that never rise, of sums and their weights: those that would are averaged (isotonic regression)."""
    pools: list[tuple[float, float, int]] = []
    for total, weight in pairs:
        pool = total, weight, 1
        while pools and pools[-1][0] * pool[1] < pool[0] * pools[-1][1]:
            before = pools.pop()
            pool = before[0] + pool[0], before[1] + pool[1], before[2] + pool[2]
        pools.append(pool)
    return [total / weight if weight else inf for total, weight, size in pools for _ in range(size)]


def spread(values: Iterable[float] | Tally) -> Spread:
    ordered = values if isinstance(values, Tally) else sorted(values)
    n = len(ordered)
    if not n:
        return Spread(n=0)
    total = ordered.total if isinstance(ordered, Tally) else fsum(ordered)
    figures: dict[str, Any] = {name: percentile(ordered, q) for name, q in _SHARES.items() if n >= SMALLEST_N[name]}
    ranks = {name: interval_ranks(n, _SHARES[name]) for name in figures}
    figures |= {f"{name}_interval": (ordered[at[0]], ordered[at[1]]) for name, at in ranks.items() if at}
    return Spread(n=n, mean=total / n, min=ordered[0], max=ordered[n - 1], **figures)


def survival_spread(values: Sequence[float], censored: Sequence[float]) -> Spread:
    """Return the percentiles of times of which some are only known to be longer, by Kaplan and Meier's estimate.

    A percentile that the estimate does not reach is null, and with censored times so is the mean.
    """
    if not censored:
        return spread(values)
    ordered = sorted(values)
    ends = sorted([*((value, True) for value in values), *((value, False) for value in censored)], key=lambda e: e[0])
    found: dict[str, float] = {}
    surviving, at_risk = 1.0, len(ends)
    for value, ended in ends:
        if ended:
            surviving *= 1.0 - 1.0 / at_risk
            reached = [name for name, q in _SHARES.items() if name not in found and surviving <= 1.0 - q + 1e-12]
            found |= dict.fromkeys(reached, value)
        at_risk -= 1
    n = len(ordered)
    known: dict[str, Any] = {name: value for name, value in found.items() if n >= SMALLEST_N[name]}
    return Spread(n=n, min=ordered[0] if ordered else None, max=None, **known)


def late_spread(values: Iterable[float]) -> Spread:
    """Return the statistics of times of which some have not ended and are infinite; null where they depend on those."""
    ordered = sorted(values)
    known = [value for value in ordered if isfinite(value)]
    if len(known) == len(ordered):
        return spread(known)
    enough = ((name, percentile(ordered, q)) for name, q in _SHARES.items() if len(ordered) >= SMALLEST_N[name])
    figures: dict[str, Any] = {name: value for name, value in enough if isfinite(value)}
    return Spread(n=len(ordered), min=known[0] if known else None, **figures)


def stream_rate(answered: Iterable[Record]) -> float | None:
    """Return the decode rate of a stream: Σ later tokens / Σ time, so that answers are weighted by their tokens."""
    decoded = [record.decoded for record in answered]
    known = [pair for pair in decoded if pair is not None]
    return ratio(sum(tokens for tokens, _ in known), fsum(seconds for _, seconds in known))


def rate_summary(answered: Sequence[Record]) -> RateSummary:
    """Return the stream rate as `mean`, and the spread of the rates of single answers."""
    found = spread(rate for record in answered if (rate := record.decode_tps) is not None)
    return RateSummary(mean=stream_rate(answered), min=found.min, p50=found.p50, max=found.max)


def mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None


def standard_deviation(values: Sequence[float]) -> float:
    middle = fsum(values) / len(values)
    return sqrt(fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def median(values: Iterable[float]) -> float | None:
    """Return the middle of any number of values; unlike `spread`, without a minimum n."""
    ordered = sorted(values)
    return percentile(ordered, 0.5) if ordered else None


def sum_known(values: Iterable[float | None]) -> float | None:
    """Sum the known values; null if there is none."""
    known = [value for value in values if value is not None]
    return fsum(known) if known else None


def count_known(values: Iterable[int | None]) -> int | None:
    """Sum the known counts; null if there is none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def largest_known(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def ratio(above: float | None, below: float | None) -> float | None:
    """Divide; null if either is null, or the divisor is zero."""
    return None if above is None or not below else above / below


@lru_cache(maxsize=4096)
def interval_ranks(n: int, q: float) -> tuple[int, int] | None:
    """Return the ranks (from 0) between which a percentile lies with 95 % confidence; None if n is too small.

    Each tail of the binomial distribution has at most 2.5 %; with many values it is close to the normal one.
    """
    deviation = sqrt(n * q * (1 - q))
    if deviation > _NORMAL_FROM:
        low, high = int(n * q - _Z * deviation), ceil(n * q + _Z * deviation) + 1
    else:
        # At least k of n values lie below the percentile with a probability of I_q(k, n − k + 1), which falls with k.
        counts = range(1, n + 1)
        low = bisect_right(counts, _TAIL - 1.0, key=lambda k: -incomplete_beta(k, n - k + 1, q))
        high = 1 + bisect_left(counts, -_TAIL, key=lambda k: -incomplete_beta(k, n - k + 1, q))
    return (low - 1, high - 1) if low >= 1 and high <= n else None
