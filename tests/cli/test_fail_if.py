"""`--fail-if` and `--slo` determine the exit code."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.programs import SHORT, SIM, Sandbox


def test_met_limits_exit_with_0(sandbox: Sandbox) -> None:
    arguments = (
        "--levels",
        "1,2",
        "--complete",
        "--fail-if",
        "errors>0 or e2e_mean@2>60s",
        "--fail-if",
        "out_tps_wall<1",
        "--quiet",
    )
    ran = sandbox.run_benchmark(SIM, *SHORT, *arguments, "--slo", "e2e=60s,share=40%")
    assert ran.code == 0, ran
    assert "SLO met up to C=2" in ran.err and "missed" not in ran.err


def test_missed_limit_exits_with_1_and_is_reported(sandbox: Sandbox) -> None:
    ran = sandbox.run_benchmark(SIM, *SHORT, "--levels", "1,2", "--fail-if", "errors>0 or n@2>1", "--json")
    assert ran.code == 1, ran
    assert re.search(r"missed: n@2>1: n is \d+ at C=2", ran.err)
    assert len(json.loads(ran.out)["levels"]) == 2
    assert sandbox.show_session()["state"] == "done"


def test_limit_that_cannot_be_evaluated_is_missed(sandbox: Sandbox) -> None:
    ran = sandbox.run_benchmark(SIM, *SHORT, "--levels", "1", "--fail-if", "ttft_p99>10s")
    assert ran.code == 1, ran
    assert "cannot be evaluated, which counts as missed (more --requests, or FIGURE@C): ttft_p99>10s: " in ran.err
    assert "p99 needs 299 answers, C=1 has 5" in ran.err


def test_undecided_limit_is_a_warning_unless_asked_to_fail(sandbox: Sandbox) -> None:
    """No figure is below and above the same limit; it is not sure for those limits that are in its interval.

    The rate is in the middle of the limits, and so slow that a busy machine hardly changes it.
    """
    slow = "sim:moe-tp1?speed=3"
    limits = [f"{20 * 1.005**n:.3f}" for n in range(1000)]
    condition = " or ".join(f"out_tps_steady@2<{limit} and out_tps_steady@2>{limit}" for limit in limits)
    arguments = (*SHORT, "--levels", "2", "--requests", "12", "--fail-if", condition)
    ran = sandbox.run_benchmark(slow, *arguments)
    assert ran.code == 0 and "warning: not sure, the limit is within the interval" in ran.err, ran
    assert sandbox.run_benchmark(slow, *arguments, "--fail-unsure").code == 1


def test_missed_slo_exits_with_1_and_goodput_is_saved(sandbox: Sandbox) -> None:
    ran = sandbox.run_benchmark(SIM, *SHORT, "--levels", "1", "--slo", "ttft=1us,share=60%")
    assert ran.code == 1, ran
    saved = sandbox.show_session()
    # On a busy machine, what is missed proves nothing.
    word, kept = ("not sure yet", None) if saved["answer"]["disturbed"] else ("missed", False)
    assert f"SLO {word} at C=1: 0 of 5 requests met it, 60 % required" in ran.err
    (found,) = saved["goodput"]
    assert (found["n"], found["good"], found["share"], found["kept"]) == (5, 0, 0.0, kept)


def test_undecided_slo_exits_with_1(sandbox: Sandbox) -> None:
    """Five requests that meet an objective do not show that 95 % do."""
    ran = sandbox.run_benchmark(SIM, *SHORT, "--levels", "1", "--slo", "e2e=60s")
    assert ran.code == 1, ran
    assert "SLO not sure yet at C=1: 5 of 5 requests met it, 95 % required; at least 59 requests are needed" in ran.err
    (found,) = sandbox.show_session()["goodput"]
    assert found["kept"] is None and found["share_low"] < 0.95


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--fail-if", "ttft_p51>1s"), "unknown figure ttft_p51, did you mean"),
        (("--fail-if", "ttft_p50>1"), "1 has no unit"),
        (("--slo", "ttft=fast"), "'ttft=fast' is not in the form ttft=500ms"),
    ],
)
def test_invalid_limit_is_rejected_before_the_run(sandbox: Sandbox, arguments: tuple[str, ...], error: str) -> None:
    assert error in sandbox.run_benchmark(SIM, *arguments).error_line(2)
    assert not sandbox.sessions.exists()
