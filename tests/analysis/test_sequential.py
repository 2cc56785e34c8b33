from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.sequential import (
    CHECKPOINTS,
    Decision,
    alpha_at,
    detectable_at,
    evaluate,
    interleaved_sides,
    runs_needed,
)
from swarmtui.analysis.compare.verdicts import ALPHA


def simulate_test(
    random: Random, change: float, cv: float, *, detect: float = 0.02, max_runs: int = 16, drift: float = 0.0
) -> Decision:
    """Simulate an A/B test: interleaved runs, evaluated at each checkpoint until done; `drift` is a share per run."""
    values: dict[str, list[float]] = {"A": [], "B": []}
    found = None
    for index, side in enumerate(interleaved_sides(2 * CHECKPOINTS[-1], random.randrange(1000))):
        true = 100.0 * (1.0 + (change if side == "B" else 0.0)) * (1.0 - drift * index)
        values[side].append(true * (1.0 + random.gauss(0.0, cv)))
        n = len(values["A"])
        if n == len(values["B"]) and n in CHECKPOINTS:
            found = evaluate(values["A"], values["B"], detect=detect, max_runs=max_runs)
            if found.done:
                break
    assert found is not None
    return found


def test_five_percent_at_one_percent_noise_is_found_with_four_runs_each() -> None:
    """With 80 % power: in 16 of 20 trials."""
    found = [simulate_test(Random(seed), 0.05, 0.01) for seed in range(20)]
    assert sum(one.word == "faster" and one.n == 4 for one in found) >= 16


def test_five_percent_less_is_slower() -> None:
    found = [simulate_test(Random(seed), -0.05, 0.01) for seed in range(20)]
    assert sum(one.word == "slower" for one in found) >= 16


def test_equal_sides_are_called_different_in_at_most_five_percent() -> None:
    found = [simulate_test(Random(seed), 0.0, 0.01, detect=0.005, max_runs=8) for seed in range(200)]
    wrong = sum(one.word in ("faster", "slower") for one in found)
    assert wrong / len(found) <= 0.05


def test_linear_drift_favours_neither_side() -> None:
    """A machine that slows down by 0.25 % with every run."""
    found = [simulate_test(Random(seed), 0.0, 0.003, detect=0.005, max_runs=8, drift=0.0025) for seed in range(200)]
    assert sum(one.word in ("faster", "slower") for one in found) <= 10


def test_alphas_of_all_checkpoints_sum_to_less_than_alpha() -> None:
    assert sum(alpha_at(n) for n in CHECKPOINTS) < ALPHA
    assert alpha_at(4) == pytest.approx(2 / 70)


def test_equal_sides_are_equivalent_at_low_noise() -> None:
    found = [simulate_test(Random(seed), 0.0, 0.003) for seed in range(20)]
    assert sum(one.word == "same" for one in found) >= 18
    assert all(one.interval is not None for one in found)


def test_test_ends_undecided_once_the_power_is_sufficient() -> None:
    found = [simulate_test(Random(seed), 0.0, 0.02, detect=0.04, max_runs=48) for seed in range(20)]
    undecided = [one for one in found if one.word == "not sure yet"]
    assert all("would very likely have been seen" in one.sentence for one in undecided)
    assert all(one.n <= 16 for one in found)


def test_too_few_allowed_runs_report_how_many_are_needed() -> None:
    random = Random(4)
    a, b = [[100.0 * (1 + random.gauss(0, 0.03)) for _ in range(4)] for _ in range(2)]
    found = evaluate(a, b, detect=0.02, max_runs=4)
    assert found.done and found.word == "not sure yet"
    assert found.needed is None or f"{found.needed} v {found.needed} runs" in found.sentence


def test_detectable_change_is_detected_with_eighty_percent_power() -> None:
    """By simulation, with a margin for the slack in the formula."""
    change = detectable_at(6, 0.02)
    random = Random(8)
    hits = 0
    for _ in range(150):
        a = [100 * (1 + random.gauss(0, 0.02)) for _ in range(6)]
        b = [100 * (1 + change) * (1 + random.gauss(0, 0.02)) for _ in range(6)]
        hits += evaluate(a, b, detect=0.001).word == "faster"
    assert 0.72 <= hits / 150 <= 0.95


@given(st.floats(0.001, 0.1), st.floats(0.005, 0.2))
def test_more_noise_never_needs_fewer_runs(spread: float, detect: float) -> None:
    few, many = runs_needed(spread, detect), runs_needed(2 * spread, detect)
    assert many is None or (few is not None and few <= many)


@pytest.mark.parametrize(("a", "b"), [([1.0] * 4, [1.0] * 3), ([1.0, 1.0, 1.0, 0.0], [1.0] * 4)])
def test_unequal_or_non_positive_runs_are_rejected(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError):
        evaluate(a, b)


def test_numbers_between_checkpoints_are_rejected() -> None:
    with pytest.raises(ValueError):
        alpha_at(5)


@given(st.integers(0, 10_000))
def test_each_block_of_four_is_abba_or_baab(seed: int) -> None:
    made = "".join(interleaved_sides(48, seed))
    assert {made[k : k + 4] for k in range(0, 48, 4)} <= {"ABBA", "BAAB"}
