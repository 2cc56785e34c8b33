"""The status of a tune, read from its files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from swarmtui.experiments.tune_status import (
    TuneSnapshot,
    configuration_statuses,
    is_alive,
    process_start_time,
    read_snapshot,
    remaining_configurations,
    request_stop,
    rows_in_file_order,
)
from tests.experiments.tune_builders import (
    FOUR,
    HALVED,
    ONE,
    SLOTS,
    TWO,
    done,
    failed,
    tune_status,
    write_tune_directory,
)


def states(snapshot: TuneSnapshot) -> list[str]:
    return [status.state for status in configuration_statuses(snapshot)]


def test_configurations_are_listed_in_file_order_with_their_state(tmp_path: Path) -> None:
    rows = [failed(TWO, "exited with code 1"), done(ONE, 100.0)]
    now = tune_status(flags=FOUR, phase="warming up", session="s")
    found = read_snapshot(write_tune_directory(tmp_path / "tune", SLOTS, rows, now))
    assert found.alive
    assert states(found) == ["done", "waiting", "broken", "waiting", "warming up", "waiting"]
    assert [status.is_active for status in configuration_statuses(found)] == [False, False, False, False, True, False]
    assert remaining_configurations(SLOTS, found.rows) == 4


def test_killed_tune_has_no_active_configuration(tmp_path: Path) -> None:
    now = tune_status(flags=FOUR, phase="running", born=1.0)  # the pid was reused by another process
    found = read_snapshot(write_tune_directory(tmp_path / "tune", SLOTS, [done(ONE, 100.0)], now))
    assert not found.alive
    assert states(found) == ["done"] + ["waiting"] * 5


def test_ended_tune_is_not_alive() -> None:
    assert is_alive(tune_status())
    assert not is_alive(tune_status(ended="done"))
    assert not is_alive(None)


def test_rows_of_removed_configurations_are_left_out() -> None:
    rows = [done({"--slots": 16, "--fast": False}, 1.0), done(FOUR, 2.0), done(ONE, 3.0)]
    assert [row.flags["--slots"] for row in rows_in_file_order(SLOTS, rows)] == [1, 4]


def test_later_round_repeats_only_the_best() -> None:
    first = [done({"--slots": slots}, tps) for slots, tps in ((1, 10.0), (2, 40.0), (4, 30.0), (8, 20.0))]
    now = tune_status(flags={"--slots": 4}, round=1, phase="running")
    found = TuneSnapshot(tune=HALVED, rows=tuple(first), status=now, alive=True)
    assert states(found) == ["done", "waiting", "running", "done"]
    assert remaining_configurations(HALVED, first) == 2
    second = [*first, done({"--slots": 4}, 31.0, 1), done({"--slots": 2}, 41.0, 1)]
    assert remaining_configurations(HALVED, second) == 0
    assert states(msgspec.structs.replace(found, rows=tuple(second), alive=False)) == ["done"] * 4


def test_stop_signal_is_sent_only_if_the_start_time_matches() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        request_stop(tune_status(pid=process.pid, born=process_start_time(process.pid) - 60.0))
        assert process.poll() is None
        request_stop(tune_status(pid=process.pid, born=process_start_time(process.pid)))
        assert process.wait(60) == -15


def test_zombie_has_no_start_time() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process_start_time(process.pid) > 0
    process.kill()
    while process_start_time(process.pid):  # a zombie until it is waited for
        pass
    process.communicate()


def test_secrets_in_the_command_are_not_stored(tmp_path: Path) -> None:
    command = "serve --api-key sk-1 --hf-token=hf_2 --max-num-batched-tokens 64 --port {port}"
    tune = msgspec.structs.replace(SLOTS, command=command, env={"HF_TOKEN": "hf_3"}, stop="stop --auth x-4")
    found = read_snapshot(write_tune_directory(tmp_path / "tune", tune, [], None))
    assert found.tune.command == "serve --api-key … --hf-token=… --max-num-batched-tokens 64 --port {port}"
    text = (tmp_path / "tune" / "tune.json").read_text()
    assert not any(secret in text for secret in ("sk-1", "hf_2", "hf_3", "x-4"))
    assert found.tune.grid == SLOTS.grid
