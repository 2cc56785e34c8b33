"""The script that causes faults on real servers works: here on the simulator, where a proxy halves the token counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from swarmtui.processes.spawn import start_simulator
from tests.cli.programs import ROOT
from tests.real.proxy import halve_usage


def test_halved_counts_keep_their_length() -> None:
    line = b'data: {"usage":{"prompt_tokens":12,"completion_tokens":100,"total_tokens":112}}\n\n'
    assert halve_usage(line) == line.replace(b":100,", b": 50,")


def test_a_fault_on_a_running_server_is_counted(tmp_path: Path) -> None:
    simulator = start_simulator("moe-tp1?speed=5")
    try:
        words = ("--endpoint", simulator.url(), "--only", "kill-restart,halved-usage", "--times", "1", "--quiet", "0")
        command = [sys.executable, "-m", "tests.real", *words, "--dir", str(tmp_path)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        simulator.end()
    assert ran.returncode == 0, ran
    assert "not applicable" in ran.stdout and "1 of 1 named" in ran.stdout and "token_counts 1" in ran.stdout
