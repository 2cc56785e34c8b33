"""GPUs are looked at four times a second, and never take more of a core than they may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from swarmtui.telemetry.gpu_pace import SHARE, Depth, Pace

COSTS = {Depth.MOVING: 0.001, Depth.COUNTERS: 0.005, Depth.WHOLE: 0.030}


def follow(seconds: float, cost: Callable[[Depth], float]) -> tuple[Counter[Depth], float]:
    """What was looked at, and the CPU that it took, with looks that cost so much."""
    pace, now, spent, looks = Pace(), 0.0, 0.0, Counter[Depth]()
    while now < seconds:
        depth = pace.depth(now)
        looks[depth] += 1
        spent += cost(depth)
        now += cost(depth) + pace.pause(cost(depth), cost(depth))
    return looks, spent


def test_four_looks_a_second_one_with_counters_and_a_whole_one_every_five() -> None:
    looks, _ = follow(60.0, lambda depth: 0.0)
    assert looks == {Depth.MOVING: 180, Depth.COUNTERS: 48, Depth.WHOLE: 12}


def test_a_deep_look_does_not_delay_the_next_where_the_mean_is_low() -> None:
    looks, spent = follow(60.0, COSTS.__getitem__)
    assert looks.total() == 240 and spent / 60.0 < SHARE


@pytest.mark.parametrize("times", [4.0, 40.0])
def test_a_slow_driver_is_read_less_often(times: float) -> None:
    looks, spent = follow(3600.0, lambda depth: times * COSTS[depth])
    assert looks.total() < 4 * 3600
    assert spent / 3600.0 == pytest.approx(SHARE, rel=0.05)
