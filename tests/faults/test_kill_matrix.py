"""A few rounds of the kill matrix; the whole of it is `python -m tests.faults.kill_matrix --rounds 200`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kill_matrix import EXPECTED, play

ORDER = sorted(EXPECTED)
FEW = [("worker", "TERM"), ("conductor", "STOP"), ("all", "STOP"), ("conductor", "HUP")]


@pytest.mark.parametrize("case", FEW, ids=" ".join)
def test_no_answer_is_lost_and_nobody_stays(
    tmp_path: Path, case: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = play(tmp_path, ORDER.index(case), latest_s=1.5, enough=80)
    assert found.clean, found
