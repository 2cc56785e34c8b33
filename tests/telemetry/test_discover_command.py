"""Run `swarmtui discover` and `doctor` next to a simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def simulator() -> Iterator[str]:
    command = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--slots=6", "--watch-stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        yield process.stdout.readline().strip()
        process.stdin.close()


def swarmtui(*words: str) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "swarmtui", *words, "--json"], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_discover_lists_simulator_with_slots(simulator: str) -> None:
    code, servers = swarmtui("discover", "--timeout", "30")
    (found,) = [server for server in servers if server["url"] == simulator]
    assert code == 0
    assert (found["engine"], found["slots"], found["reachable"]) == ("simulator", 6, True)


def test_doctor_accepts_responding_endpoint_and_rejects_missing_one(simulator: str, tmp_path: Path) -> None:
    code, lines = swarmtui("doctor", "--endpoint", simulator, "--streams", "4", "--session-dir", str(tmp_path))
    state = {line["name"]: line["state"] for line in lines}
    assert code == 0, lines
    assert list(state) == ["terminal", "colours", "open files", "GPU", "endpoint", "host CPU", "disk", "client speed"]
    # On a busy core even the shortest round trip may be long.
    assert state["endpoint"] in ("ok", "doubtful") and state["client speed"] == "ok"

    code, lines = swarmtui(
        "doctor", "--endpoint", "http://127.0.0.1:9", "--streams", "4", "--session-dir", str(tmp_path)
    )
    assert code == 1
    assert [line["name"] for line in lines if line["state"] == "wrong"] == ["endpoint"]
