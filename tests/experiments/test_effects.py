from __future__ import annotations

from math import exp, expm1, log, sqrt
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.levels.stats import standard_deviation
from swarmtui.experiments.effects import TuneSummary, effects, pareto, summarise_rows
from swarmtui.experiments.grid import latest
from swarmtui.model.tuning import Flags, Objective, Start
from swarmtui.report.text import paint
from swarmtui.report.tuning import tune_blocks


def row(flags: Flags, tps: float | None, ttft: float | None = None, **fields: Any) -> Start:
    return Start(flags=flags, state="done" if tps else "broken", out_tps=tps, ttft_s=ttft, **fields)


def tune_text(found: TuneSummary) -> str:
    return paint(tune_blocks(found))


def test_effect_uses_pairs_that_differ_in_nothing_else() -> None:
    """--n doubles the rate, --m costs 10 %; a failed configuration only removes its own pair."""
    rows = [
        row({"--n": 1, "--m": 1}, 100.0), row({"--n": 2, "--m": 1}, 200.0),
        row({"--n": 1, "--m": 2}, 90.0), row({"--n": 2, "--m": 2}, None),
    ]  # fmt: skip
    n, m = effects(rows)
    assert (n.flag, n.base, n.value, n.pairs) == ("--n", 1, 2, 1)
    assert n.change == pytest.approx(1.0)
    assert (m.flag, m.pairs) == ("--m", 1)
    assert m.change == pytest.approx(-0.1)


def test_different_rounds_are_not_paired() -> None:
    rows = [row({"--n": 1}, 100.0), row({"--n": 2}, 150.0, round=1)]
    assert effects(rows)[0].pairs == 0


def test_true_and_one_are_different_values() -> None:
    (found,) = effects([row({"--x": 1}, 10.0), row({"--x": True}, 20.0)])
    assert found.pairs == 1 and found.change == pytest.approx(1.0)


def test_pareto_front_keeps_undominated_configurations() -> None:
    rows = [row({"--n": n}, tps, ttft) for n, (tps, ttft) in enumerate([(10, 1), (20, 2), (15, 3), (30, 9), (5, None)])]
    assert [found.flags["--n"] for found in pareto(rows, "ttft_s")] == [3, 1, 0]
    assert pareto(rows, "j_per_token") == []


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.001, 10)), min_size=1, max_size=12))
@settings(max_examples=100)
def test_every_configuration_is_on_the_front_or_dominated_by_it(points: list[tuple[float, float]]) -> None:
    rows = [row({"--n": n}, tps, ttft) for n, (tps, ttft) in enumerate(points)]
    front = [(found.out_tps or 0.0, found.ttft_s or 0.0) for found in pareto(rows, "ttft_s")]
    for tps, ttft in points:
        assert any(a >= tps and b <= ttft for a, b in front)
    for tps, ttft in front:
        assert not any(a >= tps and b <= ttft and (a, b) != (tps, ttft) for a, b in points)


def test_last_round_of_a_configuration_counts() -> None:
    rows = [row({"--n": 1}, 100.0), row({"--n": 2}, 150.0), row({"--n": 2}, 120.0, round=1)]
    assert [found.out_tps for found in latest(rows)] == [100.0, 120.0]
    best = summarise_rows(rows, "out_tps").leaderboard[0]
    assert best.flags == {"--n": 2} and best.round == 1


def test_text_has_leaderboard_pareto_fronts_effects_and_failures() -> None:
    rows = [
        row({"--n": 1}, 100.0, 0.2, c=4, j_per_token=2.0), row({"--n": 2}, 150.0, 0.4, c=4, j_per_token=1.5),
        Start(flags={"--n": 9}, state="broken", reason="exited with code 1", log=("\x1b[31mout of memory",)),
    ]  # fmt: skip
    text = tune_text(summarise_rows(rows, "out_tps"))
    lines = text.splitlines()
    assert lines[2].startswith("| ▸    | --n 2")
    assert "failed" in lines[4]
    assert "Pareto front of tok/s and TTFT: --n 2 (150.0 tok/s, 400 ms); --n 1" in text
    assert "Pareto front of tok/s and J/token: --n 2 (150.0 tok/s, 1.50 J/token)" in text
    assert "| before | after |  change |" in text and "before, after: output tok/s" in text
    assert "| --n  | 1 → 2 |  100.0 | 150.0 | +50.0 % |" in text
    assert "| J/token |" in lines[0] and "each a sum over the GPUs" in text
    assert "--n 9: failed: exited with code 1\n    out of memory" in text


def test_configurations_within_tukeys_range_are_tied_with_the_best() -> None:
    runs = {1: (100.0, 101.0, 99.0, 100.0), 2: (150.0, 151.0, 149.0, 150.0), 3: (150.1, 150.8, 149.1, 150.4)}
    rows = [row({"--n": n}, sum(values) / 4, runs=values) for n, values in runs.items()]
    found = summarise_rows([*rows, row({"--n": 9}, None)], "out_tps")
    assert found.standings == ("best", "tied", "behind", "")
    logs = [standard_deviation([log(value) for value in values]) for values in runs.values()]
    pooled = sqrt(sum(one**2 for one in logs) / 3)
    assert found.tied_within == pytest.approx(-expm1(-3.9485 * pooled / 2), rel=1e-4)  # q(.05; 3, 9)
    text = tune_text(found)
    lines = {line.split("|")[2].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "behind" in lines["--n 1"] and "tied" in lines["--n 2"] and "▸" in lines["--n 3"]
    assert "1 other is tied with the best: its lead may be chance" in text
    assert "| −33.4 % behind |" in lines["--n 1"]


def test_printed_change_decides_who_is_behind() -> None:
    """The rate of a configuration weighs its runs by their length, so it may be far from their mean."""
    rows = [row({"--n": n}, tps, runs=(99.0, 100.0, 101.0, 100.0)) for n, tps in ((1, 100.0), (2, 90.0))]
    assert summarise_rows(rows, "out_tps").standings == ("best", "behind")


@pytest.mark.parametrize("objective", ["out_tps", "ttft_s"])
def test_single_values_cannot_be_ranked(objective: Objective) -> None:
    rows = [row({"--n": n}, tps, 1 / tps, runs=(tps,)) for n, tps in ((1, 100.0), (2, 99.0))]
    found = summarise_rows(rows, objective)
    assert found.standings == ("", "") and found.tied_within is None
    assert "per configuration: nothing can be ranked." in tune_text(found)


def test_one_of_eight_equal_configurations_is_rarely_called_behind() -> None:
    """At most 6 %, with four runs each and 1 % noise."""
    random, behind = Random(1), 0
    for _ in range(300):
        samples = [tuple(100 * exp(random.gauss(0, 0.01)) for _ in range(4)) for _ in range(8)]
        rows = [row({"--n": n}, sum(runs) / 4, runs=runs) for n, runs in enumerate(samples)]
        behind += "behind" in summarise_rows(rows, "out_tps").standings
    assert behind / 300 <= 0.06


def test_text_without_results() -> None:
    assert tune_text(summarise_rows([], "out_tps")) == "no configuration is finished yet\n"


def test_best_with_a_single_run_cannot_be_ranked() -> None:
    rows = [
        row({"--n": 1}, 30.0, runs=(30.0,)),
        row({"--n": 2}, 20.0, runs=(19.0, 21.0)),
        row({"--n": 3}, 10.0, runs=(9.0, 11.0)),
    ]
    found = summarise_rows(rows, "out_tps")
    assert (found.tied_within, found.unranked, found.standings) == (None, "runs", ("", "", ""))
