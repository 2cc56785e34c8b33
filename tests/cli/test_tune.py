"""`swarmtui tune` on real processes: cells that work, crash and hang, and kills in the middle."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Place, place_in, until, with_signal

# A server as people have them: it works, runs out of memory at its start, or hangs, deaf to SIGTERM, with a child.
SERVER = """\
import os, signal, subprocess, sys, time
port, mode, seats = sys.argv[1], sys.argv[sys.argv.index("--mode") + 1], sys.argv[sys.argv.index("--seats") + 1]
if mode == "crash":
    print("loading weights", flush=True)
    sys.exit("CUDA out of memory: tried to allocate 20 GiB")
if mode == "hang":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = "import time; time.sleep(600)  # left by the server"
    subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    print("compiling graphs", flush=True)
    time.sleep(600)
words = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=5", f"--port={port}", f"--seats={seats}"]
os.execv(sys.executable, words)
"""


CELLS = """
[grid]
"--seats" = [1, 4]
"--mode" = ["serve"]
[[cells]]
"--seats" = 4
"--mode" = "crash"
[[cells]]
"--seats" = 4
"--mode" = "hang"
"""


def tune_file(place: Place, grid: str, **keys: str) -> Path:
    script = place.home / "server.py"
    script.write_text(SERVER)
    lines = {
        "name": '"seats"', "command": f'"{sys.executable} {script} {{port}}"', "ready_within": '"3s"',
        "stop_within": '"1s"',
    } | keys  # fmt: skip
    path = place.home / "tune.toml"
    head = "\n".join(f"{key} = {value}" for key, value in lines.items())
    path.write_text(f'{head}\n{grid}\n[plan]\nlevels = [4]\nrequests = "2C"\nmax_tokens = 16\nwarmup = 1\n')
    return path


def words(place: Place, path: Path, *more: str) -> tuple[str, ...]:
    return ("tune", str(path), "--session-dir", str(place.sessions), *more)


def state(place: Place) -> dict[str, Any]:
    (path,) = place.sessions.glob(".tuning/*/state.json")
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def servers(place: Place) -> list[str]:
    return [process.words for part in ("server.py", "swarmtui.sim", "guardian", "left by the server")
            for process in place.processes(part)]  # fmt: skip


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, dict[str, Any]]]:
    with place_in(tmp_path_factory.mktemp("tuned")) as place:
        path = tune_file(place, CELLS)
        ran = place.run(*words(place, path, "--yes", "--json"))
        assert ran.code == 0, ran
        yield place, json.loads(ran.out)


def test_cells_that_crash_or_hang_are_rows_with_their_reason_and_last_lines(
    tuned: tuple[Place, dict[str, Any]],
) -> None:
    rows = tuned[1]["leaderboard"]
    assert len(rows) == 4
    by_mode: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_mode.setdefault(row["flags"]["--mode"], []).append(row)
    assert all(row["state"] == "done" and row["out_tps"] > 0 and row["ttft_s"] > 0 for row in by_mode["serve"])
    assert all(row["reason"] == "ended with exit code 1" for row in by_mode["crash"]), by_mode
    assert all(row["log"][-1].startswith("CUDA out of memory") for row in by_mode["crash"])
    assert all("not ready within 3 s" in row["reason"] for row in by_mode["hang"])
    assert all(row["log"] == ["compiling graphs"] for row in by_mode["hang"])
    assert [row["state"] for row in rows] == ["done"] * 2 + ["broken"] * 2


def test_more_seats_stand_first_and_the_effect_is_that_of_the_flag(tuned: tuple[Place, dict[str, Any]]) -> None:
    found = tuned[1]
    assert found["leaderboard"][0]["flags"]["--seats"] == 4
    (effect,) = [effect for effect in found["effects"] if effect["pairs"]]
    assert (effect["flag"], effect["base"], effect["value"]) == ("--seats", 1, 4)
    assert effect["change"] > 0.2


def test_nothing_of_a_server_is_left_behind(tuned: tuple[Place, dict[str, Any]]) -> None:
    assert servers(tuned[0]) == []


def test_a_finished_tune_is_only_shown_again(tuned: tuple[Place, dict[str, Any]]) -> None:
    place = tuned[0]
    before = len(place.listed())
    ran = place.run(*words(place, place.home / "tune.toml"))
    assert ran.code == 0, ran
    assert "BROKEN" in ran.out and "▸" in ran.out
    assert len(place.listed()) == before


def test_sessions_carry_the_flags_of_their_cell(tuned: tuple[Place, dict[str, Any]]) -> None:
    place, found = tuned
    best = found["leaderboard"][0]
    session = place.shown(best["session"])["session"]
    assert session["server_flags"] == "--seats 4 --mode serve"


def test_a_kill_in_the_middle_leaves_no_server_and_finished_cells_are_not_repeated(tmp_path: Path) -> None:
    with place_in(tmp_path) as place:
        path = tune_file(place, '[grid]\n"--mode" = ["serve"]\n"--seats" = [1, 2, 3, 4]')
        program = place.start(*words(place, path, "--yes"))
        until(lambda: program.said().count("ready after") >= 2 and place.processes("swarmtui.sim"), "a third cell")
        with_signal(program.pid, signal.SIGKILL)
        until(lambda: not servers(place), "the server is gone")
        finished = state(place)["rows"]
        assert 2 <= len(finished) < 4
        ran = place.run(*words(place, path, "--yes", "--json"))
        assert ran.code == 0, ran
        assert state(place)["rows"][: len(finished)] == finished
        assert len(json.loads(ran.out)["leaderboard"]) == 4
        assert servers(place) == []
        until(lambda: not place.processes("swarmtui.session_process"), "no run goes on")


def test_ctrl_c_stops_the_server_and_says_how_to_go_on(tmp_path: Path) -> None:
    with place_in(tmp_path) as place:
        path = tune_file(place, '[grid]\n"--mode" = ["hang"]\n"--seats" = [1, 2]', ready_within='"5m"')
        program = place.start(*words(place, path, "--yes"))
        until(lambda: place.processes("left by the server"), "the server runs")
        assert "this tune is running already" in place.run(*words(place, path, "--yes")).refused(2)
        program.signal_group(signal.SIGINT)
        ran = program.wait()
        assert ran.code == 4, ran
        assert "the same command goes on from here" in ran.err
        assert servers(place) == []
        assert not list(place.sessions.glob(".tuning/*/state.json"))


def test_broken_cells_are_tried_again_only_when_asked(tmp_path: Path) -> None:
    with place_in(tmp_path) as place:
        path = tune_file(place, '[grid]\n"--mode" = ["serve"]\n"--seats" = [1]')
        (tmp_path / "server.py").write_text("raise SystemExit(7)")
        for more, expected in (((), "broken"), (("--retry-broken",), "done")):
            ran = place.run(*words(place, path, "--yes", "--json"))
            assert json.loads(ran.out)["leaderboard"][0]["reason"] == "ended with exit code 7"
            (tmp_path / "server.py").write_text(SERVER)
            ran = place.run(*words(place, path, "--yes", "--json", *more))
            assert json.loads(ran.out)["leaderboard"][0]["state"] == expected, ran


def test_no_command_is_started_unseen(tmp_path: Path) -> None:
    with place_in(tmp_path) as place:
        path = tune_file(place, '[grid]\n"--mode" = ["serve"]\n"--seats" = [1]')
        ran = place.run(*words(place, path))
        assert "say --yes" in ran.refused(2)
        assert "server.py PORT --mode serve --seats 1" in ran.err
        assert not list(place.sessions.glob(".tuning/*/*.log"))


def test_a_server_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    with place_in(tmp_path) as place, socket.create_server(("127.0.0.1", 0)) as theirs:
        port = theirs.getsockname()[1]
        path = tune_file(place, '[grid]\n"--mode" = ["serve"]\n"--seats" = [1]', url=f'"http://127.0.0.1:{port}"')
        ran = place.run(*words(place, path, "--yes", "--json"))
        assert ran.code == 0, ran
        (row,) = json.loads(ran.out)["leaderboard"]
        assert "is not ours, and is left alone" in row["reason"]
        with socket.create_connection(("127.0.0.1", port)):
            pass


def test_halving_measures_the_best_again_with_more(tmp_path: Path) -> None:
    with place_in(tmp_path) as place:
        path = tune_file(
            place, '[grid]\n"--mode" = ["serve"]\n"--seats" = [1, 4]\n[halving]\nfactor = 2\nrounds = 2'
        )  # fmt: skip
        ran = place.run(*words(place, path, "--yes", "--json"))
        assert ran.code == 0, ran
        rows = state(place)["rows"]
        assert [row["round"] for row in rows] == [0, 0, 1]
        assert rows[2]["flags"]["--seats"] == 4
        requests = [place.shown(row["session"])["levels"][0]["n"] for row in rows]
        assert requests == [4, 4, 8]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('command = "x {port}"', "give a [grid]"),
        ('command = "x"\n[grid]\n"--n" = [1]', "put {port} into the command"),
        ('command = "x {port}"\n[grid]\n"--n" = [1, 1]', "a value stands twice"),
        ('comand = "x {port}"', "did you mean command?"),
        ('command = "x {port} \\""\n[grid]\n"--n" = [1]', "not a command"),
        ('command = "x {port}"\nready_within = "soon"\n[grid]\n"--n" = [1]', "not a time"),
        ('command = "x {port}"\n[grid]\n"--n" = [1]\n[plan]\nrequests = "many"', "neither a number"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    with place_in(tmp_path) as place:
        path = tmp_path / "bad.toml"
        path.write_text(text + "\n")
        assert told in place.run(*words(place, path, "--yes")).refused(2)
