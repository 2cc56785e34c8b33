"""Read GPUs from the pages of exporters for Prometheus: NVIDIA's DCGM exporter and AMD's device-metrics-exporter."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.gpu.nvml import throttle_reasons
from swarmtui.telemetry.prometheus import Fetcher, parse_samples

_MIB = 1 << 20
# Exporters write numbers near 2^63 for values that are not available.
_BLANK = 1 << 60

SIMULATED = "SIMULATED"
_DCGM_PREFIX = "DCGM_FI_DEV_"
_MAX_MIB = 1 << 40

_DCGM_SCALED = {
    "POWER_USAGE": ("power_w", 1.0),
    "ENFORCED_POWER_LIMIT": ("power_limit_w", 1.0),
    "POWER_MGMT_LIMIT": ("power_limit_w", 1.0),
    "TOTAL_ENERGY_CONSUMPTION": ("energy_j", 1e-3),
    "GPU_UTIL": ("utilisation", 1e-2),
    "GPU_TEMP": ("temperature_c", 1.0),
}
_DCGM_WHOLE = {"SM_CLOCK": "sm_mhz", "MAX_SM_CLOCK": "sm_max_mhz"}
_REASONS = ("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS")


def parse_dcgm(text: str) -> tuple[Gpu, ...] | None:
    """Parse the page of NVIDIA's DCGM exporter, each GPU followed by its MIG devices; None if it is no such page."""
    found = parse_samples(text, lambda name: name.startswith(_DCGM_PREFIX))
    if not found:
        return None
    values: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    labels: dict[tuple[str, str], dict[str, str]] = {}
    for sample in found:
        uuid = sample.labels.get("UUID", "")
        if uuid and abs(sample.value) < _BLANK:
            key = uuid, sample.labels.get("GPU_I_ID", "")
            values[key][sample.name.removeprefix(_DCGM_PREFIX)] = sample.value
            labels.setdefault(key, sample.labels)
    gpus = [_dcgm_gpu(uuid, part, labels[uuid, part], values[uuid, part]) for uuid, part in labels]
    return tuple(sorted(gpus, key=lambda gpu: (gpu.index, gpu.part_of, gpu.uuid)))


def _dcgm_gpu(uuid: str, part: str, labels: dict[str, str], values: dict[str, float]) -> Gpu:
    name, number = labels.get("modelName", "") or "NVIDIA GPU", labels.get("gpu", "")
    used, free, reserved = (values.get(key) for key in ("FB_USED", "FB_FREE", "FB_RESERVED"))
    total = values.get("FB_TOTAL", None if used is None or free is None else used + free + (reserved or 0.0))
    bits = next((values[key] for key in _REASONS if key in values), None)
    read: dict[str, Any] = {field: values[key] * scale for key, (field, scale) in _DCGM_SCALED.items() if key in values}
    read |= {field: round(values[key]) for key, field in _DCGM_WHOLE.items() if key in values}
    return Gpu(
        uuid=f"{uuid}/{part}" if part else uuid,
        part_of=uuid if part else "",
        index=_index(number),
        name=name,
        simulated=name.startswith(SIMULATED),
        memory_used=_bytes(used),
        memory_total=_bytes(total),
        throttle=None if bits is None else throttle_reasons(int(bits)),
        **read,
    )


def _bytes(mebibytes: float | None) -> int | None:
    return None if mebibytes is None or abs(mebibytes) > _MAX_MIB else round(mebibytes * _MIB)


_AMD_PREFIX = re.compile(r"(?:amd_)?(?=gpu_)")  # exporters may be configured to add it
# The driver reports the largest number of its type for what it cannot measure.
_NOT_AVAILABLE = (0xFFFF, 0xFFFFFFFF)

# The fields of a GPU, the metrics that report them, the preferred one first, and their unit.
_AMD_FIELDS: dict[str, tuple[tuple[str, ...], float]] = {
    "power_w": (("gpu_package_power", "gpu_power_usage", "gpu_average_package_power"), 1.0),
    "energy_j": (("gpu_energy_consumed",), 1e-6),
    "utilisation": (("gpu_gfx_activity",), 1e-2),
    "temperature_c": (("gpu_junction_temperature", "gpu_edge_temperature"), 1.0),
}
_MEMORY = {"memory_used": "gpu_used_vram", "memory_total": "gpu_total_vram"}
_CLOCK = "gpu_clock"
_AMD_METRICS = {_CLOCK, *_MEMORY.values()}.union(*(names for names, _ in _AMD_FIELDS.values()))


def parse_amd(text: str) -> tuple[Gpu, ...] | None:
    """Parse the page of AMD's device-metrics-exporter; None if it is no such page."""
    found = parse_samples(text, lambda name: _AMD_PREFIX.sub("", name, count=1).lower() in _AMD_METRICS)
    values: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    labels: dict[tuple[str, str], dict[str, str]] = {}
    for sample in found or ():
        own = {name.lower(): value for name, value in sample.labels.items()}
        number = own.get("gpu_id", "")
        if not number or sample.value in _NOT_AVAILABLE or abs(sample.value) >= _BLANK:
            continue
        name = _AMD_PREFIX.sub("", sample.name, count=1).lower()
        key = own.get("gpu_uuid") or own.get("serial_number") or f"AMD-{number}", number
        # The clocks are reported one by one; the highest counts.
        if name != _CLOCK or own.get("clock_type") == "GPU_CLOCK_TYPE_SYSTEM":
            values[key][name] = max(sample.value, values[key].get(name, sample.value))
            labels.setdefault(key, own)
    if not labels:
        return None
    return tuple(
        sorted((_amd_gpu(*key, labels[key], values[key]) for key in labels), key=lambda gpu: (gpu.index, gpu.uuid))
    )


def _amd_gpu(uuid: str, number: str, labels: dict[str, str], values: dict[str, float]) -> Gpu:
    read: dict[str, Any] = {}
    for field, (names, unit) in _AMD_FIELDS.items():
        value = next((values[name] for name in names if name in values), None)
        read[field] = None if value is None else value * unit
    read |= {field: round(values[name] * _MIB) for field, name in _MEMORY.items() if name in values}
    read |= {"sm_mhz": round(values[_CLOCK])} if _CLOCK in values else {}
    return Gpu(
        uuid=uuid, index=_index(number), name=labels.get("card_series") or labels.get("card_model") or "AMD GPU", **read
    )


def _index(number: str) -> int:
    return int(number) if re.fullmatch("[0-9]{1,6}", number) else 0


class ExporterReader(Fetcher):
    """Read GPUs of another host, or simulated ones, from the pages of exporters for Prometheus."""

    problem = ""

    def read(self, *, full: bool = True) -> tuple[Gpu, ...]:
        """Read everything in any case: it is one page."""
        gpus: list[Gpu] = []
        problems: list[str] = []
        for url, body, problem in self.fetch():
            found = (parse_dcgm(body) or parse_amd(body)) if not problem else None
            if found is None:
                problems.append(f"{url}: {problem or 'not the page of a DCGM exporter or AMD device-metrics-exporter'}")
            gpus += found or ()
        self.problem = "; ".join(problems)
        return tuple(gpus)
