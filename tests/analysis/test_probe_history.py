from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import exp, log, sqrt
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.probe_history import (
    LATEST,
    MIN_REFERENCE,
    ProbeResult,
    probe_correlation,
    probe_history,
)

START = datetime(2026, 11, 1, tzinfo=UTC)
WEEK = 7 * 24


def probe(hours: float, *runs: float) -> ProbeResult:
    at = START + timedelta(hours=hours)
    return ProbeResult(id=f"{hours:g}", created=at.isoformat(), runs=runs)


def correlated(random: Random, n: int, rho: float, outliers: float = 0.0, df: int = 0) -> list[ProbeResult]:
    """Draw probes that share a part of their deviation with the next; `df` is that of Student's t."""
    value, found = random.gauss(0, 1), []
    for k in range(n):
        halved = -8.0 if random.random() < outliers else 0.0
        found.append(probe(k, 76.9 * exp(0.01 * (value + halved))))
        new = random.gauss(0, 1)
        if df:
            new /= sqrt(sum(random.gauss(0, 1) ** 2 for _ in range(df)) / df) * sqrt(df / (df - 2))
        value = rho * value + sqrt(1 - rho**2) * new
    return found


def hourly(random: Random, n: int, first: int = 0, level: float = 76.9, slope: float = 0.0) -> list[ProbeResult]:
    """Draw probes with a CV of 1 %; `slope` is the change per probe, as a share of the level."""
    return [probe(first + k, level * (1 + slope * k) * exp(random.gauss(0, 0.01))) for k in range(n)]


def flags(probes: list[ProbeResult]) -> list[bool]:
    return [state is not None and state.drifted for state in probe_history(probes).drift]


def test_stationary_week_is_rarely_flagged() -> None:
    """At most 0.6 flagged probes per week, in the first week and later."""
    found = [flags(hourly(Random(seed), 2 * WEEK)) for seed in range(10)]
    for week in (slice(WEEK), slice(WEEK, None)):
        assert sum(sum(flagged[week]) for flagged in found) / len(found) <= 0.6


@pytest.mark.parametrize(("rho", "outliers", "df"), [(0.7, 0.0, 0), (0.0, 0.02, 0), (0.5, 0.02, 3)])
def test_correlated_probes_and_heavy_tails_are_rarely_flagged(rho: float, outliers: float, df: int) -> None:
    """The goal is 0.6 per week; a rule without correlation flags 5 and more, with t3 tails 1.3."""
    weeks = [flags(correlated(Random(seed), WEEK, rho, outliers, df)) for seed in range(12)]
    assert sum(map(sum, weeks)) / len(weeks) <= 0.9


@pytest.mark.parametrize("rho", [0.0, 0.4, 0.7])
def test_correlation_of_probes_is_recognised_also_below_a_trend(rho: float) -> None:
    values = [log(each.runs[0]) for each in correlated(Random(4), 2000, rho)]
    assert probe_correlation(values) == pytest.approx(rho, abs=0.08)
    assert probe_correlation([value - 0.0001 * k for k, value in enumerate(values)]) == pytest.approx(rho, abs=0.08)


@given(st.lists(st.floats(-1, 1), min_size=MIN_REFERENCE, max_size=40))
def test_correlation_of_any_probes_is_between_none_and_the_largest_that_is_allowed_for(values: list[float]) -> None:
    assert 0 <= probe_correlation(values) <= 0.8


def test_lasting_change_of_correlated_probes_is_flagged() -> None:
    calm = correlated(Random(5), WEEK, 0.9)
    assert flags([*calm, *(probe(WEEK + k, 60.0) for k in range(LATEST))])[-1]


def test_step_of_three_percent_is_flagged_within_three_probes() -> None:
    """The share is 95 % over 2,000 histories; 31 are enough to see a wrong rule."""
    delays = []
    for seed in range(31):
        random = Random(seed)
        calm = hourly(random, WEEK)
        found = flags([*calm, *hourly(random, 12, WEEK, 0.97 * 76.9)])[WEEK:]
        delays.append(found.index(True) + 1 if True in found else 99)
    assert sum(delay <= 3 for delay in delays) >= 0.9 * len(delays)
    assert max(delays) <= 6


def test_slow_decline_of_ten_percent_is_flagged_by_its_end() -> None:
    for seed in range(4):
        assert flags(hourly(Random(seed), WEEK, slope=-0.1 / WEEK))[-1]
        calm, falling = hourly(Random(seed), WEEK), hourly(Random(-seed), WEEK, WEEK, slope=-0.1 / WEEK)
        assert flags([*calm, *falling])[-1]


def test_single_outlier_is_no_drift() -> None:
    calm = hourly(Random(1), WEEK)
    found = probe_history([*calm, probe(WEEK, 76.9 / 2)])
    assert found.drifted is False
    assert "the latest −50 %" in found.sentence and found.sentence.startswith("no drift: ")


