"""GPUs are read four times per second within a fixed share of a core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from swarmtui.telemetry.gpu.readers import CPU_SHARE, ReadCadence

# A fast and a full read of one H200, and of eight.
COSTS = {False: 0.00006, True: 0.0034}
EIGHT = {False: 0.0005, True: 0.028}


def simulate(seconds: float, cost: Callable[[bool], float]) -> tuple[Counter[bool], float]:
    """Return the number of fast and full reads, and their CPU time, if a read costs this much."""
    cadence, now, spent, reads = ReadCadence(), 0.0, 0.0, Counter[bool]()
    while now < seconds:
        full = cadence.next_is_full(now)
        reads[full] += 1
        spent += cost(full)
        now += cost(full) + cadence.pause(cost(full), cost(full))
    return reads, spent


def test_every_second_read_includes_energy() -> None:
    reads, spent = simulate(60.0, COSTS.__getitem__)
    assert reads == {False: 120, True: 120} and spent / 60.0 < 0.01


def test_with_many_gpus_only_energy_is_read_less_often() -> None:
    reads, spent = simulate(60.0, EIGHT.__getitem__)
    assert reads.total() == 240 and spent / 60.0 < CPU_SHARE
    assert 20 <= reads[True] <= 30


def test_expensive_energy_counter_does_not_block_other_reads() -> None:
    reads, _ = simulate(60.0, lambda full: 0.2 if full else 0.0001)
    assert reads[False] > 30 and reads[True] > 2


@pytest.mark.parametrize("times", [20.0, 200.0])
def test_slow_driver_is_read_less_often(times: float) -> None:
    reads, spent = simulate(3600.0, lambda full: times * EIGHT[full])
    assert reads.total() < 4 * 3600
    assert spent / 3600.0 == pytest.approx(CPU_SHARE, rel=0.05)
