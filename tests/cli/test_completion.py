"""Completion in real shells: of commands, options, their choices and names of workloads."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.programs import Program, Sandbox

BASH = """
source "$1"
COMP_WORDS=("${@:2}"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
_swarmtui_completion swarmtui
printf '%s\\n' "${COMPREPLY[@]}"
"""


def put_on_path(sandbox: Sandbox) -> None:
    """Make `swarmtui` a command of this sandbox."""
    folder = sandbox.home / "bin"
    folder.mkdir()
    (folder / "swarmtui").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m swarmtui "$@"\n')
    (folder / "swarmtui").chmod(0o755)
    sandbox.environment["PATH"] = f"{folder}:{sandbox.environment['PATH']}"


def complete_in_bash(sandbox: Sandbox, *words: str) -> list[str]:
    script = sandbox.home / "completion.bash"
    if not script.exists():
        put_on_path(sandbox)
        script.write_text(sandbox.run("completion", "bash").out)
    command = ["bash", "--norc", "-c", BASH, "bash", str(script), "swarmtui", *words]
    ran = Program(command, sandbox.environment, sandbox.home).wait()
    assert ran.code == 0 and not ran.err, ran
    return ran.out.split()


def test_bash_completes_commands_options_and_choices(sandbox: Sandbox) -> None:
    assert complete_in_bash(sandbox, "co") == ["compare", "completion"]
    assert complete_in_bash(sandbox, "run", "--met") == ["--metrics-url", "--metrics-port"]
    assert complete_in_bash(sandbox, "run", "--arrival", "") == ["poisson", "constant", "gamma"]
    assert complete_in_bash(sandbox, "sessions", "sh") == ["show"]
    assert "coding" in complete_in_bash(sandbox, "run", "--workload", "co")
    assert complete_in_bash(sandbox, "sim", "moe-tp1") == ["moe-tp1"]
    assert "messages" in complete_in_bash(sandbox, "quick", "--api", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_script_is_valid_for_other_shells(sandbox: Sandbox, tmp_path: Path, shell: str) -> None:
    ran = sandbox.run("completion", shell)
    assert ran.code == 0 and "_SWARMTUI_COMPLETE" in ran.out and not ran.err, ran
    if shutil.which(shell) is not None:
        script = tmp_path / "script"
        script.write_text(ran.out)
        checked = Program([shell, "-n", str(script)], sandbox.environment, sandbox.home).wait()
        assert checked.code == 0, checked


def test_unknown_shell_is_refused(sandbox: Sandbox) -> None:
    ran = sandbox.run("completion", "tcsh")
    assert ran.code == 2 and "'bash', 'zsh', 'fish'" in ran.err
