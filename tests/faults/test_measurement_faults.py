"""Faults that bend figures are named: a server that freezes, and usage that contradicts the text."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.cli.programs import Sandbox, wait_until
from tests.cli.scripted_server import ReceivedRequest, Responder, ScriptedHandler, scripted_server

LOAD = ("--levels", "4", "--requests", "16", "--warmup", "2", "--seed", "1", "--no-gpu", "--json")


def states(summary: dict[str, Any]) -> dict[str, str]:
    return {line["code"]: line["state"] for line in summary["quality"]}


def flags(summary: dict[str, Any]) -> set[str]:
    return {flag["code"] for level in summary["levels"] for flag in level["flags"]}


def miscounting(chunks: int, usage: int, tokenized: int | None = None) -> Responder:
    """Stream so many chunks, and count so many tokens; `tokenized` is what /tokenize says, if the server has that."""

    def answer(to: ScriptedHandler, request: ReceivedRequest) -> None:
        if request.path == "/tokenize" and tokenized is not None:
            to.whole(200, json.dumps({"count": tokenized}).encode())
            return
        to.begin_stream()
        for number in range(chunks):
            delta = {"content": f"word {number} "}
            to.event(json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
        to.event(json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        to.event(json.dumps({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": usage}}))
        to.end_stream()

    return answer


@pytest.mark.parametrize(("usage", "state"), [(60, "ok"), (62, "ok"), (30, "doubtful"), (0, "doubtful")])
def test_usage_that_contradicts_the_text_is_named(sandbox: Sandbox, usage: int, state: str) -> None:
    with scripted_server(miscounting(60, usage)) as server:
        ran = sandbox.run_benchmark(server.url, *LOAD)
    assert ran.code == 0, ran
    found = sandbox.show_session()
    assert states(found)["token_counts"] == state
    assert ("miscounted" in flags(found)) == (state == "doubtful")
    (level,) = found["levels"]
    assert level["miscounted"] == (level["ok"] if state == "doubtful" else 0)


@pytest.mark.parametrize(("usage", "state"), [(62, "ok"), (30, "doubtful"), (120, "doubtful")])
def test_usage_that_contradicts_the_tokenizer_is_named(sandbox: Sandbox, usage: int, state: str) -> None:
    """Each chunk holds three tokens, so that the number of chunks contradicts neither count."""
    with scripted_server(miscounting(20, usage, tokenized=60), tokenizes=True) as server:
        ran = sandbox.run_benchmark(server.url, *LOAD)
    assert ran.code == 0, ran
    found = sandbox.show_session()
    (counts,) = (line for line in found["quality"] if line["code"] == "token_counts")
    assert counts["state"] == state
    assert ("/tokenize" in counts["value"]) is (state == "doubtful")


# Imported by every Python process: whether this host is busy is not known. A busy one explains a silence, too.
UNKNOWN_HOST = """
import time
from swarmtui.model.telemetry import HostLoad
from swarmtui.telemetry.host import HostReader
HostReader.read = lambda self, **options: HostLoad(t_ns=time.perf_counter_ns())
"""


def test_a_server_that_is_stopped_for_three_seconds_froze(sandbox: Sandbox) -> None:
    hooks = sandbox.home / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(UNKNOWN_HOST)
    env = {"PYTHONPATH": f"{hooks}:{sandbox.environment['PYTHONPATH']}"}
    simulator = subprocess.Popen(
        [sys.executable, "-m", "swarmtui.sim", "moe-tp1?output.median=150", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert simulator.stdout is not None
        url = simulator.stdout.readline().split()[-1]
        # Far more requests than are answered before the server is stopped, however late that is.
        command = sandbox.start_benchmark(url, "--workload", "chat", *LOAD, "--requests", "32", env=env)
        wait_until(lambda: answered(sandbox) >= 6, "some measured answers")
        simulator.send_signal(signal.SIGSTOP)
        time.sleep(3.0)  # the fault is that nothing happens for this time
        simulator.send_signal(signal.SIGCONT)
        ran = command.wait()
    finally:
        simulator.kill()
        simulator.communicate()
    assert ran.code == 0, ran
    found = sandbox.show_session()
    assert states(found)["server_stall"] == "doubtful"
    kinds = {silence["kind"] for level in found["levels"] for silence in level["silences"]}
    assert kinds and kinds <= flags(found) and kinds <= {event["name"] for event in found["events"]}
    assert max(silence["seconds"] for level in found["levels"] for silence in level["silences"]) >= 2.9
    shown = sandbox.run("sessions", "show", "last", "--session-dir", str(sandbox.sessions)).out
    assert "Doubt the server froze" in " ".join(shown.split())


def answered(sandbox: Sandbox) -> int:
    """Count the measured answers in the journal."""
    try:
        lines = (sandbox.session / "journal.jsonl").read_text().splitlines()
    except (OSError, ValueError, IndexError):
        return 0
    entries = [json.loads(line) for line in lines if line.endswith("}") and '"request"' in line]
    return sum(entry["record"].get("phase", "level") == "level" for entry in entries if entry["kind"] == "request")
