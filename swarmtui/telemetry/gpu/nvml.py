"""NVIDIA GPUs, by NVML. The only importer of pynvml, which is loaded with the first reading."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.gpu.cadence import Depth
from swarmtui.telemetry.gpu.nvml_calls import DEAD, LIMITS, NEVER, PART_PROBES, PROBES, Probe, kind

_RETRY_S = 5.0
_LONGEST_WAIT_S = 60.0

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

    def read(self, depth: Depth = Depth.WHOLE) -> tuple[Gpu, ...]:
        """Of what a less deep look leaves out the last figures stand, but for energy, which is null."""
        if time.monotonic() >= self._open_again_at and (self._nvml is None or self.problem):
            self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S) if self.problem else self._retry_s
            self.close()
            self._open()
        gpus: list[Gpu] = []
        for device in list(self._devices):
            try:
                gpus.append(device.read(self._nvml, depth))
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
            except _Lost as lost:
                self._fail(f"GPU {index}: {_say(lost.error)}")

    def _fail(self, problem: str) -> None:
        self.problem = f"{self.problem}; {problem}" if self.problem else problem
        self._open_again_at = time.monotonic() + self._wait_s


class _Lost(Exception):
    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Device:
    """One GPU or MIG device: what never changes, what was last read, and which calls it has refused for good."""

    def __init__(self, handle: Any, fixed: Gpu, probes: tuple[Probe, ...]) -> None:
        self.fixed = fixed
        self._handle = handle
        self._probes = probes
        self._refused: set[str] = set()
        self._last: dict[Depth, dict[str, Any]] = {}

    def read(self, nvml: Any, depth: Depth) -> Gpu:
        read: dict[Depth, dict[str, Any]] = {each: {} for each in Depth if each <= depth or each not in self._last}
        for probe in self._probes:
            if probe.depth in read and probe.name not in self._refused:
                read[probe.depth] |= self._ask(nvml, probe)
        self._last |= read
        figures = {name: value for each in Depth for name, value in self._last[each].items()}
        if Depth.WHOLE not in read:
            figures["energy_j"] = None
        return msgspec.structs.replace(self.fixed, **figures)

    def _ask(self, nvml: Any, probe: Probe) -> dict[str, Any]:
        try:
            return probe.call(nvml, self._handle)
        except AttributeError:
            self._refused.add(probe.name)
        except nvml.NVMLError as error:
            if kind(error) in DEAD:
                raise _Lost(error) from None
            if kind(error) in NEVER:
                self._refused.add(probe.name)
        return {}


def _open_device(nvml: Any, index: int) -> Iterator[_Device]:
    """The GPU, and the MIG devices that it is divided into."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    fixed = Gpu(uuid=_text(nvml.nvmlDeviceGetUUID(handle)), index=index, name=_text(nvml.nvmlDeviceGetName(handle)))
    limits = _Device(handle, fixed, LIMITS).read(nvml, Depth.WHOLE)
    yield _Device(handle, limits, PROBES)
    for part in _parts(nvml, handle):
        uuid, name = _text(nvml.nvmlDeviceGetUUID(part)), _text(nvml.nvmlDeviceGetName(part))
        yield _Device(part, Gpu(uuid=uuid, index=index, name=name, part_of=fixed.uuid), PART_PROBES)


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


def _say(error: Exception) -> str:
    words = _WORDS.get(kind(error), str(error))
    return f"{words}: {type(error).__name__}"


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
