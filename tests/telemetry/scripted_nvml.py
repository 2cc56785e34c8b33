"""Provide a pynvml replacement with scripted return values; errors and constants are those of the real package."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml

GIB = 1 << 30


class Failure(int):
    """An NVML error code to raise; a plain number is a return value."""


# As an H200 answers (driver 580).
H200: dict[str, Any] = {
    "nvmlDeviceGetUUID": "GPU-3f1c6a52-0d7e-4c55-9b1e-000000000001",
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=141 * GIB, reserved=645 << 20, free=100 * GIB, used=40 * GIB),
    "nvmlDeviceGetPowerUsage": 671_250,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTotalEnergyConsumption": 123_456_789,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=41),
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetClockInfo": {pynvml.NVML_CLOCK_SM: 1785, pynvml.NVML_CLOCK_MEM: 3201},
    "nvmlDeviceGetMaxClockInfo": {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201},
    "nvmlDeviceGetMemoryBusWidth": 6016,
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetNumGpuCores": 16896,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=4242, usedGpuMemory=39 * GIB)],
    "nvmlDeviceGetMigMode": [0, 0],
}


class ScriptedNvml(ModuleType):
    """`gpus` are return values by function name; `calls` counts the calls. `init` is the error of nvmlInit."""

    def __init__(self, *gpus: dict[str, Any]) -> None:
        super().__init__("pynvml")
        self.gpus = list(gpus)
        self.init: int | None = None
        self.calls: dict[str, int] = {}

    def nvmlInit(self) -> None:
        self._check(self.init)

    def nvmlShutdown(self) -> None:
        self._check(self.init)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        return self.gpus[index]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: dict[str, Any], position: int) -> dict[str, Any]:
        parts: list[dict[str, Any]] = handle["parts"]
        if position >= len(parts):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return parts[position]

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any], version: int | None = None) -> Any:
        return self._answer(
            handle, "old memory" if version is None and "old memory" in handle else "nvmlDeviceGetMemoryInfo"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvmlDevice"):
            return lambda handle, *arguments: self._answer(handle, name, *arguments)
        return getattr(pynvml, name)

    def _answer(self, handle: dict[str, Any], name: str, *arguments: Any) -> Any:
        self.calls[name] = self.calls.get(name, 0) + 1
        self._check(handle.get("lost"))
        answer = handle.get(name, Failure(pynvml.NVML_ERROR_NOT_SUPPORTED))
        if isinstance(answer, Failure):
            self._check(int(answer))
        if isinstance(answer, dict) and arguments:
            answer = answer[arguments[0]]
        return answer

    @staticmethod
    def _check(code: int | None) -> None:
        if code:
            raise pynvml.NVMLError(code)
