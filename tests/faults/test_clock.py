"""Wall clocks that jump, and machines that sleep: stamps stay monotonic, and the jump is told."""

from __future__ import annotations

import os
import signal
import time

import pytest

from swarmtui.loadgen import clock
from tests.cli.programs import Place, until
from tests.cli.scripted import scripted, words

HOUR_NS = 3_600_000_000_000


class FakeWallClock:
    """The wall clock, `ahead` of the true one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shift_ns = 0
        self._true = time.time_ns
        monkeypatch.setattr(time, "time_ns", self.now)

    def now(self) -> int:
        return self._true() + self.shift_ns


def convert(kernel: clock.KernelClock, stamp: int) -> int:
    """As a connection does it."""
    t = stamp - kernel.offset
    return t if kernel.low < t < kernel.high else kernel.recheck(t)


@pytest.mark.parametrize("jump", [HOUR_NS, -HOUR_NS, 500_000_000, -500_000_000])
def test_a_stamp_read_right_after_a_jump_is_as_good_as_any(monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    wall = FakeWallClock(monkeypatch)
    kernel = clock.KernelClock()
    wall.shift_ns = jump
    before = clock.monotonic_ns()
    t = convert(kernel, wall.now())
    assert before - 1_000_000 <= t <= clock.monotonic_ns()
    assert kernel.steps == 1
    kernel.resync()
    assert kernel.steps == 1


@pytest.mark.parametrize("jump", [HOUR_NS, -HOUR_NS])
def test_a_stamp_made_before_a_jump_and_read_behind_it_is_never_an_hour_off(
    monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    wall = FakeWallClock(monkeypatch)
    kernel = clock.KernelClock()
    stamp = wall.now()
    made = clock.monotonic_ns()
    wall.shift_ns = jump
    kernel.resync()
    assert made - 1_000_000 <= convert(kernel, stamp) <= clock.monotonic_ns()


def test_what_waited_while_the_reader_slept_keeps_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = FakeWallClock(monkeypatch)
    kernel = clock.KernelClock()
    before, stamp, after = clock.monotonic_ns(), wall.now(), clock.monotonic_ns()
    slept = 5_000_000_000
    assert before - 1_000_000 <= convert(kernel, stamp - slept) + slept <= after + 1_000_000
    assert kernel.steps == 0


def test_slewing_is_no_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = FakeWallClock(monkeypatch)
    kernel = clock.KernelClock()
    for _ in range(100):
        wall.shift_ns += 50_000
        kernel.resync()
    assert kernel.steps == 0


def test_everything_asleep_for_a_while_and_awake_again(place: Place) -> None:
    """As a laptop that is closed, but for the clock: no time limit that passed in sleep ends a stream."""
    with scripted(words(20, gap_s=0.02)) as server:
        face = place.begin(
            server.url, "--levels", "4", "--requests", "24", "--warmup", "none", "--no-gpu", "--idle-timeout", "1s"
        )
        until(lambda: len(server.completed) >= 6, "some answers")
        pids = [process.pid for process in place.processes()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.8)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        ran = face.wait()
    assert ran.code == 0, ran
    (level,) = place.shown()["levels"]
    assert (level["ok"], level["errors"]) == (24, 0)
