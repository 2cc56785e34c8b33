"""Clock changes and suspension: stamps stay monotonic, and clock steps are counted."""

from __future__ import annotations

import os
import signal
import time

import pytest

from swarmtui.loadgen import clock
from tests.cli.programs import Sandbox, wait_until
from tests.cli.scripted_server import respond_with_words, scripted_server

HOUR_NS = 3_600_000_000_000


class FakeWallClock:
    """Replaces the wall clock by one that is `shift_ns` ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shift_ns = 0
        self._true = time.time_ns
        monkeypatch.setattr(time, "time_ns", self.now)

    def now(self) -> int:
        return self._true() + self.shift_ns


def convert(kernel: clock.KernelClock, stamp: int) -> int:
    """Convert a kernel stamp as a connection does."""
    t = stamp - kernel.offset
    return t if kernel.low < t < kernel.high else kernel.recheck(t)


@pytest.mark.parametrize("jump", [HOUR_NS, -HOUR_NS, 500_000_000, -500_000_000])
def test_stamp_after_a_clock_step_is_exact(monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    wall = FakeWallClock(monkeypatch)
    kernel = clock.KernelClock()
    wall.shift_ns = jump
    before, age = time.perf_counter_ns(), 10_000_000
    t = convert(kernel, wall.now() - age)
    assert before - 1_000_000 <= t + age <= time.perf_counter_ns() + 1_000_000
    assert kernel.steps == 1
    kernel.resync()
    assert kernel.steps == 1


@pytest.mark.parametrize("jump", [HOUR_NS, -HOUR_NS])
def test_stamp_from_before_a_clock_step_is_corrected(monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    wall = FakeWallClock(monkeypatch)
    kernel = clock.KernelClock()
    stamp = wall.now()
    made = time.perf_counter_ns()
    wall.shift_ns = jump
    kernel.resync()
    assert made - 1_000_000 <= convert(kernel, stamp) <= time.perf_counter_ns()


def test_stamp_read_after_suspension_keeps_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = FakeWallClock(monkeypatch)
    kernel = clock.KernelClock()
    before, stamp, after = time.perf_counter_ns(), wall.now(), time.perf_counter_ns()
    slept = 5_000_000_000
    assert before - 1_000_000 <= convert(kernel, stamp - slept) + slept <= after + 1_000_000
    assert kernel.steps == 0


def test_offset_is_that_of_the_tightest_bracket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is interrupted within all other brackets, so that their middle is not when the clock was read."""
    times = [1_000]
    for bracket in (4_000_000, 2_000_000, 20, 1_000_000, 3_000_000):
        times += [times[-1] + 1_000, times[-1] + 1_000 + bracket]
    readings = iter([*times[1:], times[-1]])
    last = 0

    def perf_counter_ns() -> int:
        nonlocal last
        last = next(readings)
        return last

    monkeypatch.setattr(clock, "perf_counter_ns", perf_counter_ns)
    monkeypatch.setattr(time, "time_ns", lambda: last + 10 + HOUR_NS)
    assert clock.KernelClock().offset == HOUR_NS


def test_slewing_is_not_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = FakeWallClock(monkeypatch)
    kernel = clock.KernelClock()
    for _ in range(100):
        wall.shift_ns += 50_000
        kernel.resync()
    assert kernel.steps == 0


def test_suspension_does_not_cause_timeouts(sandbox: Sandbox) -> None:
    """All processes are stopped for longer than the idle timeout, as when a laptop is closed."""
    with scripted_server(respond_with_words(20, gap_s=0.02)) as server:
        command = sandbox.start_benchmark(
            server.url,
            "--levels",
            "4",
            "--requests",
            "24",
            "--complete",
            "--warmup",
            "none",
            "--no-gpu",
            "--idle-timeout",
            "2s",
        )
        wait_until(lambda: len(server.completed) >= 6, "some responses")
        pids = [process.pid for process in sandbox.processes()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2.8)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        ran = command.wait()
    assert ran.code == 0, ran
    (level,) = sandbox.show_session()["levels"]
    assert (level["ok"], level["errors"]) == (24, 0)


def test_stamps_of_the_last_moments_need_no_recheck() -> None:
    kernel = clock.KernelClock()
    now = time.perf_counter_ns()
    assert kernel.low < now - 100_000_000 and now + 100_000_000 < kernel.high
