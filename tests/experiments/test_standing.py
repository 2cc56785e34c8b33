"""Where a tune stands, read from what it left on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from swarmtui.experiments.tune_status import (
    Standing,
    ask_to_stop,
    born,
    cells_now,
    is_alive,
    left_to_do,
    read_standing,
    rows_of,
)
from tests.experiments.made_tunes import FOUR, HALVED, ONE, SEATS, TWO, broken, done, kept, present


def states(standing: Standing) -> list[str]:
    return [cell.state for cell in cells_now(standing)]


def test_each_cell_is_waiting_on_or_over_in_the_order_of_the_file(tmp_path: Path) -> None:
    rows = [broken(TWO, "ended with exit code 1"), done(ONE, 100.0)]
    now = present(flags=FOUR, phase="warming up", session="s")
    found = read_standing(kept(tmp_path / "tune", SEATS, rows, now))
    assert found.alive
    assert states(found) == ["done", "waiting", "broken", "waiting", "warming up", "waiting"]
    assert [cell.is_on for cell in cells_now(found)] == [False, False, False, False, True, False]
    assert left_to_do(SEATS, found.rows) == 4


def test_of_a_tune_that_was_killed_nothing_is_on(tmp_path: Path) -> None:
    now = present(flags=FOUR, phase="running", born=1.0)  # another process has its number now
    found = read_standing(kept(tmp_path / "tune", SEATS, [done(ONE, 100.0)], now))
    assert not found.alive
    assert states(found) == ["done"] + ["waiting"] * 5


def test_a_tune_that_has_ended_is_not_alive_although_its_process_is() -> None:
    assert is_alive(present())
    assert not is_alive(present(ended="done"))
    assert not is_alive(None)


def test_rows_of_cells_that_the_file_no_longer_has_are_left_out() -> None:
    rows = [done({"--seats": 16, "--fast": False}, 1.0), done(FOUR, 2.0), done(ONE, 3.0)]
    assert [row.flags["--seats"] for row in rows_of(SEATS, rows)] == [1, 4]


def test_in_a_later_round_the_best_wait_again_and_the_others_are_done() -> None:
    first = [done({"--seats": seats}, tps) for seats, tps in ((1, 10.0), (2, 40.0), (4, 30.0), (8, 20.0))]
    now = present(flags={"--seats": 4}, round=1, phase="running")
    found = Standing(tune=HALVED, rows=tuple(first), present=now, alive=True)
    assert states(found) == ["done", "waiting", "running", "done"]
    assert left_to_do(HALVED, first) == 2
    second = [*first, done({"--seats": 4}, 31.0, 1), done({"--seats": 2}, 41.0, 1)]
    assert left_to_do(HALVED, second) == 0
    assert states(msgspec.structs.replace(found, rows=tuple(second), alive=False)) == ["done"] * 4


def test_asked_to_stop_is_only_who_began_at_the_time_that_was_written_down() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        ask_to_stop(present(pid=process.pid, born=born(process.pid) - 60.0))
        assert process.poll() is None
        ask_to_stop(present(pid=process.pid, born=born(process.pid)))
        assert process.wait(20) == -15


def test_what_is_left_of_a_killed_process_is_nobody() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert born(process.pid) > 0
    process.kill()
    while born(process.pid):  # a zombie until it is waited for
        pass
    process.communicate()


def test_what_is_secret_in_the_command_is_not_kept(tmp_path: Path) -> None:
    command = "serve --api-key sk-1 --hf-token=hf_2 --max-num-batched-tokens 64 --port {port}"
    tune = msgspec.structs.replace(SEATS, command=command, env={"HF_TOKEN": "hf_3"}, stop="stop --auth x-4")
    found = read_standing(kept(tmp_path / "tune", tune, [], None))
    assert found.tune.command == "serve --api-key … --hf-token=… --max-num-batched-tokens 64 --port {port}"
    text = (tmp_path / "tune" / "tune.json").read_text()
    assert not any(secret in text for secret in ("sk-1", "hf_2", "hf_3", "x-4"))
    assert found.tune.grid == SEATS.grid
