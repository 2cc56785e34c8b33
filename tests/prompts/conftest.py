from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from swarmtui.prompts.library import WorkloadFile, find_workload


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], WorkloadFile]:
    """Write a workload file with this text and load it by its path."""

    def write(text: str) -> WorkloadFile:
        path = tmp_path / "own.toml"
        path.write_text(text, encoding="utf-8")
        return find_workload(str(path))

    return write
