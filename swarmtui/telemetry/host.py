"""Read how busy this host is: how long tasks wait for a CPU, and which programs use the CPUs."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

from swarmtui.model.telemetry import HostLoad, ProgramTimes
from swarmtui.text import sanitize, truncate

_PROC = Path("/proc")
# Reading all processes takes about 20 µs for each: it is done so seldom that it takes at most 0.2 % of a core, but at
# least every five seconds; not at all if there are too many.
_MIN_PAUSE_S, _MAX_PAUSE_S, _PAUSE_PER_CPU_S = 1.0, 5.0, 500.0
_MAX_PROCESSES = 2000
# A program counts as busy from this many cores on.
_BUSY_CORES = 0.02
# The first process, and the parent of all threads of the kernel.
_INIT, _KERNEL = 1, 2
_HZ = os.sysconf("SC_CLK_TCK")
# Programs that run scripts, as the kernel names them; PyTorch names the main thread of its process.
_INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|node|bun|deno|php|lua|julia|R|Rscript|java|bash|dash|fish|ksh|sh|zsh)[\d.]*|pt_main_thread"
)
_SCRIPT = re.compile(r"[\w.+-]+\.(?:py|pyz|pl|rb|[cm]?[jt]s|php|lua|jl|[rR]|jar|sh|bash|fish|ksh|zsh)")
_MODULE = re.compile(r"[\w.]+")
_MAX_OPTIONS, _LONGEST_NAME = 8, 40


class HostReader:
    """Reads the counters of this host, and now and then those of all its processes.

    `pids` are the processes whose waiting counts, `servers` those of servers here, null if one of them is not known:
    then other programs cannot be told from it. `clients` returns the processes that show the session. These, the
    servers, this process and all that servers and this process started are no other programs.
    """

    def __init__(
        self,
        pids: Collection[int] = (),
        servers: Collection[int] | None = None,
        clients: Callable[[], Collection[int]] = tuple,
        proc: Path = _PROC,
    ) -> None:
        self._pids, self._servers, self._clients, self._proc = pids, servers, clients, proc
        self._processes: dict[int, _Process] | None = None
        self._programs: ProgramTimes | None = None
        self._busy_s = 0.0
        self._due_ns = 0

    def read(self, *, all_processes: bool = False) -> HostLoad:
        """Read the counters, and `all_processes` also if they are not due; null is not reported."""
        t_ns = time.perf_counter_ns()
        ticks = _cpu_ticks(self._proc)
        if self._servers is not None and (all_processes or t_ns >= self._due_ns):
            cpu_s = time.thread_time()
            self._read_programs(t_ns, ticks, self._servers)
            pause_s = _PAUSE_PER_CPU_S * (time.thread_time() - cpu_s)
            self._due_ns = t_ns + round(1e9 * min(_MAX_PAUSE_S, max(_MIN_PAUSE_S, pause_s)))
        return HostLoad(
            t_ns=t_ns,
            pressure_us=_pressure_us(self._proc),
            waited_ns=_waited_ns(self._pids, self._proc),
            steal_ticks=ticks[7] if ticks else None,
            ticks=sum(ticks) if ticks else None,
            programs=self._programs,
        )

    def _read_programs(self, t_ns: int, ticks: Sequence[int], servers: Collection[int]) -> None:
        """Add what programs used since the last time: what neither we nor the servers used, others did."""
        now = _read_processes(self._proc, _MAX_PROCESSES)
        if not ticks or not now:
            self._servers = self._programs = None
            return
        # Interrupts serve any program.
        busy_s = sum(ticks[:3]) / _HZ
        earlier, last = self._processes, self._programs
        self._processes = now
        if earlier is None or last is None:
            self._programs = ProgramTimes(t_ns=t_ns, cpus=os.cpu_count() or 1, others_s=0.0)
            self._busy_s = busy_s
            return
        ours = {*_descendants([os.getpid(), *servers], now), *self._clients()}
        used_s: defaultdict[str, dict[int, float]] = defaultdict(dict)
        own_s = 0.0
        for pid, seconds in _used_s(earlier, now).items():
            if pid in ours:
                own_s += seconds
            elif seconds > 0:
                used_s[_with_script(now[pid].program, pid, self._proc)][pid] = seconds
        least_s = _BUSY_CORES * (t_ns - last.t_ns) / 1e9
        by_name, pids = dict(last.by_name), dict(last.pids)
        for name, by_pid in used_s.items():
            if sum(by_pid.values()) >= least_s:
                by_name[name] = by_name.get(name, 0.0) + sum(by_pid.values())
                seen = {*by_pid, pids[name]} if name in pids else {*by_pid}
                pids[name] = seen.pop() if len(seen) == 1 else None
        others_s = last.others_s + busy_s - self._busy_s - own_s
        self._programs = ProgramTimes(t_ns=t_ns, cpus=last.cpus, others_s=others_s, by_name=by_name, pids=pids)
        self._busy_s = busy_s


class _Process(NamedTuple):
    """A process: its CPU time is that of its threads and of the children that it has waited for.

    The first process waits for those whose parents have ended: what they used is not its work.
    """

    program: str
    parent: int
    started: int
    cpu_s: float


def _read_processes(proc: Path, most: float = inf) -> dict[int, _Process]:
    """Read all processes; empty if they are too many."""
    pids = [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    found = dict[int, _Process]()
    if len(pids) > most:
        return found
    for pid in pids:
        # A process may end meanwhile.
        with suppress(OSError, ValueError, IndexError):
            name, _, rest = (proc / f"{pid}/stat").read_bytes().partition(b"(")[2].rpartition(b") ")
            fields = rest.split()
            parent, ticks = int(fields[1]), sum(map(int, fields[11 : 13 if pid == _INIT else 15]))
            # The work queues of the kernel have one name for each CPU.
            program = name.partition(b"/")[0] if parent == _KERNEL else name
            found[pid] = _Process(sanitize(program.decode(errors="replace")), parent, int(fields[19]), ticks / _HZ)
    return found


def _with_script(program: str, pid: int, proc: Path) -> str:
    """Return the name of a program, with the file name of its script if it is an interpreter: `python3 train.py`.

    Nothing else of its command line is returned: arguments, and code after -c, may hold keys.
    """
    if not _INTERPRETER.fullmatch(program):
        return program
    arguments: list[str] = []
    with suppress(OSError):
        arguments = (proc / f"{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[1:]
    for n, argument in enumerate(arguments[:_MAX_OPTIONS]):
        name = sanitize(argument.rpartition("/")[2])
        # The number of a descriptor says nothing: `bash <(curl …)` runs /dev/fd/63.
        if argument == "-c" or not name or argument.startswith(("/dev/", "/proc/")):
            break
        if argument == "-m" and _MODULE.fullmatch("".join(arguments[n + 1 : n + 2])):
            return f"{program} -m {arguments[n + 1]}"
        # An argument after an option may be its value: then only the ending tells that it is a script.
        if not argument.startswith("-") and (n == 0 or _SCRIPT.fullmatch(name)):
            return f"{program} {truncate(name, _LONGEST_NAME)}"
    return program


def _used_s(earlier: Mapping[int, _Process], now: Mapping[int, _Process]) -> dict[int, float]:
    """Return the CPU time of each process between two readings, with that of children which ended in between.

    When a process has waited for a child, the time of the child is added to its own, also what was read before.
    """

    def ended(pid: int) -> bool:
        return pid in earlier and (pid not in now or now[pid].started != earlier[pid].started)

    used = {}
    for pid, process in now.items():
        before = earlier.get(pid)
        used[pid] = process.cpu_s - (before.cpu_s if before and before.started == process.started else 0.0)
    for pid, process in earlier.items():
        if ended(pid):
            # Those who started it may have ended as well: then the time has moved on to the next.
            parent = process.parent
            while ended(parent):
                parent = earlier[parent].parent
            if parent in used:
                used[parent] -= process.cpu_s
    return {pid: max(0.0, seconds) for pid, seconds in used.items()}


def _descendants(pids: Iterable[int], processes: Mapping[int, _Process]) -> set[int]:
    """Return these processes and all that they started."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    found, left = set[int](), list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children[pid]
    return found


