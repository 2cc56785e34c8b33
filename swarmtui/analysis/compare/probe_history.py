"""Track a repeated probe: how much it varies, and whether it has drifted.

Drift is judged by two means of the latest probes, in standard deviations of a reference: the probes before the latest
24, since the server last changed. The exponentially weighted mean finds a small lasting change, the plain mean of three
a step soon after it. A single outlier is no drift. Probes are not independent: the limits allow for the correlation of
each with the next, and for the tails of the reference.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import exp, fsum, log, sqrt

from swarmtui.analysis.compare.verdicts import coefficient_of_variation
from swarmtui.analysis.levels.stats import mean, median, percentile
from swarmtui.model.base import Stored
from swarmtui.numbers import percent, short, signed_percent

WINDOW_DAYS = 7.0
LATEST = 24
MIN_REFERENCE = 20

_WEIGHT = 0.2
_CLIPPED_AT = 3.0
_LIMIT = 3.4
# The weighted mean alone finds a step of three standard deviations within three probes in two of three cases.
_NEWEST = 3
_NEWEST_LIMIT = 3.05
_MAD_TO_SD = 1.4826  # of a normal distribution
_MEDIAN_VARIANCE = 1.57  # the variance of the median of n values is 1.57 / n times that of one value
_MAX_CORRELATION = 0.8  # with more, even the largest lasting change would stay within the limits
_MAX_LIMIT = 2.9  # below the deviation at which probes are clipped, for the same reason
# The limits are wider by this share / n: the standard deviation of few or correlated probes is estimated too small.
_SMALL_REFERENCE = 2.0


class ProbeResult(Stored, frozen=True, kw_only=True):
    """One probe. `runs` are the decode rates of its timed runs by the client's clock, in tok/s.

    `wall`: the responses arrived in one piece, so these are rates over the whole request instead. `server_changed`: the
    server has another version, model or flags than at the probe before.
    """

    id: str
    created: str
    runs: tuple[float, ...]
    wall: bool = False
    engine_tps: float | None = None
    ttft_s: float | None = None
    server_changed: bool = False

    @property
    def tps(self) -> float | None:
        return mean(self.runs)

    @property
    def at(self) -> datetime:
        return datetime.fromisoformat(self.created)


class Drift(Stored, frozen=True, kw_only=True):
    """The state at one probe: the median of the reference, the smoothed rate, and the limits that it must not leave.

    `newest` is the mean of the latest three probes, which has limits of its own. `correlation` is that of a probe with
    the next.
    """

    reference: float
    smoothed: float
    low: float
    high: float
    newest: float
    newest_low: float
    newest_high: float
    correlation: float = 0.0

    @property
    def smoothed_drifted(self) -> bool:
        return not self.low <= self.smoothed <= self.high

    @property
    def drifted(self) -> bool:
        return self.smoothed_drifted or not self.newest_low <= self.newest <= self.newest_high


class ProbeHistory(Stored, frozen=True, kw_only=True):
    """All probes of one target: `rolling` is the median of the 7 days up to each probe, with it.

    `n`, `median` and `cv_between` are those of the 7 days before the latest one, and `change` compares it with them;
    `low` and `high` include it.
    `drift` has the state at each probe, null while the reference is too short, and `drifted` judges the latest.
    `cv_within` is the variation between runs of one probe.
    """

    probes: tuple[ProbeResult, ...]
    rolling: tuple[float, ...]
    drift: tuple[Drift | None, ...] = ()
    window_days: float
    n: int
    median: float | None = None
    low: float | None = None
    high: float | None = None
    cv_between: float | None = None
    cv_within: float | None = None
    change: float | None = None
    drifted: bool | None = None
    sentence: str


def probe_history(probes: Sequence[ProbeResult]) -> ProbeHistory:
    """Return the history of the probes that have a rate."""
    known = tuple(sorted((probe for probe in probes if probe.tps), key=lambda probe: probe.at))
    if not known:
        return ProbeHistory(probes=(), rolling=(), window_days=WINDOW_DAYS, n=0, sentence="no probe yet")
    latest = known[-1]
    before = _window(known[:-1], latest.at)
    inside = [*before, latest.tps or 0.0]
    middle, cv = median(before), coefficient_of_variation(before)
    change = (latest.tps or 0.0) / middle - 1.0 if middle else None
    within = [found for probe in known if (found := coefficient_of_variation(probe.runs)) is not None]
    drift = _drift_by_probe(known)
    return ProbeHistory(
        probes=known,
        rolling=tuple(median(_window(known, probe.at)) or 0.0 for probe in known),
        drift=drift,
        window_days=WINDOW_DAYS,
        n=len(before),
        median=middle,
        low=min(inside),
        high=max(inside),
        cv_between=cv,
        cv_within=median(within),
        change=change,
        drifted=drift[-1].drifted if drift[-1] else None,
        sentence=_sentence(middle, cv, change, drift[-1], _since_change(known)),
    )


def _drift_by_probe(probes: Sequence[ProbeResult]) -> tuple[Drift | None, ...]:
    found: list[Drift | None] = []
    known: list[float] = []
    reference: list[float] = []  # sorted
    rho, tails, size = 0.0, 1.0, 0
    for probe in probes:
        if probe.server_changed:
            known, reference, size = [], [], 0
        known.append(log(probe.tps or 1.0))
        if len(known) > LATEST:
            insort(reference, known[-LATEST - 1])
        if len(reference) < MIN_REFERENCE:
            found.append(None)
            continue
        if len(reference) >= size:  # in steps of a twentieth: the slowest part for a long history
            rho, tails = probe_correlation(known[:-LATEST]), _tails(reference)
            size = len(reference) + 1 + len(reference) // 20
        found.append(_drift(reference, known[-LATEST:], rho, tails))
    return tuple(found)


def _drift(reference: Sequence[float], latest: Sequence[float], rho: float, tails: float) -> Drift:
    """Compare the smoothed `latest` with a sorted reference; all are logs of rates.

    `rho` is the correlation of the reference, `tails` the standard deviation of its clipped deviations.
    """
    middle = percentile(reference, 0.5)
    spread = _robust_deviation([value - middle for value in reference])
    apart = [(value - middle) / spread if spread else _CLIPPED_AT * _sign(value - middle) for value in latest]
    clipped = [max(-_CLIPPED_AT, min(_CLIPPED_AT, value)) for value in apart]
    smoothed = 0.0
    for value in clipped:
        smoothed += _WEIGHT * (value - smoothed)
    newest = fsum(clipped[-_NEWEST:]) / _NEWEST
    independent = len(reference) * (1 - rho) / (1 + rho)
    scale = tails * (1 + _SMALL_REFERENCE / independent)
    kept = rho * (1 - _WEIGHT)
    smoothed_variance = _WEIGHT / (2 - _WEIGHT) * (1 + kept) / (1 - kept)
    limit = min(_MAX_LIMIT, _LIMIT * scale * sqrt(smoothed_variance + _MEDIAN_VARIANCE / independent))
    newest_variance = (3 + 4 * rho + 2 * rho**2) / 9
    newest_limit = _NEWEST_LIMIT * scale * sqrt(newest_variance + _MEDIAN_VARIANCE / independent)
    unit = spread or 1e-9

    def rate(deviations: float) -> float:
        return exp(middle + deviations * unit)

    return Drift(
        reference=rate(0.0),
        smoothed=rate(smoothed),
        low=rate(-limit),
        high=rate(limit),
        newest=rate(newest),
        newest_low=rate(-newest_limit),
        newest_high=rate(newest_limit),
        correlation=rho,
    )


def probe_correlation(values: Sequence[float]) -> float:
    """Estimate the correlation of each value with the next, from 0 to 0.8; a slow trend does not raise it.

    Values two apart differ by 1 + ρ times as much, in squares, as neighbours do. Half a standard error is added: an
    estimate that is too low costs more than one that is too high.
    """
    near = _clipped_square([other - one for one, other in pairwise(values)])
    far = _clipped_square([other - one for one, other in zip(values, values[2:], strict=False)])
    rho = far / near - 1 + 0.5 / sqrt(len(values)) if near else 0.0
    return max(0.0, min(_MAX_CORRELATION, rho))


def _tails(reference: Sequence[float]) -> float:
    """Return the standard deviation of clipped deviations, relative to the robust one; 1 for a normal distribution."""
    middle = percentile(reference, 0.5)
    deviations = [value - middle for value in reference]
    spread = _robust_deviation(deviations)
    return sqrt(_clipped_square(deviations)) / spread if spread else 1.0


def _clipped_square(values: Sequence[float]) -> float:
    """Return the mean square of values around 0, without the weight of outliers."""
    limit = _CLIPPED_AT * _robust_deviation(values)
    return fsum(min(limit, abs(value)) ** 2 for value in values) / len(values)


def _robust_deviation(values: Sequence[float]) -> float:
    return _MAD_TO_SD * percentile(sorted(map(abs, values)), 0.5)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _since_change(probes: Sequence[ProbeResult]) -> int:
    """Count the probes since the server changed."""
    changes = [index for index, probe in enumerate(probes) if probe.server_changed]
    return len(probes) - (changes[-1] if changes else 0)


def _window(probes: Sequence[ProbeResult], end: datetime) -> list[float]:
    start = end - timedelta(days=WINDOW_DAYS)
    return [probe.tps for probe in probes if start <= probe.at <= end and probe.tps is not None]


def _sentence(
    middle: float | None, cv: float | None, change: float | None, drift: Drift | None, since_change: int
) -> str:
    """`drifted: the smoothed rate −2 % (limit ±1 %), the latest −4 %; 7 days before: median 76.9 ± 1 % tok/s`"""
    if middle is None or change is None:
        return f"no probe in the {WINDOW_DAYS:g} days before: nothing to compare it with yet"
    known = short(middle, 4) + ("" if cv is None else f" ± {percent(cv, 1)}")
    usual = f"the latest {signed_percent(change)}; {WINDOW_DAYS:g} days before: median {known} tok/s"
    if drift is None:
        needed = LATEST + MIN_REFERENCE
        return f"{usual}; drift needs {needed} probes of the same server, so far {since_change}"
    what, value, high = "the smoothed rate", drift.smoothed, drift.high
    if drift.drifted and not drift.smoothed_drifted:
        what, value, high = f"the mean of the latest {_NEWEST}", drift.newest, drift.newest_high
    apart, limit = signed_percent(value / drift.reference - 1.0), percent(high / drift.reference - 1.0, 1)
    state = "drifted" if drift.drifted else "no drift"
    return f"{state}: {what} {apart} (limit ±{limit}), {usual}"
