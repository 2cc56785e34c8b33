"""The import contracts of pyproject.toml hold, without cycles; start-up imports little; class names are unique."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("textual", "scipy", "numpy", "httpx2", "click", "pynvml", "asyncio")


def test_import_contracts_hold() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None) == 0


def test_there_is_no_import_cycle() -> None:
    """Imports inside functions and for type checking count, too."""
    graph = grimp.build_graph("swarmtui", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    order = list(TopologicalSorter(imports).static_order())  # a CycleError names the modules of the cycle
    assert order.index("swarmtui.tui.app") < order.index("swarmtui.tui.live.run_screen")


def test_a_class_name_is_used_once() -> None:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "swarmtui").rglob("*.py"))
    names = [name for text in texts for name in re.findall(r"^class (\w+)", text, re.MULTILINE)]
    assert {"SwarmApp", "Session"} <= {*names}
    assert [name for name, count in Counter(names).items() if count > 1 and not name.startswith("_")] == []


def loaded_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(process.stdout.split())
    assert module in loaded
    return loaded


def test_worker_imports_no_heavy_package() -> None:
    assert not set(HEAVY) & loaded_by("swarmtui.loadgen.worker")


def test_app_imports_its_screens_when_they_are_opened() -> None:
    loaded = loaded_by("swarmtui.tui.app")
    assert not {module for module in loaded if module.startswith("swarmtui.tui.") and module.endswith("screen")}
    assert not {"numpy", "scipy", "swarmtui.tui.dialogs", "swarmtui.tui.lines"} & loaded
