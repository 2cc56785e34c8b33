"""The file made by .ci/build-pyz runs with Python alone, and so do its child processes."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.programs import ROOT, SHORT, SIM, Program, Sandbox

# The interpreter of the virtual environment without its packages.
PYTHON = str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyz") / "swarmtui.pyz"
    subprocess.run([sys.executable, ROOT / ".ci" / "build-pyz", "--installed", "-o", path], check=True)
    return path


def start(sandbox: Sandbox, pyz: Path, *arguments: str, **env: str) -> Program:
    environment = {
        name: value for name, value in sandbox.environment.items() if not name.startswith(("PYTHON", "VIRT"))
    }
    return Program([PYTHON, str(pyz), *arguments], environment | env, sandbox.home)


def test_run_and_ab_need_nothing_but_the_file(sandbox: Sandbox, pyz: Path) -> None:
    options = ("--session-dir", str(sandbox.sessions))
    ran = start(sandbox, pyz, "run", "--endpoint", SIM, "--levels", "1", "--quiet", *SHORT, *options).wait()
    assert ran.code == 0, ran
    shared = start(sandbox, pyz, "share", "-o", "card.png", *options).wait()
    assert shared.code == 0 and (sandbox.home / "card.png").read_bytes().startswith(b"\x89PNG"), shared
    (unpacked,) = (sandbox.home / ".cache" / "swarmtui" / "pyz").iterdir()
    hint = start(sandbox, pyz, "probe", "--endpoint", SIM, "--install-hint").wait()
    assert f"{PYTHON} {pyz} probe" in hint.out
    # The guardian of a server starts from the file, too; the server must not import the packages of swarmtui.
    start(sandbox, pyz, "ab", "--a", f"sh -c 'env > {sandbox.home}/env' {{port}}", "--aa", "--yes", *options).wait()
    assert str(unpacked) not in (sandbox.home / "env").read_text()


def test_other_python_and_unwritable_cache_are_one_line(sandbox: Sandbox, pyz: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    error = start(sandbox, pyz, "--version", XDG_CACHE_HOME=str(blocked)).wait().error_line(1)
    assert str(blocked) in error and "set XDG_CACHE_HOME" in error
    other = tmp_path / "other.pyz"
    with zipfile.ZipFile(pyz) as source, zipfile.ZipFile(other, "w") as target:
        for name in ("__main__.py", "build-id"):
            target.writestr(name, source.read(name))
        target.writestr("builds", "cp39-riscv64")
    error = start(sandbox, other, "--version").wait().error_line(1)
    assert f"-{os.uname().machine}" in error and "cp39-riscv64" in error
