"""The p99 of the worker's read lag."""

from __future__ import annotations

from swarmtui.loadgen.frames import LoopLag


def test_one_outlier_in_a_thousand_samples_is_not_the_p99() -> None:
    lag, p99s = LoopLag(), []
    for frame in range(20):
        for sample in range(50):
            lag.add(9_000_000 if (frame, sample) == (10, 0) else 100_000)
        p99s.append(lag.p99_ns())
    assert p99s[-1] == 100_000


def test_all_samples_of_one_frame_count() -> None:
    lag = LoopLag()
    for sample in range(5000):
        lag.add(2_000_000 if sample < 100 else 100_000)
    assert lag.p99_ns() == 2_000_000
    assert lag.p99_ns() == 100_000


def test_first_sample_is_reported_immediately() -> None:
    lag = LoopLag()
    assert lag.p99_ns() == 0
    lag.add(5_000_000)
    assert lag.p99_ns() == 5_000_000
