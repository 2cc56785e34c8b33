"""Read GPUs from the page of NVIDIA's DCGM exporter."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.gpu.nvml import throttle_reasons
from swarmtui.telemetry.prometheus import parse_samples

SIMULATED = "SIMULATED"
_PREFIX = "DCGM_FI_DEV_"
_MIB = 1 << 20
_MAX_MIB = 1 << 40
_BLANK = 1 << 60  # DCGM writes numbers near 2^63 for values that are not available

_SCALED = {
    "POWER_USAGE": ("power_w", 1.0),
    "ENFORCED_POWER_LIMIT": ("power_limit_w", 1.0),
    "POWER_MGMT_LIMIT": ("power_limit_w", 1.0),
    "TOTAL_ENERGY_CONSUMPTION": ("energy_j", 1e-3),
    "GPU_UTIL": ("utilisation", 1e-2),
    "MEM_COPY_UTIL": ("memory_utilisation", 1e-2),
    "GPU_TEMP": ("temperature_c", 1.0),
    "MEMORY_TEMP": ("memory_temperature_c", 1.0),
    "FAN_SPEED": ("fan", 1e-2),
}
_WHOLE = {
    "SM_CLOCK": "sm_mhz",
    "MEM_CLOCK": "memory_mhz",
    "MAX_SM_CLOCK": "sm_max_mhz",
    "PCIE_LINK_GEN": "pcie_generation",
    "PCIE_LINK_WIDTH": "pcie_width",
    "PCIE_MAX_LINK_GEN": "pcie_max_generation",
    "PCIE_MAX_LINK_WIDTH": "pcie_max_width",
}
_REASONS = ("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS")


def parse_gpus(text: str) -> tuple[Gpu, ...] | None:
    """Parse an exporter's page, each GPU followed by its MIG devices; None if it is no such page."""
    found = parse_samples(text, lambda name: name.startswith(_PREFIX))
    if not found:
        return None
    values: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    labels: dict[tuple[str, str], dict[str, str]] = {}
    for sample in found:
        uuid, field = sample.labels.get("UUID", ""), sample.name.removeprefix(_PREFIX)
        # A card without a memory sensor is reported with 0 °C.
        measured = abs(sample.value) < _BLANK and (sample.value or field != "MEMORY_TEMP")
        if uuid and measured:
            key = uuid, sample.labels.get("GPU_I_ID", "")
            values[key][field] = sample.value
            labels.setdefault(key, sample.labels)
    gpus = [_gpu(uuid, part, labels[uuid, part], values[uuid, part]) for uuid, part in labels]
    return tuple(sorted(gpus, key=lambda gpu: (gpu.index, gpu.part_of, gpu.uuid)))


def _gpu(uuid: str, part: str, labels: dict[str, str], values: dict[str, float]) -> Gpu:
    name, number = labels.get("modelName", "") or "NVIDIA GPU", labels.get("gpu", "")
    used, free, reserved = (values.get(key) for key in ("FB_USED", "FB_FREE", "FB_RESERVED"))
    total = values.get("FB_TOTAL", None if used is None or free is None else used + free + (reserved or 0.0))
    bits = next((values[key] for key in _REASONS if key in values), None)
    read: dict[str, Any] = {field: values[key] * scale for key, (field, scale) in _SCALED.items() if key in values}
    read |= {field: round(values[key]) for key, field in _WHOLE.items() if key in values}
    return Gpu(
        uuid=f"{uuid}/{part}" if part else uuid,
        part_of=uuid if part else "",
        index=int(number) if re.fullmatch("[0-9]{1,6}", number) else 0,
        name=name,
        simulated=name.startswith(SIMULATED),
        memory_used=_bytes(used),
        memory_total=_bytes(total),
        memory_reserved=_bytes(reserved),
        throttle=None if bits is None else throttle_reasons(int(bits)),
        **read,
    )


def _bytes(mebibytes: float | None) -> int | None:
    return None if mebibytes is None or abs(mebibytes) > _MAX_MIB else round(mebibytes * _MIB)
