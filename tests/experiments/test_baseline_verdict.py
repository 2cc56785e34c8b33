from __future__ import annotations

import re
from pathlib import Path

import pytest

from swarmtui.experiments.baseline import compare_with_baseline
from swarmtui.experiments.store import add_change, mark_change, read_log
from swarmtui.model.base import BadInput
from swarmtui.model.plan import Plan
from swarmtui.model.tuning import LoggedChange
from swarmtui.report.text import paint
from swarmtui.report.tuning import log_blocks
from tests.analysis.level_builders import level, summary

A, B = "20261115-014455-3f9a", "20261115-020000-aaaa"


def test_decided_change_names_the_flag_and_the_effect() -> None:
    before = summary([level(4, tps=100, runs=[99, 100, 101, 100])], A, server_flags="--max-num-seqs 2")
    after = summary([level(4, tps=125.6, runs=[125, 126, 125.6, 125.6])], B, server_flags="--max-num-seqs 4")
    found = compare_with_baseline(before, after)
    assert found.effect.startswith("faster with 4 agents: 100 → 126 tok/s, +26 % (95 % sure: +2")
    assert (found.verdict, found.what) == ("faster", "--max-num-seqs 2 → 4")


def test_single_runs_ask_for_more_runs() -> None:
    found = compare_with_baseline(summary([level(4, tps=100)], A), summary([level(4, tps=103)], B))
    assert (found.verdict, found.what) == (None, "no known change")
    assert "+3.0 % may be noise: 1 v 1 runs, 4 of each are needed" in found.effect


def test_undecided_change_tells_how_many_runs_detect_the_wanted_change() -> None:
    before = summary([level(4, tps=100, runs=[98, 102, 100, 100])], A)
    after = summary([level(4, tps=103, runs=[101, 105, 103, 103])], B, plan=Plan(seed=1))
    found, finer = (compare_with_baseline(before, after, detect=detect) for detect in (0.05, 0.025))
    assert found.verdict == "not sure yet"
    needed = [
        int(re.findall(r"(\d+) runs of each would very likely show a difference of", each.effect)[0])
        for each in (found, finer)
    ]
    assert 3 * needed[0] < needed[1]


def test_different_workloads_are_refused() -> None:
    found = compare_with_baseline(summary([level(4, tps=1)], A), summary([level(4, tps=2)], B, workload_digest="ffff"))
    assert found.verdict == "refused" and "different workloads" in found.effect


def test_log_keeps_changes_in_order_with_their_marks(tmp_path: Path) -> None:
    for after in (B, "20261115-030000-bbbb", B):  # the first is reported by two clients
        change = LoggedChange(before=A, after=after, what="--n 1 → 2", effect="", verdict=None, change=0.03)
        assert add_change(tmp_path, change).created
    mark_change(tmp_path, 2, "reverted", "ran hot")
    mark_change(tmp_path, 2, None, "ran too hot")
    first, second = read_log(tmp_path)
    assert (first.number, first.kept, first.before, first.after) == (1, "", A, B)
    assert (second.number, second.kept, second.note) == (2, "reverted", "ran too hot")
    text = paint(log_blocks(read_log(tmp_path)))
    assert "+3.0 %" in text and "reverted" in text and "ran too hot" in text
    with pytest.raises(BadInput, match="no change has this number"):
        mark_change(tmp_path, 3, "kept", None)


@pytest.mark.parametrize(
    ("text", "problem"), [("{", "not valid JSON"), ('{"schema": 3, "changes": []}', "has schema 3")]
)
def test_damaged_log_and_that_of_another_schema_are_errors(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / ".tuning").mkdir()
    (tmp_path / ".tuning" / "log.json").write_text(text)
    with pytest.raises(BadInput, match=rf"log\.json.*{problem}"):
        read_log(tmp_path)
