"""Changed settings are restored from their file, by whoever is left to do it, and only then."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from swarmtui.client import held_settings
from swarmtui.client.held_settings import (
    HeldCommand,
    HeldPower,
    HeldSettings,
    restore_file,
    restore_left,
    run_command,
)
from swarmtui.model.base import SettingFailed
from tests.cli.programs import wait_until
from tests.telemetry.fake_nvml import FakeNvml


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml", gpus=2).install(monkeypatch)


def held(uuid: int, set_w: float) -> HeldPower:
    return HeldPower(uuid=f"GPU-{uuid}", index=uuid, before_w=700, set_w=set_w)


def left_by_killed(directory: Path, *changes: HeldPower | HeldCommand) -> Path:
    settings = HeldSettings(directory)
    for change in changes:
        settings.add(change)
    settings.close()  # as the kernel does when the last process is killed
    return settings.path


def test_all_gpus_are_restored_to_what_was_before_the_first_change(nvml: FakeNvml, tmp_path: Path) -> None:
    nvml.change(0, watts=280)
    nvml.change(1, watts=280)
    path = left_by_killed(tmp_path / "held", held(0, 350), held(1, 350), held(0, 280), held(1, 280))
    assert sorted(restore_left(tmp_path / "held")) == [
        f"power limit of GPU {number} restored: 280 W → 700 W" for number in (0, 1)
    ]
    assert nvml.limits() == [700, 700] and not path.exists()
    assert list(restore_left(tmp_path / "held")) == []


def test_killed_between_the_line_and_the_change_restores_the_limit_before(nvml: FakeNvml, tmp_path: Path) -> None:
    nvml.change(0, watts=350)
    left_by_killed(tmp_path / "held", held(0, 350), held(0, 280))
    assert list(restore_left(tmp_path / "held")) and nvml.limits() == [700, 700]


def test_settings_of_a_running_tune_are_left_alone(nvml: FakeNvml, tmp_path: Path) -> None:
    nvml.change(0, watts=280)
    running = HeldSettings(tmp_path / "held")
    running.add(held(0, 280))
    assert list(restore_left(tmp_path / "held")) == [] and nvml.limits() == [280, 700]
    assert running.restore() == ("power limit of GPU 0 restored: 280 W → 700 W",)
    running.close()
    assert list((tmp_path / "held").iterdir()) == []


def test_limits_of_before_a_reboot_are_forgotten(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.change(0, watts=280)
    path = left_by_killed(tmp_path / "held", held(0, 280))
    boot = tmp_path / "boot_id"
    boot.write_text("another boot")
    monkeypatch.setattr(held_settings, "_BOOT", boot)
    assert list(restore_left(tmp_path / "held")) == []
    assert nvml.limits() == [280, 700] and not path.exists()


def test_line_that_was_not_written_to_its_end_is_ignored(nvml: FakeNvml, tmp_path: Path) -> None:
    nvml.change(0, watts=280)
    path = left_by_killed(tmp_path / "held", held(0, 280))
    path.write_bytes(path.read_bytes() + b'{"type":"pow')
    assert list(restore_left(tmp_path / "held")) and nvml.limits() == [700, 700]


def test_what_cannot_be_restored_is_tried_again_at_the_next_start(nvml: FakeNvml, tmp_path: Path) -> None:
    nvml.change(0, watts=280, refuses=True)
    path = left_by_killed(tmp_path / "held", held(0, 280))
    (line,) = restore_left(tmp_path / "held")
    assert "needs root" in line and line.endswith("run: sudo nvidia-smi -i GPU-0 -pl 700")
    assert path.exists()
    nvml.change(0, refuses=False)
    assert len(list(restore_left(tmp_path / "held"))) == 1 and nvml.limits() == [700, 700]


def test_command_of_the_user_is_run_by_the_guardian_and_only_named_by_the_next_start(tmp_path: Path) -> None:
    mark = tmp_path / "restored"
    words = (sys.executable, "-c", f"open({str(mark)!r}, 'w')")
    change = HeldCommand(name="clock", restore=words)
    left_by_killed(tmp_path / "held", change)
    (line,) = restore_left(tmp_path / "held")
    assert line.startswith("clock was left changed; to restore it, run: ") and not mark.exists()
    assert restore_file(left_by_killed(tmp_path / "held", change)) == ("clock restored",)
    assert mark.exists()


def test_failed_command_has_its_code_and_the_end_of_its_output() -> None:
    code = "import sys; print('no such clock', file=sys.stderr); sys.exit(3)"
    with pytest.raises(SettingFailed, match="exited with code 3") as raised:
        run_command((sys.executable, "-c", code), 30.0)
    assert raised.value.output == ("no such clock",)


def test_command_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    # The command waits for what it started, which tells its pid.
    words = ("sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    with pytest.raises(SettingFailed, match=r"`sh` did not end within 2 s"):
        run_command(words, 2.0)
    wait_until(lambda: not alive(int((tmp_path / "pid").read_text())), "what it started is killed")


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_missing_program_is_named() -> None:
    with pytest.raises(SettingFailed, match="`no-such-program` could not be started: No such file"):
        run_command(("no-such-program",), 5.0)
