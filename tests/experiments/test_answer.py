from __future__ import annotations

from pathlib import Path

import pytest

from swarmtui.cli.render.tuning import log_text
from swarmtui.experiments.answer import answer, change_of, flag_change, runs_to_settle
from swarmtui.experiments.tune_store import add_change, mark_change, read_log
from swarmtui.model.schema import BadInput
from swarmtui.model.telemetry import Discovered
from tests.analysis.made_levels import level, summary

A, B = "20261115-014455-3f9a", "20261115-020000-aaaa"


def test_a_decided_change_is_one_line_with_what_changed() -> None:
    before = summary([level(4, tps=100, runs=[99, 100, 101, 100])], A, server_flags="--max-num-seqs 2")
    after = summary([level(4, tps=125.6, runs=[125, 126, 125.6, 125.6])], B, server_flags="--max-num-seqs 4")
    found = answer(before, after)
    assert found.sentence == "C=4: +25.6 % output tok/s, faster (4 v 4 runs, p = 0.029)"
    assert (found.word, found.what, found.needed) == ("faster", "--max-num-seqs 2 → 4", None)


def test_one_run_each_says_what_it_takes() -> None:
    found = answer(summary([level(4, tps=100)], A), summary([level(4, tps=103)], B))
    assert found.word == "undecided" and found.needed is None
    assert found.sentence.endswith("4 runs of each at least are needed: one run has no spread")


def test_an_undecided_change_says_how_many_runs_would_settle_it() -> None:
    before = summary([level(4, tps=100, runs=[95, 100, 105, 100])], A)
    after = summary([level(4, tps=103, runs=[98, 103, 108, 103])], B)
    found = answer(before, after)
    assert found.word == "undecided"
    assert found.needed is not None and 20 < found.needed < 120
    assert f"{found.needed} runs of each would settle" in found.sentence


def test_more_noise_takes_more_runs() -> None:
    quiet = runs_to_settle([99, 100, 101], [101, 102, 103])
    loud = runs_to_settle([97, 100, 103], [99, 102, 105])
    assert quiet is not None and loud is not None and quiet < loud
    assert runs_to_settle([100], [110]) is None
    assert runs_to_settle([99, 101], [101, 99]) is None


def test_other_workloads_are_refused() -> None:
    found = answer(summary([level(4, tps=1)], A), summary([level(4, tps=2)], B, workload_digest="ffff"))
    assert found.word == "refused" and "different workloads" in found.sentence


def server(flags: dict[str, str] | None, version: str = "") -> Discovered:
    return Discovered(url="http://127.0.0.1:8000", flags=flags, version=version)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            server({"max-num-seqs": "2", "kv-cache-dtype": "auto"}),
            server({"max-num-seqs": "4", "kv-cache-dtype": "fp8"}),
            "--max-num-seqs 2 → 4, --kv-cache-dtype auto → fp8",
        ),
        (server({"enforce-eager": "true"}), server({}), "− --enforce-eager"),
        (server({}), server({"OMP_NUM_THREADS": "2"}), "+ OMP_NUM_THREADS 2"),
        (server({"a": "1"}), server({"a": "1"}), "the same flags"),
        (server({"a": "1"}, version="0.31"), server({"a": "1"}, version="0.32"), "version 0.31 → 0.32"),
        (server(None), server({"a": "1"}), "flags not known"),
    ],
)
def test_a_server_that_comes_back_is_told_apart(before: Discovered, after: Discovered, told: str) -> None:
    assert flag_change(before, after) == told


def test_the_log_keeps_changes_in_order_and_what_became_of_them(tmp_path: Path) -> None:
    found = answer(summary([level(4, tps=100)], A), summary([level(4, tps=103)], B))
    for after in (B, "20261115-030000-bbbb", B):  # two faces saw the first come to its end: it is one change
        add_change(tmp_path, change_of(found, A, after, "2026-11-15T03:00:00+00:00"))
    mark_change(tmp_path, 2, "reverted", "ran hot")
    mark_change(tmp_path, 2, None, "ran too hot")
    first, second = read_log(tmp_path)
    assert (first.number, first.kept, first.before, first.after) == (1, "", A, B)
    assert (second.number, second.kept, second.note) == (2, "reverted", "ran too hot")
    text = log_text(read_log(tmp_path))
    assert "+3.0 %" in text and "reverted" in text and "ran too hot" in text
    with pytest.raises(BadInput, match="no change of this number"):
        mark_change(tmp_path, 3, "kept", None)


def test_a_log_that_was_spoiled_is_said_not_lost(tmp_path: Path) -> None:
    (tmp_path / ".tuning").mkdir()
    (tmp_path / ".tuning" / "log.json").write_text("{")
    with pytest.raises(BadInput, match=r"log\.json"):
        read_log(tmp_path)
