"""Power limits are set within what a GPU allows, read back, and restored unless somebody else changed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarmtui.telemetry.gpu.power_limits import (
    PowerProblem,
    check_permission,
    read_power_limits,
    restore_power_limit,
    set_power_limit,
)
from tests.telemetry.fake_nvml import FakeNvml


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml", gpus=2).install(monkeypatch)


def test_limit_of_one_gpu_is_set_and_that_of_the_other_is_not(nvml: FakeNvml) -> None:
    second = read_power_limits()[1]
    assert (second.index, second.watts, second.default_w, second.min_w) == (1, 700, 700, 200)
    set_power_limit(second, 280)
    assert nvml.limits() == [700, 280]


@pytest.mark.parametrize("watts", [701, 900, 199])
def test_limit_above_the_default_or_below_the_minimum_is_not_set(nvml: FakeNvml, watts: int) -> None:
    with pytest.raises(PowerProblem, match="from 200 W to its default of 700 W") as raised:
        set_power_limit(read_power_limits()[0], watts)
    assert raised.value.code == "range"
    assert nvml.set_limits() == []


def test_refused_permission_has_its_code(nvml: FakeNvml) -> None:
    nvml.change(0, refuses=True)
    with pytest.raises(PowerProblem, match="needs root") as raised:
        check_permission(read_power_limits()[0])
    assert raised.value.code == "permission"


def test_checking_the_permission_changes_nothing(nvml: FakeNvml) -> None:
    nvml.change(0, watts=450)
    check_permission(read_power_limits()[0])
    assert nvml.limits() == [450, 700]


def test_limit_that_the_gpu_does_not_take_is_noticed(nvml: FakeNvml) -> None:
    nvml.change(0, stuck=True)
    with pytest.raises(PowerProblem, match="has a limit of 700 W although 280 W was set") as raised:
        set_power_limit(read_power_limits()[0], 280)
    assert raised.value.code == "not_kept"


def test_limit_is_restored_also_to_one_above_the_default(nvml: FakeNvml) -> None:
    nvml.change(0, watts=280)
    assert restore_power_limit("GPU-0", 0, 800, ours=(350, 280)) == 280
    assert nvml.limits() == [800, 700]


def test_limit_that_somebody_else_has_set_since_is_left_alone(nvml: FakeNvml) -> None:
    nvml.change(0, watts=500)
    assert restore_power_limit("GPU-0", 0, 700, ours=(350, 280)) is None
    assert nvml.limits() == [500, 700]


def test_missing_driver_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeNvml(tmp_path / "none", gpus=0).install(monkeypatch)
    with pytest.raises(PowerProblem, match="no NVIDIA GPU found") as raised:
        read_power_limits()
    assert raised.value.code == "no_driver"
