"""A closed level of the default size gives the figures of a long one, on average over fixed seeds."""

from __future__ import annotations

import statistics

import pytest

from tests.bench.load_shape import FIGURES, SHAPES, Shape, figures, long_run, simulate, simulate_level
from tests.seeds.virtual_session import Freeze, simulate_sweep


@pytest.mark.parametrize("c", [4, 50])
def test_default_number_of_requests_is_enough(c: int) -> None:
    truth = long_run(c, 200, each=15)
    short = zip(*(simulate_level(c, seed) for seed in range(10, 15)), strict=True)
    means = dict(zip(FIGURES, map(statistics.fmean, short), strict=True))
    for name, true in zip(FIGURES, truth, strict=True):
        assert means[name] == pytest.approx(true, rel=0.015), name


@pytest.mark.parametrize("c", [5, 8])
def test_half_width_of_a_level_that_queues_does_not_count_the_waiting(c: int) -> None:
    """Four slots give the same rate whoever waits for them; the cycles of single streams differ by half."""
    queue = Shape("moe-tp1?slots=4&output.median=100&output.cv=0.5", "chat", {})
    level, _ = simulate(c, 5, shape=queue)
    assert level.half_width is not None and level.half_width < 0.1


@pytest.mark.parametrize(("name", "c"), [("8-32 tokens", 64), ("cv1.5", 8), ("errors, EOS", 1)])
def test_half_width_holds_the_rate_of_a_long_level(name: str, c: int) -> None:
    """All streams share the steps of the server; the goal is 95 %, of which 10 seeds may miss one more."""
    shape = SHAPES[name]
    truth, levels = long_run(c, 200, shape, each=15)[0], [simulate(c, seed, shape=shape)[0] for seed in range(10)]
    held = [abs((one.out_tps_steady or 0.0) - truth) <= (one.out_tps_steady_hw or 0.0) for one in levels]
    assert statistics.fmean(held) >= 0.8
    assert statistics.fmean(one.half_width or 1.0 for one in levels) < 0.05


def test_first_tokens_of_equal_lengths_are_those_of_a_long_level() -> None:
    """The window opens when no request of the pre-roll waits behind the prompts of others."""
    shape, c = SHAPES["fixed 1k/256"], 32
    ttft = statistics.fmean(figures(simulate(c, seed, shape=shape)[0])[2] for seed in (32_000, 32_001, 32_002))
    assert ttft == pytest.approx(figures(simulate(c, 1, 10 * c, shape)[0])[2], rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_a_server_that_stops_while_requests_queue_is_named(seconds: float) -> None:
    """Those that wait for a slot are not being read, and do not explain that no stream receives anything."""
    server, stop = "moe-tp1?slots=4&output.median=150&output.cv=0.5", Freeze(1, 0.5, seconds)
    for seed in range(2):
        (level,) = simulate_sweep(server, "chat", (8,), seed=seed, freeze=stop)
        assert {silence.kind for silence in level.silences} == ({"frozen"} if seconds else set())
