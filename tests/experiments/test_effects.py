from __future__ import annotations

from collections.abc import Mapping
from math import exp, log, log1p, sqrt
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.levels.stats import standard_deviation
from swarmtui.experiments.effects import TuneSummary, effects, games_howell_range, pareto, summarise_tune
from swarmtui.experiments.grid import latest
from swarmtui.model.tuning import Flags, Objective, Start, TuneFile
from swarmtui.report.text import paint
from swarmtui.report.tuning import tune_blocks


def row(flags: Flags, tps: float | None, ttft: float | None = None, **fields: Any) -> Start:
    return Start(flags=flags, state="done" if tps else "broken", out_tps=tps, ttft_s=ttft, **fields)


def tune_of(*values: int, **fields: Any) -> TuneFile:
    return TuneFile(command="x {port}", grid={"--n": values}, **fields)


def started(samples: Mapping[int, tuple[float, ...]], screened: float | None = None) -> list[Start]:
    """Starts of each --n; with `screened`, the first round is a start of each with this rate."""
    first = 0 if screened is None else 1
    screens = [] if screened is None else [row({"--n": n}, screened) for n in samples]
    return screens + [
        row({"--n": n}, tps, 1 / tps, round=first + k) for n, rates in samples.items() for k, tps in enumerate(rates)
    ]


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


def test_text_has_leaderboard_pareto_fronts_effects_and_failures() -> None:
    rows = [
        row({"--n": 1}, 100.0, 0.2, c=4, j_per_token=2.0), row({"--n": 2}, 150.0, 0.4, c=4, j_per_token=1.5),
        Start(flags={"--n": 9}, state="broken", reason="exited with code 1", log=("\x1b[31mout of memory",)),
    ]  # fmt: skip
    text = tune_text(summarise_tune(tune_of(1, 2, 9), rows))
    lines = text.splitlines()
    assert lines[2].startswith("| 1    | --n 2") and "▸" not in text  # nothing is ranked yet
    assert "start the first:\n    x 8000 --n 2\n" in text
    assert "failed" in lines[4]
    assert "Pareto front of tok/s and TTFT: --n 2 (150 tok/s, 400 ms); --n 1" in text
    assert "Pareto front of tok/s and J/token: --n 2 (150 tok/s, 1.50 J/token)" in text
    assert "| before | after | change |" in text and "before, after: output tok/s" in text
    assert "| --n  | 1 → 2 |    100 |   150 |  +50 % |" in text
    assert "| J/token |" in lines[0] and "each a sum over the GPUs" in text
    assert "--n 9: failed: exited with code 1\n    out of memory" in text


