"""The layers that pyproject.toml writes down are those that the code has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent
WEIGHTY = ("textual", "scipy", "plotext", "numpy", "httpx2", "click", "pynvml", "asyncio")


def test_no_module_knows_what_it_should_not() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None) == 0


def test_the_worker_loads_nothing_that_it_does_not_need() -> None:
    code = "import sys, swarmtui.loadgen.worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "swarmtui.loadgen.worker" in loaded.stdout.split()
    assert not set(WEIGHTY) & set(loaded.stdout.split())
