"""Arrival times of an open loop."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import pytest

from swarmtui.model.load import Arrival
from swarmtui.prompts.sampling import arrival_times

COUNT = 4000


def gaps(arrival: Arrival, burst: float = 1.0, rate: float = 20.0, seed: int = 1) -> list[float]:
    times = [0.0, *arrival_times(rate, arrival, burst, COUNT, seed)]
    return [after - before for before, after in pairwise(times)]


def cv(values: list[float]) -> float:
    return statistics.stdev(values) / statistics.mean(values)


def test_constant_gaps_are_constant() -> None:
    assert gaps("constant") == [pytest.approx(0.05)] * COUNT


@pytest.mark.parametrize("seed", range(5))
def test_poisson_gaps_are_exponential(seed: int) -> None:
    """Kolmogorov–Smirnov test at the 1 % level: below 1.63/√n."""
    found = sorted(gaps("poisson", seed=seed))
    cdf = [1.0 - math.exp(-20.0 * gap) for gap in found]
    distance = max(max(abs(p - i / COUNT), abs(p - (i + 1) / COUNT)) for i, p in enumerate(cdf))
    assert distance < 1.63 / math.sqrt(COUNT)


@pytest.mark.parametrize("burst", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_given_mean_and_variation(burst: float) -> None:
    found = gaps("gamma", burst)
    assert statistics.mean(found) == pytest.approx(0.05, rel=0.1)
    assert cv(found) ** 2 == pytest.approx(burst, rel=0.2)
    assert min(found) >= 0.0


def test_arrival_times_depend_on_the_seed_only() -> None:
    assert gaps("gamma", 2.0, seed=7) == gaps("gamma", 2.0, seed=7) != gaps("gamma", 2.0, seed=8)


@pytest.mark.parametrize("arrival", ["poisson", "gamma", "constant"])
@pytest.mark.parametrize("count", [1, 100])
def test_arrivals_have_exactly_the_rate(arrival: Arrival, count: int) -> None:
    """The requests of a run are due within the time that the rate gives, for any seed."""
    for seed in range(20):
        times = arrival_times(4.0, arrival, 4.0, count, seed)
        assert len(times) == count and times == sorted(times) and times[0] > 0.0
        assert times[-1] <= count / 4.0 + 1e-9
    means = [statistics.fmean(arrival_times(4.0, "poisson", 1.0, 100, seed)) for seed in range(200)]
    assert statistics.fmean(means) == pytest.approx(12.5, rel=0.02), "spread evenly over the time"
