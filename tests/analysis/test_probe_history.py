from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from swarmtui.analysis.compare.probe_history import ProbeResult, probe_bands, probe_history

START = datetime(2026, 11, 1, tzinfo=UTC)


def probe(hours: float, *runs: float) -> ProbeResult:
    at = START + timedelta(hours=hours)
    return ProbeResult(id=f"{hours:g}", created=at.isoformat(), runs=runs)


def hourly(n: int, cv: float = 0.01, seed: int = 3) -> list[ProbeResult]:
    random = Random(seed)
    return [probe(k, 76.9 * (1 + random.gauss(0, cv))) for k in range(n)]


def test_four_percent_drop_in_a_calm_week_is_drift() -> None:
    calm = [probe(k, rate) for k, rate in enumerate([76.13, 77.67, 76.13, 77.67, 76.9] * 20)]
    found = probe_history([*calm, probe(100, 76.9 * 0.959)])
    assert found.drifted is True
    assert found.sentence == "7-day median 76.9, CV 0.9 %, the latest −4.1 % is outside"
    assert found.low == pytest.approx(73.75, abs=0.01)
    assert found.high == 77.67


def test_noise_is_rarely_drift() -> None:
    flagged = sum(probe_history(hourly(30, seed=seed)).drifted is True for seed in range(400))
    assert flagged / 400 <= 0.08


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
    assert probe_history([probe(0, 80.0)]).sentence == "one probe: nothing to compare it with yet"
    found = probe_history([probe(0, 80.0), probe(1, 80.0), probe(2, 40.0)])
    assert found.drifted is None
    assert found.sentence == "7-day median 80, the latest −50.0 %; 5 earlier probes are needed to judge it, so far 2"


def test_probe_without_a_rate_is_left_out() -> None:
    assert probe_history([probe(0), probe(1, 80.0)]).probes == (probe(1, 80.0),)


def test_band_depends_on_the_window_before_only() -> None:
    rates = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0]
    found = probe_history([probe(k, rate) for k, rate in enumerate([*rates, 90.0, 100.0])])
    edges = probe_bands(found)
    assert edges[:5] == (None,) * 5
    six, seven = edges[6], edges[7]
    assert six is not None and seven is not None
    assert found.limit is not None and found.median is not None
    assert seven == pytest.approx((found.median * (1 - found.limit), found.median * (1 + found.limit)))
    assert six[0] > 90.0 and six[1] - six[0] < seven[1] - seven[0]  # the outlier widens the band behind it only
