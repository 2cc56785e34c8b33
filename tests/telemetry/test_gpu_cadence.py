"""GPUs are read four times per second within a fixed share of a core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from swarmtui.telemetry.gpu.cadence import CPU_SHARE, Depth, ReadCadence

# One H200, and eight.
COSTS = {Depth.FAST: 0.00006, Depth.STATE: 0.00016, Depth.FULL: 0.0034}
EIGHT = {Depth.FAST: 0.0005, Depth.STATE: 0.0013, Depth.FULL: 0.028}


def simulate(seconds: float, cost: Callable[[Depth], float]) -> tuple[Counter[Depth], float]:
    """Return the number of reads by depth and their CPU time, if a read costs this much."""
    cadence, now, spent, reads = ReadCadence(), 0.0, 0.0, Counter[Depth]()
    while now < seconds:
        depth = cadence.next_depth(now)
        reads[depth] += 1
        spent += cost(depth)
        now += cost(depth) + cadence.pause(cost(depth), cost(depth))
    return reads, spent


def test_every_second_read_includes_energy() -> None:
    reads, spent = simulate(60.0, COSTS.__getitem__)
    assert reads == {Depth.FAST: 120, Depth.FULL: 120} and spent / 60.0 < 0.01


def test_with_many_gpus_only_energy_is_read_less_often() -> None:
    reads, spent = simulate(60.0, EIGHT.__getitem__)
    assert reads.total() == 240 and spent / 60.0 < CPU_SHARE
    assert 20 <= reads[Depth.FULL] <= 30


def test_expensive_energy_counter_does_not_block_other_reads() -> None:
    reads, _ = simulate(60.0, lambda depth: 0.2 if depth == Depth.FULL else 0.0001)
    assert reads[Depth.FAST] > 30 and reads[Depth.STATE] > 3 and reads[Depth.FULL] > 2


@pytest.mark.parametrize("times", [20.0, 200.0])
def test_slow_driver_is_read_less_often(times: float) -> None:
    reads, spent = simulate(3600.0, lambda depth: times * EIGHT[depth])
    assert reads.total() < 4 * 3600
    assert spent / 3600.0 == pytest.approx(CPU_SHARE, rel=0.05)
