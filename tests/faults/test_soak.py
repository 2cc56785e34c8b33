"""The verdict of the soak run, which itself takes an hour and is not part of the suite."""

from __future__ import annotations

from collections import Counter

from tests.faults.soak import Window, judge_soak

FLAT = [50.0, 70.0, 80.0, 81.0, 81.0, *([81.0, 82.0, 81.5] * 5)]
STEADY = [Window(0.2, 50.0)] * 20


def test_flat_memory_and_steady_figures_pass() -> None:
    assert judge_soak({"worker": FLAT}, {}, STEADY, Counter()) == []


def test_leak_drift_errors_and_short_runs_fail() -> None:
    leak = [80.0 + minute for minute in range(20)]
    (problem,) = judge_soak({"worker": FLAT, "session_process": leak}, {}, STEADY, Counter())
    assert problem.startswith("memory of session_process")
    slower = [Window(0.2, 50.0 - minute / 4) for minute in range(20)]
    (problem,) = judge_soak({"worker": FLAT}, {}, slower, Counter())
    assert problem.startswith("tok/s per stream")
    assert judge_soak({"worker": FLAT}, {}, STEADY, Counter(reset=2)) == ["2 × reset"]
    assert judge_soak({"worker": FLAT[:3]}, {}, STEADY[:3], Counter(), short=True) == []
    assert judge_soak({}, {}, [], Counter(reset=1), short=True)[0] == "1 × reset"
    assert "too few" in judge_soak({"worker": FLAT[:6]}, {}, STEADY, Counter())[0]


def test_files_that_stay_open_fail() -> None:
    files = {"worker": [70] * 20, "app": list(range(20, 40))}
    assert judge_soak({"worker": FLAT}, files, STEADY, Counter()) == ["open files of app: 24 → 39"]
