"""Where this session's GPUs are to be read: exporters that were named, else this host's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.fetch import Fetcher
from swarmtui.telemetry.gpu.cadence import Depth
from swarmtui.telemetry.gpu.dcgm import DcgmReader
from swarmtui.telemetry.gpu.nvml import NvmlReader
from swarmtui.telemetry.gpu.sysfs import ROOT, SysfsReader


class GpuSource(Protocol):
    """Reads never raise: `problem` says why there is nothing, or not all, to see, and is empty when all is well.

    Only a look that is deep enough has energy in it: a counter is worth nothing without the moment of its reading.
    """

    problem: str

    def read(self, depth: Depth = Depth.WHOLE) -> tuple[Gpu, ...]: ...

    def close(self) -> None: ...


def open_gpus(metrics_urls: Sequence[str] = (), *, root: Path = ROOT) -> GpuSource:
    """NVML before files; where there is no GPU at all, the reader that will see an NVIDIA driver when it comes."""
    if metrics_urls:
        return DcgmReader(Fetcher(metrics_urls))
    nvidia = NvmlReader()
    if not nvidia.read():
        others = SysfsReader(root)
        if others.read():
            nvidia.close()
            return others
    return nvidia
