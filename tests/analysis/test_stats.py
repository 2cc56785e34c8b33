from __future__ import annotations

import statistics
from collections import Counter
from math import exp, lgamma, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.levels.stats import (
    Tally,
    interval_ranks,
    median,
    percentile,
    rate_summary,
    ratio,
    spread,
    survival_spread,
)
from tests.analysis.record_builders import request

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=400)


@settings(max_examples=50)
@given(VALUES)
def test_percentiles_match_the_inclusive_definition(values: list[float]) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")
    ordered = sorted(values)
    for q in (50, 90, 95, 99):
        assert percentile(ordered, q / 100) == pytest.approx(expected[q - 1], rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(("name", "smallest"), [("p50", 5), ("p90", 29), ("p95", 59), ("p99", 299)])
def test_percentile_is_null_below_its_minimum_n(name: str, smallest: int) -> None:
    assert getattr(spread(range(smallest - 1)), name) is None
    assert getattr(spread(range(smallest)), name) is not None


@pytest.mark.parametrize(("name", "smallest"), [("p50", 6), ("p90", 36), ("p95", 72), ("p99", 368)])
def test_interval_of_a_percentile_needs_more_values_than_the_percentile(name: str, smallest: int) -> None:
    assert getattr(spread(range(smallest - 1)), f"{name}_interval") is None
    low, high = getattr(spread(range(smallest)), f"{name}_interval")
    assert low < getattr(spread(range(smallest)), name) <= high == smallest - 1


def test_interval_of_a_median_is_the_one_in_tables() -> None:
    """The interval is from the 40th to the 61st of 100 values, and from the third to the tenth of 12."""
    assert (interval_ranks(100, 0.5), interval_ranks(12, 0.5)) == ((39, 60), (2, 9))


@given(st.integers(6, 3000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_interval_covers_the_percentile_in_95_percent_of_samples(n: int, q: float) -> None:
    """The number of values below the percentile is binomial; the normal approximation costs at most 0.7 points."""
    ranks = interval_ranks(n, q)
    if ranks is None:
        assert n < 368
        return
    low, high = ranks
    assert 0 <= low <= q * n <= high < n
    logs = [lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(q) + (n - k) * log(1 - q) for k in range(n + 1)]
    covered = sum(exp(logs[k]) for k in range(low + 1, high + 1))
    assert covered >= 0.943


def test_times_that_are_only_known_to_be_longer_have_no_interval() -> None:
    assert survival_spread([1.0] * 50, [2.0]).p50_interval is None


def test_single_value_has_no_median() -> None:
    one = spread([3.0])
    assert (one.n, one.mean, one.min, one.max, one.p50) == (1, 3.0, 3.0, 3.0, None)


def test_empty_sample_is_null() -> None:
    none = spread([])
    assert none.n == 0
    assert {none.mean, none.min, none.p50, none.p90, none.p95, none.p99, none.max} == {None}
    assert {rate_summary([]).mean, rate_summary([]).min, rate_summary([]).p50, rate_summary([]).max} == {None}
    assert median([]) is None


def test_rate_summary_needs_five_values_for_p50() -> None:
    answers = [request(0, [10, 20 + k, 30 + 2 * k, 40 + 3 * k]) for k in range(5)]
    assert rate_summary(answers[:4]).p50 is None
    assert rate_summary(answers).p50 == pytest.approx(1e3 / 12)


def test_stream_rate_weighs_answers_by_their_tokens() -> None:
    """An answer of four tokens in 3 ms would raise a mean of rates from 100 to 550 tok/s."""
    long, short = request(0, [10 * k for k in range(1, 102)]), request(0, [10, 11, 12, 13])
    rates = rate_summary([long, short])
    assert rates.mean == pytest.approx(103 / 1.003)
    assert rates.min == pytest.approx(100.0)
    assert rates.max == pytest.approx(1000.0)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 50), max_size=400))
def test_tally_spread_matches_spread(values: list[int]) -> None:
    tallied, plain = spread(Tally(Counter(values), unit=1e3)), spread([value / 1e3 for value in values])
    assert tallied.n == plain.n
    for name in ("mean", "min", "p50", "p90", "p95", "p99", "max"):
        assert getattr(tallied, name) == pytest.approx(getattr(plain, name))


def test_ratio_with_null_is_null() -> None:
    assert ratio(None, 2.0) is None
    assert ratio(2.0, None) is None
    assert ratio(2.0, 0.0) is None
    assert ratio(0, 2.0) == 0.0
