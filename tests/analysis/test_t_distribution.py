from __future__ import annotations

from math import atan, exp, expm1, pi, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.distributions import t_cdf, t_quantile
from swarmtui.analysis.compare.verdicts import coefficient_of_variation, compare_replicates
from swarmtui.analysis.levels.stats import standard_deviation


@pytest.mark.parametrize(
    ("p", "df", "table"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 3, 3.1824),
        (0.975, 6, 2.4469),
        (0.975, 30, 2.0423),
        (0.95, 10, 1.8125),
        (0.995, 4, 4.6041),
        (0.8, 6, 0.9057),
        (0.975, 1e6, 1.95997),
    ],
)
def test_quantiles_match_printed_tables(p: float, df: float, table: float) -> None:
    assert t_quantile(p, df) == pytest.approx(table, abs=5e-5)
    assert t_quantile(1 - p, df) == pytest.approx(-table, abs=5e-5)


@given(st.floats(-50, 50))
def test_cdf_matches_closed_forms(t: float) -> None:
    assert t_cdf(t, 1) == pytest.approx(0.5 + atan(t) / pi, abs=1e-12)
    assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * sqrt(2 + t * t)), abs=1e-12)


@pytest.mark.parametrize(("n_a", "n_b", "cv"), [(3, 3, 0.01), (4, 6, 0.03)])
def test_interval_covers_94_to_98_percent(n_a: int, n_b: int, cv: float) -> None:
    """The logs of the rates are normal, and the second side is 5 % faster; few runs give cautious intervals."""
    random = Random(n_a * n_b)
    trials, covered = 1500, 0
    for _ in range(trials):
        a = [exp(random.gauss(4.0, 0.01)) for _ in range(n_a)]
        b = [exp(random.gauss(4.05, cv)) for _ in range(n_b)]
        estimate = compare_replicates(a, b).estimate
        assert estimate is not None
        found = estimate.interval()
        covered += found.low <= expm1(0.05) <= found.high
    assert 0.94 <= covered / trials <= 0.98


def test_sample_standard_deviation() -> None:
    assert standard_deviation([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == pytest.approx(sqrt(32 / 7))
    assert coefficient_of_variation([99.0, 101.0]) == pytest.approx(sqrt(2) / 100)
    assert coefficient_of_variation([3.0]) is None
