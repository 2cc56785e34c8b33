"""`sessions`, `workloads` and `sim` on the command line."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator

import pytest

from tests.cli.programs import SHORT, SIM, Place, place_in, until

LAST = "two"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Two sessions, the last of them labelled."""
    with place_in(tmp_path_factory.mktemp("kept")) as place:
        for label in ("one", LAST):
            ran = place.measure(SIM, *SHORT, "--levels", "1", "--requests", "1", "--label", label)
            assert ran.code == 0, ran
        yield place


def test_sessions_are_listed_with_the_newest_first(kept: Place) -> None:
    rows = kept.listed()
    assert sorted((row["id"] for row in rows), reverse=True) == [row["id"] for row in rows]
    assert {row["label"] for row in rows} == {"one", LAST}
    for row in rows:
        assert (row["state"], row["levels"], row["requests"], row["simulated"]) == ("done", [1], 1, True)
    table = kept.run("sessions", "--session-dir", str(kept.sessions)).out
    assert table.startswith("| id") and all(row["id"] in table for row in rows)


def test_sessions_are_found_by_words_put_in_order_and_cut_short(kept: Place) -> None:
    words = ("sessions", "--json", "--session-dir", str(kept.sessions))
    assert [row["label"] for row in kept.json(*words, "--find", f"done {LAST}")] == [LAST]
    best, *_ = kept.json(*words, "--by", "best", "-n", "1")
    assert best["best_out_tps"] == max(row["best_out_tps"] for row in kept.listed())
    told = kept.run("sessions", "--find", "nowhere", "--session-dir", str(kept.sessions))
    assert (told.code, told.out) == (0, "none of 2 sessions holds 'nowhere'\n")


def test_a_shown_session_says_what_it_lacks_to_be_published(kept: Place) -> None:
    text = kept.run("sessions", "show", "last", "--session-dir", str(kept.sessions)).out
    assert "✗ samples: 1C a run, 1 run; wanted n ≥ 4C a run, ≥ 4 runs" in text


def test_a_session_is_shown_by_its_id_its_beginning_or_as_last(kept: Place) -> None:
    newest = kept.listed()[0]["id"]
    assert kept.shown("last") == kept.shown(newest) == kept.shown(newest[:-1])
    text = kept.run("sessions", "show", "last", "--session-dir", str(kept.sessions)).out
    assert newest in text and "SIMULATED" in text and "| C" in text


def test_session_dir_may_stand_before_the_command(kept: Place) -> None:
    ran = kept.run("sessions", "--session-dir", str(kept.sessions), "show", "last", "--json")
    assert ran.code == 0 and json.loads(ran.out) == kept.shown("last")


def test_no_sessions_is_no_error(place: Place) -> None:
    ran = place.run("sessions", "--session-dir", str(place.sessions))
    assert (ran.code, ran.out, ran.err) == (0, f"no sessions yet in {place.sessions}\n", "")
    assert place.json("sessions", "--json") == []


def test_a_session_that_is_not_there(kept: Place) -> None:
    for command in (("show", "nope"), ("rm", "nope"), ("rm", "../sessions")):
        told = kept.run("sessions", *command, "--session-dir", str(kept.sessions)).refused(2)
        assert "no session of that name" in told
    assert "no session" in kept.run("sessions", "show", "last", "--session-dir", str(kept.home / "none")).refused(2)


def test_a_removed_session_is_gone(place: Place) -> None:
    place.measure(SIM, *SHORT, "--levels", "1", "--requests", "1")
    (row,) = place.listed()
    ran = place.run("sessions", "rm", row["id"], "--session-dir", str(place.sessions))
    assert (ran.code, ran.out) == (0, f"removed {row['directory']}\n")
    assert place.listed() == [] and not list(place.sessions.iterdir())


