"""The commands `sessions`, `workloads`, `sim` and `attach`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import click
import pytest

from swarmtui.cli import options
from swarmtui.cli.live import attach
from swarmtui.model.base import BadInput
from swarmtui.model.endpoint import PATHS
from tests.cli.programs import ROOT, SHORT, SIM, Sandbox, open_sandbox, wait_until

LAST = "two"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two saved sessions."""
    with open_sandbox(tmp_path_factory.mktemp("saved")) as sandbox:
        for label in ("one", LAST):
            ran = sandbox.run_benchmark(SIM, *SHORT, "--levels", "1", "--requests", "1", "--label", label)
            assert ran.code == 0, ran
        yield sandbox


def test_sessions_are_listed_newest_first(saved: Sandbox) -> None:
    rows = saved.list_sessions()
    assert sorted((row["id"] for row in rows), reverse=True) == [row["id"] for row in rows]
    assert {row["label"] for row in rows} == {"one", LAST}
    for row in rows:
        assert (row["state"], row["levels"], row["requests"], row["simulated"]) == ("done", [1], 1, True)
    table = saved.run("sessions", "--session-dir", str(saved.sessions)).out
    assert table.startswith("| id") and all(row["id"] in table for row in rows)


def test_sessions_are_filtered_sorted_and_limited(saved: Sandbox) -> None:
    words = ("sessions", "--json", "--session-dir", str(saved.sessions))
    assert [row["label"] for row in saved.json(*words, "--find", f"done {LAST}")] == [LAST]
    best, *_ = saved.json(*words, "--by", "best", "-n", "1")
    assert best["best_out_tps"] == max(row["best_out_tps"] for row in saved.list_sessions())
    ran = saved.run("sessions", "--find", "nowhere", "--session-dir", str(saved.sessions))
    assert (ran.code, ran.out) == (0, "none of 2 sessions matches 'nowhere'\n")


def test_shown_session_lists_failed_checks(saved: Sandbox) -> None:
    text = saved.run("sessions", "show", "last", "--session-dir", str(saved.sessions)).out
    assert "✗ samples: 1 run; required half-width ≤ 3 %, ≥ 4 runs" in text


def test_session_is_found_by_id_prefix_or_last(saved: Sandbox) -> None:
    newest = saved.list_sessions()[0]["id"]
    assert saved.show_session("last") == saved.show_session(newest) == saved.show_session(newest[:-1])
    text = saved.run("sessions", "show", "last", "--session-dir", str(saved.sessions)).out
    assert newest in text and "SIMULATED" in text and "the only level" in text


def test_session_dir_before_the_subcommand(saved: Sandbox) -> None:
    ran = saved.run("sessions", "--session-dir", str(saved.sessions), "show", "last", "--json")
    assert ran.code == 0 and json.loads(ran.out) == saved.show_session("last")


def test_empty_list_is_no_error(sandbox: Sandbox) -> None:
    ran = sandbox.run("sessions", "--session-dir", str(sandbox.sessions))
    assert (ran.code, ran.out, ran.err) == (0, f"no sessions yet in {sandbox.sessions}\n", "")
    assert sandbox.json("sessions", "--json") == []


def test_unknown_session(saved: Sandbox) -> None:
    for command in (("show", "nope"), ("rm", "nope"), ("rm", "../sessions")):
        error = saved.run("sessions", *command, "--session-dir", str(saved.sessions)).error_line(2)
        assert "no session of that name" in error
    assert "no session" in saved.run("sessions", "show", "last", "--session-dir", str(saved.home / "none")).error_line(
        2
    )


def test_removed_session_is_gone(sandbox: Sandbox) -> None:
    sandbox.run_benchmark(SIM, *SHORT, "--levels", "1", "--requests", "1")
    (row,) = sandbox.list_sessions()
    ran = sandbox.run("sessions", "rm", row["id"], "--session-dir", str(sandbox.sessions))
    assert (ran.code, ran.out) == (0, f"removed {row['directory']}\n")
    assert sandbox.list_sessions() == [] and not list(sandbox.sessions.iterdir())


def test_running_session_is_listed_and_cannot_be_removed(sandbox: Sandbox) -> None:
    program = sandbox.start_benchmark(SIM, *SHORT, "--levels", "1", "--requests", "100000")
    wait_until(lambda: "C=1" in program.stderr_so_far(), "it runs")
    (row,) = sandbox.list_sessions()
    assert row["state"] == "running"
    assert "is running" in sandbox.run("sessions", "rm", row["id"], "--session-dir", str(sandbox.sessions)).error_line(
        2
    )
    program.signal_group(signal.SIGINT)
    assert program.wait().code == 4
    assert sandbox.list_sessions()[0]["state"] == "stopped"


def test_built_in_workloads_are_listed_and_shown(sandbox: Sandbox) -> None:
    table = sandbox.run("workloads")
    rows = sandbox.json("workloads", "--json")
    names = {row["name"] for row in rows}
    assert names >= {"coding", "chat", "random-1k-1k", "long-prefill", "conversation"}
    assert table.code == 0 and all(name in table.out for name in names)
    shown = sandbox.run("workloads", "show", "coding")
    assert shown.code == 0 and 'kind = "prompts"' in shown.out
    assert "did you mean coding?" in sandbox.run("workloads", "show", "codin").error_line(2)


