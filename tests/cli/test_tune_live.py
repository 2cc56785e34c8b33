"""`swarmtui tune` with knobs that need no restart, on real processes: what is set is restored, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.programs import ROOT, Program, Sandbox, open_sandbox, wait_until
from tests.telemetry.fake_nvml import FakeNvml

# A simulator that counts its starts, and computes on the GPUs that it is told.
SERVER = """\
import os, sys
folder, port, gpus = sys.argv[1], sys.argv[2], sys.argv[3]
with open(f"{folder}/starts", "a") as starts:
    starts.write("started\\n")
for gpu in gpus.split(","):
    with open(f"{folder}/pid-{gpu}", "w") as file:
        file.write(str(os.getpid()))
os.execv(sys.executable, [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=1", f"--port={port}"])
"""
SWEEP = '[[knob]]\nkind = "power"\nwatts = [700, 350]\nprefill = false\n'
POWER = '[[knob]]\nkind = "power"\nwatts = [700, 350, 280]\nprefill = false\n'
PLAN = '[plan]\nlevels = [1, 2]\nrequests = "2C"\nmax_tokens = 8\nwarmup = 1\n'


class Host:
    """A sandbox with GPUs of its own."""

    def __init__(self, sandbox: Sandbox, gpus: int = 1, **fields: Any) -> None:
        self.sandbox, self.nvml = sandbox, FakeNvml(sandbox.home / "nvml", gpus, **fields)
        sandbox.environment |= {"PYTHONPATH": f"{self.nvml.directory}:{ROOT}"}

    def write(self, text: str, gpus: str = "0", **keys: str) -> Path:
        script = self.sandbox.home / "server.py"
        script.write_text(SERVER)
        command = f"{sys.executable} {script} {self.nvml.directory} {{port}} {gpus}"
        lines = {"name": '"power"', "command": f'"{command}"', "stop_within": '"1s"', "restarts": "0"} | keys
        path = self.sandbox.home / "tune.toml"
        path.write_text("\n".join(f"{key} = {value}" for key, value in lines.items()) + f"\n{text}{PLAN}")
        return path

    def command(self, path: Path, *more: str) -> tuple[str, ...]:
        return ("tune", str(path), "--session-dir", str(self.sandbox.sessions), "--yes", *more)

    def start_limited(self) -> Program:
        """Start a tune, and return when a GPU has a limit below its default."""
        path = longer(self.write(POWER.replace("700, ", "")), "60s")
        tune = self.sandbox.start(*self.command(path))
        wait_until(lambda: min(self.nvml.limits()) < 700, "a limit is set")
        return tune

    def starts(self) -> int:
        return len((self.nvml.directory / "starts").read_text().splitlines())

    def held(self) -> list[Path]:
        return list((self.sandbox.home / ".local/state/swarmtui/held").glob("*"))


def longer(path: Path, duration: str) -> Path:
    path.write_text(path.read_text().replace('requests = "2C"', f'duration = "{duration}"'))
    return path


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with open_sandbox(tmp_path) as sandbox:
        yield Host(sandbox)


# The host, and what the tune printed.
Swept = tuple[Host, dict[str, Any]]


def test_power_sweep(host: Host) -> None:
    """Three passes over two limits; the energy is that of the simulator, at any limit."""
    path = longer(host.write(SWEEP, restarts="3"), "4s")
    path.write_text(path.read_text().replace("[1, 2]", "[2]").replace("max_tokens = 8", "max_tokens = 64"))
    ran = host.sandbox.run(*host.command(path, "--json"))
    assert ran.code == 0, ran
    swept = host, json.loads(ran.out)
    check_all_limits_are_measured_in_one_start_of_the_server(swept)
    check_each_pass_visits_every_limit_once(swept)
    check_limit_is_restored_at_the_end_and_nothing_is_left(swept)
    check_power_figures_and_their_sentence_are_in_the_result(swept)
    check_session_of_a_limit_has_it_as_a_tag(swept)


def check_all_limits_are_measured_in_one_start_of_the_server(swept: Swept) -> None:
    host, found = swept
    assert host.starts() == 1
    assert sorted(row["flags"]["power_w"] for row in found["leaderboard"]) == [350, 700]
    assert all(row["starts"] == 3 and row["out_tps"] > 0 for row in found["leaderboard"])
    assert {watts for _, watts in host.nvml.set_limits()} == {350, 700}


def starts(host: Host) -> list[dict[str, Any]]:
    (path,) = host.sandbox.sessions.glob(".tuning/*/tune.json")
    rows: list[dict[str, Any]] = json.loads(path.read_bytes())["starts"]
    return rows


def check_each_pass_visits_every_limit_once(swept: Swept) -> None:
    order = [[row["flags"]["power_w"] for row in starts(swept[0]) if row["round"] == number] for number in range(3)]
    assert [sorted(each) for each in order] == [[350, 700]] * 3


def check_limit_is_restored_at_the_end_and_nothing_is_left(swept: Swept) -> None:
    host = swept[0]
    assert host.nvml.limits() == [700] and host.held() == []
    assert host.sandbox.processes("guardian") == []


def check_power_figures_and_their_sentence_are_in_the_result(swept: Swept) -> None:
    host, found = swept
    rows = starts(host)
    # A busy machine may read the energy of a level too late: its pass is left out.
    whole = [number for number in range(3) if all(row.get("j_per_token") for row in rows if row["round"] == number)]
    assert len(found["power"]) == bool(whole)
    for effect in found["power"]:
        assert (effect["watts"], effect["base_w"], effect["passes"]) == (350, 700, len(whole))
        for figure in ("tps", "energy") if len(whole) == 3 else ():
            assert effect[f"{figure}_range"]["low"] < effect[figure] < effect[f"{figure}_range"]["high"]
        assert "350 W" in found["power_sentence"]


def check_session_of_a_limit_has_it_as_a_tag(swept: Swept) -> None:
    host, found = swept
    row = found["leaderboard"][0]
    session = host.sandbox.show_session(row["session"])["session"]
    assert session["tags"]["power_w"] == str(row["flags"]["power_w"]) and not session["server_flags"]


def kill_tune(host: Host, tune: Program) -> None:
    os.kill(tune.pid, signal.SIGKILL)


def kill_tune_and_guardian(host: Host, tune: Program) -> None:
    (guardian,) = guardians(host, tune)[1:]
    os.kill(tune.pid, signal.SIGKILL)
    os.kill(guardian, signal.SIGKILL)


def kill_watcher_and_tune(host: Host, tune: Program) -> None:
    watcher = guardians(host, tune)[0]
    os.kill(watcher, signal.SIGKILL)
    os.kill(tune.pid, signal.SIGKILL)


def guardians(host: Host, tune: Program) -> list[int]:
    """The watcher, then the guardian, which is its child."""
    pids = [found.pid for found in host.sandbox.processes("server_guardian")]
    return sorted(pids, key=lambda pid: psutil.Process(pid).ppid() in pids)


def interrupt(host: Host, tune: Program) -> None:
    os.kill(tune.pid, signal.SIGINT)


def hang_up(host: Host, tune: Program) -> None:
    os.kill(tune.pid, signal.SIGHUP)


@pytest.mark.parametrize("end", [interrupt, hang_up, kill_tune, kill_tune_and_guardian, kill_watcher_and_tune])
def test_limit_is_restored_however_a_tune_ends(host: Host, end: Any) -> None:
    tune = host.start_limited()
    end(host, tune)
    wait_until(lambda: host.nvml.limits() == [700] and not host.held(), "the limit is restored")
    tune.wait()
    wait_until(lambda: not host.sandbox.processes("server_guardian"), "all processes have ended")
    assert host.nvml.limits() == [700] and host.held() == []


def test_limit_is_restored_if_only_the_guardian_is_killed(host: Host) -> None:
    tune = host.start_limited()
    before = len(host.nvml.set_limits())
    (guardian,) = guardians(host, tune)[1:]
    os.kill(guardian, signal.SIGKILL)
    wait_until(lambda: (0, 700) in host.nvml.set_limits()[before:], "the limit is restored")
    os.kill(tune.pid, signal.SIGTERM)  # it goes on, with another start of the server
    tune.wait()
    assert host.nvml.limits() == [700] and host.held() == []


def test_next_start_restores_the_limit_if_all_were_killed_and_says_so(host: Host) -> None:
    tune = host.start_limited()
    (limit,) = host.nvml.limits()
    pids = [tune.pid, *guardians(host, tune)]
    for pid in pids:  # none may act when another one is gone
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    tune.wait()
    assert host.nvml.limits() == [limit]
    ran = host.sandbox.run("sim", "--list")
    assert ran.code == 0
    assert f"swarmtui: a tune was killed: power limit of GPU 0 restored: {limit} W → 700 W" in ran.err
    assert host.nvml.limits() == [700] and host.held() == []
    assert "restored" not in host.sandbox.run("sim", "--list").err


def test_another_swarmtui_leaves_the_limit_of_a_running_tune_alone(host: Host) -> None:
    tune = host.start_limited()
    assert "restored" not in host.sandbox.run("sim", "--list").err
    assert host.nvml.limits() != [700]
    os.kill(tune.pid, signal.SIGTERM)
    tune.wait()
    assert host.nvml.limits() == [700] and host.held() == []


def test_without_permission_one_sentence_says_what_to_run_and_nothing_is_started(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        host = Host(sandbox, refuses=True)
        line = sandbox.run(*host.command(host.write(POWER))).error_line(2)
        assert "setting the power limit of GPU 0 needs root; run: sudo -E " in line and " tune " in line
        assert not (host.nvml.directory / "starts").exists()


def auto_command(host: Host, *more: str) -> tuple[str, ...]:
    script = host.sandbox.home / "server.py"
    script.write_text(SERVER)
    command = f"{sys.executable} {script} {host.nvml.directory} {{port}} 0"
    plan = ("--levels", "2", "--requests", "60C", "--max-tokens", "8", "--knob", "--slots=2,4", "--budget", "30m")
    return ("tune", "--auto", command, *plan, "--session-dir", str(host.sandbox.sessions), *more)


def test_automatic_tune_for_energy_tries_power_limits_last_and_restores_them(host: Host) -> None:
    tune = host.sandbox.start(*auto_command(host, "--objective", "j_per_token", "--yes"))
    wait_until(lambda: min(host.nvml.limits()) < 700, "a limit is set")
    assert {tuple(row["flags"]) for row in starts(host)} >= {(), ("--slots",)}
    assert host.nvml.limits() == [455]
    os.kill(tune.pid, signal.SIGKILL)
    tune.wait()
    wait_until(lambda: host.nvml.limits() == [700] and not host.held(), "the limit is restored")
    found = json.loads(host.sandbox.run(*auto_command(host, "--objective", "j_per_token", "--show", "--json")).out)
    assert found["size"] == 2 * 5, "what was decided at the start is shown, also by a user who may not set limits"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--objective", "j_per_token"), "the GPUs of the server is set to 595 W, 525 W, 455 W, 385 W, 315 W"),
        (("--power", "350,300"), "the GPUs of the server is set to 350 W, 300 W; it is restored"),
        (("--objective", "j_per_token", "--power", "none"), ""),
        (("--objective", "tok_s"), ""),
        (("--power", "100"), "--power: GPU 0 takes limits from 200 W"),
        (("--power", "few"), "--power: 'few' is not auto, none or watts"),
    ],
)
def test_power_limits_of_an_automatic_tune_are_shown_before_it(host: Host, words: tuple[str, ...], said: str) -> None:
    ran = host.sandbox.run(*auto_command(host, *words))
    assert ran.code == 2 and not (host.nvml.directory / "starts").exists()
    assert said in ran.err if said else "power limit" not in ran.err
    assert host.nvml.limits() == [700]


@pytest.mark.parametrize("option", [(), ("--power", "auto")])
def test_automatic_tune_without_permission_leaves_power_limits_alone(tmp_path: Path, option: tuple[str, ...]) -> None:
    with open_sandbox(tmp_path) as sandbox:
        host = Host(sandbox, refuses=True)
        ran = sandbox.run(*auto_command(host, "--objective", "j_per_token", *option))
        problem = "setting the power limit of GPU 0 needs root"
        assert (f"--power: {problem}" if option else f"the power limit stays as it is: {problem}") in ran.err


@pytest.mark.parametrize("watts", [150, 800])
def test_limit_out_of_range_is_refused_before_anything_is_started(host: Host, watts: int) -> None:
    path = host.write(POWER.replace("350", str(watts)))
    line = host.sandbox.run(*host.command(path)).error_line(2)
    assert f"GPU 0 takes limits from 200 W to its default of 700 W, not {watts} W" in line
    assert host.nvml.set_limits() == [] and not (host.nvml.directory / "starts").exists()


def test_only_the_gpus_of_the_server_are_limited(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        host = Host(sandbox, gpus=3)
        ran = sandbox.run(*host.command(host.write(POWER, gpus="0,2"), "--json"))
        assert ran.code == 0 and all(row["state"] == "done" for row in json.loads(ran.out)["leaderboard"]), ran
        assert all([level["c"] for level in row["levels"]] == [1, 2] for row in starts(host))
        changed = {gpu for gpu, watts in host.nvml.set_limits() if watts != 700}
        assert changed == {0, 2} and host.nvml.limits() == [700] * 3


def test_unknown_gpus_are_asked_for_and_named_ones_are_used(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        host = Host(sandbox, gpus=2)
        ran = sandbox.run(*host.command(host.write(POWER, gpus="none"), "--json"))
        reasons = {row["reason"] for row in json.loads(ran.out)["leaderboard"]}
        assert all("which of the 2 GPUs the server uses is not known; name them: gpus = [0]" in one for one in reasons)
        path = host.write(f"{POWER}gpus = [1]\n", gpus="none")
        ran = sandbox.run(*host.command(path, "--json"))
        assert all(row["state"] == "done" for row in json.loads(ran.out)["leaderboard"]), ran
        assert {gpu for gpu, watts in host.nvml.set_limits() if watts != 700} == {1}


def test_prompts_and_answers_have_energies_of_their_own(host: Host) -> None:
    path = host.write('[[knob]]\nkind = "power"\nwatts = [350]\n', restarts="0")
    longer(path, "4s").write_text(path.read_text().replace("[1, 2]", "[2]"))
    ran = host.sandbox.run(*host.command(path, "--json"))
    (row,) = json.loads(ran.out)["leaderboard"]
    assert 0 < row["prefill_j_per_token"] < row["j_per_token"] and 0 < row["decode_j_per_token"] < row["j_per_token"]


def command_knob(apply: str, restore: str = "") -> str:
    undo = f"restore = {json.dumps(restore)}\n" if restore else ""
    return f'[[knob]]\nname = "clock"\nvalues = [1, 2]\napply = {json.dumps(apply)}\nwithin = "20s"\n{undo}'


def test_command_of_the_user_is_shown_run_with_each_value_and_restored(host: Host, tmp_path: Path) -> None:
    log = tmp_path / "log"
    append = f"{sys.executable} -c \"import sys; open(sys.argv[1], 'a').write(sys.argv[2] + ' ')\" {log}"
    path = host.write(command_knob(f"{append} {{value}}", f"{append} restored"))
    ran = host.sandbox.run(*host.command(path, "--json"))
    assert ran.code == 0 and host.starts() == 1, ran
    *values, last = log.read_text().split()
    assert sorted(values) == ["1", "2"] and last == "restored"
    shown = ran.err[: ran.err.index("configuration 1/2")]
    assert "while it runs, clock:" in shown and f"{log} 1\n" in shown and f"{log} 2\n" in shown
    assert f"to restore it:\n  {sys.executable}" in shown
    assert sorted(row["flags"]["clock"] for row in json.loads(ran.out)["leaderboard"]) == [1, 2]


def test_command_without_confirmation_is_not_run(host: Host, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = host.write(command_knob(f"touch {mark} {{value}}"))
    ran = host.sandbox.run(*host.command(path)[:-1])
    assert ran.code == 2 and f"touch {mark}" in ran.err and "add --yes" in ran.err
    assert not mark.exists()


def test_command_that_fails_is_a_row_with_its_error(host: Host) -> None:
    code = "import sys; sys.exit('no clock 2' if sys.argv[1] == '2' else 0)"
    path = host.write(command_knob(f'{sys.executable} -c "{code}" {{value}}'))
    ran = host.sandbox.run(*host.command(path, "--json"))
    rows = {row["flags"]["clock"]: row for row in json.loads(ran.out)["leaderboard"]}
    assert rows[1]["state"] == "done"
    assert rows[2]["state"] == "broken" and rows[2]["log"] == ["no clock 2"]
    assert rows[2]["reason"] == f"clock 2 could not be set: `{sys.executable}` exited with code 1"


def test_killed_tune_has_the_command_of_the_user_undone_by_the_guardian(host: Host, tmp_path: Path) -> None:
    path = host.write(command_knob(f"touch {tmp_path}/set {tmp_path}/{{value}}", f"rm {tmp_path}/set"))
    tune = host.sandbox.start(*host.command(longer(path, "60s")))
    wait_until((tmp_path / "set").exists, "the command has run")
    os.kill(tune.pid, signal.SIGKILL)
    wait_until(lambda: not (tmp_path / "set").exists(), "it is undone")
    tune.wait()
    wait_until(lambda: not host.held(), "nothing is left")