def test_a_running_session_is_listed_and_cannot_be_removed(place: Place) -> None:
    face = place.begin(SIM, *SHORT, "--levels", "1", "--requests", "100000")
    until(lambda: "C=1" in face.said(), "it runs")
    (row,) = place.listed()
    assert row["state"] == "running"
    assert "is running" in place.run("sessions", "rm", row["id"], "--session-dir", str(place.sessions)).refused(2)
    face.signal_group(signal.SIGINT)
    assert face.wait().code == 4
    assert place.listed()[0]["state"] == "stopped"


def test_shipped_workloads_are_listed_and_shown(place: Place) -> None:
    table = place.run("workloads")
    rows = place.json("workloads", "--json")
    names = {row["name"] for row in rows}
    assert names >= {"coding", "chat", "random-1k-1k", "long-prefill", "conversation"}
    assert table.code == 0 and all(name in table.out for name in names)
    shown = place.run("workloads", "show", "coding")
    assert shown.code == 0 and 'kind = "prompts"' in shown.out
    assert "did you mean coding?" in place.run("workloads", "show", "codin").refused(2)


def test_a_shown_workload_is_a_good_start_for_ones_own(place: Place) -> None:
    own = place.home / "mine.toml"
    own.write_text(place.run("workloads", "show", "chat").out)
    ran = place.run("workloads", "check", str(own))
    assert ran.code == 0 and "good" in ran.out and ran.err == ""


def test_check_names_every_mistake_at_once(place: Place) -> None:
    own = place.home / "mine.toml"
    own.write_text(
        'kind = "prompts"\nname = "mine"\nmax_token = 5\n[[prompts]]\ntext = "a"\n[[prompts]]\ntexxt = "b"\n'
    )
    ran = place.run("workloads", "check", str(own))
    assert ran.code == 2 and ran.out == ""
    lines = ran.err.splitlines()
    assert any(f"{own}:3" in line and "did you mean max_tokens?" in line for line in lines)
    assert any(f"{own}:7" in line and "did you mean text?" in line for line in lines)


def test_simulated_machines_are_listed(place: Place) -> None:
    table = place.run("sim", "--list")
    names = [preset["name"] for preset in place.json("sim", "--list", "--json")]
    assert table.code == 0 and "moe-tp1" in names
    assert [line.split()[0] for line in table.out.splitlines()] == names


def test_sim_prints_its_url_and_serves_until_it_is_stopped(place: Place) -> None:
    simulator = place.start("sim", "moe-tp1", "--speed", "20", "--seats", "2")
    url = until(simulator.printed, "its URL").strip()
    with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
        assert json.load(answer)["data"][0]["owned_by"] == "swarmtui-sim"
    ran = place.measure(url, *SHORT, "--levels", "2", "--json")
    assert ran.code == 0 and json.loads(ran.out)["levels"][0]["ok"] == 8
    assert json.loads(ran.out)["session"]["simulated"], "whoever started it, it is a simulator"
    simulator.signal_group(signal.SIGINT)
    ended = simulator.wait()
    assert (ended.code, ended.out, ended.err) == (0, f"{url}\n", "")


def test_a_simulator_that_is_not_there(place: Place) -> None:
    ran = place.run("sim", "moe-tp11")
    assert ran.code == 2 and "did you mean moe-tp1?" in ran.err and "Traceback" not in ran.err


def test_help_and_version(place: Place) -> None:
    assert place.run("--version").out.startswith("swarmtui ")
    words = place.run("--help").out
    assert all(name in words for name in ("run", "sessions", "workloads", "sim", "Exit codes"))
    assert "..." not in words.partition("Commands")[2], "each line fits"


def test_a_command_that_is_misspelt_is_guessed(place: Place) -> None:
    told = place.run("sesions")
    assert told.code == 2 and "Did you mean 'sessions'?" in told.err


def test_help_and_version_come_at_once(place: Place) -> None:
    """In processor time, which a busy machine does not stretch as it does the clock."""
    import os

    for option in ("--version", "--help"):
        used = []
        for _ in range(3):
            before = os.times()
            assert place.run(option).code == 0
            after = os.times()
            used.append(after.children_user + after.children_system - before.children_user - before.children_system)
        assert min(used) < 0.15, (option, used)
