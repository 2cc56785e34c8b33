"""The counters of the host's CPUs, as the kernel writes them, and where it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swarmtui.model.telemetry import ProgramTimes
from swarmtui.telemetry import host
from swarmtui.telemetry.host import HostReader, process_family

PRESSURE = (
    "some avg10=95.50 avg60=74.75 avg300=40.78 total=8943756205\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
)
STAT = "cpu  100 20 30 800 5 0 5 40 10 0\ncpu0 50 10 15 400 2 0 2 20 5 0\nintr 1\n"


def test_pressure_and_steal_are_read(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/cpu").write_text(PRESSURE)
    (tmp_path / "stat").write_text(STAT)
    found = HostReader(proc=tmp_path).read()
    assert (found.pressure_us, found.steal_ticks, found.ticks) == (8943756205, 40, 1000)
    assert found.waited_ns is None


def test_the_thread_that_waited_longest_stands_for_its_process(tmp_path: Path) -> None:
    for pid, thread, text in (("7", "7", "100 10 3"), ("7", "8", "200 20 1"), ("9", "9", "1000 300 1")):
        (tmp_path / pid / "task" / thread).mkdir(parents=True)
        (tmp_path / pid / "task" / thread / "schedstat").write_text(f"{text}\n")
    found = HostReader((7, 9, 11), proc=tmp_path).read()
    assert found.waited_ns == 320
    assert (found.pressure_us, found.steal_ticks, found.ticks) == (None, None, None)


def test_other_text_is_not_a_counter(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/cpu").write_text("")
    (tmp_path / "stat").write_text("cpu 1 2\n")
    found = HostReader(proc=tmp_path).read()
    assert (found.pressure_us, found.steal_ticks, found.ticks) == (None,) * 3


def test_this_host_reports_its_ticks() -> None:
    reader = HostReader((os.getpid(),))
    first, later = reader.read(), reader.read()
    assert first.ticks is not None and later.ticks is not None and 0 < first.ticks <= later.ticks
    assert later.t_ns > first.t_ns


def test_processes_that_a_server_started_belong_to_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert process_family([os.getpid()]) >= {os.getpid(), child.pid}
        assert child.stdin is not None
        child.stdin.write(b"\n")
    assert process_family([2**22 + 1]) == {2**22 + 1}


def write_processes(proc: Path, busy_ticks: int, *processes: Any) -> None:
    """Write what the kernel says of processes: id, name, parent, own ticks, those of ended children, command line."""
    for old in proc.glob("[0-9]*"):
        shutil.rmtree(old)
    (proc / "stat").write_text(f"cpu  {busy_ticks} 0 0 500 0 9 9 0 0 0\n")
    for pid, name, parent, own, children, *command in processes:
        (proc / str(pid)).mkdir()
        stat = f"{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 {own} 0 {children} 0 20 0 1 0 {1000 + pid} 0 0"
        (proc / str(pid) / "stat").write_text(stat)
        (proc / str(pid) / "cmdline").write_text("".join(command))


def read_twice(proc: Path, before: tuple[int, list[Any]], after: tuple[int, list[Any]], **which: Any) -> ProgramTimes:
    write_processes(proc, before[0], *before[1])
    reader = HostReader(proc=proc, **which)
    assert reader.read().programs is not None
    write_processes(proc, after[0], *after[1])
    found = reader.read(all_processes=True).programs
    assert found is not None
    return found


def test_ours_and_the_servers_are_no_other_programs(tmp_path: Path) -> None:
    us = os.getpid()

    def processes(seconds: int) -> list[Any]:
        used = 100 * seconds
        return [
            (us, "python", 1, used, 0),
            (us + 1, "worker", us, used, 0),
            (us + 2, "app", 1, used, 0),
            (us + 3, "vllm", 1, used, 0),
            (us + 4, "VLLM::EngineCor", us + 3, used, 0),
            (us + 5, "a (b) c", 1, used, 0),
        ]

    found = read_twice(
        tmp_path, (1000, processes(1)), (2000, processes(2)), servers=(us + 3,), clients=lambda: (us + 2,)
    )
    assert found.by_name == pytest.approx({"a (b) c": 1.0})
    assert found.others_s == pytest.approx(5.0), "programs that nobody saw used CPU time, too"
    assert found.cpus == os.cpu_count(), "they may use all CPUs, also if we may use only some"


@pytest.mark.parametrize(
    ("name", "command", "said"),
    [
        ("python3", ["python3", "/home/zq/my work/train.py", "--key", "zqsecret"], "python3 train.py"),
        ("python3.12", ["python3.12", "-u", "-W", "ignore", "zqpath/train.py", "zqsecret.py"], "python3.12 train.py"),
        ("python", ["python", "-m", "http.server", "zqsecret"], "python -m http.server"),
        ("pt_main_thread", ["/usr/bin/python", "finetune"], "pt_main_thread finetune"),
        ("python3", ["python3", "-c", "login('zqsecret')"], "python3"),
        ("python3", ["python3: login zqsecret"], "python3"),
        ("bash", ["bash", "-lc", "TOKEN=zqsecret make"], "bash"),
        ("bash", ["/bin/bash", "/opt/backup", "zqsecret"], "bash backup"),
        ("bash", ["bash", "./serve.sh", "2"], "bash serve.sh"),
        ("bash", ["bash", "/dev/fd/3"], "bash"),
        ("zsh", ["zsh", "/proc/self/fd/11"], "zsh"),
        ("node", ["node", "--key=zqsecret", "server.mjs"], "node server.mjs"),
        ("perl", ["perl", "-ne", "print if /zqsecret/"], "perl"),
        ("python3", ["python3", "a\x1b[31m\nb.py"], "python3 a b.py"),
        ("cc1", ["cc1", "zqsecret.c"], "cc1"),
    ],
)
def test_an_interpreter_is_named_with_its_script_and_nothing_else_of_its_command(
    tmp_path: Path, name: str, command: list[str], said: str
) -> None:
    us, text = os.getpid(), "".join(f"{part}\0" for part in command)

    def processes(ticks: int) -> list[Any]:
        return [(us, "python", 1, 0, 0), (7, name, 1, ticks, 0, text)]

    found = read_twice(tmp_path, (0, processes(0)), (100, processes(100)), servers=())
    assert found.by_name == pytest.approx({said: 1.0}) and found.pids == {said: 7}


def test_a_server_in_python_is_told_from_a_program_in_python(tmp_path: Path) -> None:
    us = os.getpid()

    def processes(seconds: int) -> list[Any]:
        used = 100 * seconds
        return [
            (us, "python3", 1, used, 0, "python3\0-m\0swarmtui.session_process\0"),
            (us + 1, "python3", 1, used, 0, "python3\0/usr/bin/swarmtui\0"),
            (us + 2, "python3", 1, used, 0, "python3\0serve.py\0"),
            (us + 3, "python3", us + 2, used, 0, "python3\0-c\0engine\0"),
            (us + 4, "python3", 1, used, 0, "python3\0train.py\0"),
        ]

    found = read_twice(tmp_path, (0, processes(1)), (500, processes(2)), servers=(us + 2,), clients=lambda: (us + 1,))
    assert found.by_name == pytest.approx({"python3 train.py": 1.0}) and found.pids == {"python3 train.py": us + 4}
    assert found.others_s == pytest.approx(1.0)


def test_several_processes_of_one_program_are_added_and_have_no_pid(tmp_path: Path) -> None:
    write_processes(tmp_path, 0, (os.getpid(), "python", 1, 0, 0))
    reader = HostReader(proc=tmp_path, servers=())
    reader.read()
    for pid in (7, 8, 8):
        write_processes(tmp_path, 0, (os.getpid(), "python", 1, 0, 0), (pid, "cc1", 1, 100, 0), (9, "make", 1, pid, 0))
        found = reader.read(all_processes=True).programs
        assert found is not None and found.pids["cc1"] == (7 if pid == 7 else None) and found.pids["make"] == 9
    assert found is not None and found.by_name["cc1"] == pytest.approx(2.0)


def test_children_that_have_ended_belong_to_those_who_started_them(tmp_path: Path) -> None:
    us = os.getpid()
    before = [(us, "python", 1, 100, 0), (us + 1, "worker", us, 300, 0), (us + 2, "make", 1, 0, 50)]
    after = [(us, "python", 1, 120, 400), (us + 2, "make", 1, 0, 250)]
    found = read_twice(tmp_path, (1000, before), (1420, after), servers=())
    assert found.by_name == pytest.approx({"make": 2.0})
    assert found.others_s == pytest.approx(4.2 - 1.2), "100 of the 400 ticks were used after the first reading"


def test_what_a_process_used_before_it_ended_is_not_counted_again(tmp_path: Path) -> None:
    """A shell waits for a program that has waited for its own children: all their time becomes that of the shell."""
    us = os.getpid()
    before = [(us, "python", 1, 0, 0), (7, "bash", 1, 0, 0), (8, "pytest", 7, 500, 0), (9, "worker", 8, 2000, 0)]
    found = read_twice(tmp_path, (2500, before), (2500, [(us, "python", 1, 0, 0), (7, "bash", 1, 0, 2500)]), servers=())
    assert found.by_name == {} and found.others_s == 0.0


def test_what_orphans_used_is_no_work_of_the_first_process(tmp_path: Path) -> None:
    """It waits for a build that nobody saw, since it began and ended between the readings."""
    us = os.getpid()
    before, after = ([(1, "init", 0, own, orphans), (us, "python", 1, 0, 0)] for own, orphans in ((10, 0), (110, 9000)))
    assert read_twice(tmp_path, (0, before), (9100, after), servers=()).by_name == pytest.approx({"init": 1.0})


def test_idle_programs_are_not_listed(tmp_path: Path) -> None:
    us = os.getpid()
    idle = [(us, "python", 1, 0, 0), (7, "kdamond.0", 2, 9, 0)]
    assert read_twice(tmp_path, (0, idle), (0, idle), servers=()).by_name == {}
    queues = [(us, "python", 1, 0, 0), (8, "kworker/0:1", 2, 100, 0), (9, "kworker/1:1", 2, 100, 0)]
    assert read_twice(tmp_path, (0, idle), (0, queues), servers=()).by_name == pytest.approx({"kworker": 2.0})


def test_programs_are_not_read_if_a_server_here_is_not_known(tmp_path: Path) -> None:
    write_processes(tmp_path, 100, (7, "vllm", 1, 100, 0))
    assert HostReader(servers=None, proc=tmp_path).read().programs is None


def test_thousands_of_processes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_MAX_PROCESSES", 1)
    write_processes(tmp_path, 100, (7, "vllm", 1, 100, 0), (8, "make", 1, 100, 0))
    assert HostReader(servers=(), proc=tmp_path).read().programs is None


def test_all_processes_are_read_seldom(tmp_path: Path) -> None:
    write_processes(tmp_path, 100, (7, "make", 1, 100, 0))
    reader = HostReader(servers=(), proc=tmp_path)
    first, second = reader.read().programs, reader.read().programs
    assert first is not None and second is first
    assert reader.read(all_processes=True).programs is not first
