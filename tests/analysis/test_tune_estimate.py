"""Scores of configurations by all starts together: one start is off by several percent, many are not."""

from __future__ import annotations

from itertools import product
from math import isfinite, log
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.tuning.estimate import Scored, ScoreModel
from swarmtui.analysis.tuning.space import Machine, SearchSpace, make_space
from swarmtui.engines.base import Engine
from swarmtui.engines.knobs import Knob
from swarmtui.model.tuning import Flags

SLOTS = Knob(name="--slots", stage="slots", values=(1, 2, 4, 8, 16), default=2, moves=("slots",))
MODE = Knob(name="--mode", stage="cache", values=("a", "b", "c"), default="a", moves=("bandwidth",))


def space() -> SearchSpace:
    engine = Engine()
    engine.name, engine.knobs = "test", (SLOTS, MODE)
    return make_space(engine, ("server",), machine=Machine(gpus=1, cores=8))


def test_effect_of_a_value_is_known_by_all_starts_that_had_it() -> None:
    """Mode b gains 15 %, but its start with 8 slots was slow; with other slots it gained each time."""
    starts = [
        Scored(Flags({"--slots": slots} | ({"--mode": "b"} if fast else {})), log(100 + slots) + 0.14 * fast, 1.0)
        for slots, fast in product((1, 4, 8, 16), (False, True))
        if (slots, fast) != (8, True)
    ]
    model = ScoreModel(space(), [*starts, Scored({"--slots": 8, "--mode": "b"}, log(107.0), 1.0)])
    slow = model.estimate({"--slots": 8}).score
    assert 0.03 < model.estimate({"--slots": 8, "--mode": "b"}).score - slow < 0.14


def test_value_between_two_that_are_known_is_estimated_between_them() -> None:
    model = ScoreModel(space(), [Scored({"--slots": 1}, 4.0, 1.0), Scored({"--slots": 16}, 5.0, 1.0)])
    low, middle, high = (model.estimate({"--slots": slots}).score for slots in (1, 4, 16))
    assert low < middle < high


def test_nothing_is_promised_by_what_is_known_to_be_worse() -> None:
    random = Random(1)
    starts = [
        Scored({"--mode": mode}, score + random.gauss(0.0, 0.01), 1.0)
        for mode, score in (("a", 5.0), ("b", 4.0), ("c", 5.0)) * 3
    ]
    model = ScoreModel(space(), starts)
    assert model.promise({"--mode": "b"}, 5.0) < 0.001 < model.promise({"--slots": 8}, 5.0)


def test_flags_that_the_user_added_need_not_be_knobs() -> None:
    added: Flags = {"--lock": True, "--slots": 6}
    model = ScoreModel(space(), [Scored({}, 5.0, 1.0), Scored(added, 6.0, 1.0), Scored({"--slots": 8}, 5.0, 1.0)])
    assert model.estimate(added).score > model.estimate({}).score + 0.1


FLAGS = st.fixed_dictionaries({}, optional={"--slots": st.sampled_from((1, 4, 8)), "--mode": st.sampled_from("bc")})
STARTS = st.lists(st.builds(Scored, FLAGS, st.floats(-5.0, 10.0), st.sampled_from((1.0, 2.0))), min_size=1, max_size=25)


@settings(max_examples=10)
@given(STARTS, FLAGS)
def test_any_starts_give_an_estimate_and_more_of_them_a_nearer_one(starts: list[Scored], flags: Flags) -> None:
    found = ScoreModel(space(), starts).estimate(flags)
    assert isfinite(found.score) and isfinite(found.error) and found.error >= 0.0
    # Enough starts that agree are believed, whatever the others say.
    many = [*starts, *([Scored(flags, found.score + 1.0, 1.0)] * 60)]
    assert abs(ScoreModel(space(), many).estimate(flags).score - (found.score + 1.0)) < 0.5
