"""NVIDIA GPUs, by NVML. The only importer of pynvml, which is loaded with the first reading."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from swarmtui.model.telemetry import Gpu, GpuProcess
from swarmtui.telemetry.clock_reasons import reasons

_RETRY_S = 5.0
_LONGEST_WAIT_S = 60.0
_ALL_LINKS = 0xFFFFFFFF

_WORDS = {
    "LibraryNotFound": "no NVIDIA driver",
    "DriverNotLoaded": "the NVIDIA driver is not loaded",
    "LibRmVersionMismatch": "the NVIDIA driver was updated but not reloaded",
    "NoPermission": "no permission to read the NVIDIA GPUs",
    "GpuIsLost": "the GPU has fallen off the bus",
    "ResetRequired": "the GPU needs a reset",
    "GpuNotFound": "no NVIDIA GPU is to be seen here",
    "OperatingSystem": "the system keeps the NVIDIA driver from us",
    "FunctionNotFound": "the NVIDIA driver is too old",
    "Unknown": "the NVIDIA driver failed",
}
# A call that fails so will fail so again on this GPU; any other failure may pass.
_NEVER = (
    "NotSupported",
    "FunctionNotFound",
    "InvalidArgument",
    "NoPermission",
    "ArgumentVersionMismatch",
    "Deprecated",
)
_DEAD = ("GpuIsLost", "Uninitialized", "DriverNotLoaded", "ResetRequired", "GpuNotFound", "LibRmVersionMismatch")

_Call = Callable[[Any, Any], dict[str, Any]]


class NvmlReader:
    """All NVIDIA GPUs of this host. Never raises: `problem` says why there is nothing, or not all, to see.

    Each call is tried on each GPU, and never again where it is not supported. After a failure everything is opened
    anew, first after `retry_s`, so that a GPU or a driver that comes back is seen again.
    """

    def __init__(self, retry_s: float = _RETRY_S) -> None:
        self.problem = ""
        self._retry_s = self._wait_s = retry_s
        self._nvml: Any = None
        self._devices: list[_Device] = []
        self._open_again_at = float("-inf")

    def read(self, whole: bool = True) -> tuple[Gpu, ...]:
        """`whole=False` leaves out the calls that take milliseconds: their last values stand, and energy is null."""
        if time.monotonic() >= self._open_again_at and (self._nvml is None or self.problem):
            self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S) if self.problem else self._retry_s
            self.close()
            self._open()
        gpus: list[Gpu] = []
        for device in list(self._devices):
            try:
                gpus.append(device.read(self._nvml, whole))
            except _Lost as lost:
                self._devices.remove(device)
                self._fail(f"GPU {device.fixed.index} ({device.fixed.name}): {_say(lost.error)}")
        return tuple(gpus)

    def close(self) -> None:
        if self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):  # the driver may have gone first
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
            self._fail("another package took the place of nvidia-ml-py's pynvml; GPU panel off")
            return
        except pynvml.NVMLError as error:
            self._fail(f"{_say(error)}; GPU panel off")
            return
        if not count:
            self._fail("the NVIDIA driver shows no GPU: is one given to this container? GPU panel off")
        for index in range(count):
            try:
                self._devices += _open_device(pynvml, index)
            except pynvml.NVMLError as error:
                self._fail(f"GPU {index}: {_say(error)}")

    def _fail(self, problem: str) -> None:
        self.problem = f"{self.problem}; {problem}" if self.problem else problem
        self._open_again_at = time.monotonic() + self._wait_s


class _Lost(Exception):
    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Probe(NamedTuple):
    """A call, and whether it takes milliseconds."""

    name: str
    slow: bool
    call: _Call


class _Device:
    """One GPU or MIG device: what never changes, and which calls it has refused for good."""

    def __init__(self, handle: Any, fixed: Gpu, probes: tuple[_Probe, ...]) -> None:
        self.fixed = fixed
        self._handle = handle
        self._probes = probes
        self._refused: set[str] = set()
        self._slow: dict[str, Any] = {}

    def read(self, nvml: Any, whole: bool) -> Gpu:
        fast: dict[str, Any] = {}
        slow: dict[str, Any] = {}
        for probe in self._probes:
            if probe.name not in self._refused and (whole or not probe.slow):
                values = slow if probe.slow else fast
                values |= self._ask(nvml, probe)
        self._slow = slow if whole else {**self._slow, "energy_j": None}
        return msgspec.structs.replace(self.fixed, **fast, **self._slow)

    def _ask(self, nvml: Any, probe: _Probe) -> dict[str, Any]:
        try:
            return probe.call(nvml, self._handle)
        except AttributeError:
            self._refused.add(probe.name)
        except nvml.NVMLError as error:
            kind = _kind(error)
            if kind in _DEAD:
                raise _Lost(error) from None
            if kind in _NEVER:
                self._refused.add(probe.name)
        return {}


def _open_device(nvml: Any, index: int) -> Iterator[_Device]:
    """The GPU, and the MIG devices that it is divided into."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    fixed = Gpu(uuid=_text(nvml.nvmlDeviceGetUUID(handle)), index=index, name=_text(nvml.nvmlDeviceGetName(handle)))
    limits = _Device(handle, fixed, _LIMITS).read(nvml, whole=True)
    yield _Device(handle, limits, _PROBES)
    for part in _parts(nvml, handle):
        uuid, name = _text(nvml.nvmlDeviceGetUUID(part)), _text(nvml.nvmlDeviceGetName(part))
        yield _Device(part, Gpu(uuid=uuid, index=index, name=name, part_of=fixed.uuid), _PART_PROBES)


