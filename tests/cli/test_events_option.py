"""`--events jsonl`: one JSON object a line on stdout, as its schema says; the table goes to stderr."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.cli.programs import SHORT, SIM, CommandResult, Sandbox, open_sandbox
from tests.cli.test_tune import tune_command, tune_file
from tests.cli.test_tune_auto import SLOTS, auto_command, knobs
from tests.model.test_json_schema import validate

EVENTS = ("--events", "jsonl")


def read_events(ran: CommandResult) -> list[dict[str, Any]]:
    """All lines of stdout; asserts that each is valid, and that the last one has the exit code."""
    events = [json.loads(line) for line in ran.out.splitlines()]
    for event in events:
        validate("events", event)
    assert events[-1]["event"] == "end" and events[-1]["exit_code"] == ran.code, ran
    return events


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """The kinds in their order, without warnings, which a busy machine adds."""
    return [kind for kind, _ in groupby(event["event"] for event in events if event["event"] != "warning")]


def test_sweep_tells_each_level_then_the_verdicts_and_the_answer(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        plan = (*SHORT, "--levels", "1,2", "--runs", "4", "--requests", "3", "--complete")
        assert sandbox.run_benchmark(SIM, *plan, "--quiet").code == 0
        first = sandbox.session.name
        limits = ("--slo", "ttft=100s", "--fail-if", "errors>0", "--baseline", "last")
        ran = sandbox.run_benchmark(SIM, *plan, *limits, *EVENTS)
        events = read_events(ran)
        assert kinds(events)[:2] == ["session", "level"] and {"verdict", "answer"} <= set(kinds(events))
        begin = events[0]
        assert begin["slo"] == "ttft=100s" and begin["simulated"] and begin["session"] != first
        levels = [event for event in events if event["event"] == "level"]
        assert {event["c"] for event in levels} == {1, 2} and max(event["runs"] for event in levels) == 4
        # The last line of a level has the figures that are saved.
        saved = sandbox.show_session()
        for level in saved["levels"]:
            told = [event for event in levels if event["c"] == level["c"]][-1]
            assert (told["n"], told["out_tps_steady"]) == (level["n"], level["out_tps_steady"])
        baseline = [event for event in events if event.get("about") == "baseline"]
        words = ("faster", "slower", "same", "not sure yet")
        assert [event["word"] in words for event in baseline] == [True] and baseline[0]["sentence"]
        assert [event["word"] for event in events if event.get("about") == "fail_if"] == ["kept"]
        (answer,) = [event for event in events if event["event"] == "answer"]
        assert answer["answer"] == saved["answer"] and answer["session"] == begin["session"]
        assert "|" in ran.err and "steady" in ran.err, "the table"


def test_search_tells_its_verdicts(sandbox: Sandbox) -> None:
    slow = ("sim:moe-tp1?slots=1&output.cv=0", "--max-tokens", "40", "--slo", "ttft_p50=120ms", "--budget", "20s")
    ran = sandbox.run("quick", *slow, *EVENTS, "--session-dir", str(sandbox.sessions))
    assert ran.code == 0, ran
    events = read_events(ran)
    words = {event["c"]: event["word"] for event in events if event.get("about") == "slo"}
    (answer,) = [event["answer"] for event in events if event["event"] == "answer"]
    # On a busy machine, what is missed proves nothing; it may get busy after that was said.
    assert words[1] == "kept" and words[2] in ("missed", *(["unsure"] if answer["disturbed"] else []))
    assert answer["agents"] == 1 and answer["slo"] == "ttft_p50=120ms"
    assert "One agent" in ran.err and "Quality" in ran.err


def test_a_missed_limit_and_an_unusable_server_are_in_the_last_line(sandbox: Sandbox) -> None:
    missed = sandbox.run_benchmark(SIM, *SHORT, "--levels", "1", "--fail-if", "n>0", *EVENTS)
    assert missed.code == 1, missed
    verdict, end = read_events(missed)[-2:]
    assert (verdict["about"], verdict["word"], end["state"]) == ("fail_if", "missed", "done")
    unusable = sandbox.run_benchmark("http://127.0.0.1:9", "--levels", "1", *EVENTS)
    assert unusable.code == 3, unusable
    (end,) = read_events(unusable)
    assert end["state"] == "unusable" and end["message"]


def test_events_and_json_exclude_each_other(sandbox: Sandbox) -> None:
    assert "--json: prints one document" in sandbox.run_benchmark(SIM, "--json", *EVENTS).error_line(2)


def test_tune_tells_configurations_and_standings(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        cells = '[grid]\n"--mode" = ["serve"]\n"--slots" = [1, 4]\n'
        cells += '[[configurations]]\n"--slots" = 4\n"--mode" = "crash"'
        ran = sandbox.run(*tune_command(sandbox, tune_file(sandbox, cells, restarts="0"), "--yes", *EVENTS))
        assert ran.code == 0, ran
        events = read_events(ran)
        measured = ["session", "level", "answer", "configuration"]
        # The one that fails is first, between the others or last.
        assert "".join(kinds(events)).replace("".join(measured), "").removeprefix("configuration") == "verdictend"
        found = [event for event in events if event["event"] == "configuration"]
        (failed,) = [row for row in found if row["state"] == "broken"]
        assert failed["flags"]["--mode"] == "crash" and failed["reason"] == "exited with code 1"
        done = [row for row in found if row["state"] == "done"]
        begun = [event["session"] for event in events if event["event"] == "session"]
        assert {row["flags"]["--slots"] for row in done} == {1, 4} and [row["session"] for row in done] == begun
        (verdict,) = [event for event in events if event["event"] == "verdict"]
        assert verdict["word"] == "leads so far" and verdict["flags"]["--slots"] == 4
        assert "▸" in ran.err or "tok/s" in ran.err


def test_automatic_tune_tells_its_verdict(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        ran = sandbox.run(*auto_command(sandbox, *knobs(SLOTS), *EVENTS, budget="5s"))
        assert ran.code == 0, ran
        events = read_events(ran)
        (verdict,) = [event for event in events if event.get("about") == "tune"]
        assert verdict["word"] is None and verdict["sentence"], "there is no time to compare it"
        assert {"session", "level", "answer", "configuration", "verdict", "end"} == set(kinds(events))
