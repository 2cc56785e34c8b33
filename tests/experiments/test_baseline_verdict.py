from __future__ import annotations

from pathlib import Path

import pytest

from swarmtui.cli.render.tuning import log_text
from swarmtui.experiments.baseline import compare_with_baseline, log_entry, runs_needed_to_decide
from swarmtui.experiments.tune_store import add_change, mark_change, read_log
from swarmtui.model.schema import BadInput
from tests.analysis.level_builders import level, summary

A, B = "20261115-014455-3f9a", "20261115-020000-aaaa"


def test_decided_change_names_the_flag_and_the_effect() -> None:
    before = summary([level(4, tps=100, runs=[99, 100, 101, 100])], A, server_flags="--max-num-seqs 2")
    after = summary([level(4, tps=125.6, runs=[125, 126, 125.6, 125.6])], B, server_flags="--max-num-seqs 4")
    found = compare_with_baseline(before, after)
    assert found.sentence == "C=4: +25.6 % output tok/s, faster (4 v 4 runs, p = 0.029)"
    assert (found.verdict, found.change_text, found.needed) == ("faster", "--max-num-seqs 2 → 4", None)


def test_single_runs_ask_for_more_runs() -> None:
    found = compare_with_baseline(summary([level(4, tps=100)], A), summary([level(4, tps=103)], B))
    assert found.verdict == "undecided" and found.needed is None
    assert found.sentence.endswith("at least 4 runs of each are needed: one run has no spread")


def test_undecided_change_tells_how_many_runs_would_decide() -> None:
    before = summary([level(4, tps=100, runs=[95, 100, 105, 100])], A)
    after = summary([level(4, tps=103, runs=[98, 103, 108, 103])], B)
    found = compare_with_baseline(before, after)
    assert found.verdict == "undecided"
    assert found.needed is not None and 20 < found.needed < 120
    assert f"{found.needed} runs of each would decide" in found.sentence


def test_more_noise_needs_more_runs() -> None:
    low_noise = runs_needed_to_decide([99, 100, 101], [101, 102, 103])
    high_noise = runs_needed_to_decide([97, 100, 103], [99, 102, 105])
    assert low_noise is not None and high_noise is not None and low_noise < high_noise
    assert runs_needed_to_decide([100], [110]) is None
    assert runs_needed_to_decide([99, 101], [101, 99]) is None


def test_different_workloads_are_refused() -> None:
    found = compare_with_baseline(summary([level(4, tps=1)], A), summary([level(4, tps=2)], B, workload_digest="ffff"))
    assert found.verdict == "refused" and "different workloads" in found.sentence


def test_log_keeps_changes_in_order_with_their_marks(tmp_path: Path) -> None:
    found = compare_with_baseline(summary([level(4, tps=100)], A), summary([level(4, tps=103)], B))
    for after in (B, "20261115-030000-bbbb", B):  # the first is reported by two clients
        add_change(tmp_path, log_entry(found, A, after, "2026-11-15T03:00:00+00:00"))
    mark_change(tmp_path, 2, "reverted", "ran hot")
    mark_change(tmp_path, 2, None, "ran too hot")
    first, second = read_log(tmp_path)
    assert (first.number, first.kept, first.before, first.after) == (1, "", A, B)
    assert (second.number, second.kept, second.note) == (2, "reverted", "ran too hot")
    text = log_text(read_log(tmp_path))
    assert "+3.0 %" in text and "reverted" in text and "ran too hot" in text
    with pytest.raises(BadInput, match="no change has this number"):
        mark_change(tmp_path, 3, "kept", None)


def test_damaged_log_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".tuning").mkdir()
    (tmp_path / ".tuning" / "log.json").write_text("{")
    with pytest.raises(BadInput, match=r"log\.json"):
        read_log(tmp_path)
