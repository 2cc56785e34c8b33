"""Two sets of replicates: faster, slower, equivalent or undecided, and what that many could have told."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, expm1, fsum, log, sqrt
from random import Random
from typing import Literal

import msgspec

from swarmtui.analysis.compare.t_distribution import t_quantile
from swarmtui.model.schema import Stored
from swarmtui.numbers import signed_percent

ALPHA = 0.05
EQUIVALENT = 0.02
POWER = 0.8
MIN_RUNS = 4

_EXACT_AT_MOST = 20_000
_DRAWS = 10_000
_NEAR = 1e-12
# With few values a permutation test finds a little less than the t test from which the power is worked out.
_SLACK = 1.1

VerdictWord = Literal["faster", "slower", "equivalent", "undecided"]


class Verdict(Stored, frozen=True, kw_only=True):
    """`change` is B against A, as a share; `p` is of a permutation test, exact where that is feasible.

    `detectable` is the smallest difference that `detectable_n` runs each would find four times in five.
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
    """All in logs, so that changes are shares. Values must be above nought; others leave it undecided."""
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
            sentence=f"undecided: {few}; one has no spread, so nobody knows what {signed_percent(change)} means",
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
    """The share of all ways to deal out these values whose means lie at least as far apart."""
    pooled, n, total = [*x, *y], len(x), fsum([*x, *y])
    rest = len(y)

    def apart(part: float) -> float:
        return abs(part / n - (total - part) / rest)

    least = apart(fsum(x)) - _NEAR
    if comb(len(pooled), n) <= _EXACT_AT_MOST:
        dealt = [apart(sum(hand)) >= least for hand in combinations(pooled, n)]
        return sum(dealt) / len(dealt)
    chance = Random(0)  # the same data always give the same p
    hits = sum(apart(sum(chance.sample(pooled, n))) >= least for _ in range(_DRAWS))
    return (hits + 1) / (_DRAWS + 1)


def detectable_change(spread: float, n_a: int, n_b: int) -> float:
    """The change that so many runs of this spread (standard deviation of logs) find with 80 % power."""
    df = n_a + n_b - 2
    ways = comb(n_a + n_b, n_a)
    attainable = 2 * int(ALPHA * ways / 2) / ways or ALPHA
    steps = t_quantile(1 - attainable / 2, df) + t_quantile(POWER, df)
    return expm1(_SLACK * steps * spread * sqrt(1 / n_a + 1 / n_b))


def _difference(x: list[float], y: list[float]) -> tuple[Interval, float]:
    """Welch's interval of the change, and the pooled standard deviation."""
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
    """Equivalence goes first: a difference that is certain but within ±2 % is none that anybody needs."""
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
    sure = f"95 %: {signed_percent(found.interval.low)} to {signed_percent(found.interval.high)}"
    needs = "" if found.detectable is None else _percent(found.detectable)
    if found.smallest_p > ALPHA:
        return (
            f"undecided: {change}, {runs} can never decide (p ≥ {found.smallest_p:.2g}); "
            f"{MIN_RUNS} v {MIN_RUNS} at this spread would find {needs}"
        )
    if found.word == "undecided":
        return f"undecided: {change} ({sure}; {runs}, p = {found.p:.2g}); {needs} would have been found"
    if found.word == "equivalent":
        return f"equivalent: {change} ({sure}, all within ±{100 * EQUIVALENT:.0f} %; {runs})"
    return f"{found.word}: {change} ({sure}; {runs}, p = {found.p:.2g})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


class Interval(Stored, frozen=True, kw_only=True):
    middle: float
    low: float
    high: float


def standard_deviation(values: Sequence[float]) -> float:
    """The standard deviation of the population from which at least two values were drawn."""
    middle = fsum(values) / len(values)
    return sqrt(fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """The coefficient of variation; None below two values."""
    middle = fsum(values) / len(values) if values else 0.0
    return standard_deviation(values) / middle if len(values) > 1 and middle else None
