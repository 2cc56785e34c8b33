"""A closed level of the default size gives the figures of a long one, on average over fixed seeds."""

from __future__ import annotations

import statistics

import pytest

from tests.bench.load_shape import FIGURES, Shape, long_run, simulate, simulate_level


@pytest.mark.parametrize("c", [4, 50])
def test_default_number_of_requests_is_enough(c: int) -> None:
    truth = long_run(c, requests=1000)
    short = zip(*(simulate_level(c, seed) for seed in range(10, 18)), strict=True)
    means = dict(zip(FIGURES, map(statistics.fmean, short), strict=True))
    for name, true in zip(FIGURES, truth, strict=True):
        assert means[name] == pytest.approx(true, rel=0.015), name


@pytest.mark.parametrize("c", [5, 8])
def test_half_width_of_a_level_that_queues_does_not_count_the_waiting(c: int) -> None:
    """Four slots give the same rate whoever waits for them; the cycles of single streams differ by half."""
    queue = Shape("moe-tp1?slots=4&output.median=100&output.cv=0.5", "chat", {})
    level, _ = simulate(c, 5, shape=queue)
    assert level.half_width is not None and level.half_width < 0.1
