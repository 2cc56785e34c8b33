"""Track a repeated probe: how much it varies, and whether it has drifted.

Drift is judged by two means of the latest probes, in standard deviations of a reference: the probes before the latest
24, since the server last changed. The exponentially weighted mean finds a small lasting change, the plain mean of three
a step soon after it. A single outlier is no drift.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from datetime import datetime, timedelta
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
_LIMIT = 3.5
# The weighted mean alone finds a step of three standard deviations within three probes in two of three cases.
_NEWEST = 3
_NEWEST_LIMIT = 3.2
_MAD_TO_SD = 1.4826  # of a normal distribution
_MEDIAN_VARIANCE = 1.57  # the variance of the median of n values is 1.57 / n times that of one value


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

    `newest` is the mean of the latest three probes, which has limits of its own.
    """

    reference: float
    smoothed: float
    low: float
    high: float
    newest: float
    newest_low: float
    newest_high: float

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
    before = _window(known[:-1], latest.at, WINDOW_DAYS)
    inside = [*before, latest.tps or 0.0]
    middle, cv = median(before), coefficient_of_variation(before)
    change = (latest.tps or 0.0) / middle - 1.0 if middle else None
    within = [found for probe in known if (found := coefficient_of_variation(probe.runs)) is not None]
    drift = _drift_by_probe(known)
    return ProbeHistory(
        probes=known,
        rolling=tuple(median(_window(known, probe.at, WINDOW_DAYS)) or 0.0 for probe in known),
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
        sentence=_sentence(WINDOW_DAYS, middle, cv, change, drift[-1], _since_change(known)),
    )


def _drift_by_probe(probes: Sequence[ProbeResult]) -> tuple[Drift | None, ...]:
    found: list[Drift | None] = []
    latest: list[float] = []
    reference: list[float] = []  # sorted
    for probe in probes:
        if probe.server_changed:
            latest, reference = [], []
        latest.append(log(probe.tps or 1.0))
        if len(latest) > LATEST:
            insort(reference, latest.pop(0))
        found.append(_drift(reference, latest) if len(reference) >= MIN_REFERENCE else None)
    return tuple(found)


def _drift(reference: Sequence[float], latest: Sequence[float]) -> Drift:
    """Compare the smoothed `latest` with a sorted reference; all are logs of rates."""
    middle = percentile(reference, 0.5)
    spread = _MAD_TO_SD * percentile(sorted(abs(value - middle) for value in reference), 0.5)
    apart = [(value - middle) / spread if spread else _CLIPPED_AT * _sign(value - middle) for value in latest]
    clipped = [max(-_CLIPPED_AT, min(_CLIPPED_AT, value)) for value in apart]
    smoothed = 0.0
    for value in clipped:
        smoothed += _WEIGHT * (value - smoothed)
    newest = fsum(clipped[-_NEWEST:]) / _NEWEST
    reference_variance = _MEDIAN_VARIANCE / len(reference)
    limit = _LIMIT * sqrt(_WEIGHT / (2 - _WEIGHT) + reference_variance)
    newest_limit = _NEWEST_LIMIT * sqrt(1 / _NEWEST + reference_variance)
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
    )


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _since_change(probes: Sequence[ProbeResult]) -> int:
    """Count the probes since the server changed."""
    changes = [index for index, probe in enumerate(probes) if probe.server_changed]
    return len(probes) - (changes[-1] if changes else 0)


def _window(probes: Sequence[ProbeResult], end: datetime, days: float) -> list[float]:
    start = end - timedelta(days=days)
    return [probe.tps for probe in probes if start <= probe.at <= end and probe.tps is not None]


def _sentence(
    days: float, middle: float | None, cv: float | None, change: float | None, drift: Drift | None, since_change: int
) -> str:
    """`7 days before: median 76.9, CV 1 %, the latest −4 %; smoothed, outliers clipped: −2 % (limit ±1 %): drifted`"""
    if middle is None or change is None:
        return f"no probe in the {days:g} days before: nothing to compare it with yet"
    variation = "" if cv is None else f", CV {percent(cv, 1)}"
    head = f"{days:g} days before: median {short(middle, 4)}{variation}, the latest {signed_percent(change)}"
    if drift is None:
        needed = LATEST + MIN_REFERENCE
        return f"{head}; drift needs {needed} probes of the same server, so far {since_change}"
    what, value, high = "smoothed", drift.smoothed, drift.high
    if drift.drifted and not drift.smoothed_drifted:
        what, value, high = f"mean of the latest {_NEWEST}", drift.newest, drift.newest_high
    change_text, limit = signed_percent(value / drift.reference - 1.0), percent(high / drift.reference - 1.0, 1)
    state = "drifted" if drift.drifted else "no drift"
    return f"{head}; {what}, outliers clipped: {change_text} (limit ±{limit}): {state}"