def test_shown_workload_is_a_valid_template(sandbox: Sandbox) -> None:
    own = sandbox.home / "mine.toml"
    own.write_text(sandbox.run("workloads", "show", "chat").out)
    ran = sandbox.run("workloads", "check", str(own))
    assert ran.code == 0 and "valid" in ran.out and ran.err == ""


def test_check_reports_all_errors_at_once(sandbox: Sandbox) -> None:
    own = sandbox.home / "mine.toml"
    own.write_text(
        'kind = "prompts"\nname = "mine"\nmax_token = 5\n[[prompts]]\ntext = "a"\n[[prompts]]\ntexxt = "b"\n'
    )
    ran = sandbox.run("workloads", "check", str(own))
    assert ran.code == 2 and ran.out == ""
    lines = ran.err.splitlines()
    assert any(f"{own}:3" in line and "did you mean max_tokens?" in line for line in lines)
    assert any(f"{own}:7" in line and "did you mean text?" in line for line in lines)


def test_simulator_presets_are_listed(sandbox: Sandbox) -> None:
    table = sandbox.run("sim", "--list")
    names = [preset["name"] for preset in sandbox.json("sim", "--list", "--json")]
    assert table.code == 0 and "moe-tp1" in names
    assert [line.split()[0] for line in table.out.splitlines()] == names


def test_sim_prints_its_url_and_serves_until_stopped(sandbox: Sandbox) -> None:
    simulator = sandbox.start("sim", "moe-tp1", "--speed", "20", "--slots", "2")
    url = wait_until(simulator.stdout_so_far, "its URL").strip()
    with urllib.request.urlopen(f"{url}/v1/models", timeout=60) as answer:
        assert json.load(answer)["data"][0]["owned_by"] == "swarmtui-sim"
    ran = sandbox.run_benchmark(url, *SHORT, "--levels", "2", "--json")
    assert ran.code == 0 and json.loads(ran.out)["levels"][0]["ok"] >= 5
    assert json.loads(ran.out)["session"]["simulated"], "recognised as a simulator by its URL"
    simulator.signal_group(signal.SIGINT)
    ended = simulator.wait()
    assert (ended.code, ended.out, ended.err) == (0, f"{url}\n", "")


def test_unknown_simulator_preset(sandbox: Sandbox) -> None:
    ran = sandbox.run("sim", "moe-tp11")
    assert ran.code == 2 and "did you mean moe-tp1?" in ran.err and "Traceback" not in ran.err


def test_help_and_version(sandbox: Sandbox) -> None:
    assert sandbox.run("--version").out.startswith("swarmtui ")
    text = sandbox.run("--help").out
    assert all(name in text for name in ("run", "sessions", "workloads", "sim", "Exit codes"))
    assert "..." not in text.partition("Commands")[2], "each line fits"


def test_a_group_without_arguments_is_no_error(sandbox: Sandbox) -> None:
    """Those that have a list print it, `traces` its help."""
    for ran in sandbox.run_each(("traces",), ("sessions",), ("workloads",)):
        assert ran.code == 0 and ran.out and not ran.err, ran
    assert "record  Make traces" in sandbox.run("traces").out


def test_misspelt_command_suggests_a_similar_one(sandbox: Sandbox) -> None:
    assert "did you mean sessions?" in sandbox.run("sesions").error_line(2)


# Packages of swarmtui and of others that are imported to print help.
FOR_HELP = {"cli", "model", "processes", "text", "version"}, {"click", "msgspec", "typing_extensions"}


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_and_version_import_little(option: str) -> None:
    """Imports are nearly all of the time that they take."""
    code = (
        "import atexit, sys; from swarmtui.cli import main; atexit.register(lambda: print('|', *sys.modules)); main()"
    )
    ran = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = [name.split(".") for name in ran.stdout.rpartition("|")[2].split()]
    ours, others = FOR_HELP
    assert {words[1] for words in loaded if words[0] == "swarmtui" and words[1:]} == ours
    assert sum(words[0] == "swarmtui" for words in loaded) <= 12, "no module of a command"
    outside = {words[0] for words in loaded} - {*sys.stdlib_module_names, "swarmtui", "__main__", "sitecustomize"}
    assert {name for name in outside if not name.startswith("_")} <= others
    assert not {"asyncio", "socket", "ssl", "subprocess", "json"} & {words[0] for words in loaded}


def test_help_names_every_api() -> None:
    (option,) = options.api(click.Command("any")).params
    assert isinstance(option, click.Option) and all(name in str(option.help) for name in PATHS)


def test_attach_asks_for_an_id_if_several_sessions_are_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("swarmtui.client.session_client.running_sessions", lambda: ["20260101-1", "20260101-2"])
    monkeypatch.setattr("swarmtui.tui.launch.describe_sessions", lambda ids: [f"{name}  model" for name in ids])
    with pytest.raises(BadInput, match="swarmtui attach ID"):
        attach.main(["20260101"], standalone_mode=False)
    assert capsys.readouterr() == ("", "20260101-1  model\n20260101-2  model\n")
