from __future__ import annotations

from swarmtui.loadgen.worker import LoopLag


def test_one_late_look_in_a_thousand_is_no_p99_however_often_it_is_asked_for() -> None:
    lags, told = LoopLag(), []
    for frame in range(20):
        for look in range(50):
            lags.add(9_000_000 if (frame, look) == (10, 0) else 100_000)
        told.append(lags.p99_ns())
    assert told[-1] == 100_000


def test_many_looks_of_one_frame_all_count() -> None:
    lags = LoopLag()
    for look in range(5000):
        lags.add(2_000_000 if look < 100 else 100_000)
    assert lags.p99_ns() == 2_000_000
    assert lags.p99_ns() == 100_000


def test_a_loop_that_is_always_late_is_told_so_at_once() -> None:
    lags = LoopLag()
    assert lags.p99_ns() == 0
    lags.add(5_000_000)
    assert lags.p99_ns() == 5_000_000
