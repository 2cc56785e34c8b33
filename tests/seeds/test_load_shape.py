"""A closed level of the default size gives the figures of a long one, on average over fixed seeds."""

from __future__ import annotations

import statistics

import pytest

from tests.bench.load_shape import FIGURES, long_run, simulate_level


@pytest.mark.parametrize("c", [4, 50])
def test_default_number_of_requests_is_enough(c: int) -> None:
    truth = long_run(c, requests=1000)
    short = zip(*(simulate_level(c, seed) for seed in range(10, 18)), strict=True)
    means = dict(zip(FIGURES, map(statistics.fmean, short), strict=True))
    for name, true in zip(FIGURES, truth, strict=True):
        assert means[name] == pytest.approx(true, rel=0.015), name
