"""Read how long processes of this host wait for a CPU: by the kernel's pressure counter, and by their own counters."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from swarmtui.model.telemetry import HostLoad

_PROC = Path("/proc")


def read_host(pids: Iterable[int] = (), proc: Path = _PROC) -> HostLoad:
    """Read the counters of the host, and of these processes; null is not reported."""
    steal, ticks = _cpu_ticks(proc)
    return HostLoad(
        t_ns=time.perf_counter_ns(),
        pressure_us=_pressure_us(proc),
        waited_ns=_waited_ns(pids, proc),
        steal_ticks=steal,
        ticks=ticks,
    )


def process_family(pids: Iterable[int]) -> list[int]:
    """Return these processes and all that they started."""
    import psutil

    family = []
    for pid in pids:
        family.append(pid)
        with suppress(psutil.Error):
            family += [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return family


def _pressure_us(proc: Path) -> int | None:
    """Return for how long some task had to wait for a CPU, in total."""
    with suppress(OSError, ValueError, IndexError):
        some = (proc / "pressure/cpu").read_text().splitlines()[0]
        return int(some.rsplit("total=", 1)[1])
    return None


def _cpu_ticks(proc: Path) -> tuple[int | None, int | None]:
    """Return the ticks that the hypervisor gave to others, and all of them."""
    with suppress(OSError, ValueError, IndexError):
        with (proc / "stat").open() as file:
            # user, nice, system, idle, iowait, irq, softirq, steal; what guests used is in the first two.
            ticks = [int(field) for field in file.readline().split()[1:9]]
        return ticks[7], sum(ticks)
    return None, None


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
