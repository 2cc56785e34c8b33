"""Read GPUs from the page of AMD's device-metrics-exporter."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.prometheus import parse_samples

_MIB = 1 << 20
_PREFIX = re.compile(r"(?:amd_)?(?=gpu_|pcie_)")  # exporters may be configured to add it
# The driver reports the largest number of its type for what it cannot measure.
_NOT_AVAILABLE = (0xFFFF, 0xFFFFFFFF)
_BLANK = 1 << 60

# The fields of a GPU, the metrics that report them, the preferred one first, and their unit.
_FIELDS: dict[str, tuple[tuple[str, ...], float]] = {
    "power_w": (("gpu_package_power", "gpu_power_usage", "gpu_average_package_power"), 1.0),
    "energy_j": (("gpu_energy_consumed",), 1e-6),
    "utilisation": (("gpu_gfx_activity",), 1e-2),
    "memory_utilisation": (("gpu_umc_activity",), 1e-2),
    "temperature_c": (("gpu_junction_temperature", "gpu_edge_temperature"), 1.0),
    "memory_temperature_c": (("gpu_memory_temperature", "gpu_hbm_temperature"), 1.0),
}
_MEMORY = {"memory_used": "gpu_used_vram", "memory_total": "gpu_total_vram"}
_CLOCKS = {"GPU_CLOCK_TYPE_SYSTEM": "sm_mhz", "GPU_CLOCK_TYPE_MEMORY": "memory_mhz"}
_PCIE = {"pcie_generation": "pcie_speed", "pcie_max_generation": "pcie_max_speed"}
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # by speed in GT/s
_KNOWN = {name for names, _ in _FIELDS.values() for name in names} | {*_MEMORY.values(), *_PCIE.values(), "gpu_clock"}


def parse_gpus(text: str) -> tuple[Gpu, ...] | None:
    """Parse an exporter's page; None if it is no such page."""
    found = parse_samples(text, lambda name: _PREFIX.sub("", name, count=1).lower() in _KNOWN)
    values: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    labels: dict[tuple[str, str], dict[str, str]] = {}
    for sample in found or ():
        own = {name.lower(): value for name, value in sample.labels.items()}
        number = own.get("gpu_id", "")
        if not number or sample.value in _NOT_AVAILABLE or abs(sample.value) >= _BLANK:
            continue
        name = _PREFIX.sub("", sample.name, count=1).lower()
        key = own.get("gpu_uuid") or own.get("serial_number") or f"AMD-{number}", number
        # Several clocks and memory stacks are reported one by one; the highest value counts.
        field = _CLOCKS.get(own.get("clock_type", "")) if name == "gpu_clock" else name
        if field is not None:
            values[key][field] = max(sample.value, values[key].get(field, sample.value))
            labels.setdefault(key, own)
    if not labels:
        return None
    return tuple(
        sorted((_gpu(*key, labels[key], values[key]) for key in labels), key=lambda gpu: (gpu.index, gpu.uuid))
    )


def _gpu(uuid: str, number: str, labels: dict[str, str], values: dict[str, float]) -> Gpu:
    read: dict[str, Any] = {}
    for field, (names, unit) in _FIELDS.items():
        value = next((values[name] for name in names if name in values), None)
        read[field] = None if value is None else value * unit
    read |= {field: round(values[name] * _MIB) for field, name in _MEMORY.items() if name in values}
    read |= {field: round(values[field]) for field in _CLOCKS.values() if field in values}
    read |= {field: _GENERATIONS.get(values[name]) for field, name in _PCIE.items() if name in values}
    return Gpu(
        uuid=uuid,
        index=int(number) if re.fullmatch("[0-9]{1,6}", number) else 0,
        name=labels.get("card_series") or labels.get("card_model") or "AMD GPU",
        **read,
    )
