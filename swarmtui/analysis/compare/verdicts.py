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
# An interval of half to twice as much: a wider one tells nothing.
_WIDEST = 4.0
# Runs with the same requests are compared pair by pair if that narrows the interval at least this much. Taking the
# narrower of two intervals without such a margin would claim differences in 7 % of equal sides instead of 5 %.
_PAIRED_AT_MOST = 0.25
_SHOWN_CORRELATION = 0.05
# What a single run has to change by to be called likely: a rate by this share, a time by this factor.
_LIKELY, _LIKELY_TIME = 0.2, 2.0
# By which runs of one server differ from one start of it to the next, which the interval of two sessions leaves out.
_RESTARTS = 0.05

VerdictWord = Literal["faster", "slower", "same", "not sure yet"]
# What is compared: a rate, of which more is better, the time to the first token, or another time.
Kind = Literal["rate", "first_token", "time"]
Claim = Literal["configurations", "sessions"]


class Interval(Stored, frozen=True, kw_only=True):
    middle: float
    low: float
    high: float
    confidence: float = 1.0 - ALPHA

    @property
    def is_wide(self) -> bool:
        """Whether the ends are further apart than half and twice as much: that tells nothing."""
        return 1.0 + self.high > _WIDEST * (1.0 + self.low)


class Verdict(Stored, frozen=True, kw_only=True):
    """The result of a comparison. `change` is B relative to A, of the figures shown; `interval` is what decides.

    `word` is null with fewer than four runs of a side. `claim` says what is faster or slower: the configuration, or
    only this session, whose runs share its conditions. `needed` is how many replicates of each side detect a change of
    `detect` with 80 % power; null if that is not known or more than 200. `correlation` is that of a run with the next.
    `detail` is the sentence without the words of `verdict_head`.
    """

    word: VerdictWord | None
    claim: Claim = "configurations"
    n_a: int
    n_b: int
    change: float | None = None
    interval: Interval | None = None
    p: float | None = None
    detect: float = DETECT
    needed: int | None = None
    correlation: float = 0.0
    detail: str
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
    correlation: float = 0.0

    @property
    def decides(self) -> bool:
        return self.estimate is not None and (self.sessions > 0 or min(self.n_a, self.n_b) >= MIN_RUNS)

    def replicates(self, claim: Claim) -> str:
        whose = " of one session each" if claim == "sessions" else ""
        runs = f"{self.n_a} v {self.n_b} {self.unit}{whose}" + (", paired" if self.paired else "")
        if self.sessions:
            return f"{runs}; spread of {self.sessions} sessions"
        return f"{runs}, correlated by {self.correlation:.1f}" if self.correlation >= _SHOWN_CORRELATION else runs


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
    factors: tuple[float, float] = (1.0, 1.0),
    correlation: float = 0.0,
) -> Evidence:
    """Compare the replicates of both sides; `change` is that of the figures shown, by default of the means of logs.

    With `same_requests` the k-th run of both sides sent the same requests, so that runs can be compared in pairs.
    `factors` are those by which correlation raises the variance of the mean of each side.
    """
    n_a, n_b = len(a), len(b)
    if not n_a or not n_b or min(*a, *b) <= 0:
        return Evidence(n_a, n_b, unit, change)
    x, y = [log(value) for value in a], [log(value) for value in b]
    middle = fsum(y) / n_b - fsum(x) / n_a
    change = expm1(middle) if change is None else change
    if min(n_a, n_b) < 2:
        return Evidence(n_a, n_b, unit, change)
    variances = factors[0] * standard_deviation(x) ** 2, factors[1] * standard_deviation(y) ** 2
    spread = sqrt(sum(variances) / 2)
    estimate = welch = _welch(middle, variances, (n_a, n_b))
    if same_requests and n_a == n_b:
        apart = [after - before for before, after in zip(x, y, strict=True)]
        paired = Estimate(middle, standard_deviation(apart) * sqrt(max(factors) / n_a), n_a - 1)
        if paired.half_width(ALPHA) < _PAIRED_AT_MOST * estimate.half_width(ALPHA):
            estimate, spread = paired, paired.error * sqrt(n_a / 2)
    return Evidence(n_a, n_b, unit, change, estimate, spread, paired=estimate is not welch, correlation=correlation)