def test_restarted_configurations_are_slower_than_the_best_or_not_sure_yet() -> None:
    rates = {1: (100.0, 101.0, 99.0), 2: (150.0, 151.0, 149.0), 3: (150.1, 150.8, 149.3)}
    file = tune_of(1, 2, 3, 9, 10)
    screens = [row({"--n": n}, tps) for n, tps in ((1, 300.0), (2, 140.0), (3, 139.0), (9, None), (10, 1.0))]
    found = summarise_tune(file, [*screens, *started(rates, screened=200.0)[3:]])
    assert [result.flags["--n"] for result in found.leaderboard] == [3, 2, 1, 10, 9]
    assert found.standings == ("best", "tied", "behind", "", "")
    assert [result.starts for result in found.leaderboard] == [3, 3, 3, 1, 0]
    assert found.leaderboard[2].out_tps == pytest.approx(99.997, abs=1e-3)  # without the lucky start that chose it
    text = tune_text(found)
    lines = {line.split("|")[2].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "▼ −33 % | slower " in lines["--n 1"] and "not sure yet" in lines["--n 2"] and "▸" in lines["--n 3"]
    assert "Not sure yet whether the first is better than 1 other" in text
    assert "Ranked by 3 restarts of each; slower" in text.replace("\n  ", " ") and "(95 %" in text
    assert "start the best:\n    x 8000 --n 3\n" in text
    assert "1 other was not restarted, and not ranked" in text.replace("\n  ", " ")


@pytest.mark.parametrize("objective", ["out_tps", "ttft_s"])
def test_before_three_restarts_one_leads_so_far_and_none_is_best_or_slower(objective: Objective) -> None:
    file = tune_of(1, 2, 3, 4, objective=objective)
    for restarts in range(3):
        rates = {n: tuple(100.0 * n + k for k in range(restarts)) for n in (2, 3, 4)}
        screens = [row({"--n": n}, 100.0 * n, 0.01 / n) for n in (1, 2, 3, 4)]
        found = summarise_tune(file, [*screens, *started(rates, screened=1.0)[3:]])
        assert found.standings == ("leads so far", "", "", "") and found.leaderboard[0].flags == {"--n": 4}
        assert not found.ranked and set(found.chance) == {None}
        text = tune_text(found)
        assert "leads so far" in text and "a ranking needs 3 restarts" in text and "slower" not in text
        assert "▸" not in text and "start the best" not in text
    assert summarise_tune(tune_of(1), [row({"--n": 1}, 100.0)]).standings == ("",)


def test_any_objective_is_ranked_by_starts() -> None:
    found = summarise_tune(
        tune_of(1, 2, objective="ttft_s"), started({1: (100.0, 101.0, 99.0), 2: (150.0, 151.0, 149.0)})
    )
    assert found.standings == ("best", "behind") and found.leaderboard[0].flags == {"--n": 2}
    assert "▼ +50 % | slower " in tune_text(found)


def test_energy_is_not_slower_but_more() -> None:
    rows = [row({"--n": n}, 100.0, round=k, j_per_token=1.0 + (n == 2) + 0.01 * k) for n in (1, 2) for k in range(3)]
    found = summarise_tune(tune_of(1, 2, objective="j_per_token"), rows)
    assert found.standings == ("best", "behind") and "more energy" in tune_text(found)
    assert "slower" not in tune_text(found)


def test_finalist_whose_restart_fails_is_failed() -> None:
    rows = started({1: (100.0, 101.0, 99.0), 2: (150.0, 151.0, 149.0), 3: (200.0,)})
    broken = Start(flags={"--n": 3}, round=1, state="broken", reason="out of memory")
    found = summarise_tune(tune_of(1, 2, 3), [*rows, broken])
    assert [result.state for result in found.leaderboard] == ["done", "done", "broken"]
    assert found.standings == ("best", "behind", "")
    assert "--n 3: failed: out of memory" in tune_text(found)


def test_range_of_equal_spreads_is_tukeys() -> None:
    """q(.05; 3, 4) is 5.040."""
    values = (99.0, 100.0, 101.0)
    spread = standard_deviation([log(value) for value in values])
    assert games_howell_range(values, values, 3) == pytest.approx(5.040 * spread / sqrt(3), rel=1e-3)


positive = st.lists(st.floats(50, 200), min_size=3, max_size=5).map(tuple)


@given(st.lists(positive, min_size=2, max_size=3), st.floats(0.1, 10))
def test_standings_agree_with_chance_and_do_not_depend_on_the_unit(
    samples: list[tuple[float, ...]], unit: float
) -> None:
    rates = {n: values[:3] for n, values in enumerate(samples)}
    found = summarise_tune(tune_of(*rates), started(rates))
    scaled = {n: tuple(unit * value for value in values) for n, values in rates.items()}
    assert summarise_tune(tune_of(*rates), started(scaled)).standings == found.standings
    assert found.standings[0] == "best"
    best = found.leaderboard[0].out_tps
    for result, standing, chance in list(zip(found.leaderboard, found.standings, found.chance, strict=True))[1:]:
        assert best is not None and result.out_tps is not None and chance is not None
        assert (standing == "behind") == (log(best / result.out_tps) > log1p(chance))


@pytest.mark.parametrize("spread", [0.0, 0.005])
def test_equal_configurations_are_rarely_called_behind(spread: float) -> None:
    """Eight are screened, the luckiest three restarted; starts differ by half as much as runs."""
    random, behind, file = Random(1), 0, tune_of(*range(8))

    def rate() -> float:
        return 100 * exp(random.gauss(0, spread)) * sum(exp(random.gauss(0, 0.01)) for _ in range(4)) / 4

    for _ in range(400):
        screens = sorted((row({"--n": n}, rate()) for n in range(8)), key=lambda start: -(start.out_tps or 0))
        restarts = [row(start.flags, rate(), round=k) for start in screens[:3] for k in (1, 2, 3)]
        behind += "behind" in summarise_tune(file, [*screens, *restarts]).standings
    assert behind / 400 <= 0.05


def test_text_without_results() -> None:
    assert tune_text(summarise_tune(tune_of(1), [])) == "no configuration is finished yet\n"
