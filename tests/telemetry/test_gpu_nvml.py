"""NVML through its script: every figure in its unit, nothing invented, and back again when the driver is."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from swarmtui.model.telemetry import Gpu, GpuProcess
from swarmtui.telemetry.gpu.cadence import Depth
from swarmtui.telemetry.gpu.nvml import NvmlReader
from tests.telemetry.scripted_nvml import GIB, H200, Failure, ScriptedNvml


def installed(monkeypatch: pytest.MonkeyPatch, *gpus: dict[str, Any]) -> ScriptedNvml:
    script = ScriptedNvml(*gpus)
    monkeypatch.setitem(sys.modules, "pynvml", script)
    return script


def test_every_figure_has_its_unit_and_what_the_card_refuses_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, H200)
    reader = NvmlReader()
    assert reader.read() == (
        Gpu(
            uuid="GPU-3f1c6a52-0d7e-4c55-9b1e-000000000001",
            index=0,
            name="NVIDIA H200",
            memory_used=40 * GIB,
            memory_total=141 * GIB,
            memory_reserved=645 << 20,
            power_w=671_250 * 1e-3,
            power_limit_w=700_000 * 1e-3,
            energy_j=123_456_789 * 1e-3,
            utilisation=0.97,
            memory_utilisation=0.41,
            temperature_c=61.0,
            memory_temperature_c=74.0,
            sm_mhz=1785,
            memory_mhz=3201,
            sm_max_mhz=1980,
            fan=None,
            throttle=("power cap",),
            pcie_generation=5,
            pcie_width=16,
            pcie_max_generation=5,
            pcie_max_width=16,
            nvlinks_up=None,
            processes=(GpuProcess(pid=4242, memory_bytes=39 * GIB),),
        ),
    )
    assert reader.problem == ""


def test_a_call_that_is_not_supported_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    script = installed(monkeypatch, H200)
    reader = NvmlReader()
    for _ in range(3):
        reader.read()
    assert script.calls["nvmlDeviceGetFanSpeed"] == 1
    assert script.calls["nvmlDeviceGetNvLinkState"] == 1
    assert script.calls["nvmlDeviceGetPowerUsage"] == 3


def test_between_whole_readings_slow_calls_are_left_out_and_energy_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = installed(monkeypatch, H200)
    reader = NvmlReader()
    whole, quick = reader.read()[0], reader.read(Depth.MOVING)[0]
    assert script.calls["nvmlDeviceGetTotalEnergyConsumption"] == 1
    assert whole.energy_j is not None and quick.energy_j is None
    assert quick.processes == whole.processes and quick.power_limit_w == whole.power_limit_w


def test_a_passing_failure_is_null_once_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    script = installed(monkeypatch, dict(H200))
    reader = NvmlReader()
    reader.read()
    script.gpus[0]["nvmlDeviceGetPowerUsage"] = Failure(pynvml.NVML_ERROR_TIMEOUT)
    assert reader.read()[0].power_w is None
    script.gpus[0]["nvmlDeviceGetPowerUsage"] = 90_000
    assert reader.read()[0].power_w == pytest.approx(90.0)


def test_an_old_driver_has_its_memory_read_the_old_way(monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(total=80 * GIB, free=79 * GIB, used=GIB)
    missing = Failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    installed(monkeypatch, {**H200, "nvmlDeviceGetMemoryInfo": missing, "old memory": old})
    (gpu,) = NvmlReader().read()
    assert (gpu.memory_used, gpu.memory_total, gpu.memory_reserved) == (GIB, 80 * GIB, None)


def test_a_card_that_tells_no_memory_is_still_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Failure(pynvml.NVML_ERROR_NOT_SUPPORTED)
    installed(monkeypatch, {**H200, "nvmlDeviceGetMemoryInfo": refused})
    (gpu,) = NvmlReader().read()
    assert gpu.memory_used is None and gpu.power_w is not None


def test_nvlinks_are_counted_with_their_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    states: dict[int, int] = dict.fromkeys(range(18), 1) | dict.fromkeys(range(18, 36), 0)
    traffic = [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=kib, uiVal=0)) for kib in (1000, 2000)]
    installed(monkeypatch, {**H200, "nvmlDeviceGetNvLinkState": states, "nvlink traffic": traffic})
    (gpu,) = NvmlReader().read()
    assert (gpu.nvlinks_up, gpu.nvlink_sent, gpu.nvlink_received) == (18, 1_024_000, 2_048_000)


def test_mig_devices_follow_the_gpu_that_they_are_part_of(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert mig.processes == (GpuProcess(pid=77, memory_bytes=None),)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver: NVMLError_LibraryNotFound; GPU panel off"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded: NVMLError_DriverNotLoaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "not reloaded: NVMLError_LibRmVersionMismatch"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "no permission to read the NVIDIA GPUs: NVMLError_NoPermission"),
    ],
)
def test_what_is_missing_is_said_and_read_when_it_comes(
    monkeypatch: pytest.MonkeyPatch, error: int, words: str
) -> None:
    script = installed(monkeypatch, H200)
    script.init = error
    reader = NvmlReader(retry_s=0.0)
    assert reader.read() == () and words in reader.problem
    script.init = None
    assert len(reader.read()) == 1 and reader.problem == ""


def test_after_a_failure_the_driver_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    script = installed(monkeypatch, H200)
    script.init = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    reader = NvmlReader(retry_s=3600.0)
    reader.read()
    script.init = None
    assert reader.read() == () and reader.problem


def test_a_gpu_that_is_lost_does_not_hide_the_others_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_gpu_that_is_lost_while_it_is_opened_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {**H200, "nvmlDeviceGetMaxClockInfo": Failure(pynvml.NVML_ERROR_GPU_IS_LOST)}
    installed(monkeypatch, dict(H200), lost)
    reader = NvmlReader()
    assert len(reader.read()) == 1
    assert reader.problem == "GPU 1: the GPU has fallen off the bus: NVMLError_GpuIsLost"


def test_a_container_without_a_device_is_told_apart_from_a_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    reader = NvmlReader()
    assert reader.read() == () and "given to this container" in reader.problem


def test_a_module_of_the_same_name_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=pynvml.NVMLError))
    reader = NvmlReader()
    assert reader.read() == () and "another package" in reader.problem


def test_an_idle_gpu_is_not_throttled_and_each_reason_has_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    script = installed(monkeypatch, dict(H200))
    reader = NvmlReader()
    for bits, words in ((0x1, ()), (0x0, ()), (0x68, ("hardware slowdown", "thermal", "hardware thermal"))):
        script.gpus[0]["nvmlDeviceGetCurrentClocksEventReasons"] = bits
        assert reader.read()[0].throttle == words


def test_what_changes_seldom_and_the_dear_counter_are_read_again_only_by_deeper_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = installed(monkeypatch, dict(H200))
    reader = NvmlReader()
    reader.read()
    script.gpus[0] |= {"nvmlDeviceGetEnforcedPowerLimit": 500_000, "nvmlDeviceGetTotalEnergyConsumption": 124_000_000}
    assert reader.read(Depth.MOVING)[0].power_limit_w == 700.0
    (state,) = reader.read(Depth.STATE)
    assert state.power_limit_w == 500.0 and state.energy_j is None
    assert reader.read(Depth.WHOLE)[0].energy_j == pytest.approx(124_000.0)


def test_processes_of_a_driver_older_than_the_package_are_read_the_old_way(monkeypatch: pytest.MonkeyPatch) -> None:
    script = installed(
        monkeypatch, H200 | {"nvmlDeviceGetComputeRunningProcesses_v2": [SimpleNamespace(pid=7, usedGpuMemory=GIB)]}
    )

    def mismatch(handle: object) -> object:
        raise pynvml.NVMLLibraryMismatchError("versions")

    monkeypatch.setattr(script, "nvmlDeviceGetComputeRunningProcesses", mismatch, raising=False)
    assert NvmlReader().read()[0].processes == (GpuProcess(pid=7, memory_bytes=GIB),)
