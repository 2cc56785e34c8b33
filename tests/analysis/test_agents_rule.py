"""The rule for two capacities: ranges that are apart, and a distance beyond what repeats differ by."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.agents import AgentsChange, compare_agents
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
        assert far.word == near.word and far.reason == "beyond_repeats"


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


def disturbed(number: int, low: int) -> Answer:
    return msgspec.structs.replace(
        answer(number, 0, 0), low=low, high=None, quality="doubtful", disturbed="the host was busy"
    )


@pytest.mark.parametrize("disturbed_sides", [(True, True), (False, False)])
def test_two_sides_without_an_upper_limit_are_not_compared(disturbed_sides: tuple[bool, bool]) -> None:
    sides = (
        disturbed(n, n) if slowed else msgspec.structs.replace(answer(n, 0, 0), high=None)
        for n, slowed in zip((12, 13), disturbed_sides, strict=True)
    )
    found = compare_agents(*sides)
    assert found is not None and (found.word, found.reason) == ("not sure yet", "no_limit")
    assert found.detail == "12 or more before, 13 or more now"
    end = "until the host is quiet" if all(disturbed_sides) else "is possible"
    assert found.why == f"neither search found an upper limit: no comparison {end}"
    equal = compare_agents(disturbed(12, 12), disturbed(12, 12))
    assert equal is not None and equal.word == "not sure yet", "both may be any number more"


def test_the_side_without_an_upper_limit_is_named() -> None:
    for sides, which in (
        ((disturbed(12, 12), answer(13, 1, 1)), "before"),
        ((answer(13, 1, 1), disturbed(12, 12)), "now"),
    ):
        found = compare_agents(*sides)
        assert found is not None and found.reason == "open_range"
        assert found.why.startswith(f"no upper limit was found {which}: ")
    below = compare_agents(disturbed(12, 12), answer(6, 0, 1))
    assert below is not None and below.word == "fewer agents", "what was kept stays kept"


def test_searches_for_another_slo_or_without_a_number_are_not_compared() -> None:
    before, after = answer(22, 0, 1), answer(26, 0, 1)
    other = msgspec.structs.replace(after, slo="ttft_p90=1s")
    assert compare_agents(before, after) is not None
    assert compare_agents(before, other) is None and compare_agents(before, None) is None


@given(agents, agents)
def test_quick_searches_need_a_larger_distance_than_sure_ones(before: int, after: int) -> None:
    quick, sure = (compared(*(answer(number, 0, 0, of) for number in (before, after))) for of in (0.8, 0.99))
    assert quick.repeats is None or (sure.repeats is not None and sure.repeats <= quick.repeats)
    assert quick.word not in CLAIMS or sure.word in CLAIMS


@pytest.mark.parametrize(
    ("before", "after", "quick", "sure"),
    [(1, 9, 1, 1), (10, 16, 2, 2), (12, 20, 2, 2), (16, 30, 3, 3), (22, 40, 4, 4), (22, 26, 4, 3), (100, 130, 16, 13)],
)
def test_how_far_repeats_may_differ(before: int, after: int, quick: int, sure: int) -> None:
    """A tenth beside each range, or 16 % of the smaller number, rounded."""
    found = [compared(*(answer(number, 0, 0, of) for number in (before, after))).repeats for of in (0.8, 0.99)]
    assert found == [quick, sure]


@given(agents, agents, width, width, st.sampled_from([0.8, 0.99]))
def test_a_number_that_a_repeat_of_the_other_could_end_at_is_no_change(
    before: int, after: int, below: int, above: int, confidence: float
) -> None:
    """Machines drift by some percent within minutes; a repeat ends in the lowest third of a range above the number."""
    sides = answer(before, below, above, confidence), answer(after, below, above, confidence)
    for side, other in (sides, reversed(sides)):
        low, high = side.low, side.high
        assert low is not None and high is not None and other.agents is not None
        ends = low + (high - low) / 3 if low == side.agents else high
        if 0.9 * low <= other.agents <= 1.1 * ends:
            assert compared(*sides).word not in CLAIMS
