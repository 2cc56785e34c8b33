"""Choose the source of GPU readings, the given exporters or this host, and how often it is read.

Measure the costs with: python -m tests.bench.nvml_check.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from swarmtui.http_client import HttpClient
from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.gpu.exporters import ExporterReader
from swarmtui.telemetry.gpu.nvml import NvmlReader
from swarmtui.telemetry.gpu.sysfs import ROOT, SysfsReader

# On an H200 a fast read takes 0.03 ms per GPU.
SAMPLE_S = 0.25
# The energy counter alone takes 3.3 ms per GPU there. Only its differences matter, so it is read twice per second, and
# less often where that would take more than this share of a core.
FULL_S = 0.5
FULL_SHARE = 0.012
# For an exporter on another host, or the simulator: each read is one page that contains everything.
EXPORTER_S = 0.5

# Reads take no more than this share of a core: where every call is slow, all reads are further apart.
CPU_SHARE = 0.015
# What a full read may spend in advance, that of five seconds; the cheap ones after it make up for it.
_BURST_S = 5.0 * CPU_SHARE


class GpuReader(Protocol):
    """Reads never raise: `problem` explains why GPUs are missing, and is empty if none are.

    A read that is not `full` repeats what changes slowly, and has no energy: a counter is useless without the time at
    which it was read.
    """

    problem: str

    def read(self, *, full: bool = True) -> tuple[Gpu, ...]: ...

    def close(self) -> None: ...


def open_gpus(metrics_urls: Sequence[str] = (), client: HttpClient | None = None, *, root: Path = ROOT) -> GpuReader:
    """Prefer NVML to sysfs; without any GPU return the NVML reader, which finds a driver that is loaded later."""
    if metrics_urls:
        return ExporterReader(metrics_urls, client)
    nvidia = NvmlReader()
    if not nvidia.read():
        others = SysfsReader(root)
        if others.read():
            nvidia.close()
            return others
    return nvidia


def read_gpus(metrics_urls: Sequence[str] = (), timeout_s: float = 20.0) -> tuple[tuple[Gpu, ...], str]:
    """Read the GPUs of exporters, or of this host, once; return them, and why some are missing."""
    # No signal ends a call of a driver that hangs, so that it is made in a thread that is given up.
    found: list[tuple[tuple[Gpu, ...], str]] = []

    def read() -> None:
        reader = open_gpus(metrics_urls)
        found.append((reader.read(), reader.problem))
        reader.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return found[0] if found else ((), f"the driver did not answer within {timeout_s:g} s")


def is_local(host: str) -> bool:
    """Return whether an address belongs to this host, which only then can bind it."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as bound:
            bound.bind(found[0][4])
    except OSError:
        return False
    return True


class ReadCadence:
    """Choose whether the next read is full, and the pause after it. Times are of one monotonic clock."""

    def __init__(self, sample_s: float = SAMPLE_S) -> None:
        self._sample_s = sample_s
        self._debt_s = self._pause_s = 0.0
        self._full_at = self._read_at = float("-inf")
        self._full = True

    def next_is_full(self, now: float) -> bool:
        # A quarter of a period early counts as on time: the next read would be far too late.
        self._full = now + self._sample_s / 4 >= self._full_at
        if self._full:
            self._full_at = now + FULL_S
        self._read_at = now
        return self._full

    def pause(self, cpu_s: float, wall_s: float) -> float:
        """Return how long to wait after a read that took this long."""
        if self._full:
            self._full_at = max(self._full_at, self._read_at + cpu_s / FULL_SHARE)
        self._debt_s = max(0.0, self._debt_s - CPU_SHARE * (self._pause_s + wall_s)) + cpu_s
        extra_s = max(0.0, self._debt_s - _BURST_S) / CPU_SHARE
        self._pause_s = extra_s + max(0.0, self._sample_s - wall_s)
        return self._pause_s
