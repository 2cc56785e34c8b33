"""Track a repeated probe: how much it varies, and whether the latest result has drifted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import sqrt

from swarmtui.analysis.compare.t_distribution import t_quantile
from swarmtui.analysis.compare.verdicts import coefficient_of_variation
from swarmtui.analysis.levels.stats import mean, median
from swarmtui.model.schema import Stored
from swarmtui.numbers import percent, signed_percent

WINDOW_DAYS = 7.0
MIN_PROBES = 5


class ProbeResult(Stored, frozen=True, kw_only=True):
    """One probe. `runs` are the decode rates of its timed runs by the client's clock, in tok/s.

    `wall`: the responses arrived in one piece, so these are rates over the whole request instead.
    """

    id: str
    created: str
    runs: tuple[float, ...]
    wall: bool = False
    engine_tps: float | None = None
    ttft_s: float | None = None

    @property
    def tps(self) -> float | None:
        return mean(self.runs)

    @property
    def at(self) -> datetime:
        return datetime.fromisoformat(self.created)


class ProbeHistory(Stored, frozen=True, kw_only=True):
    """`rolling` is the median of the window up to each probe; `change` compares the latest with the window before it.

    `cv_within` is the variation between runs of one probe, `cv_between` that between probes.
    """

    probes: tuple[ProbeResult, ...]
    rolling: tuple[float, ...]
    window_days: float
    n: int
    median: float | None = None
    low: float | None = None
    high: float | None = None
    cv_between: float | None = None
    cv_within: float | None = None
    change: float | None = None
    limit: float | None = None
    drifted: bool | None = None
    sentence: str


def probe_history(probes: Sequence[ProbeResult], window_days: float = WINDOW_DAYS) -> ProbeHistory:
    """Return the history of the probes that have a rate."""
    known = tuple(sorted((probe for probe in probes if probe.tps is not None), key=lambda probe: probe.at))
    if not known:
        return ProbeHistory(probes=(), rolling=(), window_days=window_days, n=0, sentence="no probe yet")
    rolling = tuple(median(_window(known, probe.at, window_days)) or 0.0 for probe in known)
    latest = known[-1]
    before = _window(known[:-1], latest.at, window_days)
    inside = [*before, latest.tps or 0.0]
    middle, cv = median(before), coefficient_of_variation(before)
    change = (latest.tps or 0.0) / middle - 1.0 if middle else None
    limit = _limit(before)
    drifted = None if limit is None or change is None else abs(change) > limit
    within = [found for probe in known if (found := coefficient_of_variation(probe.runs)) is not None]
    return ProbeHistory(
        probes=known,
        rolling=rolling,
        window_days=window_days,
        n=len(before),
        median=middle,
        low=min(inside),
        high=max(inside),
        cv_between=cv,
        cv_within=median(within),
        change=change,
        limit=limit,
        drifted=drifted,
        sentence=_sentence(window_days, len(before), middle, cv, change, drifted),
    )


def probe_bands(found: ProbeHistory) -> tuple[tuple[float, float] | None, ...]:
    """Return the range of expected values at each probe; None where the window before it has too few."""
    return tuple(_band(found.probes[:index], probe.at, found.window_days) for index, probe in enumerate(found.probes))


def _band(before: Sequence[ProbeResult], at: datetime, days: float) -> tuple[float, float] | None:
    values = _window(before, at, days)
    middle, limit = median(values), _limit(values)
    return None if middle is None or limit is None else (middle * (1 - limit), middle * (1 + limit))


def _limit(values: Sequence[float]) -> float | None:
    """Return the largest expected change, as a share of the median: 5 % of unchanged probes exceed it."""
    cv = coefficient_of_variation(values)
    if len(values) < MIN_PROBES or cv is None:
        return None
    return t_quantile(0.975, len(values) - 1) * cv * sqrt(1 + 1 / len(values))


def _window(probes: Sequence[ProbeResult], end: datetime, days: float) -> list[float]:
    start = end - timedelta(days=days)
    return [probe.tps for probe in probes if start <= probe.at <= end and probe.tps is not None]


def _sentence(
    days: float, n: int, middle: float | None, cv: float | None, change: float | None, drifted: bool | None
) -> str:
    """`7-day median 76.9, CV 1.0 %, the latest −4.1 % is outside`"""
    if middle is None or change is None:
        return "one probe: nothing to compare it with yet"
    latest = f"the latest {signed_percent(change)}"
    head = f"{days:g}-day median {middle:.4g}"
    if cv is None or drifted is None:
        return f"{head}, {latest}; {MIN_PROBES} earlier probes are needed to judge it, so far {n}"
    return f"{head}, CV {percent(cv, 1)}, {latest} is {'outside' if drifted else 'inside'}"
