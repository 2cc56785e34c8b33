from __future__ import annotations

from math import atan, exp, pi, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.intervals import deviation, mean_interval, median_interval, variation
from swarmtui.analysis.student import t_cdf, t_quantile


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
def test_quantiles_are_those_of_printed_tables(p: float, df: float, table: float) -> None:
    assert t_quantile(p, df) == pytest.approx(table, abs=5e-5)
    assert t_quantile(1 - p, df) == pytest.approx(-table, abs=5e-5)


@settings(max_examples=100, deadline=None)
@given(st.floats(-50, 50))
def test_one_and_two_degrees_of_freedom_have_closed_forms(t: float) -> None:
    assert t_cdf(t, 1) == pytest.approx(0.5 + atan(t) / pi, abs=1e-12)
    assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * sqrt(2 + t * t)), abs=1e-12)


@pytest.mark.parametrize("n", [3, 4, 8, 20])
def test_nominal_95_percent_of_a_mean_covers_93_to_97(n: int) -> None:
    """Rates of runs vary by a factor, so their logs are drawn from a normal distribution."""
    chance = Random(n)
    trials, covered = 4000, 0
    for _ in range(trials):
        found = mean_interval([exp(chance.gauss(4.0, 0.1)) for _ in range(n)])
        assert found is not None
        covered += found.low <= exp(4.0) <= found.high
    assert 0.93 <= covered / trials <= 0.97


@pytest.mark.parametrize("n", [8, 15, 29])
def test_an_interval_of_a_median_covers_what_it_says_whatever_the_distribution(n: int) -> None:
    """Order statistics come in steps, so they cover at least 95 %."""
    chance = Random(n)
    trials, covered = 3000, 0
    for _ in range(trials):
        found = median_interval([chance.expovariate(1.0) ** 3 for _ in range(n)])
        assert found is not None
        covered += found.low <= 0.6931471805599453**3 <= found.high
    assert 0.94 <= covered / trials <= 0.995


def test_too_few_values_give_no_interval() -> None:
    assert mean_interval([1.0]) is None
    assert mean_interval([1.0, 0.0]) is None
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    found = median_interval([6.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert found is not None
    assert (found.low, found.middle, found.high) == (1.0, 3.5, 6.0)
    assert variation([3.0]) is None


def test_spread_is_that_of_the_population() -> None:
    assert deviation([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == pytest.approx(sqrt(32 / 7))
    assert variation([99.0, 101.0]) == pytest.approx(sqrt(2) / 100)
