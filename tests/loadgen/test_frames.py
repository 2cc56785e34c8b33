"""The p99 of the worker's read lag, and the sleep before each poll."""

from __future__ import annotations

import pytest

from swarmtui.loadgen.frames import LoopLag, poll_delay_s


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


@pytest.mark.parametrize(
    ("streams", "rate", "cpu_share", "delay_ms"),
    [
        (4, 680, 0.02, 0.0),  # few chunks: each is read when it arrives
        (256, 12_800, 0.0, 4.0),  # never longer than this
        (1000, 50_000, 0.5, 2.5),  # half a core: sleeping and reading together take a quarter of 20 ms
        (64, 25_600, 0.2, 0.5),
        (1000, 50_000, 1.2, 0.0),  # no time to sleep
    ],
)
def test_sleep_and_reads_take_a_quarter_of_the_gap(
    streams: int, rate: float, cpu_share: float, delay_ms: float
) -> None:
    assert poll_delay_s(streams, rate, cpu_share) * 1e3 == pytest.approx(delay_ms)