def test_state_follows_from_reference_and_latest_probes() -> None:
    """The reference are 20 rates around 100 with a known median and MAD; then 24 probes 0.1 log units higher."""
    apart = [0.01 * (k - 9.5) for k in (0, 19, 1, 18, 2, 17, 3, 16, 4, 15, 5, 14, 6, 13, 7, 12, 8, 11, 9, 10)]
    rates = [100 * exp(value) for value in apart]
    found = probe_history([probe(k, rate) for k, rate in enumerate([*rates, *[100 * exp(0.1)] * LATEST])])
    assert found.drift[: LATEST + MIN_REFERENCE - 1] == (None,) * (LATEST + MIN_REFERENCE - 1)
    state = found.drift[-1]
    assert state is not None
    spread = 1.4826 * 0.05
    z = min(3.0, 0.1 / spread)
    assert log(state.reference / 100) == pytest.approx(0.0, abs=1e-9)
    assert log(state.smoothed / 100) == pytest.approx(z * (1 - 0.8**LATEST) * spread)
    scale = sqrt(sum(value**2 for value in apart) / 20) * (1 + 2 / 20)
    assert state.correlation == 0
    assert log(state.high / 100) == pytest.approx(3.4 * sqrt(0.2 / 1.8 + 1.57 / 20) * scale)
    assert state.low == pytest.approx(100 * 100 / state.high)
    assert log(state.newest / 100) == pytest.approx(z * spread)
    assert log(state.newest_high / 100) == pytest.approx(3.05 * sqrt(1 / 3 + 1.57 / 20) * scale)
    assert state.newest_low == pytest.approx(100 * 100 / state.newest_high)


def test_sentence_names_the_mean_that_drifted() -> None:
    calm = [probe(k, 80.0 * exp(0.01 * (2 * k % 5 - 2))) for k in range(WEEK)]
    found = probe_history([*calm, *(probe(WEEK + k, 77.6) for k in range(3))])
    assert found.drifted is True
    assert found.sentence.startswith("drifted: the mean of the latest 3 −3.0 % (limit ±")
    found = probe_history([*calm, *(probe(WEEK + k, 77.6) for k in range(9))])
    assert found.sentence.startswith("drifted: the smoothed rate −")


def test_reference_starts_again_when_the_server_changes() -> None:
    """A new version that is 10 % faster is not drift."""
    random = Random(2)
    first, *rest = hourly(random, WEEK, WEEK, 1.1 * 76.9)
    changed = msgspec.structs.replace(first, server_changed=True)
    found = probe_history([*hourly(random, WEEK), changed, *rest])
    needed = LATEST + MIN_REFERENCE
    assert found.drift[WEEK : WEEK + needed - 1] == (None,) * (needed - 1)
    assert found.drifted is False
    early = probe_history([*hourly(random, WEEK), changed, *rest[:5]])
    assert early.drifted is None
    assert early.sentence.endswith("drift needs 44 probes of the same server, so far 6")


def test_equal_rates_do_not_divide_by_zero() -> None:
    calm = [probe(k, 80.0) for k in range(60)]
    assert probe_history(calm).drifted is False
    slower = [probe(60 + k, 79.0) for k in range(10)]
    assert probe_history([*calm, *slower]).drifted is True


def test_only_probes_in_the_window_count() -> None:
    old = [probe(k, 50.0) for k in range(10)]
    new = [probe(24 * 10 + k, 80.0 + 0.1 * k) for k in range(8)]
    found = probe_history([*new, *old])
    assert found.median == pytest.approx(80.3)
    assert (found.n, len(found.probes)) == (7, 18)
    assert found.rolling[:2] == (50.0, 50.0)
    assert found.rolling[-1] == pytest.approx(80.35)


def test_variation_within_and_between_probes() -> None:
    found = probe_history([probe(k, 100 + 5 * (k % 2), 101 + 5 * (k % 2)) for k in range(8)])
    assert found.cv_within == pytest.approx(0.0069, abs=0.0003)
    assert found.cv_between == pytest.approx(0.026, abs=0.002)


def test_too_few_probes_are_not_judged() -> None:
    assert probe_history([]).sentence == "no probe yet"
    for probes in ([probe(0, 80.0)], [probe(0, 80.0), probe(24 * 8, 80.0)]):
        assert probe_history(probes).sentence == "no probe in the 7 days before: nothing to compare it with yet"
    found = probe_history([probe(0, 80.0), probe(1, 80.0), probe(2, 40.0)])
    assert found.drifted is None
    assert found.sentence == (
        "the latest −50 %; 7 days before: median 80 ± 0.0 % tok/s; drift needs 44 probes of the same server, so far 3"
    )


def test_probe_without_a_rate_is_left_out() -> None:
    assert probe_history([probe(0), probe(1, 80.0)]).probes == (probe(1, 80.0),)
