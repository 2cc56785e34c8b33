"""The counters of the host's CPUs, as the kernel writes them, and where it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from swarmtui.telemetry.host import process_family, read_host

PRESSURE = (
    "some avg10=95.50 avg60=74.75 avg300=40.78 total=8943756205\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
)
STAT = "cpu  100 20 30 800 5 0 5 40 10 0\ncpu0 50 10 15 400 2 0 2 20 5 0\nintr 1\n"


def test_pressure_and_steal_are_read(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/cpu").write_text(PRESSURE)
    (tmp_path / "stat").write_text(STAT)
    found = read_host(proc=tmp_path)
    assert (found.pressure_us, found.steal_ticks, found.ticks) == (8943756205, 40, 1000)
    assert found.waited_ns is None


def test_the_thread_that_waited_longest_stands_for_its_process(tmp_path: Path) -> None:
    for pid, thread, text in (("7", "7", "100 10 3"), ("7", "8", "200 20 1"), ("9", "9", "1000 300 1")):
        (tmp_path / pid / "task" / thread).mkdir(parents=True)
        (tmp_path / pid / "task" / thread / "schedstat").write_text(f"{text}\n")
    found = read_host((7, 9, 11), proc=tmp_path)
    assert found.waited_ns == 320
    assert (found.pressure_us, found.steal_ticks, found.ticks) == (None, None, None)


def test_other_text_is_not_a_counter(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/cpu").write_text("")
    (tmp_path / "stat").write_text("cpu 1 2\n")
    found = read_host(proc=tmp_path)
    assert (found.pressure_us, found.steal_ticks, found.ticks) == (None,) * 3


def test_this_host_reports_its_ticks() -> None:
    first, later = read_host((os.getpid(),)), read_host((os.getpid(),))
    assert first.ticks is not None and later.ticks is not None and 0 < first.ticks <= later.ticks
    assert later.t_ns > first.t_ns


def test_processes_that_a_server_started_belong_to_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert set(process_family([os.getpid()])) >= {os.getpid(), child.pid}
        assert child.stdin is not None
        child.stdin.write(b"\n")
    assert process_family([2**22 + 1]) == [2**22 + 1]
