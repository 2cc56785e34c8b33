"""The rule for two capacities: ranges that are apart, and a distance beyond what chance explains."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.agents import AgentsChange, compare_agents, pool_searches
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


def compared(before: Answer, after: Answer, *, searches: tuple[int, int] = (1, 1)) -> AgentsChange:
    """Compare so many searches of each side, all with the same answer."""
    found = compare_agents([before] * searches[0], [after] * searches[1])
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


@given(agents, agents, width, width, st.sampled_from([0.8, 0.99]), st.integers(1, 4), st.integers(1, 4))
def test_repeats_that_end_at_the_same_numbers_are_never_less_sure(
    before: int, after: int, below: int, above: int, confidence: float, more: int, again: int
) -> None:
    sides = answer(before, below, above, confidence), answer(after, below, above, confidence)
    once, often = compared(*sides), compared(*sides, searches=(more, again))
    assert once.word == often.word or once.word == "not sure yet"
    assert often.searches == (more, again)
    if once.chance is not None and often.chance is not None:
        assert often.chance <= once.chance


@pytest.mark.parametrize(
    ("searches", "word", "likely", "why"),
    [
        (
            (1, 1),
            "not sure yet",
            "more agents",
            "one search each: 4 agents apart, which chance seldom does",
        ),
        (
            (1, 2),
            "more agents",
            None,
            "they gave 22 → 26, 26: 4 agents apart; chance explains at most 3",
        ),
        (
            (2, 2),
            "more agents",
            None,
            "they gave 22, 22 → 26, 26: 4 agents apart; chance explains at most 2",
        ),
    ],
)
def test_one_repeat_makes_a_change_of_a_sixth_sure(
    searches: tuple[int, int], word: str, likely: str | None, why: str
) -> None:
    found = compared(answer(22, 0, 1), answer(26, 0, 1), searches=searches)
    assert (found.word, found.likely, found.why) == (word, likely, why)


def test_a_repeat_that_ends_elsewhere_counts_as_much_as_the_first() -> None:
    before, high, low = answer(22, 0, 1), answer(28, 0, 1), answer(22, 0, 1)
    apart, mixed = compare_agents([before], [high]), compare_agents([before], [high, low])
    assert apart is not None and apart.word == "more agents"
    assert mixed is not None and mixed.word == "not sure yet" and mixed.detail == "22 → 25"
    assert mixed.why == "they gave 22 → 22, 28: 3 agents apart, which chance seldom does"


def test_of_several_searches_the_means_are_shown_everywhere() -> None:
    found = compare_agents([answer(17, 0, 2), answer(18, 0, 1)], [answer(n, 0, 1) for n in (22, 20, 17, 22)])
    assert found is not None and (found.before, found.after, found.numbers) == (17, 20, ("17", "20"))
    assert found.sentence() == "more agents: 17 → 20, means of 2 and 4 searches, 80 % sure"
    average = "on average 17.5 → 20.3"
    assert found.why == f"they gave 18, 17 → 22, 17, 20, 22 ({average}): 2.8 agents apart; chance explains at most 2"


def test_searches_that_scatter_more_than_their_ranges_say_so() -> None:
    before, after = ([answer(n, 0, 1) for n in numbers] for numbers in ((14, 12), (14, 17, 8)))
    found = compare_agents(before, after)
    assert found is not None and found.word == "same"
    assert found.why == ("they gave 12, 14 → 8, 17, 14; a change of up to 5 agents would not show")


def test_many_searches_are_not_all_listed() -> None:
    found = pool_searches([answer(number, 0, 0) for number in range(29, 20, -1)])
    assert found is not None and found.gave == "…, 24, 25, 26, 27, 28, 29"


@pytest.mark.parametrize(
    ("numbers", "take"),
    [((26, 28, 26), (26, 26, 30)), ((22, 17, 20, 22), (20, 20, 24)), ((18, 17), (17, 17, 21)), ((7, 7), (7, 7, 10))],
)
def test_searches_together_have_the_mean_of_their_numbers_and_ranges_which_is_not_rounded_up(
    numbers: tuple[int, ...], take: tuple[int, int, int]
) -> None:
    found = pool_searches([answer(number, 0, 3) for number in reversed(numbers)])
    assert found is not None and (found.agents, found.low, found.high) == take
    assert found.numbers == tuple(map(str, numbers)), "the oldest is the first"


@given(st.lists(agents, min_size=1, max_size=8), width, width)
def test_the_range_of_searches_has_their_mean(numbers: list[int], below: int, above: int) -> None:
    found = pool_searches([answer(number, below, above) for number in numbers])
    assert (found is None) == (len(numbers) < 2), "one search is no repeat"
    if found is not None:
        assert found.low is not None and found.high is not None
        assert found.low <= sum(numbers) / len(numbers) <= found.high and found.low <= found.agents <= found.high


def test_searches_together_have_no_upper_end_if_one_of_them_has_none() -> None:
    first, open_ = answer(26, 0, 0), msgspec.structs.replace(answer(30, 0, 0), high=None)
    found = pool_searches([first, open_])
    assert found is not None and (found.numbers, found.high) == (("30+", "26"), None)
    more = compare_agents([answer(8, 0, 0)], [first, open_])
    assert more is not None and more.detail == "8 → 28 or more" and more.numbers == ("8", "28+")


def disturbed(number: int, low: int) -> Answer:
    return msgspec.structs.replace(
        answer(number, 0, 0), low=low, high=None, quality="doubtful", disturbed="the host was busy"
    )


@pytest.mark.parametrize(
    ("searches", "take", "gave", "left"),
    [
        # The newest is the first.
        ([disturbed(8, 4), disturbed(13, 13)], (13, 13, None), "13+, 8", ()),
        ([disturbed(13, 13), disturbed(8, 4)], (13, 13, None), "8, 13+", ()),
        ([answer(14, 1, 2), disturbed(13, 13)], (14, 13, 16), "14", ("13+",)),
        ([disturbed(4, 4), answer(14, 1, 2)], (14, 13, 16), "14", ("4+",)),
        ([disturbed(15, 15), answer(14, 1, 2)], (15, 15, 16), "14, 15+", ()),
        ([disturbed(20, 20), answer(14, 1, 2)], (20, 20, None), "14, 20+", ()),
    ],
)
def test_a_level_that_a_disturbed_search_kept_stays_kept(
    searches: list[Answer], take: tuple[int, int, int | None], gave: str, left: tuple[str, ...]
) -> None:
    found = pool_searches(searches)
    assert found is not None and (found.agents, found.low, found.high, found.gave) == (*take, gave)
    assert found.left_out == left, "what does not count is not among the numbers of the mean"


@given(st.lists(agents, min_size=1, max_size=4), agents, width, width)
def test_a_disturbed_search_never_lowers_what_the_others_give(
    numbers: list[int], low: int, below: int, above: int
) -> None:
    others = [answer(number, below, above) for number in numbers]
    without, with_it = pool_searches([*others, *others]), pool_searches([*others, *others, disturbed(low + 1, low)])
    assert without is not None and with_it is not None and with_it.agents == max(without.agents, low)
    assert without.low is not None and with_it.low is not None and with_it.low >= without.low


@pytest.mark.parametrize("disturbed_sides", [(True, True), (False, False)])
def test_two_sides_without_an_upper_limit_are_not_compared(disturbed_sides: tuple[bool, bool]) -> None:
    sides = (
        disturbed(n, n) if slowed else msgspec.structs.replace(answer(n, 0, 0), high=None)
        for n, slowed in zip((12, 13), disturbed_sides, strict=True)
    )
    found = compare_agents(*([side] for side in sides))
    assert found is not None and (found.word, found.reason, found.likely) == ("not sure yet", "no_limit", None)
    assert found.detail == "12 or more before, 13 or more now"
    end = "until the host is quiet" if all(disturbed_sides) else "is possible"
    assert found.why == f"neither side found an upper limit: no comparison {end}"
    equal = compare_agents([disturbed(12, 12)], [disturbed(12, 12)])
    assert equal is not None and equal.word == "not sure yet", "both may be any number more"


def test_the_side_without_an_upper_limit_is_named() -> None:
    for sides, which in (
        ((disturbed(12, 12), answer(13, 1, 1)), "before"),
        ((answer(13, 1, 1), disturbed(12, 12)), "now"),
    ):
        found = compare_agents(*([side] for side in sides))
        assert found is not None and found.reason == "overlap"
        assert found.why.startswith(f"{which}, no upper limit was found: ")
    below = compare_agents([disturbed(12, 12)], [answer(6, 0, 1)])
    assert below is not None and below.word == "fewer agents", "what was kept stays kept"


def test_searches_for_another_slo_or_without_a_number_do_not_count() -> None:
    before, after = answer(22, 0, 1), answer(26, 0, 1)
    other = msgspec.structs.replace(after, slo="ttft_p90=1s")
    found = compare_agents([before, None], [after, other])
    assert found is not None and found.searches == (1, 1)
    assert compare_agents([before], [other, after]) is None, "the one that is shown must count"


@given(agents, agents)
def test_quick_searches_need_a_larger_distance_than_sure_ones(before: int, after: int) -> None:
    quick, sure = (compared(*(answer(number, 0, 0, of) for number in (before, after))) for of in (0.8, 0.99))
    assert quick.chance is None or (sure.chance is not None and sure.chance <= quick.chance)
    assert quick.word not in CLAIMS or sure.word in CLAIMS


@pytest.mark.parametrize(
    ("before", "after", "quick", "sure"),
    [(1, 9, 1, 1), (10, 16, 2, 2), (12, 20, 2, 2), (16, 30, 3, 3), (22, 40, 4, 4), (22, 26, 4, 3), (100, 130, 16, 13)],
)
def test_what_chance_explains(before: int, after: int, quick: int, sure: int) -> None:
    """A tenth beside each range, or 16 % of the smaller number, rounded."""
    found = [compared(*(answer(number, 0, 0, of) for number in (before, after))).chance for of in (0.8, 0.99)]
    assert found == [quick, sure]


@given(agents, agents, width, width, st.sampled_from([0.8, 0.99]))
def test_a_number_that_a_repeat_of_the_other_could_end_at_is_no_change(
    before: int, after: int, below: int, above: int, confidence: float
) -> None:
    """Machines drift by some percent within minutes; a repeat ends in the lowest third of a range above the number."""
    sides = answer(before, below, above, confidence), answer(after, below, above, confidence)
    for side, other in (sides, reversed(sides)):
        low, high = side.shown_range
        assert low is not None and high is not None and other.agents is not None
        ends = low + (high - low) / 3 if low == side.agents else high
        if 0.9 * low <= other.agents <= 1.1 * ends:
            assert compared(*sides).word not in CLAIMS
