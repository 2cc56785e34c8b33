from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.compare.verdicts import ALPHA
from swarmtui.experiments.schedule import sides
from swarmtui.experiments.sequential import LOOKS, Decision, alpha_at, decide, detectable_at, next_look, runs_needed


def contest(
    chance: Random, change: float, cv: float, *, detect: float = 0.02, most: int = 16, drift: float = 0.0
) -> Decision:
    """As `ab` goes: interleaved runs, a look where the rule has one, until it is over. `drift` is a share a run."""
    values: dict[str, list[float]] = {"A": [], "B": []}
    found = None
    for place, side in enumerate(sides(2 * LOOKS[-1], chance.randrange(1000))):
        true = 100.0 * (1.0 + (change if side == "B" else 0.0)) * (1.0 - drift * place)
        values[side].append(true * (1.0 + chance.gauss(0.0, cv)))
        n = len(values["A"])
        if n == len(values["B"]) and n in LOOKS:
            found = decide(values["A"], values["B"], detect=detect, most=most)
            if found.done:
                break
    assert found is not None
    return found


def test_five_percent_at_one_percent_noise_is_found_with_eight_runs() -> None:
    """The bar: four of five in twenty trials."""
    found = [contest(Random(seed), 0.05, 0.01) for seed in range(20)]
    assert sum(one.word == "faster" and one.n == 4 for one in found) >= 16


def test_five_percent_less_is_slower() -> None:
    found = [contest(Random(seed), -0.05, 0.01) for seed in range(20)]
    assert sum(one.word == "slower" for one in found) >= 16


def test_equal_ones_are_called_different_in_one_of_twenty_at_most() -> None:
    found = [contest(Random(seed), 0.0, 0.01, detect=0.005, most=8) for seed in range(400)]
    wrong = sum(one.word in ("faster", "slower") for one in found)
    assert wrong / len(found) <= 0.05


def test_an_even_drift_favours_neither_side() -> None:
    """A machine that loses a quarter of a percent with every run."""
    found = [contest(Random(seed), 0.0, 0.003, detect=0.005, most=8, drift=0.0025) for seed in range(200)]
    assert sum(one.word in ("faster", "slower") for one in found) <= 10


def test_the_chances_of_all_looks_add_up_to_less_than_alpha() -> None:
    assert sum(alpha_at(n) for n in LOOKS) < ALPHA
    assert alpha_at(4) == pytest.approx(2 / 70)


def test_equal_ones_become_equivalent_when_the_noise_is_small_enough() -> None:
    found = [contest(Random(seed), 0.0, 0.003) for seed in range(20)]
    assert sum(one.word == "equivalent" for one in found) >= 18
    assert all(one.interval is not None for one in found)


def test_it_ends_without_a_verdict_when_enough_was_tried_and_says_so() -> None:
    found = [contest(Random(seed), 0.0, 0.02, detect=0.04, most=48) for seed in range(20)]
    tired = [one for one in found if one.word == "undecided"]
    assert all("would have been found four times in five" in one.sentence for one in tired)
    assert all(one.n <= 16 for one in found)


def test_too_few_runs_allowed_says_how_many_it_takes() -> None:
    chance = Random(4)
    a, b = [[100.0 * (1 + chance.gauss(0, 0.03)) for _ in range(4)] for _ in range(2)]
    found = decide(a, b, detect=0.02, most=4)
    assert found.done and found.word == "undecided"
    assert found.needed is None or f"{found.needed} v {found.needed} runs" in found.sentence


def test_what_a_look_can_find_is_what_it_finds() -> None:
    """80 % power, by trial, with a margin for the slack in the formula."""
    change = detectable_at(6, 0.02)
    chance = Random(8)
    hits = 0
    for _ in range(150):
        a = [100 * (1 + chance.gauss(0, 0.02)) for _ in range(6)]
        b = [100 * (1 + change) * (1 + chance.gauss(0, 0.02)) for _ in range(6)]
        hits += decide(a, b, detect=0.001).word == "faster"
    assert 0.72 <= hits / 150 <= 0.95


@given(st.floats(0.001, 0.1), st.floats(0.005, 0.2))
@settings(max_examples=60, deadline=None)
def test_more_noise_never_takes_fewer_runs(spread: float, detect: float) -> None:
    few, many = runs_needed(spread, detect), runs_needed(2 * spread, detect)
    assert many is None or (few is not None and few <= many)


@pytest.mark.parametrize(("a", "b"), [([1.0] * 4, [1.0] * 3), ([1.0, 1.0, 1.0, 0.0], [1.0] * 4)])
def test_what_is_no_look_is_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError):
        decide(a, b)


def test_there_is_no_look_between_the_looks() -> None:
    with pytest.raises(ValueError):
        alpha_at(5)
    assert next_look(4) == 6 and next_look(LOOKS[-1]) is None


@given(st.integers(0, 10_000))
def test_each_four_runs_hold_two_of_each_side_in_mirror_order(seed: int) -> None:
    made = "".join(sides(48, seed))
    assert {made[k : k + 4] for k in range(0, 48, 4)} <= {"ABBA", "BAAB"}