def _parts(nvml: Any, handle: Any) -> Iterator[Any]:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except (nvml.NVMLError, AttributeError):
        return
    for place in range(count):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError:
            continue  # an empty place


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
        if _kind(error) not in _NEVER:
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
        if _kind(error) != "FunctionNotFound":
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
            if link == 0 or _kind(error) in _DEAD:
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
    found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return {"processes": tuple(GpuProcess(pid=process.pid, memory_bytes=process.usedGpuMemory) for process in found)}


def _number(field: str, function: str, scale: float = 1.0, constant: str | None = None) -> _Call:
    """A call with one number for an answer; `constant` names its second argument."""

    def call(nvml: Any, handle: Any) -> dict[str, Any]:
        arguments = (handle,) if constant is None else (handle, getattr(nvml, constant))
        value = getattr(nvml, function)(*arguments)
        return {field: value if scale == 1.0 else value * scale}

    return call


def _temperature(nvml: Any, handle: Any) -> dict[str, Any]:
    return {"temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))}


_PROBES = (
    _Probe("memory", False, _any_memory),
    _Probe("power", False, _number("power_w", "nvmlDeviceGetPowerUsage", 1e-3)),
    _Probe("utilisation", False, _utilisation),
    _Probe("temperature", False, _temperature),
    _Probe("sm clock", False, _number("sm_mhz", "nvmlDeviceGetClockInfo", constant="NVML_CLOCK_SM")),
    _Probe("memory clock", False, _number("memory_mhz", "nvmlDeviceGetClockInfo", constant="NVML_CLOCK_MEM")),
    _Probe("throttle", False, _throttle),
    _Probe("energy", True, _number("energy_j", "nvmlDeviceGetTotalEnergyConsumption", 1e-3)),
    _Probe("power limit", True, _number("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", 1e-3)),
    _Probe("memory temperature", True, _memory_temperature),
    _Probe("fan", True, _number("fan", "nvmlDeviceGetFanSpeed", 1e-2)),
    _Probe("pcie generation", True, _number("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration")),
    _Probe("pcie width", True, _number("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth")),
    _Probe("nvlinks", True, _nvlinks),
    _Probe("nvlink traffic", True, _nvlink_traffic),
    _Probe("processes", True, _processes),
)
_PART_PROBES = (_Probe("memory", False, _any_memory), _Probe("processes", True, _processes))
_LIMITS = (
    _Probe("sm limit", True, _number("sm_max_mhz", "nvmlDeviceGetMaxClockInfo", constant="NVML_CLOCK_SM")),
    _Probe("pcie generations", True, _number("pcie_max_generation", "nvmlDeviceGetMaxPcieLinkGeneration")),
    _Probe("pcie lanes", True, _number("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth")),
)


def _kind(error: Exception) -> str:
    return type(error).__name__.removeprefix("NVMLError_")


def _say(error: Exception) -> str:
    words = _WORDS.get(_kind(error), str(error))
    return f"{words}: {type(error).__name__}"


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
