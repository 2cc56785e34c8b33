"""NVML values are converted, missing ones stay None, and a driver that returns is read again."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.gpu.nvml import NvmlReader
from swarmtui.telemetry.gpu.readers import read_gpus
from tests.telemetry.scripted_nvml import GIB, H200, Failure, ScriptedNvml


def installed(monkeypatch: pytest.MonkeyPatch, *gpus: dict[str, Any]) -> ScriptedNvml:
    script = ScriptedNvml(*gpus)
    monkeypatch.setitem(sys.modules, "pynvml", script)
    return script


def test_values_are_converted_and_unsupported_ones_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, H200)
    reader = NvmlReader()
    assert reader.read() == (
        Gpu(
            uuid="GPU-3f1c6a52-0d7e-4c55-9b1e-000000000001",
            index=0,
            name="NVIDIA H200",
            memory_used=40 * GIB,
            memory_total=141 * GIB,
            power_w=671_250 * 1e-3,
            power_limit_w=700_000 * 1e-3,
            energy_j=123_456_789 * 1e-3,
            utilisation=0.97,
            temperature_c=61.0,
            sm_mhz=1785,
            sm_max_mhz=1980,
            memory_bandwidth=6016 * 3201e6 * 2 / 8,
            compute_capability="9.0",
            cores=16896,
            throttle=("power cap",),
            pids=(4242,),
        ),
    )
    assert reader.problem == ""


def test_unsupported_query_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Failure(pynvml.NVML_ERROR_NOT_SUPPORTED)
    script = installed(monkeypatch, {**H200, "nvmlDeviceGetTemperature": refused})
    reader = NvmlReader()
    for _ in range(3):
        reader.read()
    assert script.calls["nvmlDeviceGetTemperature"] == 1
    assert script.calls["nvmlDeviceGetPowerUsage"] == 3


def test_fast_read_skips_slow_queries_and_has_no_energy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = installed(monkeypatch, H200)
    reader = NvmlReader()
    whole, quick = reader.read()[0], reader.read(full=False)[0]
    assert script.calls["nvmlDeviceGetTotalEnergyConsumption"] == 1
    assert whole.energy_j is not None and quick.energy_j is None
    assert quick.pids == whole.pids and quick.power_limit_w == whole.power_limit_w


def test_temporary_failure_is_none_once(monkeypatch: pytest.MonkeyPatch) -> None:
    script = installed(monkeypatch, dict(H200))
    reader = NvmlReader()
    reader.read()
    script.gpus[0]["nvmlDeviceGetPowerUsage"] = Failure(pynvml.NVML_ERROR_TIMEOUT)
    assert reader.read()[0].power_w is None
    script.gpus[0]["nvmlDeviceGetPowerUsage"] = 90_000
    assert reader.read()[0].power_w == pytest.approx(90.0)


def test_old_driver_uses_old_memory_call(monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(total=80 * GIB, free=79 * GIB, used=GIB)
    missing = Failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    installed(monkeypatch, {**H200, "nvmlDeviceGetMemoryInfo": missing, "old memory": old})
    (gpu,) = NvmlReader().read()
    assert (gpu.memory_used, gpu.memory_total) == (GIB, 80 * GIB)


@pytest.mark.parametrize(
    ("meminfo", "used", "total"),
    [
        ("MemTotal:       128 kB\nMemFree:  8 kB\nMemAvailable:    100 kB\n", 28 << 10, 128 << 10),
        ("MemTotal:       128 kB\n", None, None),
        ("MemTotal: much\n\n", None, None),
    ],
    ids=["unified", "no MemAvailable", "damaged"],
)
def test_gpu_without_own_memory_shows_that_of_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, meminfo: str, used: int | None, total: int | None
) -> None:
    (tmp_path / "meminfo").write_text(meminfo)
    monkeypatch.setattr("swarmtui.telemetry.gpu.nvml.MEMINFO", tmp_path / "meminfo")
    refused = Failure(pynvml.NVML_ERROR_NOT_SUPPORTED)
    installed(monkeypatch, {**H200, "nvmlDeviceGetMemoryInfo": refused})
    (gpu,) = NvmlReader().read()
    assert (gpu.memory_used, gpu.memory_total, gpu.unified_memory) == (used, total, used is not None)
    assert gpu.power_w is not None


def test_mig_devices_follow_their_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    process = SimpleNamespace(pid=77, usedGpuMemory=None)
    part = {
        "nvmlDeviceGetUUID": "MIG-1",
        "nvmlDeviceGetName": "NVIDIA H200 MIG 1g.18gb",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=18 * GIB, reserved=0, free=17 * GIB, used=GIB),
        "nvmlDeviceGetComputeRunningProcesses": [process],
    }
    divided = {**H200, "nvmlDeviceGetMigMode": [1, 1], "nvmlDeviceGetMaxMigDeviceCount": 7, "parts": [part]}
    installed(monkeypatch, divided)
    gpu, mig = NvmlReader().read()
    assert mig.part_of == gpu.uuid and not gpu.part_of
    assert mig.memory_used == GIB and mig.power_w is None and mig.energy_j is None
    assert mig.pids == (77,)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA GPU found (no driver)"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded: NVMLError_DriverNotLoaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "not reloaded: NVMLError_LibRmVersionMismatch"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "no permission to read the NVIDIA GPUs: NVMLError_NoPermission"),
    ],
)
def test_driver_problem_is_reported_until_it_is_fixed(
    monkeypatch: pytest.MonkeyPatch, error: int, message: str
) -> None:
    script = installed(monkeypatch, H200)
    script.init = error
    reader = NvmlReader(retry_s=0.0)
    assert reader.read() == () and message in reader.problem
    script.init = None
    assert len(reader.read()) == 1 and reader.problem == ""


def test_failed_driver_is_not_retried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    script = installed(monkeypatch, H200)
    script.init = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    reader = NvmlReader(retry_s=3600.0)
    reader.read()
    script.init = None
    assert reader.read() == () and reader.problem


def test_lost_gpu_does_not_hide_others_and_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    second = {**H200, "nvmlDeviceGetUUID": "GPU-2"}
    script = installed(monkeypatch, dict(H200), second)
    reader = NvmlReader(retry_s=0.0)
    assert len(reader.read()) == 2
    script.gpus[1] = second
    second["lost"] = pynvml.NVML_ERROR_GPU_IS_LOST
    left = reader.read()
    assert [gpu.uuid for gpu in left] == [H200["nvmlDeviceGetUUID"]]
    assert reader.problem == "GPU 1 (NVIDIA H200): the GPU has fallen off the bus: NVMLError_GpuIsLost"
    del second["lost"]
    assert len(reader.read()) == 2 and reader.problem == ""


def test_gpu_lost_while_opening_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {**H200, "nvmlDeviceGetMaxClockInfo": Failure(pynvml.NVML_ERROR_GPU_IS_LOST)}
    installed(monkeypatch, dict(H200), lost)
    reader = NvmlReader()
    assert len(reader.read()) == 1
    assert reader.problem == "GPU 1: the GPU has fallen off the bus: NVMLError_GpuIsLost"


def test_container_without_gpu_is_not_a_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    reader = NvmlReader()
    assert reader.read() == () and "passed to this container" in reader.problem


def test_foreign_pynvml_module_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=pynvml.NVMLError))
    reader = NvmlReader()
    assert reader.read() == () and "another package" in reader.problem


def test_throttle_reasons_exclude_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    script = installed(monkeypatch, dict(H200))
    reader = NvmlReader()
    for bits, reasons in ((0x1, ()), (0x0, ()), (0x68, ("hardware slowdown", "thermal", "hardware thermal"))):
        script.gpus[0]["nvmlDeviceGetCurrentClocksEventReasons"] = bits
        assert reader.read()[0].throttle == reasons


def test_slow_values_and_energy_are_updated_by_full_reads_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = installed(monkeypatch, dict(H200))
    reader = NvmlReader()
    reader.read()
    script.gpus[0] |= {"nvmlDeviceGetEnforcedPowerLimit": 500_000, "nvmlDeviceGetTotalEnergyConsumption": 124_000_000}
    assert reader.read(full=False)[0].power_limit_w == 700.0
    (whole,) = reader.read()
    assert whole.power_limit_w == 500.0 and whole.energy_j == pytest.approx(124_000.0)


def test_driver_older_than_package_uses_old_process_call(monkeypatch: pytest.MonkeyPatch) -> None:
    script = installed(
        monkeypatch, H200 | {"nvmlDeviceGetComputeRunningProcesses_v2": [SimpleNamespace(pid=7, usedGpuMemory=GIB)]}
    )

    def mismatch(handle: object) -> object:
        raise pynvml.NVMLLibraryMismatchError("versions")

    monkeypatch.setattr(script, "nvmlDeviceGetComputeRunningProcesses", mismatch, raising=False)
    assert NvmlReader().read()[0].pids == (7,)


def test_driver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    script, released = installed(monkeypatch, H200), threading.Event()
    monkeypatch.setattr(script, "nvmlInit", released.wait)
    try:
        assert read_gpus(timeout_s=0.05) == ((), "the driver did not answer within 0.05 s")
    finally:
        released.set()
    monkeypatch.undo()
    installed(monkeypatch, H200)
    found, problem = read_gpus()
    assert [gpu.name for gpu in found] == ["NVIDIA H200"] and problem == ""
