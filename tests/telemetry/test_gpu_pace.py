"""GPUs are looked at four times a second, and never take more of a core than they may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from swarmtui.telemetry.gpu.cadence import SHARE, Depth, Pace

# One H200, and eight.
COSTS = {Depth.MOVING: 0.00006, Depth.STATE: 0.00016, Depth.WHOLE: 0.0034}
EIGHT = {Depth.MOVING: 0.0005, Depth.STATE: 0.0013, Depth.WHOLE: 0.028}


def follow(seconds: float, cost: Callable[[Depth], float]) -> tuple[Counter[Depth], float]:
    """What was looked at, and the CPU that it took, with looks that cost so much."""
    pace, now, spent, looks = Pace(), 0.0, 0.0, Counter[Depth]()
    while now < seconds:
        depth = pace.depth(now)
        looks[depth] += 1
        spent += cost(depth)
        now += cost(depth) + pace.pause(cost(depth), cost(depth))
    return looks, spent


def test_four_looks_a_second_and_every_other_with_the_counter() -> None:
    looks, spent = follow(60.0, COSTS.__getitem__)
    assert looks == {Depth.MOVING: 120, Depth.WHOLE: 120} and spent / 60.0 < 0.01


def test_with_many_gpus_only_the_dear_counter_is_read_less_often() -> None:
    looks, spent = follow(60.0, EIGHT.__getitem__)
    assert looks.total() == 240 and spent / 60.0 < SHARE
    assert 20 <= looks[Depth.WHOLE] <= 30


def test_a_counter_that_is_never_affordable_leaves_the_rest_alive() -> None:
    looks, _ = follow(60.0, lambda depth: 0.2 if depth == Depth.WHOLE else 0.0001)
    assert looks[Depth.MOVING] > 30 and looks[Depth.STATE] > 3 and looks[Depth.WHOLE] > 2


@pytest.mark.parametrize("times", [20.0, 200.0])
def test_a_slow_driver_is_read_less_often(times: float) -> None:
    looks, spent = follow(3600.0, lambda depth: times * EIGHT[depth])
    assert looks.total() < 4 * 3600
    assert spent / 3600.0 == pytest.approx(SHARE, rel=0.05)
