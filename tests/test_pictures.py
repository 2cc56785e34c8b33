"""`screenshots/make.py` takes one directory, and nothing that looks like an option."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MAKE = Path(__file__).resolve().parent.parent / "screenshots" / "make.py"


@pytest.mark.parametrize(("option", "code"), [("--help", 0), ("--sessions", 2)])
def test_options_are_no_directory_of_sessions(option: str, code: int, tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, str(MAKE), option], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == code and "usage: make.py" in ran.stdout + ran.stderr
    assert not any(tmp_path.iterdir())
