"""Read how long processes of this host wait for a CPU: by the kernel's pressure counter, and by their own counters."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from swarmtui.model.telemetry import HostLoad

_PROC = Path("/proc")


def read_host(pids: Iterable[int] = (), proc: Path = _PROC) -> HostLoad:
    """Read the counters of the host, and of these processes and their threads; null is not reported."""
    ran_ns, waited_ns = _run_queue(pids, proc)
    steal, ticks = _cpu_ticks(proc)
    return HostLoad(
        t_ns=time.perf_counter_ns(),
        pressure_us=_pressure_us(proc),
        ran_ns=ran_ns,
        waited_ns=waited_ns,
        steal_ticks=steal,
        ticks=ticks,
    )


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


def _run_queue(pids: Iterable[int], proc: Path) -> tuple[int | None, int | None]:
    """Return how long the threads of processes ran, and how long they could have run but had to wait."""
    ran = waited = 0
    known = False
    for pid in pids:
        with suppress(OSError, ValueError):
            for thread in (proc / str(pid) / "task").iterdir():
                with suppress(OSError, ValueError):
                    ran_ns, waited_ns, _ = (thread / "schedstat").read_text().split()
                    ran, waited, known = ran + int(ran_ns), waited + int(waited_ns), True
    return (ran, waited) if known else (None, None)
