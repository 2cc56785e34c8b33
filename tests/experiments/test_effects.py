from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.cli.render.tuning import tune_text
from swarmtui.experiments.effects import effects, latest, pareto, result
from swarmtui.model.tuning import CellRow, Flags


def row(flags: Flags, tps: float | None, ttft: float | None = None, **fields: Any) -> CellRow:
    return CellRow(flags=flags, state="done" if tps else "broken", out_tps=tps, ttft_s=ttft, **fields)


def test_an_effect_is_of_pairs_that_differ_in_nothing_else() -> None:
    """--n doubles; --m costs a tenth; the broken cell takes its pair with it and bends nothing."""
    rows = [
        row({"--n": 1, "--m": 1}, 100.0), row({"--n": 2, "--m": 1}, 200.0),
        row({"--n": 1, "--m": 2}, 90.0), row({"--n": 2, "--m": 2}, None),
    ]  # fmt: skip
    n, m = effects(rows)
    assert (n.flag, n.base, n.value, n.pairs) == ("--n", 1, 2, 1)
    assert n.change == pytest.approx(1.0)
    assert (m.flag, m.pairs) == ("--m", 1)
    assert m.change == pytest.approx(-0.1)


def test_rounds_with_other_numbers_of_requests_are_not_paired() -> None:
    rows = [row({"--n": 1}, 100.0), row({"--n": 2}, 150.0, round=1)]
    assert effects(rows)[0].pairs == 0


def test_true_and_one_are_two_values() -> None:
    (found,) = effects([row({"--x": 1}, 10.0), row({"--x": True}, 20.0)])
    assert found.pairs == 1 and found.change == pytest.approx(1.0)


def test_the_front_holds_those_that_nobody_beats() -> None:
    rows = [row({"--n": n}, tps, ttft) for n, (tps, ttft) in enumerate([(10, 1), (20, 2), (15, 3), (30, 9), (5, None)])]
    assert [found.flags["--n"] for found in pareto(rows, "ttft_s")] == [3, 1, 0]
    assert pareto(rows, "j_per_token") == []


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.001, 10)), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_every_cell_is_on_the_front_or_beaten_by_one_that_is(points: list[tuple[float, float]]) -> None:
    rows = [row({"--n": n}, tps, ttft) for n, (tps, ttft) in enumerate(points)]
    front = [(found.out_tps or 0.0, found.ttft_s or 0.0) for found in pareto(rows, "ttft_s")]
    for tps, ttft in points:
        beaten = any(a >= tps and b <= ttft for a, b in front)
        assert beaten
    for tps, ttft in front:
        assert not any(a >= tps and b <= ttft and (a, b) != (tps, ttft) for a, b in points)


def test_a_cell_counts_as_its_last_round_had_it() -> None:
    rows = [row({"--n": 1}, 100.0), row({"--n": 2}, 150.0), row({"--n": 2}, 120.0, round=1)]
    assert [found.out_tps for found in latest(rows)] == [100.0, 120.0]
    best = result(rows, "out_tps").leaderboard[0]
    assert best.flags == {"--n": 2} and best.round == 1


def test_the_text_has_the_leaderboard_the_front_the_effects_and_what_broke() -> None:
    rows = [
        row({"--n": 1}, 100.0, 0.2, c=4, j_per_token=2.0), row({"--n": 2}, 150.0, 0.4, c=4, j_per_token=1.5),
        CellRow(flags={"--n": 9}, state="broken", reason="ended with exit code 1", log=("\x1b[31mout of memory",)),
    ]  # fmt: skip
    text = tune_text(result(rows, "out_tps"))
    lines = text.splitlines()
    assert lines[2].startswith("|  ▸ | --n 2")
    assert "BROKEN" in lines[4]
    assert "Pareto front, tok/s against s TTFT: --n 2 (150.0 tok/s, 0.400 s TTFT); --n 1" in text
    assert "against J/token: --n 2 (150.0 tok/s, 1.50 J/token)" in text
    assert "| --n  | 1 → 2  |      +50.0 % |" in text
    assert "--n 9: BROKEN: ended with exit code 1\n    out of memory" in text


def test_with_enough_runs_each_cell_is_held_against_the_best() -> None:
    runs = {1: (100.0, 101.0, 99.0, 100.0), 2: (150.0, 151.0, 149.0, 150.0), 3: (150.1, 150.8, 149.1, 150.0)}
    rows = [row({"--n": n}, sum(values) / 4, runs=values) for n, values in runs.items()]
    text = tune_text(result(rows, "out_tps"))
    place = {line.split("|")[2].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "slower" in place["--n 1"] and "equivalent" in place["--n 3" if "▸" in place["--n 2"] else "--n 2"]
    assert "the order is no verdict" not in text


def test_one_run_a_cell_is_said_to_be_no_verdict() -> None:
    text = tune_text(result([row({"--n": 1}, 100.0, runs=(100.0,)), row({"--n": 2}, 99.0, runs=(99.0,))], "out_tps"))
    assert "1 run a cell: the order is no verdict" in text


def test_nothing_finished_is_said() -> None:
    assert tune_text(result([], "out_tps")) == "no cell is finished yet\n"
