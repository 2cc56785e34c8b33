"""What NVML is asked, each call with its unit turned into ours. `nvml` is the module, which is given by the reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from swarmtui.model.telemetry import GpuProcess
from swarmtui.telemetry.gpu.cadence import Depth
from swarmtui.telemetry.gpu.clock_reasons import reasons

# A call that fails so will fail so again on this GPU; any other failure may pass.
NEVER = frozenset(
    ("NotSupported", "FunctionNotFound", "InvalidArgument", "NoPermission", "ArgumentVersionMismatch", "Deprecated")
)
DEAD = frozenset(
    ("GpuIsLost", "Uninitialized", "DriverNotLoaded", "ResetRequired", "GpuNotFound", "LibRmVersionMismatch")
)
_ALL_LINKS = 0xFFFFFFFF

Call = Callable[[Any, Any], dict[str, Any]]


class Probe(NamedTuple):
    name: str
    depth: Depth
    call: Call


def kind(error: Exception) -> str:
    """NVML's name of it, such as NotSupported."""
    return type(error).__name__.removeprefix("NVMLError_")


def _memory(nvml: Any, handle: Any) -> dict[str, Any]:
    found = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return {"memory_used": found.used, "memory_total": found.total, "memory_reserved": found.reserved}


def _old_memory(nvml: Any, handle: Any) -> dict[str, Any]:
    """Counts what the driver keeps for itself as used: only where the newer call is missing."""
    found = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used": found.used, "memory_total": found.total}


def _any_memory(nvml: Any, handle: Any) -> dict[str, Any]:
    try:
        return _memory(nvml, handle)
    except AttributeError:
        return _old_memory(nvml, handle)
    except nvml.NVMLError as error:
        if kind(error) not in NEVER:
            raise
        return _old_memory(nvml, handle)


def _utilisation(nvml: Any, handle: Any) -> dict[str, Any]:
    found = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"utilisation": found.gpu / 100, "memory_utilisation": found.memory / 100}


def _throttle(nvml: Any, handle: Any) -> dict[str, Any]:
    """By its newer name, or by the one that older drivers and packages know."""
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except AttributeError:
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    except nvml.NVMLError as error:
        if kind(error) != "FunctionNotFound":
            raise
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return {"throttle": reasons(bits)}


def _memory_temperature(nvml: Any, handle: Any) -> dict[str, Any]:
    (found,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_MEMORY_TEMP])
    if found.nvmlReturn:
        raise nvml.NVMLError(found.nvmlReturn)
    return {"memory_temperature_c": float(found.value.uiVal)}


def _nvlinks(nvml: Any, handle: Any) -> dict[str, Any]:
    up = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            up += bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError as error:
            if link == 0 or kind(error) in DEAD:
                raise
            break  # this GPU has no more
    return {"nvlinks_up": up}


def _nvlink_traffic(nvml: Any, handle: Any) -> dict[str, Any]:
    fields = (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
    sent, received = nvml.nvmlDeviceGetFieldValues(handle, [(field, _ALL_LINKS) for field in fields])
    for found in (sent, received):
        if found.nvmlReturn:
            raise nvml.NVMLError(found.nvmlReturn)
    return {"nvlink_sent": sent.value.ullVal * 1024, "nvlink_received": received.value.ullVal * 1024}


def _processes(nvml: Any, handle: Any) -> dict[str, Any]:
    try:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLLibraryMismatchError:  # a driver older than the package
        found = nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    return {"processes": tuple(GpuProcess(pid=process.pid, memory_bytes=process.usedGpuMemory) for process in found)}


def _temperature(nvml: Any, handle: Any) -> dict[str, Any]:
    return {"temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))}


def _number(field: str, function: str, scale: float = 1.0, constant: str | None = None) -> Call:
    """A call with one number for an answer; `constant` names its second argument."""

    def call(nvml: Any, handle: Any) -> dict[str, Any]:
        arguments = (handle,) if constant is None else (handle, getattr(nvml, constant))
        value = getattr(nvml, function)(*arguments)
        return {field: value if scale == 1.0 else value * scale}

    return call


PROBES = (
    Probe("memory", Depth.MOVING, _any_memory),
    Probe("power", Depth.MOVING, _number("power_w", "nvmlDeviceGetPowerUsage", 1e-3)),
    Probe("utilisation", Depth.MOVING, _utilisation),
    Probe("temperature", Depth.MOVING, _temperature),
    Probe("sm clock", Depth.MOVING, _number("sm_mhz", "nvmlDeviceGetClockInfo", constant="NVML_CLOCK_SM")),
    Probe("memory clock", Depth.MOVING, _number("memory_mhz", "nvmlDeviceGetClockInfo", constant="NVML_CLOCK_MEM")),
    Probe("throttle", Depth.MOVING, _throttle),
    Probe("energy", Depth.WHOLE, _number("energy_j", "nvmlDeviceGetTotalEnergyConsumption", 1e-3)),
    Probe("power limit", Depth.STATE, _number("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", 1e-3)),
    Probe("memory temperature", Depth.STATE, _memory_temperature),
    Probe("fan", Depth.STATE, _number("fan", "nvmlDeviceGetFanSpeed", 1e-2)),
    Probe("pcie generation", Depth.STATE, _number("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration")),
    Probe("pcie width", Depth.STATE, _number("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth")),
    Probe("nvlinks", Depth.STATE, _nvlinks),
    Probe("nvlink traffic", Depth.STATE, _nvlink_traffic),
    Probe("processes", Depth.STATE, _processes),
)
PART_PROBES = (Probe("memory", Depth.MOVING, _any_memory), Probe("processes", Depth.STATE, _processes))
# These never change: asked once, when the GPU is found.
LIMITS = (
    Probe("sm limit", Depth.STATE, _number("sm_max_mhz", "nvmlDeviceGetMaxClockInfo", constant="NVML_CLOCK_SM")),
    Probe("pcie generations", Depth.STATE, _number("pcie_max_generation", "nvmlDeviceGetMaxPcieLinkGeneration")),
    Probe("pcie lanes", Depth.STATE, _number("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth")),
)
