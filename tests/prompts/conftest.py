from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from swarmtui.prompts.library import Found, find


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Found]:
    """A workload file with this text, found by its path."""

    def write(text: str) -> Found:
        path = tmp_path / "own.toml"
        path.write_text(text, encoding="utf-8")
        return find(str(path))

    return write
