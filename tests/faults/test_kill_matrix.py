"""A few rounds of the kill matrix; `python -m tests.faults.matrix kills two` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kill_matrix import Fault, run_round

CASES: list[tuple[Fault, ...]] = [
    (("worker", "TERM"),),
    (("session process", "STOP"),),
    (("all", "STOP"),),
    (("session process", "HUP"),),
    (("disk", "FULL"), ("worker", "KILL")),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fault_loses_no_request_and_leaves_no_process(
    tmp_path: Path, case: tuple[Fault, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    result = run_round(tmp_path, case, CASES.index(case), latest_s=1.5, requests=80)
    assert result.clean, result
