from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.compare.verdicts import detectable_change, permutation_p, verdict

rates = st.floats(50, 150)


def drawn(random: Random, mean: float, n: int = 4, cv: float = 0.01) -> list[float]:
    return [random.gauss(mean, mean * cv) for _ in range(n)]


def test_separated_four_v_four_gives_p_of_2_in_70() -> None:
    found = verdict([100.0, 101.0, 102.0, 103.0], [110.0, 111.0, 112.0, 113.0])
    assert found.p == pytest.approx(2 / 70)
    assert found.word == "faster"
    assert "4 v 4 runs, p = 0.029" in found.sentence


@pytest.mark.parametrize(("n", "smallest"), [(1, 1.0), (2, 1 / 3), (3, 0.1)])
def test_fewer_than_four_runs_never_decide(n: int, smallest: float) -> None:
    found = verdict([100.0 + k for k in range(n)], [900.0 + k for k in range(n)])
    assert found.smallest_p == pytest.approx(smallest)
    assert found.word == "undecided"
    assert found.change is not None and found.change > 5


def test_single_runs_have_no_spread() -> None:
    """S3: 78.6 with bridges, 75.4 without, each measured once."""
    found = verdict([78.6], [75.4])
    assert found.sentence.startswith("undecided: n=1;")
    assert "−4.1 %" in found.sentence


def test_two_v_two_names_change_that_four_would_detect() -> None:
    found = verdict([100.0, 101.0], [104.0, 105.0])
    assert "2 v 2 runs are too few to decide (p ≥ 0.33)" in found.sentence
    assert found.detectable == pytest.approx(detectable_change(0.00703, 4, 4), rel=0.05)


def test_lower_is_better_inverts_the_word() -> None:
    a, b = [100.0, 101.0, 102.0, 103.0], [110.0, 111.0, 112.0, 113.0]
    assert verdict(a, b, better="lower").word == "slower"
    assert verdict(b, a, better="lower").word == "faster"


def test_significant_change_within_two_percent_is_equivalent() -> None:
    a = [100.0, 100.1, 100.2, 100.3]
    found = verdict(a, [value * 1.008 for value in a])
    assert found.p == pytest.approx(2 / 70)
    assert found.word == "equivalent"


def test_not_measured_is_undecided() -> None:
    assert verdict([], [1.0, 2.0]).sentence == "undecided: not measured"
    assert verdict([0.0, 1.0], [1.0, 2.0]).word == "undecided"


@settings(max_examples=50, deadline=None)
@given(st.lists(rates, min_size=2, max_size=3), st.lists(rates, min_size=2, max_size=3))
def test_permutation_p_matches_brute_force(x: list[float], y: list[float]) -> None:
    def apart(order: tuple[float, ...]) -> float:
        return abs(sum(order[: len(x)]) / len(x) - sum(order[len(x) :]) / len(y))

    orders = [apart(order) for order in permutations([*x, *y])]
    brute = sum(value >= apart((*x, *y)) - 1e-9 for value in orders) / len(orders)
    assert permutation_p(x, y) == pytest.approx(brute, abs=1e-6)


def test_sampled_p_is_deterministic() -> None:
    random = Random(1)
    x, y = drawn(random, 100, 12), drawn(random, 103, 12)
    assert permutation_p(x, y) == permutation_p(x, y) < 0.01


def test_false_positive_rate_is_at_most_five_percent() -> None:
    random = Random(7)
    wrong = sum(verdict(drawn(random, 100), drawn(random, 100)).word in ("faster", "slower") for _ in range(2000))
    assert wrong / 2000 <= 0.05


def test_power_for_five_percent_at_one_percent_cv() -> None:
    random = Random(8)
    found = sum(verdict(drawn(random, 100), drawn(random, 105)).word == "faster" for _ in range(500))
    assert found / 500 >= 0.80


@pytest.mark.parametrize("n", [4, 5, 6])
def test_detectable_change_has_80_percent_power(n: int) -> None:
    random, cv = Random(n), 0.02
    change = 1 + detectable_change(cv, n, n)
    pairs = [(drawn(random, 100, n, cv), drawn(random, 100 * change, n, cv)) for _ in range(200)]
    assert sum(verdict(a, b).word == "faster" for a, b in pairs) / 200 >= 0.77


@settings(max_examples=60, deadline=None)
@given(st.lists(rates, min_size=4, max_size=5), st.lists(rates, min_size=4, max_size=5))
def test_swapping_sides_swaps_the_word(a: list[float], b: list[float]) -> None:
    mirror = {"faster": "slower", "slower": "faster", "undecided": "undecided"}
    forth, back = verdict(a, b), verdict(b, a)
    if "equivalent" not in (forth.word, back.word):
        assert mirror[forth.word] == back.word
