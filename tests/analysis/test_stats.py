from __future__ import annotations

import statistics
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.levels.stats import Tally, median, percentile, rates, ratio, spread, tally_spread

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=400)


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_percentiles_are_those_of_the_inclusive_definition(values: list[float]) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")
    ordered = sorted(values)
    for q in (50, 90, 95, 99):
        assert percentile(ordered, q / 100) == pytest.approx(expected[q - 1], rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(("name", "smallest"), [("p50", 5), ("p90", 29), ("p95", 59), ("p99", 299)])
def test_a_percentile_is_null_below_its_n(name: str, smallest: int) -> None:
    assert getattr(spread(range(smallest - 1)), name) is None
    assert getattr(spread(range(smallest)), name) is not None


def test_one_value_has_mean_and_ends_but_no_median() -> None:
    one = spread([3.0])
    assert (one.n, one.mean, one.min, one.max, one.p50) == (1, 3.0, 3.0, 3.0, None)


def test_nothing_measured_is_null_everywhere() -> None:
    none = spread([])
    assert none.n == 0
    assert {none.mean, none.min, none.p50, none.p90, none.p95, none.p99, none.max} == {None}
    assert {rates([]).mean, rates([]).min, rates([]).p50, rates([]).max} == {None}
    assert median([]) is None


def test_rates_keep_the_rule_of_five() -> None:
    assert rates([1.0, 2.0, 3.0, 4.0]).p50 is None
    five = rates([5.0, 1.0, 2.0, 3.0, 4.0])
    assert (five.mean, five.min, five.p50, five.max) == (3.0, 1.0, 3.0, 5.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=400))
def test_a_tally_says_what_the_values_say(values: list[int]) -> None:
    tallied, plain = tally_spread(Tally(Counter(values), unit=1e3)), spread([value / 1e3 for value in values])
    assert tallied.n == plain.n
    for name in ("mean", "min", "p50", "p90", "p95", "p99", "max"):
        assert getattr(tallied, name) == pytest.approx(getattr(plain, name))


def test_a_ratio_with_something_unknown_is_unknown() -> None:
    assert ratio(None, 2.0) is None
    assert ratio(2.0, None) is None
    assert ratio(2.0, 0.0) is None
    assert ratio(0, 2.0) == 0.0