def with_session_spread(evidence: Evidence, history: Sequence[float], half_width: float | None = None) -> Evidence:
    """Replace the spread of runs by that between earlier sessions, if there are at least two.

    Few sessions can be alike by chance: the interval is no narrower than the `half_width` of the levels compared.
    """
    if evidence.change is None or evidence.change <= -1 or len(history) < 2 or min(history) <= 0:
        return evidence
    spread = standard_deviation([log(value) for value in history])
    df = len(history) - 1
    error = max(sqrt(2) * spread, (half_width or 0.0) / t_quantile(1 - ALPHA / 2, df))
    estimate = Estimate(log1p(evidence.change), error, df)
    return evidence._replace(estimate=estimate, spread=spread, sessions=len(history), paired=False)


def _welch(middle: float, variances: tuple[float, float], counts: tuple[int, int]) -> Estimate:
    """Use fewer degrees of freedom than Welch's formula, which gives too many for few runs of unequal spread."""
    parts = variances[0] / counts[0], variances[1] / counts[1]
    squares = parts[0] ** 2 / (counts[0] - 1) + parts[1] ** 2 / (counts[1] - 1)
    df = sum(parts) ** 2 / squares if squares else sum(counts) - 2
    return Estimate(middle, sqrt(sum(parts)), _cautious(df, *counts))


def _cautious(df: float, n_a: int, n_b: int) -> float:
    """Return degrees of freedom halfway down to those of the smaller side, which are the fewest there can be."""
    return (df + min(n_a, n_b) - 1) / 2


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
    doubted: bool = False,
    searched: bool = False,
) -> Verdict:
    """Decide by the interval at `alpha`, or by that of 90 % if it shows that the change is within ±2 %.

    A `doubted` measurement decides nothing, and more runs would not help. A search that has `searched` the levels
    decides itself how often each is run: more runs cannot be asked for.
    """
    word, interval = _word(evidence, alpha)
    needed = None
    if doubted and word is not None and evidence.estimate is not None:
        word, interval = "not sure yet", evidence.estimate.interval(alpha)
    elif evidence.decides and evidence.spread is not None and not searched:
        needed = replicates_needed(evidence.spread, detect, alpha)
    if searched and word in (None, "not sure yet") and evidence.change is not None:
        word, detail = "not sure yet", signed_percent(evidence.change)
    elif word is None or interval is None:
        detail = _describe_missing(evidence)
    else:
        decided = word != "not sure yet"
        detail = change_text(evidence.change, interval, evidence.replicates(claim), sure=decided)
        detail += "" if decided or doubted else f"; {_describe_needed(evidence, detect, needed)}"
    return Verdict(
        word=word,
        claim=claim,
        n_a=evidence.n_a,
        n_b=evidence.n_b,
        change=evidence.change,
        interval=interval,
        p=evidence.estimate.p if evidence.estimate and evidence.decides else None,
        detect=detect,
        needed=needed,
        correlation=0.0 if evidence.sessions else evidence.correlation,
        detail=detail,
        sentence=f"{verdict_head(word)}: {detail}" if evidence.change is not None else detail,
    )


def _word(evidence: Evidence, alpha: float) -> tuple[VerdictWord | None, Interval | None]:
    """Check first whether they are the same: a difference within ±2 % is not relevant, even if it is certain."""
    estimate = evidence.estimate
    if estimate is None or not evidence.decides:
        return None, estimate.interval(alpha) if estimate else None
    near = estimate.interval(2 * ALPHA)
    if near.low >= -EQUIVALENT and near.high <= EQUIVALENT:
        return "same", near
    interval = estimate.interval(alpha)
    change = evidence.change or 0.0
    # The figures shown weigh runs by their length: rarely, their change has the other sign.
    if interval.low <= 0.0 <= interval.high or change * interval.middle <= 0.0 or interval.is_wide:
        return "not sure yet", interval
    return ("faster" if change > 0 else "slower"), interval


