"""`swarmtui compare` on sessions that `run` made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Place, place_in


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The same plan with one seat and with eight, four runs each; and one of another length."""
    with place_in(tmp_path_factory.mktemp("compared")) as place:
        for label, seats, cap in (("one", 1, "32"), ("eight", 8, "32"), ("shorter", 8, "16")):
            ran = place.measure(
                f"sim:moe-tp1?speed=5&seats={seats}", "--max-tokens", cap, "--levels", "4", "--runs", "4",
                "--requests", "8", "--seed", "5", "--label", label, "--quiet",
                "--server-flags", f"--max-num-seqs {seats}",
            )  # fmt: skip
            assert ran.code == 0, ran
        yield place


def ids(place: Place) -> dict[str, str]:
    return {row["label"]: row["id"] for row in place.listed()}


def test_more_seats_are_found_faster_and_the_flag_is_named(measured: Place) -> None:
    names = ids(measured)
    ran = measured.run("compare", names["one"], names["eight"], "--session-dir", str(measured.sessions))
    assert ran.code == 0, ran
    assert "flags  --max-num-seqs 1 → 8" in ran.out
    assert "| TTFT" in ran.out
    assert "faster (4 v 4 runs, p = 0.029)" in ran.out


def test_json_is_the_same_comparison(measured: Place) -> None:
    names = ids(measured)
    words = ("compare", names["one"], names["eight"], "--json", "--session-dir", str(measured.sessions))
    found = measured.json(*words)
    assert found["sessions"] == [names["one"], names["eight"]]
    row = next(row for row in found["pairs"][0]["rows"] if row["figure"] == "ttft_s")
    assert row["c"] == 4
    assert row["verdict"]["word"] == "faster"
    assert row["verdict"]["n_a"] == row["verdict"]["n_b"] == 4


def test_another_cap_is_refused_with_the_reason_but_shown(measured: Place) -> None:
    names = ids(measured)
    ran = measured.run("compare", names["one"], names["shorter"], "--session-dir", str(measured.sessions))
    assert ran.code == 0, ran
    assert "no ratio: different output caps: 32 and 16" in ran.out
    assert "refused" in ran.out and "faster" not in ran.out


def test_many_sessions_have_a_leaderboard_and_a_baseline_by_name(measured: Place) -> None:
    names = ids(measured)
    words = [names["one"], names["eight"], names["shorter"], "--baseline", names["eight"]]
    ran = measured.run("compare", *words, "--session-dir", str(measured.sessions))
    assert ran.code == 0, ran
    assert ran.out.count(f"A  {names['eight']}") == 2
    assert "best tok/s" in ran.out and "▸" in ran.out


def test_a_result_of_another_tool_can_stand_beside(measured: Place) -> None:
    path = measured.home / "vllm.json"
    path.write_text(json.dumps({"completed": 16, "duration": 2.0, "output_throughput": 64.0, "max_concurrency": 4,
        "total_output_tokens": 128, "total_input_tokens": 160, "mean_ttft_ms": 10.0, "model_id": "m"}))  # fmt: skip
    ran = measured.run("compare", ids(measured)["one"], str(path), "--session-dir", str(measured.sessions))
    assert ran.code == 0, ran
    assert "no ratio: different workloads" in ran.out
    assert "64.00" in ran.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("one",), "two sessions at least"),
        (("nothing", "here"), "no session of that name"),
        (("last", "missing.json"), "cannot be read"),
    ],
)
def test_what_cannot_be_compared_is_one_line(measured: Place, words: tuple[str, ...], told: str) -> None:
    assert told in measured.run("compare", *words, "--session-dir", str(measured.sessions)).refused(2)


def test_an_empty_place_has_nothing_to_compare(tmp_path: Path) -> None:
    with place_in(tmp_path) as place:
        assert "no session" in place.run("compare", "last", "last", "--session-dir", str(place.sessions)).refused(2)
