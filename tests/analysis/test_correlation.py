"""How correlated runs are recognised, and how much less they prove."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.correlation import assumed_correlation, correlation, positions, variance_factor
from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.session_process.load_modes import PlannedLoad
from tests.analysis.level_builders import level, summary

rhos = st.floats(0, 0.99)
counts = st.integers(1, 6)


@given(counts, counts, st.booleans())
def test_positions_are_those_of_the_schedule(levels: int, runs: int, rotate: bool) -> None:
    plan = Plan(load=Closed(levels=tuple(range(1, levels + 1)), runs=runs, rotate=rotate))
    order = PlannedLoad(plan, None).run_order(plan.load.levels, runs)  # type: ignore[arg-type]
    for number, c in enumerate(plan.load.levels):
        planned = [at for at, (key, _) in enumerate(order) if key[0] == c]
        found = positions(number, levels, range(1, runs + 1), rotate)
        assert [at - found[0] for at in found] == [at - planned[0] for at in planned]
        assert not rotate or found == planned


def drifting(random: Random, rho: float, levels: int, runs: int) -> list[tuple[list[int], list[float]]]:
    """Draw runs in the order of time, each level with a mean of its own."""
    disturbance, series = random.gauss(0, 1), []
    for _ in range(levels * runs):
        series.append(disturbance)
        disturbance = rho * disturbance + (1 - rho**2) ** 0.5 * random.gauss(0, 1)
    at = [positions(number, levels, range(1, runs + 1), True) for number in range(levels)]
    return [(each, [100.0 * (number + 1) * (1 + 0.01 * series[k]) for k in each]) for number, each in enumerate(at)]


@pytest.mark.parametrize("rho", [0.3, 0.5, 0.7])
def test_correlation_is_estimated_with_little_bias_from_a_few_runs(rho: float) -> None:
    random = Random(3)
    found = [correlation([drifting(random, rho, 4, 6), drifting(random, rho, 4, 6)]) for _ in range(300)]
    assert fmean(found) == pytest.approx(rho, abs=0.1)


@given(st.lists(st.lists(st.integers(1, 10**6), min_size=1, max_size=6), max_size=5), st.floats(0.1, 10))
def test_correlation_is_a_share_and_does_not_depend_on_the_unit(sides: list[list[int]], unit: float) -> None:
    def side(scale: float) -> list[tuple[list[int], list[float]]]:
        runs = [(positions(k, len(sides), range(1, len(v) + 1), True), v) for k, v in enumerate(sides)]
        return [(at, [scale * value for value in values]) for at, values in runs]

    found = correlation([side(1.0)])
    assert 0 <= found < 1
    assert correlation([side(unit)]) == pytest.approx(found, abs=1e-6)


@given(st.lists(st.integers(0, 40), min_size=2, max_size=8, unique=True), rhos, rhos)
def test_more_correlation_never_makes_runs_prove_more(at: list[int], one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 1 <= variance_factor(at, low) <= variance_factor(at, high) + 1e-9
    spaced = [10 * position for position in at]
    assert variance_factor(spaced, high) <= variance_factor(at, high) + 1e-9


def test_factor_of_many_runs_in_succession_is_the_well_known_one() -> None:
    assert variance_factor(range(400), 0.5) == pytest.approx((1 + 0.5) / (1 - 0.5), rel=0.02)
    assert variance_factor(range(400), 0.0) == 1.0


def test_runs_that_drift_widen_the_interval_and_the_sentence_says_so() -> None:
    rising, mixed = [98.0, 99.0, 100.0, 101.0, 102.0, 103.0], [100.0, 98.0, 103.0, 101.0, 99.0, 102.0]
    widths = []
    for runs in (mixed, rising):
        other = [value * 1.04 for value in runs]
        a = summary([level(c, tps=100.5, runs=runs) for c in (1, 2, 4, 8)])
        b = summary([level(c, tps=104.5, runs=other) for c in (1, 2, 4, 8)], "b", plan=Plan(seed=1))
        found = compare_pair(a, b).rows[0].verdict
        assert found is not None and found.interval is not None
        widths.append(found.interval.high - found.interval.low)
        assert (", correlated by 0." in found.sentence) is (runs is rising)
        assert (found.correlation > 0) is (runs is rising)
    assert widths[1] > widths[0]


def claims_of_one_level(runs: int, rho: float, change: float, draws: int) -> float:
    """Return the share of draws in which the runs of one level, with a CV of 1 %, are said to differ."""
    random, claims = Random(7), 0
    for _ in range(draws):
        a, b = (drifting(random, rho, 1, runs)[0][1] for _ in "ab")
        b = [(1 + change) * value for value in b]
        pair = compare_pair(
            summary([level(4, tps=fmean(a), runs=a)]), summary([level(4, tps=fmean(b), runs=b)], "b", plan=Plan(seed=1))
        )
        claims += any(row.verdict is not None and row.verdict.word in ("faster", "slower") for row in pair.rows)
    return claims / draws


def test_runs_of_one_level_that_correlate_are_rarely_said_to_differ() -> None:
    """The goal is 5 %; of 300 draws 8 % may do so. Whether runs of one level correlate cannot be told from them."""
    assert claims_of_one_level(4, 0.7, 0.0, 300) <= 0.08
    assert claims_of_one_level(4, 0.0, 0.05, 100) >= 0.6, "and a change is still found"


@given(st.integers(1, 6), st.integers(4, 20), rhos)
def test_the_estimate_counts_only_if_it_is_of_several_levels(levels: int, runs: int, estimate: float) -> None:
    found = assumed_correlation(levels, runs, estimate)
    assert 0 <= found < 1
    if levels > 1:
        assert found >= estimate
    else:
        assert found == assumed_correlation(1, runs, 0.0) <= assumed_correlation(1, runs + 1, 0.0)
