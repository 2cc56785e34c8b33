"""The status of a tune, read from its files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from swarmtui.experiments.grid import configuration_statuses, pending_configurations, starts_in_file_order
from swarmtui.experiments.store import process_start_time, read_tune, request_stop
from swarmtui.model.tuning import ExperimentStatus, Start, Tune, TuneFile
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


def written(directory: Path, tune: TuneFile, rows: list[Start], now: ExperimentStatus) -> Tune:
    found = read_tune(write_tune_directory(directory, tune, rows, now))
    assert found is not None
    return found


def states(tune: Tune) -> list[str]:
    return [status.state for status in configuration_statuses(tune)]


def remaining(tune: TuneFile, rows: Sequence[Start]) -> int:
    return len(pending_configurations(tune, rows)[1])


def test_configurations_are_listed_in_file_order_with_their_state(tmp_path: Path) -> None:
    rows = [failed(TWO, "exited with code 1"), done(ONE, 100.0)]
    now = tune_status(flags=FOUR, phase="warming up", session="s")
    found = written(tmp_path, SLOTS, rows, now)
    assert not found.status.ended
    assert states(found) == ["done", "waiting", "broken", "waiting", "warming up", "waiting"]
    assert [status.is_active for status in configuration_statuses(found)] == [False, False, False, False, True, False]
    assert remaining(SLOTS, found.starts) == 4


def test_killed_tune_has_no_active_configuration(tmp_path: Path) -> None:
    now = tune_status(flags=FOUR, phase="running", born=1.0)  # the pid was reused by another process
    found = written(tmp_path, SLOTS, [done(ONE, 100.0)], now)
    assert found.status.ended == "interrupted"
    assert states(found) == ["done"] + ["waiting"] * 5


def test_ended_tune_has_no_active_configuration(tmp_path: Path) -> None:
    assert written(tmp_path, SLOTS, [], tune_status()).status.ended == ""
    found = written(tmp_path, SLOTS, [], tune_status(flags=FOUR, phase="running", ended="done"))
    assert states(found) == ["waiting"] * 6
    dead = tune_status(born=1.0, ended="stopped")
    assert written(tmp_path, SLOTS, [], dead).status.ended == "stopped"
    assert read_tune(tmp_path / "none") is None


def test_rows_of_removed_configurations_are_left_out() -> None:
    rows = [done({"--slots": 16, "--fast": False}, 1.0), done(FOUR, 2.0), done(ONE, 3.0)]
    assert [row.flags["--slots"] for row in starts_in_file_order(SLOTS, rows)] == [1, 4]


def test_later_round_repeats_only_the_best() -> None:
    first = [done({"--slots": slots}, tps) for slots, tps in ((1, 10.0), (2, 40.0), (4, 30.0), (8, 20.0))]
    now = tune_status(flags={"--slots": 4}, round=1, phase="running")
    found = Tune(definition=HALVED, starts=tuple(first), status=now)
    assert states(found) == ["done", "waiting", "running", "done"]
    assert remaining(HALVED, first) == 2
    second = [*first, done({"--slots": 4}, 31.0, 1), done({"--slots": 2}, 41.0, 1)]
    assert remaining(HALVED, second) == 0
    assert (
        states(msgspec.structs.replace(found, starts=tuple(second), status=tune_status(ended="done"))) == ["done"] * 4
    )


def test_stop_signal_is_sent_only_to_the_process_of_a_running_tune() -> None:
    program = "while line := input(): print(line, flush=True)"
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None and process.stdout is not None
        born = process_start_time(process.pid)
        for status in (
            tune_status(pid=process.pid, born=born - 60.0),
            tune_status(pid=process.pid, born=born, ended="done"),
        ):
            request_stop(status)
            process.stdin.write("alive\n")
            assert process.stdout.readline() == "alive\n"
        request_stop(tune_status(pid=process.pid, born=born))
        assert process.wait(60) == -15


def test_zombie_has_no_start_time() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process_start_time(process.pid) > 0
    process.kill()
    while process_start_time(process.pid):  # a zombie until it is waited for
        pass
    process.communicate()


def test_secrets_of_a_tune_are_not_stored(tmp_path: Path) -> None:
    command = "serve --api-key sk-1 --hf-token=hf_2 --max-num-batched-tokens 64 --port {port}"
    tune = msgspec.structs.replace(SLOTS, command=command, env={"HF_TOKEN": "hf_3"}, stop="stop --auth x-4")
    plan = msgspec.structs.replace(tune.plan, gpu_metrics_url="http://127.0.0.1:{port}/metrics?token=t-5")
    tune = msgspec.structs.replace(tune, plan=plan)
    found = written(tmp_path, tune, [], tune_status())
    assert found.definition.command == "serve --api-key … --hf-token=… --max-num-batched-tokens 64 --port {port}"
    text = (tmp_path / "tune.json").read_text()
    assert not any(secret in text for secret in ("sk-1", "hf_2", "hf_3", "x-4", "t-5"))
    assert found.definition.grid == SLOTS.grid
