"""`swarmtui ab` on simulators: a large difference is found with eight runs, also on a busy machine."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Sandbox, open_sandbox, wait_until

SHORT = ("--max-tokens", "32", "--level", "2", "--requests", "4", "--warmup", "1", "--seed", "3", "--quiet")


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with open_sandbox(tmp_path) as found:
        yield found


def sim(speed: float) -> str:
    return f"{sys.executable} -m swarmtui.sim moe-tp1 --speed={speed} --port={{port}}"


def ab_command(sandbox: Sandbox, *arguments: str) -> tuple[str, ...]:
    return ("ab", *arguments, "--session-dir", str(sandbox.sessions), *SHORT)


def test_four_times_the_speed_is_found_with_eight_runs(sandbox: Sandbox) -> None:
    ran = sandbox.run(*ab_command(sandbox, "--a", sim(0.5), "--b", sim(2), "--yes", "--json"))
    assert ran.code == 0, ran
    found = json.loads(ran.out)
    assert found["decision"]["word"] == "faster"
    assert found["decision"]["n"] == 4
    order = "".join(run["side"] for run in found["runs"])
    assert [order[k : k + 4] in ("ABBA", "BAAB") for k in (0, 4)] == [True, True]
    assert len({run["session"] for run in found["runs"]}) == 8
    (change,) = sandbox.json("sessions", "log", "--json", "--session-dir", str(sandbox.sessions))
    assert (change["what"], change["verdict"]) == ("--speed 0.5 → 2", "faster")
    (stored,) = sandbox.sessions.glob(".tuning/*/ab.json")
    starts = json.loads(stored.read_bytes())["starts"]
    assert [start["session"] for start in starts] == [run["session"] for run in found["runs"]]
    assert sandbox.processes("swarmtui.sim") == []


def test_header_that_changes_with_every_request_defeats_the_cache(sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    system = "A long system prompt. " * 400
    path.write_text(f"""kind = "prompts"
name = "own"
cache = "shared"
system = "{system}"
[[prompts]]
text = "Hello."
""")
    server = ("--a", "sim:moe-tp1?prefix_cache=true", "--workload", str(path), "--agent-header", "--max-runs", "4")
    ran = sandbox.run(*ab_command(sandbox, *server), "--level", "1", "--requests", "2", "--max-tokens", "4", "--json")
    assert ran.code == 0, ran
    found = json.loads(ran.out)
    assert (found["decision"]["word"], found["header"]["code"]) == ("slower", "lost"), found
    assert "tokens of shared prefix are computed again" in found["header"]["sentence"]
    assert found["header"]["without_header"]["source"] == "usage"


def test_failing_command_is_reported_with_its_log(sandbox: Sandbox) -> None:
    bad = f"{sys.executable} -m swarmtui.sim nonsense --port={{port}}"
    ran = sandbox.run(*ab_command(sandbox, "--a", bad, "--b", bad, "--yes"))
    assert ran.code == 3, ran
    assert "exited with code 2" in ran.err
    assert "no such preset" in ran.err


def test_ctrl_c_leaves_no_server_running(sandbox: Sandbox) -> None:
    program = sandbox.start(*ab_command(sandbox, "--a", sim(0.1), "--b", sim(0.1), "--yes"))
    wait_until(lambda: list(sandbox.sessions.glob(".tuning/*/1-*.log")), "a server log exists")
    program.signal_group(signal.SIGINT)
    assert program.wait().code == 4
    assert sandbox.processes("swarmtui.sim") == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--a", "sim:moe-tp1"), "give one of --b, --aa"),
        (("--a", "serve it", "--b", "sim:moe-tp1"), "put {port} into the command"),
        (("--a", "sim:moe-tp1", "--b", "sim:nope"), "no such preset"),
        (("--a", "sim:moe-tp1", "--aa", "--detect", "much"), "is not a share"),
        (("--a", "serve {port}", "--aa"), "add --yes"),
    ],
)
def test_invalid_arguments_are_one_line(sandbox: Sandbox, arguments: tuple[str, ...], error: str) -> None:
    assert error in sandbox.run(*ab_command(sandbox, *arguments)).error_line(2)
