"""Pages of AMD's device-metrics-exporter are parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarmtui.client.doctor import check_gpus
from swarmtui.model.worker_protocol import pack
from swarmtui.telemetry.gpu.exporters import parse_amd
from swarmtui.telemetry.gpu.readers import open_gpus
from tests.telemetry.text_server import serving

SAMPLES = Path(__file__).parent / "samples"
TEXT = (SAMPLES / "amd-exporter.txt").read_text()


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\ngpu_", "\namd_gpu_")])
def test_exporter_with_two_gpus(text: str) -> None:
    found = parse_amd(text)
    assert found is not None
    first, second = found
    assert (first.uuid[-4:], first.index, first.name) == ("0001", 0, "AMD INSTINCT MI300X")
    assert (first.power_w, first.energy_j, first.utilisation) == (612.0, 2.5e6, 0.97)
    assert (first.memory_used, first.memory_total) == (181000 << 20, 196592 << 20)
    assert (first.temperature_c, first.sm_mhz) == (71.0, 1921)
    assert second.power_w == 141.0, "65535 means that the current power is not available"
    assert (second.energy_j, second.utilisation, second.sm_mhz, second.throttle) == (None, 0.0, None, None)
    assert all(map(pack, found))


def test_both_kinds_of_exporters_are_read_together() -> None:
    with serving({"/amd": TEXT, "/nvidia": (SAMPLES / "dcgm.txt").read_text()}) as server:
        source = open_gpus((f"{server.url}/amd", f"{server.url}/nvidia"))
        assert [gpu.name for gpu in source.read()][:3] == ["AMD INSTINCT MI300X"] * 2 + ["NVIDIA H100 80GB HBM3"]
        assert source.problem == ""
        source.close()


def test_doctor_checks_the_exporter() -> None:
    with serving({"/amd": TEXT}) as server:
        found = check_gpus((f"{server.url}/amd",))
    assert (found.state, found.value) == ("doubtful", "2 × AMD INSTINCT MI300X")
    assert "no energy counter" in found.sentence


@pytest.mark.parametrize("text", ["", "<html>", "gpu_used_vram 7\n", 'gpu_temperature{gpu_id="0"} 7\n', "gpu_clock{"])
def test_other_pages_are_not_taken_for_it(text: str) -> None:
    assert parse_amd(text) is None
