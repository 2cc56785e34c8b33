"""DCGM exporter pages are parsed, and simulated GPUs are marked."""

from __future__ import annotations

from pathlib import Path

from swarmtui.model.worker_protocol import pack
from swarmtui.telemetry.gpu.exporters import parse_dcgm
from swarmtui.telemetry.gpu.readers import open_gpus
from tests.telemetry.text_server import serving

TEXT = (Path(__file__).parent / "samples/dcgm.txt").read_text()
SIMULATED = """DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-SIMULATED-0",modelName="SIMULATED RTX 3090"} 140.0\n"""


def test_exporter_with_two_gpus() -> None:
    found = parse_dcgm(TEXT)
    assert found is not None
    first, second, part = found
    assert (first.uuid, first.index, first.name, first.simulated) == ("GPU-aa", 0, "NVIDIA H100 80GB HBM3", False)
    assert (first.power_w, first.energy_j, first.utilisation, first.sm_mhz) == (412.5, 2500.0, 0.99, 1980)
    assert (first.memory_used, first.memory_total) == (80000 << 20, 81500 << 20)
    assert first.throttle == ("power cap",)
    assert (second.uuid, second.power_w, second.energy_j, second.throttle) == ("GPU-bb", 70.25, None, None)
    assert (part.part_of, part.memory_used) == ("GPU-bb", 12 << 20)


def test_simulated_gpu_is_marked() -> None:
    found = parse_dcgm(SIMULATED)
    assert found is not None and found[0].simulated


def test_other_page_is_a_problem_and_does_not_hide_exporters() -> None:
    with serving({"/gpu": SIMULATED, "/else": "<html>hello</html>"}) as server:
        source = open_gpus((f"{server.url}/gpu", f"{server.url}/else"))
        assert len(source.read()) == 1
        assert source.problem == f"{server.url}/else: not the page of a DCGM exporter or AMD device-metrics-exporter"
        source.close()


def test_value_near_2_63_is_not_available() -> None:
    blank = f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="a"}} {(1 << 63) - 1}\n'
    found = parse_dcgm(f'{blank}DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="a"}} 31\n')
    assert found is not None
    assert (found[0].power_w, found[0].temperature_c, found[0].name) == (None, 31.0, "NVIDIA GPU")


def test_implausible_numbers_are_not_measured() -> None:
    found = parse_dcgm('DCGM_FI_DEV_FB_USED{gpu="²",UUID="a"} 1e17\nDCGM_FI_DEV_GPU_TEMP{gpu="²",UUID="a"} 31\n')
    assert found is not None
    assert (found[0].index, found[0].memory_used, found[0].temperature_c) == (0, None, 31.0)
    assert pack(found[0]), "it must fit into a message"
