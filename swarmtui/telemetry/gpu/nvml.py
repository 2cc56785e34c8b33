"""Read NVIDIA GPUs with NVML; the package pynvml is loaded by the first read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from swarmtui.model.telemetry import Gpu

MEMINFO = Path("/proc/meminfo")

_RETRY_S = 5.0
_MAX_RETRY_S = 60.0

_ERROR_MESSAGES = {
    "DriverNotLoaded": "the NVIDIA driver is not loaded",
    "LibRmVersionMismatch": "the NVIDIA driver was updated but not reloaded",
    "NoPermission": "no permission to read the NVIDIA GPUs",
    "GpuIsLost": "the GPU has fallen off the bus",
    "ResetRequired": "the GPU needs a reset",
    "GpuNotFound": "no NVIDIA GPU is visible here",
    "OperatingSystem": "the operating system denies access to the NVIDIA driver",
    "FunctionNotFound": "the NVIDIA driver is too old",
    "Unknown": "the NVIDIA driver failed",
}

# Errors after which a query is not repeated on this GPU; others may be temporary.
UNSUPPORTED = frozenset(
    ("NotSupported", "FunctionNotFound", "InvalidArgument", "NoPermission", "ArgumentVersionMismatch", "Deprecated")
)
LOST = frozenset(
    ("GpuIsLost", "Uninitialized", "DriverNotLoaded", "ResetRequired", "GpuNotFound", "LibRmVersionMismatch")
)
_THROTTLE_REASONS = {
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal",
    0x040: "hardware thermal",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}

QueryCall = Callable[[Any, Any], dict[str, Any]]


def error_name(error: Exception) -> str:
    """Return NVML's name of an error, such as NotSupported."""
    return type(error).__name__.removeprefix("NVMLError_")


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Name the reasons for lowered clocks; DCGM uses the same bits. An idle GPU (0x001) is no reason for concern."""
    return tuple(reason for bit, reason in _THROTTLE_REASONS.items() if bits & bit)


def _memory(nvml: Any, handle: Any) -> dict[str, Any]:
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        return {"memory_used": found.used, "memory_total": found.total}
    except AttributeError:
        pass
    except nvml.NVMLError as error:
        if error_name(error) not in UNSUPPORTED:
            raise
    # The call of older drivers counts memory that the driver reserves as used.
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        if error_name(error) != "NotSupported" or not (host := host_memory(MEMINFO)):
            raise
        return host
    return {"memory_used": found.used, "memory_total": found.total}


def host_memory(meminfo: Path) -> dict[str, Any]:
    """Return the memory of the host, which a GPU without memory of its own shares; empty if it cannot be read."""
    try:
        lines = (line.split() for line in meminfo.read_text().splitlines())
        sizes = {words[0]: int(words[1]) << 10 for words in lines if words[0] in ("MemTotal:", "MemAvailable:")}
    except (OSError, ValueError, IndexError):
        return {}
    total, free = sizes.get("MemTotal:"), sizes.get("MemAvailable:")
    if not total or free is None:
        return {}
    return {"memory_used": total - free, "memory_total": total, "unified_memory": True}


def _throttle(nvml: Any, handle: Any) -> dict[str, Any]:
    """Use the newer name of the call, else the one of older drivers and packages."""
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except AttributeError:
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    except nvml.NVMLError as error:
        if error_name(error) != "FunctionNotFound":
            raise
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return {"throttle": throttle_reasons(bits)}


def _processes(nvml: Any, handle: Any) -> dict[str, Any]:
    try:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLLibraryMismatchError:  # a driver older than the package
        found = nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    return {"pids": tuple(process.pid for process in found)}


def _memory_bandwidth(nvml: Any, handle: Any) -> dict[str, Any]:
    bits = nvml.nvmlDeviceGetMemoryBusWidth(handle)
    megahertz = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)
    # Two transfers per clock. A GPU that shares the memory of the host reports 0 for one of them.
    return {"memory_bandwidth": bits * megahertz * 1e6 * 2 / 8 or None}


def _compute_capability(nvml: Any, handle: Any) -> dict[str, Any]:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return {"compute_capability": f"{major}.{minor}"}


def _number(field: str, function: str, scale: float = 1.0, constant: str | None = None) -> QueryCall:
    """Build a query that returns one number; `constant` names the function's second argument."""

    def call(nvml: Any, handle: Any) -> dict[str, Any]:
        arguments = (handle,) if constant is None else (handle, getattr(nvml, constant))
        value = getattr(nvml, function)(*arguments)
        return {field: value if scale == 1.0 else value * scale}

    return call


Queries = Mapping[str, QueryCall]

QUERIES: Queries = {
    "memory": _memory,
    "power": _number("power_w", "nvmlDeviceGetPowerUsage", 1e-3),
    "utilisation": lambda nvml, gpu: {"utilisation": nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100},
    "temperature": lambda nvml, gpu: {
        "temperature_c": float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
    },
    "sm clock": _number("sm_mhz", "nvmlDeviceGetClockInfo", constant="NVML_CLOCK_SM"),
    "throttle": _throttle,
}
# Read less often: they take long, or change slowly.
SLOW_QUERIES: Queries = {
    "energy": _number("energy_j", "nvmlDeviceGetTotalEnergyConsumption", 1e-3),
    "power limit": _number("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", 1e-3),
    "processes": _processes,
}
# Constant: read once, when the GPU is opened.
_LIMIT_QUERIES: Queries = {
    "sm limit": _number("sm_max_mhz", "nvmlDeviceGetMaxClockInfo", constant="NVML_CLOCK_SM"),
    "memory bandwidth": _memory_bandwidth,
    "compute capability": _compute_capability,
    "cores": _number("cores", "nvmlDeviceGetNumGpuCores"),
}


