"""The CI action: its script turns the verdict of `swarmtui ab` into a summary and an exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from swarmtui.cli.experiments import ab
from tests.cli.programs import ROOT, CommandResult

ACTION = ROOT / ".github" / "actions" / "bench"

# Stands in for the package: saves the arguments, prints the result and exits.
STUB = """
import json, os, sys
open(os.environ["ARGUMENTS"], "w").write(json.dumps(sys.argv[1:]))
print(os.environ["RESULT"])
sys.exit(int(os.environ["CODE"]))
"""


def run_script(folder: Path, word: str = "not sure yet", code: int = 0, **options: str) -> CommandResult:
    (folder / "swarmtui").mkdir(exist_ok=True)
    (folder / "swarmtui" / "__init__.py").write_text("")
    (folder / "swarmtui" / "__main__.py").write_text(STUB)
    result = {
        "test": {"figure": "out_tps", "a": "server-1 --port {port}", "b": "server-2 --port {port}"},
        "runs": [{"side": side, "value": value} for side, value in (("A", 100), ("B", 90), ("B", 92), ("A", 104))],
        "decision": {"word": word, "sentence": "−10.8 % (95 % interval −14 to −7 %)"},
    }
    environment = os.environ | options | {
        "PYTHONPATH": str(folder), "BASE": "server-1 --port {port}", "HEAD": "http://h:1", "RESULT": json.dumps(result),
        "CODE": str(code), "ARGUMENTS": str(folder / "arguments"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"), "GITHUB_OUTPUT": str(folder / "output"),
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, ACTION / "compare.py"], env=environment, capture_output=True, text=True, check=False
    )
    return CommandResult(ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.parametrize(("word", "code"), [("slower", 1), ("faster", 0), ("same", 0), ("not sure yet", 0)])
def test_only_slower_fails_and_the_table_is_in_the_summary(tmp_path: Path, word: str, code: int) -> None:
    assert run_script(tmp_path, word, LEVEL="8", MAX_TOKENS="").code == code
    arguments = json.loads((tmp_path / "arguments").read_text())
    assert arguments == ["ab", "--yes", "--json", "--a", "server-1 --port {port}", "--b", "http://h:1", "--level", "8"]
    summary = (tmp_path / "summary").read_text()
    assert f"swarmtui: {word}" in summary and "−10.8 %" in summary
    assert "| 1 | 100 | 90 |\n| 2 | 104 | 92 |\n| mean | 102 | 91 |" in summary
    assert (tmp_path / "output").read_text() == f"verdict={word}\n"


def test_failed_comparison_is_no_verdict(tmp_path: Path) -> None:
    assert run_script(tmp_path, code=3).code == 3
    assert not (tmp_path / "summary").exists()


def test_inputs_of_the_action_are_options_of_ab() -> None:
    text = (ACTION / "action.yml").read_text()
    passed = dict(re.findall(r"^ +([A-Z_]+): \$\{\{ inputs\.([a-z-]+) \}\}$", text, re.MULTILINE))
    declared = re.findall(r"^  ([a-z-]+):\n    description", text.partition("\noutputs:")[0], re.MULTILINE)
    assert sorted(passed.values()) == sorted(declared)
    script = (ACTION / "compare.py").read_text()
    assert all(f'"{name}"' in script for name in passed.keys() - {"BUILD"})
    options = {option for parameter in ab.params for option in parameter.opts}
    assert {f"--{name}" for name in passed.values()} - {"--base", "--head", "--build"} <= options
    assert "${{ inputs" not in "".join(re.findall(r"run: .*", text))
