"""`run --baseline` and the log of changes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.programs import place_in

PLAN = ("--levels", "4", "--runs", "4", "--requests", "8", "--max-tokens", "16", "--quiet")


def test_a_run_held_against_the_last_answers_in_one_line_and_is_in_the_log(tmp_path: Path) -> None:
    with place_in(tmp_path) as place:
        place.measure("sim:moe-tp1?speed=5&seats=1", *PLAN, "--server-flags", "--max-num-seqs 1")
        first = place.listed()[0]["id"]
        ran = place.measure(
            "sim:moe-tp1?speed=5&seats=4", *PLAN, "--server-flags", "--max-num-seqs 4", "--baseline", "last"
        )
        assert ran.code == 0, ran
        assert re.search(r"^C=4: \+\d+\.\d % output tok/s, faster \(4 v 4 runs, p = 0\.029\)$", ran.out, re.MULTILINE)
        assert place.shown()["session"]["previous"] == first
        log = ("sessions", "log", "--session-dir", str(place.sessions))
        ran = place.run(*log, "1", "--kept", "--note", "twice as fast")
        assert ran.code == 0, ran
        (change,) = place.json(*log, "--json")
        assert change["before"] == first and change["what"] == "--max-num-seqs 1 → 4"
        assert (change["verdict"], change["kept"], change["note"]) == ("faster", "kept", "twice as fast")
        assert "say of which change" in place.run(*log, "--kept").refused(2)


def test_a_baseline_that_is_not_there_is_said_before_anything_runs(tmp_path: Path) -> None:
    with place_in(tmp_path) as place:
        ran = place.measure("sim:moe-tp1", "--baseline", "last")
        assert "no session here yet" in ran.refused(2)
        assert place.listed() == []
