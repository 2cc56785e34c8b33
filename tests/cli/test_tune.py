"""`swarmtui tune` on real processes: configurations that work, crash or hang, and kills in between."""

from __future__ import annotations

import json
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Sandbox, open_sandbox, send_signal, wait_until

# A server that works, runs out of memory at its start, or hangs with a child process and ignores SIGTERM.
SERVER = """\
import os, signal, subprocess, sys, time
port, mode, slots = sys.argv[1], sys.argv[sys.argv.index("--mode") + 1], sys.argv[sys.argv.index("--slots") + 1]
if mode == "crash":
    print("loading weights", flush=True)
    sys.exit("CUDA out of memory: tried to allocate 20 GiB")
if mode == "hang":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = "import time; time.sleep(600)  # left by the server"
    subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    print("compiling graphs", flush=True)
    time.sleep(600)
words = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=5", f"--port={port}", f"--slots={slots}"]
os.execv(sys.executable, words)
"""


CELLS = """
[grid]
"--slots" = [1, 4]
"--mode" = ["serve"]
[[configurations]]
"--slots" = 4
"--mode" = "crash"
[[configurations]]
"--slots" = 4
"--mode" = "hang"
"""


def tune_file(sandbox: Sandbox, grid: str, **keys: str) -> Path:
    script = sandbox.home / "server.py"
    script.write_text(SERVER)
    lines = {
        "name": '"slots"', "command": f'"{sys.executable} {script} {{port}}"', "ready_within": '"10s"',
        "stop_within": '"1s"', "restarts": "0",
    } | keys  # fmt: skip
    path = sandbox.home / "tune.toml"
    head = "\n".join(f"{key} = {value}" for key, value in lines.items())
    path.write_text(f'{head}\n{grid}\n[plan]\nlevels = [4]\nrequests = "2C"\nmax_tokens = 16\nwarmup = 1\n')
    return path


def tune_command(sandbox: Sandbox, path: Path, *more: str) -> tuple[str, ...]:
    return ("tune", str(path), "--session-dir", str(sandbox.sessions), *more)


def state(sandbox: Sandbox) -> dict[str, Any]:
    (path,) = sandbox.sessions.glob(".tuning/*/tune.json")
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def servers(sandbox: Sandbox) -> list[str]:
    return [process.command_line for part in ("server.py", "swarmtui.sim", "guardian", "left by the server")
            for process in sandbox.processes(part)]  # fmt: skip


# The sandbox, and what the tune printed.
Tuned = tuple[Sandbox, dict[str, Any]]


def test_grid_with_a_crash_and_a_hang(tmp_path: Path) -> None:
    """One tune for all checks: it takes half a minute."""
    with open_sandbox(tmp_path) as sandbox:
        path = tune_file(sandbox, CELLS, restarts="3")
        ran = sandbox.run(*tune_command(sandbox, path, "--yes", "--json"))
        assert ran.code == 0, ran
        tuned = sandbox, json.loads(ran.out)
        check_crash_and_hang_are_rows_with_reason_and_log(tuned)
        check_configurations_that_work_are_restarted_three_times_and_ranked_by_that(tuned)
        check_more_slots_rank_first_with_the_effect_of_the_flag(tuned)
        check_no_server_process_is_left(tuned)
        check_finished_tune_is_only_shown(tuned)
        check_sessions_store_the_flags_of_their_configuration(tuned)


def check_crash_and_hang_are_rows_with_reason_and_log(tuned: Tuned) -> None:
    rows = tuned[1]["leaderboard"]
    assert len(rows) == 4
    by_mode: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_mode.setdefault(row["flags"]["--mode"], []).append(row)
    assert all(row["state"] == "done" and row["out_tps"] > 0 and row["ttft_s"] > 0 for row in by_mode["serve"])
    assert all(row["reason"] == "exited with code 1" for row in by_mode["crash"]), by_mode
    assert all(row["log"][-1].startswith("CUDA out of memory") for row in by_mode["crash"])
    assert all("not ready within 10 s" in row["reason"] for row in by_mode["hang"])
    assert all(row["log"] == ["compiling graphs"] for row in by_mode["hang"])
    assert [row["state"] for row in rows] == ["done"] * 2 + ["broken"] * 2


