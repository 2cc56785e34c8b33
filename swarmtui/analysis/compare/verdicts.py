"""Decide between two sets of replicates: faster, slower, equivalent or undecided; a replicate is a run or a session."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, expm1, fsum, log, sqrt
from random import Random
from typing import Literal

import msgspec

from swarmtui.analysis.compare.t_distribution import t_quantile
from swarmtui.model.schema import Stored
from swarmtui.numbers import percent, signed_percent

ALPHA = 0.05
EQUIVALENT = 0.02
POWER = 0.8
MIN_RUNS = 4

_EXACT_AT_MOST = 20_000
_DRAWS = 10_000
_NEAR = 1e-12
# With few values a permutation test has a little less power than the t test that the estimate is based on.
_SLACK = 1.1

VerdictWord = Literal["faster", "slower", "equivalent", "undecided"]


class Interval(Stored, frozen=True, kw_only=True):
    middle: float
    low: float
    high: float


def standard_deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation of at least two values."""
    middle = fsum(values) / len(values)
    return sqrt(fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Return standard deviation / mean; None below two values."""
    middle = fsum(values) / len(values) if values else 0.0
    return standard_deviation(values) / middle if len(values) > 1 and middle else None


class Verdict(Stored, frozen=True, kw_only=True):
    """`change` is B relative to A, as a share; `p` is from a permutation test, exact where that is feasible.

    `detectable` is the smallest change that `detectable_n` runs per side would find with 80 % power.
    """

    word: VerdictWord
    n_a: int
    n_b: int
    change: float | None = None
    interval: Interval | None = None
    p: float | None = None
    smallest_p: float
    detectable: float | None = None
    detectable_n: int | None = None
    sentence: str


def verdict(
    a: Sequence[float], b: Sequence[float], *, better: Literal["higher", "lower"] = "higher", unit: str = "runs"
) -> Verdict:
    """Compare the logs of both sides, so that changes are shares; undecided where a value is not above zero."""
    n_a, n_b = len(a), len(b)
    smallest = min(1.0, 2 / comb(n_a + n_b, n_a)) if n_a and n_b else 1.0
    if not n_a or not n_b or min(*a, *b) <= 0:
        return Verdict(word="undecided", n_a=n_a, n_b=n_b, smallest_p=smallest, sentence="undecided: not measured")
    x, y = [log(value) for value in a], [log(value) for value in b]
    change = expm1(fsum(y) / n_b - fsum(x) / n_a)
    if min(n_a, n_b) < 2:
        few = f"n={min(n_a, n_b)}" if n_a == n_b else f"{n_a} v {n_b} {unit}"
        return Verdict(
            word="undecided", n_a=n_a, n_b=n_b, change=change, smallest_p=smallest,
            sentence=f"undecided: {few}; one run has no spread, so {signed_percent(change)} may be noise",
        )  # fmt: skip
    interval, spread = _difference(x, y)
    p = permutation_p(x, y)
    decides = smallest <= ALPHA
    n = (n_a, n_b) if decides else (MIN_RUNS, MIN_RUNS)
    found = Verdict(
        word=_word(change, interval, p, decides, better),
        n_a=n_a,
        n_b=n_b,
        change=change,
        interval=interval,
        p=p,
        smallest_p=smallest,
        detectable=detectable_change(spread, *n),
        detectable_n=min(n),
        sentence="",
    )
    return msgspec.structs.replace(found, sentence=_sentence(found, unit))


def permutation_p(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the share of all permutations of the values whose means are at least as far apart."""
    pooled, n, total = [*x, *y], len(x), fsum([*x, *y])
    rest = len(y)

    def apart(part: float) -> float:
        return abs(part / n - (total - part) / rest)

    least = apart(fsum(x)) - _NEAR
    if comb(len(pooled), n) <= _EXACT_AT_MOST:
        hits = [apart(sum(part)) >= least for part in combinations(pooled, n)]
        return sum(hits) / len(hits)
    random = Random(0)  # the same data always give the same p
    count = sum(apart(sum(random.sample(pooled, n))) >= least for _ in range(_DRAWS))
    return (count + 1) / (_DRAWS + 1)


def detectable_change(spread: float, n_a: int, n_b: int) -> float:
    """Return the change that runs of this spread (standard deviation of logs) find with 80 % power."""
    df = n_a + n_b - 2
    ways = comb(n_a + n_b, n_a)
    attainable = 2 * int(ALPHA * ways / 2) / ways or ALPHA
    steps = t_quantile(1 - attainable / 2, df) + t_quantile(POWER, df)
    return expm1(_SLACK * steps * spread * sqrt(1 / n_a + 1 / n_b))


def _difference(x: list[float], y: list[float]) -> tuple[Interval, float]:
    """Return Welch's interval of the change, and the pooled standard deviation."""
    n, m = len(x), len(y)
    parts = standard_deviation(x) ** 2 / n, standard_deviation(y) ** 2 / m
    error = sqrt(sum(parts))
    squares = parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (m - 1)
    df = sum(parts) ** 2 / squares if squares else n + m - 2
    middle = fsum(y) / m - fsum(x) / n
    half = t_quantile(1 - ALPHA / 2, df) * error
    pooled = sqrt(((n - 1) * standard_deviation(x) ** 2 + (m - 1) * standard_deviation(y) ** 2) / (n + m - 2))
    return Interval(middle=expm1(middle), low=expm1(middle - half), high=expm1(middle + half)), pooled


def _word(
    change: float, interval: Interval, p: float, decides: bool, better: Literal["higher", "lower"]
) -> VerdictWord:
    """Check equivalence first: a significant difference within ±2 % is not relevant."""
    if not decides:
        return "undecided"
    if interval.low >= -EQUIVALENT and interval.high <= EQUIVALENT:
        return "equivalent"
    if p > ALPHA:
        return "undecided"
    return "faster" if (change > 0) == (better == "higher") else "slower"


def _sentence(found: Verdict, unit: str) -> str:
    runs = f"{found.n_a} v {found.n_b} {unit}"
    if found.change is None or found.p is None or found.interval is None:
        return f"undecided: {runs}"
    change = signed_percent(found.change)
    bounds = f"95 %: {signed_percent(found.interval.low)} to {signed_percent(found.interval.high)}"
    detectable = "" if found.detectable is None else percent(found.detectable, 1)
    if found.smallest_p > ALPHA:
        return (
            f"undecided: {change}, {runs} are too few to decide (p ≥ {found.smallest_p:.2g}); "
            f"{MIN_RUNS} v {MIN_RUNS} at this spread would detect {detectable}"
        )
    if found.word == "undecided":
        return f"undecided: {change} ({bounds}; {runs}, p = {found.p:.2g}); {detectable} would be detected"
    if found.word == "equivalent":
        return f"equivalent: {change} ({bounds}, all within ±{percent(EQUIVALENT)}; {runs})"
    return f"{found.word}: {change} ({bounds}; {runs}, p = {found.p:.2g})"
