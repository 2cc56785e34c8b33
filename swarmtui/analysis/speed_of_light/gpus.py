"""Figures of GPUs: from NVML where it has them, else from a table of what vendors publish.

NVML reports the width of the memory bus and the highest memory clock, which give the bandwidth. No driver reports the
peak rate of matrix operations: it is that of the table or, for other NVIDIA GPUs, that of the compute capability.
Peaks are for dense matrices, of 16-bit numbers with 32-bit accumulation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from swarmtui.model.base import BadInput
from swarmtui.model.speed_of_light import GpuFigures
from swarmtui.model.telemetry import Gpu

GB, TERA = 1e9, 1e12

# Operations per clock and multiprocessor with 16-bit numbers, and cores per multiprocessor, by compute capability:
# NVIDIA's architecture whitepapers. Narrower numbers are twice as fast each; 0 where the hardware has none.
_RATES: Mapping[str, tuple[int, int, int, int]] = {
    "8.0": (64, 2048, 4096, 0),
    "8.6": (128, 512, 2048, 0),
    "8.9": (128, 1024, 2048, 0),
    "9.0": (128, 4096, 8192, 0),
    "10.0": (128, 8192, 16384, 32768),
    "10.3": (128, 8192, 16384, 49152),
    "12.0": (128, 1024, 2048, 4096),
    "12.1": (128, 1024, 2048, 4096),
}


class _Known(NamedTuple):
    """Bandwidth in GB/s, memory in GB, peaks in TFLOP/s for 16, 8 and 4 bits (0: not published), and who says so."""

    name: str
    pattern: str
    bandwidth: float
    memory: float
    peaks: tuple[float, float, float]
    source: str


_AMPERE, _ADA, _BLACKWELL = "NVIDIA GA102 whitepaper", "NVIDIA Ada whitepaper", "NVIDIA RTX Blackwell whitepaper"

# The first pattern that is found in a name counts.
_TABLE = (
    _Known("RTX 3090 Ti", r"3090 ?ti", 1008, 24, (80, 320, 0), _AMPERE),
    _Known("RTX 3090", r"3090", 936.2, 24, (71, 284, 0), _AMPERE),
    _Known("RTX 4090", r"4090", 1008, 24, (165.2, 660.6, 0), _ADA),
    _Known("RTX 5090", r"5090", 1792, 32, (209.5, 838, 1676), _BLACKWELL),
    _Known("RTX 5080", r"5080", 960, 16, (112.6, 450, 900), _BLACKWELL),
    _Known("RTX PRO 6000", r"pro 6000", 1792, 96, (503.8, 1007.6, 2015), "NVIDIA RTX PRO Blackwell whitepaper"),
    _Known("RTX 6000 Ada", r"6000 ada", 960, 48, (364.2, 728.5, 0), "NVIDIA RTX 6000 Ada datasheet"),
    _Known("RTX A6000", r"a6000", 768, 48, (154.8, 309.7, 0), "NVIDIA RTX A6000 datasheet"),
    _Known("L40S", r"l40s", 864, 48, (362, 733, 0), "NVIDIA L40S datasheet"),
    _Known("L4", r"\bl4\b", 300, 24, (121, 242.5, 0), "NVIDIA L4 datasheet"),
    _Known("A10", r"\ba10g?\b", 600, 24, (125, 250, 0), "NVIDIA A10 datasheet"),
    _Known("A100 80GB PCIe", r"a100.*pcie.*80|a100.*80.*pcie", 1935, 80, (312, 624, 0), "NVIDIA A100 datasheet"),
    _Known("A100 40GB", r"a100.*40", 1555, 40, (312, 624, 0), "NVIDIA A100 datasheet"),
    _Known("A100 80GB", r"a100", 2039, 80, (312, 624, 0), "NVIDIA A100 datasheet"),
    _Known("H100 NVL", r"h100.*nvl", 3938, 94, (835, 1671, 0), "NVIDIA H100 datasheet"),
    _Known("H100 PCIe", r"h100.*pcie", 2039, 80, (756, 1513, 0), "NVIDIA H100 datasheet"),
    _Known("H100", r"h100", 3352, 80, (989.4, 1978.9, 0), "NVIDIA H100 datasheet"),
    _Known("H200", r"h200", 4800, 141, (989.4, 1978.9, 0), "NVIDIA H200 datasheet"),
    _Known("H20", r"\bh20\b", 4000, 96, (148, 296, 0), "NVIDIA H20 datasheet"),
    _Known("B200", r"b200", 8000, 180, (2250, 4500, 9000), "NVIDIA Blackwell datasheet"),
    _Known("B300", r"b300", 8000, 288, (2250, 4500, 13500), "NVIDIA Blackwell Ultra datasheet"),
    _Known("GB10", r"gb10|dgx spark", 273, 128, (125, 250, 500), "NVIDIA DGX Spark datasheet: 1 PFLOP of sparse FP4"),
    _Known("Arc Pro B70", r"\bb70\b", 608, 32, (183.5, 367, 0), "Intel Arc Pro B70 product brief"),
    _Known("Arc Pro B60", r"\bb60\b", 456, 24, (98.5, 197, 0), "Intel Arc Pro B60 product brief"),
    _Known("MI300X", r"mi300x", 5300, 192, (1307.4, 2614.9, 0), "AMD Instinct MI300X datasheet"),
    _Known("MI325X", r"mi325x", 6000, 256, (1307.4, 2614.9, 0), "AMD Instinct MI325X datasheet"),
    _Known("MI355X", r"mi355x", 8000, 288, (2516.6, 5033.2, 10066.3), "AMD Instinct MI355X datasheet"),
    _Known("RX 7900 XTX", r"7900 ?xtx", 960, 24, (122.8, 122.8, 0), "AMD Radeon RX 7900 XTX specifications"),
    _Known("Radeon AI PRO R9700", r"r9700", 640, 32, (191, 383, 0), "AMD Radeon AI PRO R9700 datasheet"),
    _Known("Ryzen AI Max", r"ryzen ai max|strix halo|8060s", 256, 128, (0, 0, 0), "AMD Ryzen AI Max specifications"),
)


def gpu_names() -> tuple[str, ...]:
    return tuple(known.name for known in _TABLE)


def gpu_named(text: str) -> GpuFigures:
    """Return the figures of a GPU that a user names, such as `3090`, `h100` or `RTX 5090`."""
    known = _find(text)
    if known is None:
        raise BadInput(f"no figures of {text!r}; known: {', '.join(gpu_names())}", key="--gpu")
    return GpuFigures(
        name=known.name,
        bandwidth=known.bandwidth * GB,
        bandwidth_from=known.source,
        memory=known.memory * GB,
        **_peaks(known),
    )


def gpu_figures(gpu: Gpu) -> GpuFigures:
    """Return the figures of a GPU of this host; what neither its driver nor the table tells is null.

    Those of a part of a GPU (MIG) are not known: it gets a part of the bandwidth, which no driver reports.
    """
    known = None if gpu.part_of else _find(gpu.name)
    bandwidth, bandwidth_from = gpu.memory_bandwidth, "NVML"
    if bandwidth is None and known is not None:
        bandwidth, bandwidth_from = known.bandwidth * GB, known.source
    peaks = _peaks(known) if known is not None else _peaks_by_capability(gpu)
    memory = None if gpu.memory_total is None else float(gpu.memory_total)
    return GpuFigures(
        name=gpu.name,
        bandwidth=None if gpu.part_of else bandwidth,
        bandwidth_from="" if bandwidth is None else bandwidth_from,
        memory=memory,
        **peaks,
    )


def _find(name: str) -> _Known | None:
    plain = re.sub(r"[-_\s]+", " ", name.lower())
    return next((known for known in _TABLE if re.search(known.pattern, plain)), None)


def _peaks(known: _Known) -> dict[str, Any]:
    at_16, at_8, at_4 = (peak * TERA if peak else None for peak in known.peaks)
    return {"peak_16": at_16, "peak_8": at_8, "peak_4": at_4, "peak_from": known.source if at_16 else ""}


def _peaks_by_capability(gpu: Gpu) -> dict[str, Any]:
    rates = _RATES.get(gpu.compute_capability)
    if rates is None or gpu.cores is None or gpu.sm_max_mhz is None or gpu.part_of:
        return {}
    per_sm, *by_width = rates
    clock = gpu.cores / per_sm * gpu.sm_max_mhz * 1e6
    at_16, at_8, at_4 = (clock * rate if rate else None for rate in by_width)
    source = f"compute capability {gpu.compute_capability}, {gpu.cores} cores at {gpu.sm_max_mhz} MHz"
    return {"peak_16": at_16, "peak_8": at_8, "peak_4": at_4, "peak_from": source}
