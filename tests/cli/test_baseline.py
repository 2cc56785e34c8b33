"""`run --baseline` and the tuning log."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from swarmtui.cli.follow import Outputs, report
from swarmtui.cli.progress import open_progress
from swarmtui.experiments.groups import session_flags
from swarmtui.experiments.store import baseline_effects, read_log
from swarmtui.model.client_protocol import Ended
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.store import load_session, with_session_beside, write_summary
from swarmtui.tui.baseline import find_baseline, record_effect
from tests.cli.programs import open_sandbox
from tests.sessions.session_builders import full_session, write_session

PLAN = ("--levels", "4", "--runs", "4", "--requests", "8", "--max-tokens", "16", "--quiet")


def test_run_compared_with_the_last_is_logged(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        sandbox.run_benchmark("sim:moe-tp1?slots=1", *PLAN, "--server-flags", "--max-num-seqs 1")
        first = sandbox.list_sessions()[0]["id"]
        ran = sandbox.run_benchmark(
            "sim:moe-tp1?slots=4", *PLAN, "--server-flags", "--max-num-seqs 4", "--baseline", "last"
        )
        assert ran.code == 0, ran
        # The sentence has several lines.
        text = " ".join(ran.out.split())
        assert re.search(r"(faster|not sure yet) with 4 agents: .* tok/s, \+\d+ % \(", text), text
        assert sandbox.show_session()["session"]["previous"] == first
        # What is said at the end of the run is said later, too.
        where = ("--session-dir", str(sandbox.sessions))
        (pair,) = sandbox.json("compare", first, "last", "--json", *where)["pairs"]
        assert " ".join(pair["sentence"].split()) in text
        shown = " ".join(sandbox.run("sessions", "show", "last", *where).out.split())
        assert f"compared with {first}: --max-num-seqs 1 → 4 {pair['sentence']}" in shown
        seeds = [sandbox.show_session(name)["session"]["plan"]["seed"] for name in ("last", first)]
        assert seeds[0] == seeds[1]
        log = ("sessions", "log", "--session-dir", str(sandbox.sessions))
        ran = sandbox.run(*log, "1", "--kept", "--note", "twice as fast")
        assert ran.code == 0, ran
        (change,) = sandbox.json(*log, "--json")
        assert change["before"] == first and change["what"] == "--max-num-seqs 1 → 4"
        word = "not sure yet" if pair["doubts"] else "faster"
        assert (change["verdict"], change["kept"], change["note"]) == (word, "kept", "twice as fast")
        assert "give the number of the change" in sandbox.run(*log, "--kept").error_line(2)


def test_last_is_the_last_complete_session_of_the_same_endpoint_and_kind(tmp_path: Path) -> None:
    short = ("--levels", "1", "--requests", "2", "--max-tokens", "4", "--warmup", "none", "--quiet")
    with open_sandbox(tmp_path) as sandbox:
        assert sandbox.run_benchmark("sim:moe-tp1", *short).code == 0
        first = sandbox.list_sessions()[0]["id"]
        assert sandbox.run_benchmark("sim:dense-tp1", *short).code == 0
        where = ("--session-dir", str(sandbox.sessions))
        assert sandbox.run("probe", "--endpoint", "sim:moe-tp1", "--max-tokens", "4", "--quiet", *where).code == 0
        assert len(sandbox.list_sessions()) == 3
        assert sandbox.run_benchmark("sim:moe-tp1", *short, "--baseline", "last").code == 0
        assert sandbox.show_session()["session"]["previous"] == first
        error = sandbox.run_benchmark("sim:qwen36-35b-moe", *short, "--baseline", "last").error_line(2)
        assert "--baseline" in error and "no complete session of this endpoint" in error


def test_unknown_baseline_is_rejected_before_the_run(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        error = sandbox.run_benchmark("sim:moe-tp1", "--baseline", "marked").error_line(2)
        assert "no session is marked: b on a result in the app marks it as baseline" in error
        ran = sandbox.run_benchmark("sim:moe-tp1", "--baseline", "last")
        assert "no sessions yet" in ran.error_line(2)
        assert sandbox.list_sessions() == []


def test_a_repeated_run_has_one_verdict_in_the_app_after_it_and_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R was pressed after the change, and once more: both runs are compared with the last one before the change."""
    ids = [f"20261117-12{minute:02}00-aaaa" for minute in (1, 2, 3)]
    for previous, id, slots in zip(("", *ids), ids, (2, 4, 4), strict=False):
        fields = {"server_flags": f"--parallel {slots}", "previous": previous, "repeats": bool(previous)}
        write_summary(write_session(tmp_path / id, full_session(id, **fields)))
    two, _, last = ids
    live = find_baseline(tmp_path, load_session(tmp_path, last).journal.head.session)
    assert live.summary is not None and live.summary.session.id == two
    said = record_effect(tmp_path / last)
    assert said.startswith("--parallel 2 → 4: ")
    assert (
        report(Ended("done", "", str(tmp_path / last)), (), Outputs(open_progress(sys.stderr, False)), brief=True) == 0
    )
    printed = capsys.readouterr()
    (line,) = [line for line in " ".join(printed.out.split()).split("  ") if "Compared" in line]
    assert f"Compared {said.removeprefix('--parallel 2 → 4: ')} (--parallel 2 → 4)" in line
    (logged,) = read_log(tmp_path)
    assert (logged.before, logged.after) == (two, last) and baseline_effects(tmp_path)[last] == logged
    assert with_session_beside(tmp_path, "last") == (two, last)
    assert session_flags(list_sessions(tmp_path))[last] == "--parallel 4"
    (tmp_path / "home").mkdir()
    with open_sandbox(tmp_path / "home") as sandbox:
        shown = sandbox.run("sessions", "show", last, "--session-dir", str(tmp_path)).out
    assert f"compared with {two}: --parallel 2 → 4" in shown
