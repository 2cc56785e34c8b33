"""Compare two sides, and decide by the interval that is printed: Welch's t on the logs of their replicates.

A replicate is a run or, if sessions are pooled, a session. Several levels are one family: Holm's procedure gives each
its own confidence, so that the chance of any false claim stays below 5 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1, fsum, log, log1p, sqrt
from typing import Literal, NamedTuple

from swarmtui.analysis.compare.distributions import t_cdf, t_quantile
from swarmtui.analysis.levels.stats import standard_deviation
from swarmtui.model.base import Stored
from swarmtui.numbers import percent, short_percent, signed_percent

ALPHA = 0.05
EQUIVALENT = 0.02
POWER = 0.8
MIN_RUNS = 4
DETECT = 0.05
"""The change that "N runs would detect" is about, unless the user gives another."""

_MAX_RUNS = 200
# Runs with the same requests are compared pair by pair if that narrows the interval at least this much. Taking the
# narrower of two intervals without such a margin would claim differences in 7 % of equal sides instead of 5 %.
_PAIRED_AT_MOST = 0.25

VerdictWord = Literal["faster", "slower", "differ", "same", "not sure yet", "no verdict"]
Claim = Literal["configurations", "sessions"]


class Interval(Stored, frozen=True, kw_only=True):
    middle: float
    low: float
    high: float
    confidence: float = 1.0 - ALPHA


class Verdict(Stored, frozen=True, kw_only=True):
    """The result of a comparison. `change` is B relative to A, of the figures shown; `interval` is what decides.

    `needed` is how many replicates of each side detect a change of `detect` with 80 % power; null if that is not known
    or more than 200. `no verdict` means fewer than four runs of a side, `differ` that two sessions differ, which does
    not say that their configurations do.
    """

    word: VerdictWord
    n_a: int
    n_b: int
    change: float | None = None
    interval: Interval | None = None
    p: float | None = None
    detect: float = DETECT
    needed: int | None = None
    sentence: str


class Estimate(NamedTuple):
    """The difference of two means of logs, with its standard error and degrees of freedom."""

    middle: float
    error: float
    df: float

    def half_width(self, alpha: float) -> float:
        return t_quantile(1 - alpha / 2, self.df) * self.error

    def interval(self, alpha: float = ALPHA) -> Interval:
        middle, half = self.middle, self.half_width(alpha)
        low, high = expm1(middle - half), expm1(middle + half)
        return Interval(middle=expm1(middle), low=low, high=high, confidence=1 - alpha)

    @property
    def p(self) -> float:
        if not self.error:
            return 0.0 if self.middle else 1.0
        return 2 * t_cdf(-abs(self.middle) / self.error, self.df)


class Evidence(NamedTuple):
    """What is known about a change. `spread` is the standard deviation of the logs of one replicate.

    `sessions` is the number of sessions that the spread was taken from; 0 if it is that of the replicates compared.
    """

    n_a: int
    n_b: int
    unit: str
    change: float | None = None
    estimate: Estimate | None = None
    spread: float | None = None
    sessions: int = 0
    paired: bool = False

    @property
    def decides(self) -> bool:
        return self.estimate is not None and (self.sessions > 0 or min(self.n_a, self.n_b) >= MIN_RUNS)

    @property
    def replicates(self) -> str:
        runs = f"{self.n_a} v {self.n_b} {self.unit}" + (", paired" if self.paired else "")
        return f"{runs}; spread of {self.sessions} sessions" if self.sessions else runs


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Return standard deviation / mean; None below two values."""
    middle = fsum(values) / len(values) if values else 0.0
    return standard_deviation(values) / middle if len(values) > 1 and middle else None


def compare_replicates(
    a: Sequence[float],
    b: Sequence[float],
    *,
    change: float | None = None,
    unit: str = "runs",
    same_requests: bool = False,
) -> Evidence:
    """Compare the replicates of both sides; `change` is that of the figures shown, by default of the means of logs.

    With `same_requests` the k-th run of both sides sent the same requests, so that runs can be compared in pairs.
    """
    n_a, n_b = len(a), len(b)
    if not n_a or not n_b or min(*a, *b) <= 0:
        return Evidence(n_a, n_b, unit, change)
    x, y = [log(value) for value in a], [log(value) for value in b]
    middle = fsum(y) / n_b - fsum(x) / n_a
    change = expm1(middle) if change is None else change
    if min(n_a, n_b) < 2:
        return Evidence(n_a, n_b, unit, change)
    spread = sqrt((standard_deviation(x) ** 2 + standard_deviation(y) ** 2) / 2)
    estimate = _welch(x, y)
    if same_requests and n_a == n_b:
        apart = [after - before for before, after in zip(x, y, strict=True)]
        paired = Estimate(middle, standard_deviation(apart) / sqrt(n_a), n_a - 1)
        if paired.half_width(ALPHA) < _PAIRED_AT_MOST * estimate.half_width(ALPHA):
            return Evidence(n_a, n_b, unit, change, paired, paired.error * sqrt(n_a / 2), paired=True)
    return Evidence(n_a, n_b, unit, change, estimate, spread)


def with_session_spread(evidence: Evidence, history: Sequence[float]) -> Evidence:
    """Replace the spread of runs by that between earlier sessions, if there are at least two."""
    if evidence.change is None or evidence.change <= -1 or len(history) < 2 or min(history) <= 0:
        return evidence
    spread = standard_deviation([log(value) for value in history])
    estimate = Estimate(log1p(evidence.change), sqrt(2) * spread, len(history) - 1)
    return evidence._replace(estimate=estimate, spread=spread, sessions=len(history), paired=False)