def check_configurations_that_work_are_restarted_three_times_and_ranked_by_that(tuned: Tuned) -> None:
    sandbox, found = tuned
    starts = state(sandbox)["starts"]
    by_round = [[start["flags"]["--mode"] for start in starts if start["round"] == number] for number in range(4)]
    assert sorted(by_round[0]) == ["crash", "hang", "serve", "serve"] and by_round[1:] == [["serve", "serve"]] * 3
    assert len({start["session"] for start in starts if start["state"] == "done"}) == 8
    assert found["standings"][0] == "best" and found["standings"][1] in ("tied", "behind")
    assert [row["starts"] for row in found["leaderboard"]] == [3, 3, 0, 0]
    assert [len(row["values"]) for row in found["leaderboard"][:2]] == [3, 3]


def check_more_slots_rank_first_with_the_effect_of_the_flag(tuned: Tuned) -> None:
    found = tuned[1]
    assert found["leaderboard"][0]["flags"]["--slots"] == 4
    (effect,) = [effect for effect in found["effects"] if effect["pairs"]]
    assert (effect["flag"], effect["base"], effect["value"]) == ("--slots", 1, 4)
    assert effect["change"] == pytest.approx(effect["after"] / effect["before"] - 1) and effect["change"] > 0


def check_no_server_process_is_left(tuned: Tuned) -> None:
    assert servers(tuned[0]) == []


def check_finished_tune_is_only_shown(tuned: Tuned) -> None:
    sandbox = tuned[0]
    before = len(sandbox.list_sessions())
    ran = sandbox.run(*tune_command(sandbox, sandbox.home / "tune.toml"))
    assert ran.code == 0, ran
    assert "failed" in ran.out and "▸" in ran.out
    assert len(sandbox.list_sessions()) == before


def check_sessions_store_the_flags_of_their_configuration(tuned: Tuned) -> None:
    sandbox, found = tuned
    best = found["leaderboard"][0]
    session = sandbox.show_session(best["session"])["session"]
    assert session["server_flags"] == "--slots 4 --mode serve"