def likely_change(
    change: float | None, half_width: float | None, kind: Kind = "rate"
) -> Literal["faster", "slower"] | None:
    """Return what a change between single runs likely is; null if repeats of one server may differ by as much.

    Servers differ by some percent from one start, and from one minute, to the next, and the half-width of a level is
    added to that: a change of a fifth, and of three half-widths, is far outside. A time to the first token may double
    where requests begin to wait.
    """
    if change is None or change <= -1.0:
        return None
    least = log(_LIKELY_TIME) if kind == "first_token" else max(log1p(_LIKELY), 3.0 * (half_width or 0.0))
    if abs(log1p(change)) <= least:
        return None
    return "faster" if (change > 0) == (kind == "rate") else "slower"


def likely_by_interval(interval: Interval, kind: Kind) -> Literal["faster", "slower"] | None:
    """Return what a change likely is by its own interval; null if restarts of one server may differ by as much."""
    if interval.is_wide or (interval.low <= _RESTARTS and log1p(interval.high) >= -log1p(_RESTARTS)):
        return None
    return "faster" if (interval.low > 0) == (kind == "rate") else "slower"


def detectable_change(spread: float, n_a: int, n_b: int, alpha: float = ALPHA) -> float:
    """Return the change that replicates of this spread (standard deviation of logs) show with 80 % power."""
    df = _cautious(n_a + n_b - 2, n_a, n_b)
    steps = t_quantile(1 - alpha / 2, df) + t_quantile(POWER, df)
    return expm1(steps * spread * sqrt(1 / n_a + 1 / n_b))


def replicates_needed(spread: float, detect: float, alpha: float = ALPHA) -> int | None:
    """Return how many of each side show a change of `detect` with 80 % power; None if more than 200."""
    enough = (n for n in range(MIN_RUNS, _MAX_RUNS + 1) if detectable_change(spread, n, n, alpha) <= detect)
    return next(enough, None)


def verdict_head(word: VerdictWord | None) -> str:
    """Return the first words of a sentence: those of the verdict."""
    return f"same within ±{percent(EQUIVALENT)}" if word == "same" else word or "not sure yet"


def change_text(change: float | None, interval: Interval, replicates: str, *, sure: bool) -> str:
    """`+5.1 % (95 % sure: +3.2 % to +7.0 %; 4 v 4 runs)`

    A verdict is sure by what all levels, or all evaluations, share; the interval of one of them may be wider for that.
    """
    confidence = f"{short_percent(1 - ALPHA)} sure: " if sure else ""
    return f"{signed_percent(change)} ({confidence}{interval_text(interval, ' to ')}; {replicates})"


def interval_text(interval: Interval, between: str) -> str:
    """Show both ends, unless they tell nothing."""
    if interval.is_wide:
        return "not known"
    return f"{signed_percent(interval.low)}{between}{signed_percent(interval.high)}"


def verdict_text(word: VerdictWord | None) -> str:
    """Return the word, or when there will be one."""
    return word or f"after {MIN_RUNS} runs"


def _describe_missing(evidence: Evidence) -> str:
    """`+5.1 % may be noise: 2 v 1 runs, 4 of each are needed`"""
    if evidence.change is None:
        return "not measured"
    measured = f"{evidence.n_a} v {evidence.n_b} {evidence.unit}"
    return f"{signed_percent(evidence.change)} may be noise: {measured}, {MIN_RUNS} of each are needed"


def _describe_needed(evidence: Evidence, detect: float, needed: int | None) -> str:
    target = f"a difference of {short_percent(detect)}"
    unit = "sessions" if evidence.sessions else evidence.unit
    if needed is None:
        return f"more than {_MAX_RUNS} {unit} of each are needed to show {target}"
    if not evidence.sessions and min(evidence.n_a, evidence.n_b) >= needed:
        return f"{target} would very likely have been seen"
    return f"{needed} {unit} of each would very likely show {target}"