def _welch(x: Sequence[float], y: Sequence[float]) -> Estimate:
    n, m = len(x), len(y)
    parts = standard_deviation(x) ** 2 / n, standard_deviation(y) ** 2 / m
    squares = parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (m - 1)
    df = sum(parts) ** 2 / squares if squares else n + m - 2
    return Estimate(fsum(y) / m - fsum(x) / n, sqrt(sum(parts)), df)


def holm_alphas(p_values: Sequence[float]) -> list[float]:
    """Return the alpha of each test: Holm's steps up to the first one that fails, and that one for all after it."""
    alphas, step, stopped = [ALPHA] * len(p_values), ALPHA, False
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        step = step if stopped else ALPHA / (len(p_values) - rank)
        stopped = stopped or p_values[index] > step
        alphas[index] = step
    return alphas


def decide(
    evidence: Evidence,
    *,
    alpha: float = ALPHA,
    claim: Claim = "configurations",
    detect: float = DETECT,
) -> Verdict:
    """Decide by the interval at `alpha`, or by that of 90 % if it shows that the change is within ±2 %."""
    word, interval = _word(evidence, alpha, claim)
    needed = None
    if evidence.decides and evidence.spread is not None:
        needed = replicates_needed(evidence.spread, detect, alpha)
    return Verdict(
        word=word,
        n_a=evidence.n_a,
        n_b=evidence.n_b,
        change=evidence.change,
        interval=interval,
        p=evidence.estimate.p if evidence.estimate and evidence.decides else None,
        detect=detect,
        needed=needed,
        sentence=_sentence(evidence, word, interval, detect, needed),
    )


def _word(evidence: Evidence, alpha: float, claim: Claim) -> tuple[VerdictWord, Interval | None]:
    """Check equivalence first: a difference within ±2 % is not relevant, even if it is certain."""
    estimate = evidence.estimate
    if estimate is None or not evidence.decides:
        return "no verdict", estimate.interval(alpha) if estimate else None
    near = estimate.interval(2 * ALPHA)
    if near.low >= -EQUIVALENT and near.high <= EQUIVALENT:
        return "same", near
    interval = estimate.interval(alpha)
    change = evidence.change or 0.0
    # The figures shown weigh runs by their length: rarely, their change has the other sign.
    if interval.low <= 0.0 <= interval.high or change * interval.middle <= 0.0:
        return "not sure yet", interval
    if claim == "sessions":
        return "differ", interval
    return ("faster" if change > 0 else "slower"), interval


def detectable_change(spread: float, n_a: int, n_b: int, alpha: float = ALPHA) -> float:
    """Return the change that replicates of this spread (standard deviation of logs) show with 80 % power."""
    df = n_a + n_b - 2
    steps = t_quantile(1 - alpha / 2, df) + t_quantile(POWER, df)
    return expm1(steps * spread * sqrt(1 / n_a + 1 / n_b))


def replicates_needed(spread: float, detect: float, alpha: float = ALPHA) -> int | None:
    """Return how many of each side show a change of `detect` with 80 % power; None if more than 200."""
    enough = (n for n in range(MIN_RUNS, _MAX_RUNS + 1) if detectable_change(spread, n, n, alpha) <= detect)
    return next(enough, None)


_HEADS = {"differ": "these two sessions differ", "same": f"same within ±{percent(EQUIVALENT)}"}


def _sentence(
    evidence: Evidence, word: VerdictWord, interval: Interval | None, detect: float, needed: int | None
) -> str:
    """`faster: +5.1 % (95 %: +3.2 % to +7.0 %; 4 v 4 runs)`"""
    if word == "no verdict":
        return _describe_missing(evidence)
    assert interval is not None
    found = change_text(evidence.change, interval, evidence.replicates)
    if word == "not sure yet":
        return f"{word}: {found}; {_describe_needed(evidence, detect, needed)}"
    return f"{_HEADS.get(word, word)}: {found}"


def change_text(change: float | None, interval: Interval, replicates: str) -> str:
    """`+5.1 % (95 %: +3.2 % to +7.0 %; 4 v 4 runs)`; the confidence is 98.8 % if several levels share the 5 %."""
    bounds = f"{signed_percent(interval.low)} to {signed_percent(interval.high)}"
    return f"{signed_percent(change)} ({short_percent(interval.confidence)}: {bounds}; {replicates})"


def _describe_missing(evidence: Evidence) -> str:
    n_a, n_b, unit = evidence.n_a, evidence.n_b, evidence.unit
    if evidence.change is None:
        return "no verdict: not measured"
    count = f"{n_a} {unit.removesuffix('s') if n_a == 1 else unit} of each" if n_a == n_b else f"{n_a} v {n_b} {unit}"
    return f"no verdict: {count}, {MIN_RUNS} are needed; {signed_percent(evidence.change)} may be noise"


def _describe_needed(evidence: Evidence, detect: float, needed: int | None) -> str:
    target = f"a difference of {short_percent(detect)}"
    unit = "sessions" if evidence.sessions else evidence.unit
    if needed is None:
        return f"more than {_MAX_RUNS} {unit} of each are needed to detect {target}"
    if not evidence.sessions and min(evidence.n_a, evidence.n_b) >= needed:
        return f"{target} would have been detected with 80 % power"
    return f"{needed} {unit} of each would detect {target} with 80 % power"
