"""The rule for two capacities: ranges that are apart, and a distance beyond what two searches differ by chance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.agents import AgentsChange, chance_of, compare_agents, repeat_range
from swarmtui.model.answer import Answer, AnswerSentence

SAID = AnswerSentence(code="capacity", sentence="")
CLAIMS = ("more agents", "fewer agents")

agents = st.integers(1, 300)
width = st.integers(0, 10)


def answer(number: int, below: int, above: int, confidence: float = 0.8) -> Answer:
    low = max(1, number - below)
    return Answer(
        headline=SAID, limit=SAID, agents=number, low=low, high=number + above, slo="ttft_p90=2s", confidence=confidence
    )


def compared(before: Answer, after: Answer) -> AgentsChange:
    found = compare_agents(before, after)
    assert found is not None
    return found


@given(agents, agents, width, width, st.integers(1, 50), st.sampled_from([0.8, 0.99]))
def test_a_larger_distance_is_never_less_sure(
    before: int, after: int, below: int, above: int, more: int, confidence: float
) -> None:
    first = answer(before, below, above, confidence)
    near = compared(first, answer(after, below, above, confidence))
    further = after + more if after >= before else max(1, after - more)
    far = compared(first, answer(further, below, above, confidence))
    if near.word in CLAIMS:
        assert far.word == near.word and far.reason == "beyond_chance"


@given(agents, agents, width, width, width, width)
def test_narrower_ranges_are_never_less_sure(
    before: int, after: int, below: int, above: int, less_below: int, less_above: int
) -> None:
    wide = compared(answer(before, below, above), answer(after, below, above))
    sides = (answer(number, max(0, below - less_below), max(0, above - less_above)) for number in (before, after))
    narrow = compared(*sides)
    if wide.word in CLAIMS:
        assert narrow.word == wide.word


@given(agents, agents, st.integers(2, 8))
def test_the_same_ratio_of_larger_numbers_is_never_less_sure(before: int, after: int, factor: int) -> None:
    small = compared(answer(before, 0, 0), answer(after, 0, 0))
    large = compared(answer(factor * before, 0, 0), answer(factor * after, 0, 0))
    if small.word in CLAIMS:
        assert large.word == small.word


@given(agents, agents, width, width)
def test_swapped_sides_have_the_opposite_verdict(before: int, after: int, below: int, above: int) -> None:
    sides = answer(before, below, above), answer(after, below, above)
    there, back = compared(*sides), compared(*reversed(sides))
    opposite = {"more agents": "fewer agents", "fewer agents": "more agents"}
    assert back.word == opposite.get(there.word, there.word) and back.reason == there.reason


def test_the_yardstick_is_rounded_to_the_nearest_number() -> None:
    """A growth by three of twelve is sure, and so is one of fifteen."""
    expected = {1: 1, 9: 1, 10: 2, 12: 2, 15: 2, 16: 3, 18: 3, 22: 4, 100: 16}
    assert {number: chance_of(number, 2 * number) for number in expected} == expected


@given(agents, agents)
def test_quick_searches_within_the_yardstick_claim_nothing(before: int, after: int) -> None:
    quick, sure = (compared(*(answer(number, 0, 0, of) for number in (before, after))) for of in (0.8, 0.99))
    if abs(after - before) <= chance_of(before, after):
        assert quick.word not in CLAIMS
    assert sure.chance is None and (quick.word not in CLAIMS or sure.word in CLAIMS)


@given(agents, agents, width, width, st.sampled_from([0.8, 0.99]))
def test_a_number_that_a_repeat_of_the_other_could_end_at_is_no_change(
    before: int, after: int, below: int, above: int, confidence: float
) -> None:
    """Machines drift by some percent within minutes, however many requests decide a search."""
    sides = answer(before, below, above, confidence), answer(after, below, above, confidence)
    inside = [
        low <= other <= high
        for side, other in zip(sides, (after, before), strict=True)
        for low, high in [repeat_range(side)]
        if low is not None and high is not None
    ]
    assert len(inside) == 2
    if any(inside):
        assert compared(*sides).word not in CLAIMS


@pytest.mark.parametrize(
    ("found", "repeat"),
    [
        ((0, 0, 0), (0, 1)),
        ((1, 1, 1), (0, 2)),
        ((10, 10, 10), (9, 11)),
        ((12, 11, 12), (9, 14)),
        ((40, 40, 44), (36, 49)),
    ],
)
def test_a_repeat_ends_a_tenth_further_at_most(found: tuple[int, int, int], repeat: tuple[int, int]) -> None:
    agents, low, high = found
    side = Answer(headline=SAID, limit=SAID, agents=agents, low=low, high=high, slo="ttft_p90=2s")
    assert repeat_range(side) == repeat