def process_family(pids: Iterable[int]) -> set[int]:
    """Return these processes and all that they started."""
    return _descendants(pids, _read_processes(_PROC))


def _pressure_us(proc: Path) -> int | None:
    """Return for how long some task had to wait for a CPU, in total."""
    with suppress(OSError, ValueError, IndexError):
        some = (proc / "pressure/cpu").read_text().splitlines()[0]
        return int(some.rsplit("total=", 1)[1])
    return None


def _cpu_ticks(proc: Path) -> tuple[int, ...]:
    """Return the ticks of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal; empty if not reported."""
    with suppress(OSError, ValueError):
        with (proc / "stat").open() as file:
            # What guests used is in the first two.
            ticks = tuple(int(field) for field in file.readline().split()[1:9])
        return ticks if len(ticks) == 8 else ()
    return ()


def _waited_ns(pids: Iterable[int], proc: Path) -> int | None:
    """Return how long processes could have run but had to wait; of several threads the one that waited longest."""
    found = []
    for pid in pids:
        with suppress(OSError):
            threads = [_waited_by_thread(thread) for thread in (proc / str(pid) / "task").iterdir()]
            found += [max(threads)] if threads else []
    return sum(found) if found else None


def _waited_by_thread(thread: Path) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int((thread / "schedstat").read_text().split()[1])
    return 0
