"""Choose the source of GPU readings: the given exporters, else this host."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from swarmtui.http_client import HttpClient
from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.gpu.cadence import Depth
from swarmtui.telemetry.gpu.exporters import ExporterReader
from swarmtui.telemetry.gpu.nvml import NvmlReader
from swarmtui.telemetry.gpu.sysfs import ROOT, SysfsReader
from swarmtui.telemetry.prometheus import Fetcher


class GpuReader(Protocol):
    """Reads never raise: `problem` explains why GPUs are missing, and is empty if none are.

    Only full reads contain energy: a counter is useless without the time at which it was read.
    """

    problem: str

    def read(self, depth: Depth = Depth.FULL) -> tuple[Gpu, ...]: ...

    def close(self) -> None: ...


def open_gpus(metrics_urls: Sequence[str] = (), client: HttpClient | None = None, *, root: Path = ROOT) -> GpuReader:
    """Prefer NVML to sysfs; without any GPU return the NVML reader, which finds a driver that is loaded later."""
    if metrics_urls:
        return ExporterReader(Fetcher(metrics_urls, client))
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
