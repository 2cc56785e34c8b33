"""Run `swarmtui discover` and `doctor` next to a simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Sandbox, open_sandbox


@pytest.fixture
def simulator() -> Iterator[str]:
    command = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--slots=6", "--watch-stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        yield process.stdout.readline().strip()
        process.stdin.close()


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with open_sandbox(tmp_path) as sandbox:
        yield sandbox


def swarmtui(sandbox: Sandbox, *words: str) -> tuple[int, Any]:
    ran = sandbox.run(*words, "--json")
    assert ran.out, ran
    return ran.code, json.loads(ran.out)


def test_discover_lists_simulator_with_slots(simulator: str, sandbox: Sandbox) -> None:
    code, servers = swarmtui(sandbox, "discover", "--timeout", "30")
    (found,) = [server for server in servers if server["url"] == simulator]
    assert code == 0
    assert (found["engine"], found["slots"], found["reachable"]) == ("simulator", 6, True)


def test_doctor_accepts_responding_endpoint_and_rejects_missing_one(simulator: str, sandbox: Sandbox) -> None:
    common = ("--streams", "4", "--session-dir", str(sandbox.sessions))
    code, lines = swarmtui(sandbox, "doctor", "--endpoint", simulator, *common)
    state = {line["name"]: line["state"] for line in lines}
    assert code == 0, lines
    assert list(state) == ["terminal", "colours", "open files", "GPU", "endpoint", "host CPU", "disk", "client speed"]
    # On a busy core even the shortest round trip may be long.
    assert state["endpoint"] in ("ok", "doubtful") and state["client speed"] == "ok"

    code, lines = swarmtui(sandbox, "doctor", "--endpoint", "http://127.0.0.1:9", *common)
    assert code == 1
    assert [line["name"] for line in lines if line["state"] == "wrong"] == ["endpoint"]
