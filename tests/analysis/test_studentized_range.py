from __future__ import annotations

from math import sqrt

import pytest

from swarmtui.analysis.compare.distributions import studentized_range_cdf, studentized_range_quantile, t_quantile


@pytest.mark.parametrize(
    ("k", "df", "by_scipy"),
    [
        (2, 2, 6.084869844593),
        (3, 3, 5.909598453393),
        (4, 4, 5.757060383400),
        (8, 8, 5.596180295952),
        (8, 24, 4.683752117159),
        (14, 28, 5.176590606135),
        (30, 90, 5.477795392899),
    ],
)
def test_quantiles_match_scipy(k: int, df: int, by_scipy: float) -> None:
    assert studentized_range_quantile(0.95, k, df) == pytest.approx(by_scipy, abs=1e-9)


@pytest.mark.parametrize("df", [2, 5, 30])
def test_range_of_two_is_students_t(df: int) -> None:
    assert studentized_range_quantile(0.95, 2, df) == pytest.approx(sqrt(2) * t_quantile(0.975, df), abs=1e-8)


def test_quantile_inverts_the_distribution() -> None:
    for p in (0.5, 0.9, 0.99):
        assert studentized_range_cdf(studentized_range_quantile(p, 5, 10), 5, 10) == pytest.approx(p, abs=1e-9)
