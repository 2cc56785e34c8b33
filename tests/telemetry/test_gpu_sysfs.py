"""AMD and Intel GPUs are read from copies of their sysfs trees."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from swarmtui.telemetry.gpu.readers import open_gpus
from swarmtui.telemetry.gpu.sysfs import SysfsReader
from tests.telemetry.scripted_nvml import H200, ScriptedNvml

TREES: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "samples/drm-trees.json").read_text())


def write_tree(root: Path, name: str) -> Path:
    for path, text in TREES[name].items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


def test_amd_gpu(tmp_path: Path) -> None:
    (gpu,) = SysfsReader(write_tree(tmp_path, "amd")).read()
    assert (gpu.uuid, gpu.index, gpu.name) == ("b3ce61ba2f8d39e7", 0, "AMD Radeon RX 7900 XTX")
    assert (gpu.memory_used, gpu.memory_total) == (21474836480, 25753026560)
    assert gpu.power_w == pytest.approx(287.0) and gpu.power_limit_w == pytest.approx(339.0) and gpu.energy_j is None
    assert (gpu.utilisation, gpu.temperature_c, gpu.sm_mhz) == (0.93, 71.0, 2482)
    assert gpu.throttle is None


def test_intel_power_is_computed_from_energy(tmp_path: Path) -> None:
    now = 10.0
    reader = SysfsReader(write_tree(tmp_path, "intel-xe"), clock=lambda: now)
    (first,) = reader.read()
    assert first.power_w is None
    (tmp_path / "card1/device/hwmon/hwmon7/energy1_input").write_text("5300000000\n")
    now = 12.0
    (gpu,) = reader.read()
    assert gpu.power_w == pytest.approx(150.0)
    assert gpu.energy_j == pytest.approx(5300.0)
    assert (gpu.uuid, gpu.name) == ("0000:4d:00.0", "Intel e223 at 0000:4d:00.0")
    assert (gpu.memory_used, gpu.memory_total, gpu.utilisation) == (None, None, None)
    assert (gpu.temperature_c, gpu.sm_mhz, gpu.sm_max_mhz) == (66.0, 2800, 2850)
    assert gpu.throttle == ("power cap",)


def test_read_soon_after_the_last_keeps_power(tmp_path: Path) -> None:
    now = 10.0
    reader = SysfsReader(write_tree(tmp_path, "intel-xe"), clock=lambda: now)
    reader.read()
    (tmp_path / "card1/device/hwmon/hwmon7/energy1_input").write_text("5100000000\n")
    now = 11.0
    assert reader.read()[0].power_w == pytest.approx(100.0)
    now = 11.01
    assert reader.read()[0].power_w == pytest.approx(100.0)


def test_older_intel_gpu(tmp_path: Path) -> None:
    (gpu,) = SysfsReader(write_tree(tmp_path, "intel-i915")).read()
    assert gpu.memory_used == 8_000_000_000
    assert gpu.power_limit_w is None, "0 means no limit"
    assert gpu.temperature_c == 49.0
    assert gpu.throttle == ()


def test_other_vendor_is_ignored(tmp_path: Path) -> None:
    reader = SysfsReader(write_tree(tmp_path, "none"))
    assert reader.read() == () and "no AMD or Intel GPU" in reader.problem


def test_unreadable_file_is_none(tmp_path: Path) -> None:
    write_tree(tmp_path, "amd")
    (tmp_path / "card0/device/mem_info_vram_used").write_bytes(b"\xff\xfe nonsense")
    (tmp_path / "card0/device/gpu_busy_percent").unlink()
    (gpu,) = SysfsReader(tmp_path).read()
    assert gpu.memory_used is None and gpu.utilisation is None and gpu.memory_total == 25753026560


def test_sysfs_is_used_without_nvidia_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", ScriptedNvml())
    assert [gpu.uuid for gpu in open_gpus(root=write_tree(tmp_path, "amd")).read()] == ["b3ce61ba2f8d39e7"]


def test_nvidia_is_preferred_and_no_gpu_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ScriptedNvml(H200)
    monkeypatch.setitem(sys.modules, "pynvml", script)
    assert open_gpus(root=write_tree(tmp_path, "amd")).read()[0].name == "NVIDIA H200"
    script.init = 12
    source = open_gpus(root=tmp_path / "nothing")
    assert source.read() == ()
    assert source.problem == "no NVIDIA GPU found (no driver)"


def test_intel_gpu_that_reports_only_chip_energy(tmp_path: Path) -> None:
    root = write_tree(tmp_path, "intel-xe")
    hwmon = root / "card1/device/hwmon/hwmon7"
    (hwmon / "energy1_input").rename(hwmon / "energy2_input")
    (hwmon / "power1_max").write_text("0\n")
    (hwmon / "power2_max").write_text("200000000\n")
    reason = root / "card1/device/tile0/gt0/freq0/throttle/reason_soc_thermal"
    reason.write_text("1\n")
    (gpu,) = SysfsReader(root).read()
    assert gpu.energy_j is not None and gpu.power_limit_w == 200.0
    assert gpu.throttle is not None and "thermal" in gpu.throttle