class NvmlReader:
    """Read all NVIDIA GPUs of this host. Never raises: `problem` explains why GPUs are missing.

    A query that a GPU does not support is not repeated. After a failure NVML is opened again, first after `retry_s`,
    so that a GPU or a driver that comes back is found.
    """

    def __init__(self, retry_s: float = _RETRY_S) -> None:
        self.problem = ""
        self._retry_s = self._wait_s = retry_s
        self._nvml: Any = None
        self._devices: list[_Device] = []
        self._open_again_at = float("-inf")

    def read(self, *, full: bool = True) -> tuple[Gpu, ...]:
        """Read the GPUs; what slow queries return repeats the last full read, except energy, which is None."""
        if time.monotonic() >= self._open_again_at and (self._nvml is None or self.problem):
            self._wait_s = min(2 * self._wait_s, _MAX_RETRY_S) if self.problem else self._retry_s
            self.close()
            self._open()
        gpus: list[Gpu] = []
        for device in list(self._devices):
            try:
                gpus.append(device.read(self._nvml, full=full))
            except _DeviceLost as lost:
                self._devices.remove(device)
                self._fail(f"GPU {device.fixed.index} ({device.fixed.name}): {error_text(lost.error)}")
        return tuple(gpus)

    def close(self) -> None:
        if self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):  # the driver may already be unloaded
                self._nvml.nvmlShutdown()
        self._nvml, self._devices = None, []

    def _open(self) -> None:
        self.problem = ""
        try:
            import pynvml
        except ImportError:
            self._fail("the package nvidia-ml-py is missing; GPU panel off")
            return
        try:
            pynvml.nvmlInit()
            self._nvml = pynvml
            count = pynvml.nvmlDeviceGetCount()
        except AttributeError:
            self._fail("another package replaces the pynvml module of nvidia-ml-py; GPU panel off")
            return
        except pynvml.NVMLError as error:
            missing = error_name(error) == "LibraryNotFound"
            self._fail("no NVIDIA GPU found (no driver)" if missing else f"{error_text(error)}; GPU panel off")
            return
        if not count:
            self._fail("the NVIDIA driver lists no GPU: is one passed to this container? GPU panel off")
        for index in range(count):
            try:
                self._devices += _open_devices(pynvml, index)
            except pynvml.NVMLError as error:
                self._fail(f"GPU {index}: {error_text(error)}")
            except _DeviceLost as lost:
                self._fail(f"GPU {index}: {error_text(lost.error)}")

    def _fail(self, problem: str) -> None:
        self.problem = f"{self.problem}; {problem}" if self.problem else problem
        self._open_again_at = time.monotonic() + self._wait_s


class _DeviceLost(Exception):
    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Device:
    """One GPU or MIG device with its constant properties, last readings and unsupported queries."""

    def __init__(self, handle: Any, fixed: Gpu, queries: Queries = QUERIES, slow: Queries = SLOW_QUERIES) -> None:
        self.fixed = fixed
        self._handle = handle
        self._queries, self._slow_queries = queries, slow
        self._unsupported: set[str] = set()
        self._slow: dict[str, Any] | None = None

    def read(self, nvml: Any, *, full: bool) -> Gpu:
        if full or self._slow is None:
            self._slow = values = self._run(nvml, self._slow_queries)
        else:
            values = self._slow | {"energy_j": None}
        return msgspec.structs.replace(self.fixed, **values | self._run(nvml, self._queries))

    def _run(self, nvml: Any, queries: Queries) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, call in queries.items():
            if name in self._unsupported:
                continue
            try:
                values |= call(nvml, self._handle)
            except AttributeError:
                self._unsupported.add(name)
            except nvml.NVMLError as error:
                if error_name(error) in LOST:
                    raise _DeviceLost(error) from None
                if error_name(error) in UNSUPPORTED:
                    self._unsupported.add(name)
        return values


def _open_devices(nvml: Any, index: int) -> Iterator[_Device]:
    """Yield the GPU, then its MIG devices."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    fixed = Gpu(uuid=_text(nvml.nvmlDeviceGetUUID(handle)), index=index, name=_text(nvml.nvmlDeviceGetName(handle)))
    yield _Device(handle, _Device(handle, fixed, _LIMIT_QUERIES, {}).read(nvml, full=True))
    for part in _mig_handles(nvml, handle):
        uuid, name = _text(nvml.nvmlDeviceGetUUID(part)), _text(nvml.nvmlDeviceGetName(part))
        mig = Gpu(uuid=uuid, index=index, name=name, part_of=fixed.uuid)
        yield _Device(part, mig, {"memory": _memory}, {"processes": _processes})


def _mig_handles(nvml: Any, handle: Any) -> Iterator[Any]:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except (nvml.NVMLError, AttributeError):
        return
    for index in range(count):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:
            continue  # an unused instance


def error_text(error: Exception) -> str:
    words = _ERROR_MESSAGES.get(error_name(error), str(error))
    return f"{words}: {type(error).__name__}"


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
