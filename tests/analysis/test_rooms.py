"""Two searches are compared at the levels that both visited: more room there decides what the numbers leave open."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.agents import compare_agents
from swarmtui.analysis.compare.rooms import room_change
from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.model.answer import Answer, AnswerSentence
from swarmtui.model.findings import SearchedLevel, SearchState, VisitSpread
from swarmtui.report.comparison import answer_lines
from swarmtui.report.verdicts import pair_code
from tests.analysis.test_compare_agents import quick_search

SAID = AnswerSentence(code="capacity", sentence="")
BEFORE = {9: 0.23, 11: 0.03, 13: -0.26}
AFTER = {9: 0.5, 11: 0.24, 13: 0.0, 18: -0.3}


def searched(rooms: dict[int, float], dip: int = 0) -> SearchState:
    levels = (
        SearchedLevel(c=c, visits=1, n=16, good=16, state="dip" if c == dip else "kept", room=room)
        for c, room in rooms.items()
    )
    return SearchState(goal="capacity", levels=tuple(levels))


def answered(agents: int, high: int | None, disturbed: str = "") -> Answer:
    return Answer(
        headline=SAID, limit=SAID, agents=agents, low=agents, high=high, slo="ttft_p90=2s", confidence=0.8,
        disturbed=disturbed,
    )  # fmt: skip


def test_levels_of_both_searches_show_what_the_numbers_do_not() -> None:
    rooms = room_change(searched(BEFORE), searched(AFTER))
    found = compare_agents(answered(9, 12), answered(11, 17), rooms=rooms)
    assert found is not None and found.sentence() == "likely more agents: 9 (9–12) → 11 (11–17)"
    rooms_said = "23 % → ≥50 % to spare with 9 agents, 3 % → 24 % with 11"
    assert found.why == f"{rooms_said}; together, repeats seldom differ by as much"
    back = compare_agents(answered(11, 17), answered(9, 12), rooms=room_change(searched(AFTER), searched(BEFORE)))
    assert back is not None and back.word == "fewer agents"
    assert back.why.startswith("≥50 % → 23 % to spare with 9 agents, 24 % → 3 % with 11")


@pytest.mark.parametrize(
    ("before", "after", "rooms"),
    [
        # They contradict the numbers, or say nothing.
        (answered(11, 17), answered(9, 12), (BEFORE, AFTER)),
        (answered(9, 12), answered(11, 17), (BEFORE, {c: room + 0.05 for c, room in BEFORE.items()})),
        (answered(9, 12), answered(11, 17), (BEFORE, {4: 0.5, 12: 0.3})),
        # What slowed one of them down explains it.
        (answered(9, None, "the host was busy"), answered(11, 17), (BEFORE, AFTER)),
    ],
)
def test_levels_decide_nothing_alone(
    before: Answer, after: Answer, rooms: tuple[dict[int, float], dict[int, float]]
) -> None:
    found = compare_agents(before, after, rooms=room_change(*map(searched, rooms)))
    assert found is not None and found.word == "not sure yet"


def test_the_more_visits_differ_the_less_is_decided() -> None:
    def compared(spread: VisitSpread) -> str:
        sides = (msgspec.structs.replace(searched(rooms), spread=spread) for rooms in (BEFORE, AFTER))
        found = compare_agents(answered(9, 12), answered(11, 17), rooms=room_change(*sides))
        assert found is not None
        return found.word

    assert [compared(VisitSpread(4 * each**2, 4)) for each in (0.05, 0.25)] == ["more agents", "not sure yet"]


def test_equal_numbers_are_not_the_same_if_their_levels_changed() -> None:
    rooms = room_change(searched(BEFORE), searched(AFTER))
    found = compare_agents(answered(9, 12), answered(9, 17), rooms=rooms)
    assert found is not None and found.sentence() == "not sure yet: 9 (9–12) → 9 (9–17)"
    assert found.why.startswith("23 % → ≥50 % to spare with 9 agents, ")
    still = compare_agents(answered(9, 12), answered(9, 17), rooms=room_change(searched(BEFORE), searched(BEFORE)))
    assert still is not None and still.word == "same"


def test_the_same_server_is_not_said_to_have_changed() -> None:
    rooms = room_change(searched(BEFORE), searched(AFTER))
    found = compare_agents(answered(9, 12), answered(11, 17), unchanged=True, rooms=rooms)
    assert found is not None and found.word == "not sure yet" and found.scatter


def test_a_dip_and_what_is_far_from_its_limits_in_both_searches_tell_nothing() -> None:
    assert room_change(searched({1: 0.5, 8: -1.0}), searched({1: 0.5, 8: -1.0})) is None
    assert room_change(searched(BEFORE), None) is None
    found = room_change(searched(BEFORE, dip=9), searched(AFTER))
    assert found is not None and found.levels == (11, 13)


@given(st.dictionaries(st.integers(1, 64), st.floats(-1.0, 0.5), max_size=6), st.floats(-1.0, 0.5))
def test_swapped_searches_have_the_opposite_change(rooms: dict[int, float], other: float) -> None:
    a, b = searched(rooms), searched(dict.fromkeys(rooms, other))
    there, back = room_change(a, b), room_change(b, a)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert there.change == pytest.approx(-back.change) and there.is_sure == back.is_sure


def test_a_comparison_says_at_which_levels_it_was_decided() -> None:
    sides = (
        msgspec.structs.replace(
            quick_search(id, agents, flags=flags), answer=answered(agents, high), search=searched(rooms)
        )
        for id, agents, high, flags, rooms in (
            ("20261115-010000-aaaa", 9, 12, "--parallel 2", BEFORE),
            ("20261115-020000-aaaa", 11, 17, "--parallel 4", AFTER),
        )
    )
    pair = compare_pair(*sides)
    lines = {line.name: line.text for line in answer_lines(pair)}
    assert lines["Agents"] == "likely more agents: 9 (9–12) → 11 (11–17)" and pair_code(pair) == "likely faster"
    assert lines["How sure"].startswith("23 % → ≥50 % to spare with 9 agents, ")
