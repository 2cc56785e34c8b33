"""Limits for scripts: `--fail-if` and `--slo` decide the exit code."""

from __future__ import annotations

import json

import pytest

from tests.cli.programs import SHORT, SIM, Place


def test_limits_that_hold_leave_exit_code_0(place: Place) -> None:
    words = ("--levels", "1,2", "--fail-if", "errors>0 or e2e_mean@2>60s", "--fail-if", "out_tps_wall<1", "--quiet")
    ran = place.measure(SIM, *SHORT, *words, "--slo", "e2e=60s")
    assert ran.code == 0, ran
    assert "SLO kept up to C=2" in ran.err and "missed" not in ran.err


def test_a_limit_that_was_missed_is_exit_code_1_and_named_and_the_session_is_there(place: Place) -> None:
    ran = place.measure(SIM, *SHORT, "--levels", "1,2", "--fail-if", "errors>0 or n@2>1", "--json")
    assert ran.code == 1, ran
    assert "missed: n@2>1: n is 8 at C=2" in ran.err
    assert len(json.loads(ran.out)["levels"]) == 2
    assert place.shown()["state"] == "done"


def test_a_limit_that_cannot_be_judged_is_missed(place: Place) -> None:
    ran = place.measure(SIM, *SHORT, "--levels", "1", "--fail-if", "ttft_p99>10s")
    assert ran.code == 1, ran
    assert "could not be judged: ttft_p99>10s: p99 needs 299 answers, C=1 has 4" in ran.err


def test_an_slo_that_was_missed_is_exit_code_1_and_goodput_is_kept(place: Place) -> None:
    ran = place.measure(SIM, *SHORT, "--levels", "1", "--slo", "ttft=1us,share=50%")
    assert ran.code == 1, ran
    assert "SLO missed; at C=1 0 % of requests kept it (50 % wanted)" in ran.err
    (found,) = place.shown()["goodput"]
    assert (found["n"], found["good"], found["share"], found["kept"]) == (4, 0, 0.0, False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--fail-if", "ttft_p51>1s"), "no figure is called ttft_p51, did you mean"),
        (("--fail-if", "ttft_p50>1"), "1 has no unit"),
        (("--slo", "ttft=fast"), "'ttft=fast' is not of the form ttft=500ms"),
    ],
)
def test_a_mistake_is_found_before_anything_is_measured(place: Place, words: tuple[str, ...], told: str) -> None:
    assert told in place.measure(SIM, *words).refused(2)
    assert not place.sessions.exists()
