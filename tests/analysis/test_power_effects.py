"""What a power limit costs and saves: intervals that hold together, and words for limits that are worth it."""

from __future__ import annotations

from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.power import MAX_COST, Pass, best_effect, power_effects

LIMITS = (280.0, 350.0, 500.0, 600.0, 700.0)


def simulated(random: Random, passes: int, spreads: dict[float, float], tps: dict[float, float]) -> list[Pass]:
    """Passes that drift by 3 %, in each of which a limit has its own effect and spread."""
    found: list[Pass] = []
    for _ in range(passes):
        drift = random.gauss(0.0, 0.03)
        found.append(
            {
                watts: (
                    exp(drift + tps[watts] + random.gauss(0.0, spreads[watts])),
                    exp(-drift - tps[watts] + random.gauss(0.0, spreads[watts])),
                )
                for watts in LIMITS
            }
        )
    return found


@pytest.mark.parametrize("spreads", [(0.01,) * 5, (0.03, 0.02, 0.01, 0.005, 0.005)], ids=["equal", "unequal"])
@pytest.mark.parametrize("passes", [3, 5])
def test_all_intervals_together_contain_the_truth_in_19_of_20_sweeps(passes: int, spreads: tuple[float, ...]) -> None:
    random, sweeps = Random(7), 400
    truth = dict(zip(LIMITS, (-0.2, -0.08, -0.02, 0.0, 0.0), strict=True))
    missed = 0
    for _ in range(sweeps):
        effects = power_effects(simulated(random, passes, dict(zip(LIMITS, spreads, strict=True)), truth))
        missed += any(
            not (one.low < exp(sign * truth[effect.watts]) - 1 < one.high)
            for effect in effects
            for one, sign in ((effect.tps_range, 1), (effect.energy_range, -1))
            if one is not None
        )
    assert missed <= 0.08 * sweeps, missed


def test_limit_that_saves_most_of_those_that_cost_little_is_the_best() -> None:
    figures = {280.0: (0.80, 0.60), 350.0: (0.99, 0.80), 500.0: (1.0, 0.9), 700.0: (1.0, 1.0)}
    passes = [
        {watts: (tps * way, joules / way) for watts, (tps, joules) in figures.items()} for way in (1, 1.001, 0.999)
    ]
    best = best_effect(power_effects(passes))
    assert best is not None and best.watts == 350 and best.tps == pytest.approx(-0.01, abs=1e-9)


def test_two_passes_have_changes_without_intervals_and_no_best() -> None:
    effects = power_effects([{280.0: (0.99, 0.8), 700.0: (1.0, 1.0)}] * 2)
    assert [(effect.passes, effect.tps_range, effect.energy_range) for effect in effects] == [(2, None, None)]
    assert best_effect(effects) is None


def test_limit_that_one_pass_lacks_is_left_out() -> None:
    whole = {280.0: (0.99, 0.8), 350.0: (0.99, 0.8), 700.0: (1.0, 1.0)}
    effects = power_effects([whole, whole, {280.0: (0.99, 0.8), 700.0: (1.0, 1.0)}])
    assert [effect.watts for effect in effects] == [280.0]


def test_nothing_is_said_of_one_limit_or_none() -> None:
    assert power_effects([]) == () and power_effects([{700.0: (1.0, 1.0)}] * 3) == ()


figure = st.floats(0.01, 1e4)


@given(
    st.lists(st.fixed_dictionaries({watts: st.tuples(figure, figure) for watts in LIMITS[:3]}), min_size=1, max_size=6)
)
def test_changes_lie_in_their_intervals_and_only_sure_ones_are_worth_it(passes: list[Pass]) -> None:
    for effect in power_effects(passes):
        if effect.tps_range is None or effect.energy_range is None:
            assert len(passes) < 3 and not effect.is_worth_it
            continue
        assert effect.tps_range.low <= effect.tps <= effect.tps_range.high
        assert effect.energy_range.low <= effect.energy <= effect.energy_range.high
        assert not effect.is_worth_it or (effect.tps >= -MAX_COST and effect.energy < 0)