def test_killed_tune_leaves_no_server_and_resumes(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        path = tune_file(sandbox, '[grid]\n"--mode" = ["serve"]\n"--slots" = [1, 4]', restarts="3")
        program = sandbox.start(*tune_command(sandbox, path, "--yes"))
        wait_until(
            lambda: program.stderr_so_far().count("ready after") >= 2 and sandbox.processes("swarmtui.sim"),
            "a third start",
        )
        send_signal(program.pid, signal.SIGKILL)
        wait_until(lambda: not servers(sandbox), "the server is stopped")
        finished = state(sandbox)["starts"]
        assert 2 <= len(finished) < 6
        ran = sandbox.run(*tune_command(sandbox, path, "--yes", "--json"))
        assert ran.code == 0, ran
        assert state(sandbox)["starts"][: len(finished)] == finished
        assert [start["round"] for start in state(sandbox)["starts"]] == [0, 0, 1, 1, 2, 2]
        assert [row["starts"] for row in json.loads(ran.out)["leaderboard"]] == [3, 3]
        assert servers(sandbox) == []
        wait_until(lambda: not sandbox.processes("swarmtui.session_process"), "no session process runs")


def test_ctrl_c_stops_the_server_and_tells_how_to_continue(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        path = tune_file(sandbox, '[grid]\n"--mode" = ["hang"]\n"--slots" = [1, 2]', ready_within='"5m"')
        program = sandbox.start(*tune_command(sandbox, path, "--yes"))
        wait_until(lambda: sandbox.processes("left by the server"), "the server runs")
        assert "this tune is already running" in sandbox.run(*tune_command(sandbox, path, "--yes")).error_line(2)
        program.signal_group(signal.SIGINT)
        ran = program.wait()
        assert ran.code == 4, ran
        assert "run the same command again to continue" in ran.err
        assert servers(sandbox) == []
        assert state(sandbox)["starts"] == []


def test_failed_configurations_are_repeated_only_on_request(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        path = tune_file(sandbox, '[grid]\n"--mode" = ["serve"]\n"--slots" = [1]')
        (tmp_path / "server.py").write_text("raise SystemExit(7)")
        for more, expected in (((), "broken"), (("--retry-failed",), "done")):
            ran = sandbox.run(*tune_command(sandbox, path, "--yes", "--json"))
            assert json.loads(ran.out)["leaderboard"][0]["reason"] == "exited with code 7"
            (tmp_path / "server.py").write_text(SERVER)
            ran = sandbox.run(*tune_command(sandbox, path, "--yes", "--json", *more))
            assert json.loads(ran.out)["leaderboard"][0]["state"] == expected, ran


def test_commands_are_shown_before_they_run(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        path = tune_file(sandbox, '[grid]\n"--mode" = ["serve"]\n"--slots" = [1]')
        ran = sandbox.run(*tune_command(sandbox, path))
        assert "add --yes" in ran.error_line(2)
        assert "server.py PORT --mode serve --slots 1" in ran.err
        assert not list(sandbox.sessions.glob(".tuning/*/*.log"))


def test_tune_ends_beside_a_server_that_holds_the_port(tmp_path: Path) -> None:
    """It is left alone, and no configuration is recorded as failed."""
    with open_sandbox(tmp_path) as sandbox, socket.create_server(("127.0.0.1", 0)) as foreign:
        port = foreign.getsockname()[1]
        path = tune_file(sandbox, '[grid]\n"--mode" = ["serve"]\n"--slots" = [1]', url=f'"http://127.0.0.1:{port}"')
        ran = sandbox.run(*tune_command(sandbox, path, "--yes", "--json"))
        assert f"another server is already listening on http://127.0.0.1:{port}" in ran.error_line(2)
        assert state(sandbox)["starts"] == []
        with socket.create_connection(("127.0.0.1", port)):
            pass


def test_halving_repeats_the_best_with_more_requests(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        path = tune_file(
            sandbox, '[grid]\n"--mode" = ["serve"]\n"--slots" = [1, 4]\n[halving]\nfactor = 2\nrounds = 2'
        )  # fmt: skip
        path.write_text(path.read_text().replace('"2C"', '"4C"'))
        ran = sandbox.run(*tune_command(sandbox, path, "--yes", "--json"))
        assert ran.code == 0, ran
        rows = state(sandbox)["starts"]
        assert [row["round"] for row in rows] == [0, 0, 1]
        assert rows[2]["flags"]["--slots"] == 4
        levels = [sandbox.show_session(row["session"])["levels"][0] for row in rows]
        assert [level["n"] + level["unfinished"] for level in levels] == [8, 8, 16]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('command = "x {port}"', "give a [grid]"),
        ('command = "x"\n[grid]\n"--n" = [1]', "use {port} in the command"),
        ('command = "x {port}"\n[grid]\n"--n" = [1, 1]', "duplicate value"),
        ('comand = "x {port}"', "did you mean command?"),
        ('command = "x {port} \\""\n[grid]\n"--n" = [1]', "cannot be split into arguments"),
        ('command = "x {port}"\nready_within = "soon"\n[grid]\n"--n" = [1]', "ready_within: "),
        ('command = "x {port}"\ncell_within = "soon"\n[grid]\n"--n" = [1]', "cell_within: "),
        ('command = "x {port}"\n[grid]\n"--n" = [1]\n[plan]\nrequests = "many"', "neither a number"),
    ],
)
def test_invalid_tune_file_is_one_line(tmp_path: Path, text: str, error: str) -> None:
    with open_sandbox(tmp_path) as sandbox:
        path = tmp_path / "bad.toml"
        path.write_text(text + "\n")
        assert error in sandbox.run(*tune_command(sandbox, path, "--yes")).error_line(2)
