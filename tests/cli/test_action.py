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
from tests.cli.programs import ROOT, SHORT, CommandResult, Program, Sandbox

ACTION = ROOT / ".github" / "actions" / "bench"

# Stands in for the package: saves the arguments, prints the result and exits.
STUB = """
import json, os, sys
open(os.environ["ARGUMENTS"], "w").write(json.dumps(sys.argv[1:]))
print(os.environ["RESULT"])
sys.exit(int(os.environ["CODE"]))
"""


def run_script(folder: Path, word: str = "not sure yet", code: int = 0, **options: str) -> CommandResult:
    result = {
        "test": {"figure": "out_tps", "a": "server-1 --port {port}", "b": "server-2 --port {port}"},
        "runs": [{"side": side, "value": value} for side, value in (("A", 100), ("B", 90), ("B", 92), ("A", 104))],
        "decision": {"word": word, "sentence": "−10.8 % (95 % interval −14 to −7 %)"},
    }
    servers = {"BASE": "server-1 --port {port}", "HEAD": "http://h:1"}
    return run_stub(folder, json.dumps(result), code, **servers | options)


def run_stub(folder: Path, result: str, code: int = 0, **options: str) -> CommandResult:
    """Run the script with a package that prints the result of every command."""
    (folder / "swarmtui").mkdir(exist_ok=True)
    (folder / "swarmtui" / "__init__.py").write_text("")
    (folder / "swarmtui" / "__main__.py").write_text(STUB)
    environment = os.environ | options | {
        "PYTHONPATH": str(folder), "RESULT": result, "CODE": str(code), "ARGUMENTS": str(folder / "arguments"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"), "GITHUB_OUTPUT": str(folder / "output"),
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, ACTION / "compare.py"], env=environment, cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
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


def compared_pair(word: str | None, **fields: object) -> dict[str, object]:
    row = {"c": 8, "figure": "out_tps_steady", "before": 100.0, "after": 90.0, "leads": True, "verdict": {"word": word}}
    differences = [{"what": "GPUs", "before": "3090", "after": "4090"}]
    return {
        "refused": [], "doubts": [], "sentence": "−10 %", "rows": [row], "differences": differences,
    } | fields  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "code", "word"),
    [
        (compared_pair("slower"), 1, "slower"),
        (compared_pair("faster"), 0, "faster"),
        (compared_pair(None), 0, "not sure yet"),
        (compared_pair("slower", doubts=["the host was busy"]), 0, "not sure yet"),
        (compared_pair(None, refused=[{"code": "workload"}]), 2, None),
    ],
)
def test_verdict_against_a_shared_file(tmp_path: Path, pair: dict[str, object], code: int, word: str | None) -> None:
    options = {"BASE": "base.swarm.json.gz", "HEAD": "http://h:1", "LEVEL": "8", "MAX_RUNS": "4"}
    ran = run_stub(tmp_path, json.dumps({"pairs": [pair]}), 0, **options)
    assert ran.code == code, ran
    if word is None:
        assert "−10 %" in ran.err and not (tmp_path / "summary").exists()
        return
    summary = (tmp_path / "summary").read_text()
    assert f"### swarmtui: {word}" in summary and "head compared with `base.swarm.json.gz`: −10 %" in summary
    assert "Different: GPUs 3090 → 4090" in summary and "| 8 | out_tps_steady | 100 | 90 |" in summary
    assert (tmp_path / "output").read_text() == f"verdict={word}\n"


def test_shared_file_is_a_base(sandbox: Sandbox) -> None:
    """Head is measured and compared, whether it runs already or is started by its command."""
    arguments = (*SHORT, "--levels", "2", "--runs", "4", "--quiet")
    assert sandbox.run_benchmark("sim:moe-tp1?speed=30", *arguments).code == 0
    shared = sandbox.run("share", "-o", "base.swarm.json.gz", "--session-dir", str(sandbox.sessions))
    assert shared.code == 0, shared

    def compare(head: str, **options: str) -> CommandResult:
        environment = sandbox.environment | options | {
            "BASE": "base.swarm.json.gz", "HEAD": head, "LEVEL": "2", "MAX_RUNS": "4", "MAX_TOKENS": "8",
            "GITHUB_STEP_SUMMARY": str(sandbox.home / "summary"), "GITHUB_OUTPUT": str(sandbox.home / "output"),
        }  # fmt: skip
        command = [sys.executable, str(ACTION / "compare.py")]
        return Program(command, environment, sandbox.home, forked=True).wait()

    for head in ("sim:moe-tp1?speed=5", f"{sys.executable} -m swarmtui sim moe-tp1 --speed 5 --port {{port}}"):
        ran = compare(head)
        # A busy host is a reason not to be sure.
        word = (sandbox.home / "output").read_text().splitlines()[-1].removeprefix("verdict=")
        assert word in ("slower", "not sure yet") and ran.code == int(word == "slower"), ran
        assert "| 2 | out_tps_steady |" in (sandbox.home / "summary").read_text()
    assert not sandbox.processes("swarmtui sim"), "what it started has ended"
    other = compare("sim:moe-tp1?speed=30", WORKLOAD="chat")
    assert other.code == 2 and "different workloads" in other.err
    assert compare("sim:moe-tp1", FIGURE="ttft_s").code == 2


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
