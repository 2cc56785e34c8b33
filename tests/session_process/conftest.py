from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import place_in
from tests.session_process.watching import Stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with place_in(tmp_path) as place:
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        stage = Stage(place)
        yield stage
        stage.close()
