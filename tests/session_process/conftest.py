from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.preloaded import fork_session_processes
from tests.cli.programs import open_sandbox
from tests.session_process.harness import SessionHarness


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionHarness]:
    with open_sandbox(tmp_path) as sandbox:
        for name, value in sandbox.environment.items():
            monkeypatch.setenv(name, value)
        fork_session_processes(monkeypatch)
        harness = SessionHarness(sandbox)
        yield harness
        harness.close()
