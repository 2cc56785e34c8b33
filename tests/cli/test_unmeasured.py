"""What cannot be measured is said before the run, or is not a result with exit code 0."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from swarmtui.processes.exits import BAD_INPUT, DONE, UNUSABLE
from tests.cli.programs import SIM, Sandbox
from tests.cli.scripted_server import (
    ReceivedRequest,
    ScriptedHandler,
    respond_with_words,
    scripted_server,
)

# Of the 249 requests of the workload `agents`, 174 are longer than this.
_SHORT = "sim:moe-tp1?speed=20&max_model_len=4096"
_BRIEF = ("--workload", "agents", "--levels", "2", "--requests", "6", "--max-gap", "10ms", "--no-gpu")


def test_a_trace_longer_than_the_context_is_refused_before_the_run(sandbox: Sandbox) -> None:
    line = sandbox.run_benchmark(_SHORT, *_BRIEF).error_line(BAD_INPUT)
    assert "174 of 249 requests" in line and "4,096 tokens" in line
    assert "--too-long skip" in line and "--too-long truncate" in line
    assert not sandbox.list_sessions()


@pytest.mark.parametrize(("how", "done"), [("skip", "left out"), ("truncate", "cut off")])
def test_requests_that_do_not_fit_are_left_out_or_shortened(sandbox: Sandbox, how: str, done: str) -> None:
    ran = sandbox.run_benchmark(_SHORT, *_BRIEF, "--too-long", how)
    assert ran.code == DONE, ran
    assert "warning: 174 of 249 requests" in ran.err and done in ran.err
    summary = sandbox.show_session()
    (said,) = [event["detail"] for event in summary["events"] if event["name"] == "too_long"]
    assert "174 of 249 requests" in said
    (level,) = summary["levels"]
    assert level["errors"] == 0 and level["ok"] >= 6
    assert max(request["tokens_in"] for request in sandbox.detail()["requests"] if request["tokens_in"]) <= 4096


def test_too_long_is_an_option_of_traces(sandbox: Sandbox) -> None:
    assert "only for traces" in sandbox.run_benchmark(_SHORT, "--too-long", "skip").error_line(BAD_INPUT)


def test_a_level_without_an_answer_is_no_result(sandbox: Sandbox) -> None:
    """The server answers one agent, and rejects the requests of two."""
    answer, arrived, in_flight = respond_with_words(3), threading.Condition(), Counter[str]()

    def serve_one_agent(to: ScriptedHandler, request: ReceivedRequest) -> None:
        with arrived:
            in_flight["now"] += 1
            in_flight["most"] = max(in_flight["most"], in_flight["now"])
            arrived.notify_all()
            # The first level is over: wait for the request of the second agent.
            alone = in_flight["answered"] < 5 or not arrived.wait_for(lambda: in_flight["most"] > 1, 2.0)
        if alone and in_flight["most"] == 1:
            answer(to, request)
            in_flight["answered"] += 1
        else:
            to.whole(400, b'{"error": {"message": "too many"}}')
        in_flight["now"] -= 1

    with scripted_server(serve_one_agent) as server:
        options = ("--requests", "5", "--warmup", "none", "--no-gpu", "--quiet")
        ran = sandbox.run_benchmark(server.url, "--levels", "1,2", *options)
    error = ran.error_line(UNUSABLE)
    assert "nothing was measured at C=2: every request failed: " in error and error.endswith(" http_400")


def test_what_failed_is_counted_by_kind_alike_during_the_run_and_in_its_result(sandbox: Sandbox) -> None:
    failing = f"{SIM}&failures.http_503=0.2&failures.reset=0.1"
    ran = sandbox.run_benchmark(failing, "--levels", "4", "--requests", "20", "--max-tokens", "8", "--seed", "1")
    summary = sandbox.show_session()
    (level,) = summary["levels"]
    counts = level["error_counts"]
    assert {"http_503", "reset"} <= set(counts) and sum(counts.values()) == level["errors"]
    kinds = ", ".join(f"{counts[name]} {name}" for name in sorted(counts, key=lambda name: -counts[name]))
    assert f"C=4: {level['ok']} ok, {level['errors']} errors ({kinds})" in ran.err
    failed = f"{level['errors']} of {level['ok'] + level['errors']} requests failed"
    assert any(flag["code"] == "errors" and flag["text"].startswith(failed) for flag in level["flags"])
    assert f"{failed} ({kinds})" in summary["answer"]["limit"]["sentence"]
    assert kinds in " ".join(ran.out.split())
