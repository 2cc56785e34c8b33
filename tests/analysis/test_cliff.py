"""Where the cliff is, which C is tried next, and what the search comes to."""

from __future__ import annotations

from swarmtui.analysis.capacity.cliff import find_cliff, next_level
from swarmtui.analysis.capacity.scaling import cliff_search_sentence, scaling
from swarmtui.model.findings import Slots
from swarmtui.model.session import Level
from tests.analysis.level_builders import level


def search(
    seats: int, noise: float = 0.0, highest: int = 1024, told: Slots | None = None, wait: float = 1.0
) -> tuple[list[int], str]:
    """A server whose throughput grows up to its seats; beyond them requests wait in rounds."""
    levels: list[Level] = []
    while (c := next_level(levels, highest, told)) is not None:
        assert len(levels) < 30
        tps = 100.0 * min(c, seats) * (1 + noise * (seats < c < 2 * seats + 1))
        levels.append(level(c, tps=tps, ttft=0.1 + wait * max(0.0, c / seats - 1)))
    return [found.c for found in levels], cliff_search_sentence(levels, told)


def test_c_is_doubled_until_the_edge_and_then_the_gap_is_halved() -> None:
    tried, said = search(8)
    assert tried == [1, 2, 4, 8, 16, 12, 10, 9]
    assert said == "sweet spot C=8; cliff at C=10: +0 % tok/s for ×3.5 TTFT"


def test_with_seats_that_are_known_it_stops_doubling_where_they_end_and_names_them() -> None:
    """Requests hardly wait here, so that TTFT triples far beyond the seats."""
    two_by_two = Slots(per_replica=2, replicas=2)
    tried, said = search(4, wait=0.1, told=two_by_two)
    assert tried == [1, 2, 4, 8, 6, 5]
    assert said == "sweet spot C=4 (2 replicas × 2 seats); no cliff up to C=8: throughput still grows or TTFT holds"
    tried, said = search(4, wait=4.0, told=two_by_two)
    assert said == "sweet spot C=4 (2 replicas × 2 seats); cliff at C=5: +0 % tok/s for ×11 TTFT"


def test_a_small_gain_dearly_bought_is_a_cliff_also_where_the_step_is_small() -> None:
    levels = [level(1, tps=90, ttft=0.5), level(4, tps=225, ttft=0.5), level(5, tps=229.5, ttft=4.5)]
    said = cliff_search_sentence(levels, Slots(per_replica=2, replicas=2))
    assert said == "sweet spot C=4 (2 replicas × 2 seats); cliff at C=5: +2 % tok/s for ×9 TTFT"


def test_ttft_that_grows_step_by_step_is_held_against_the_last_level_that_was_worth_it() -> None:
    """No step by itself triples it."""
    levels = [level(c, tps=400, ttft=0.1 * 2**k) for k, c in enumerate((4, 5, 6, 7))]
    found = find_cliff([level(2, tps=200, ttft=0.1), *levels])
    assert found is not None
    assert (found.c_before, found.c, found.ttft_factor) == (4, 6, 4.0)


def test_a_search_and_a_sweep_over_the_same_levels_name_the_same_cliff() -> None:
    levels = [level(c, tps=100.0 * min(c, 6), ttft=0.1 + max(0, c - 6) / 6) for c in (1, 2, 4, 6, 7, 8, 10, 16)]
    swept, searched = scaling(levels).sentence, cliff_search_sentence(levels)
    assert "cliff at C=8: +0 % tok/s for ×4.3 TTFT" in swept
    assert "cliff at C=8: +0 % tok/s for ×4.3 TTFT" in searched


def test_noise_at_the_edge_does_not_lead_far_beyond_it() -> None:
    tried, said = search(4, noise=0.06)
    assert max(tried) <= 64
    assert "cliff at C=" in said


def test_where_there_is_no_cliff_that_is_said() -> None:
    tried, said = search(10_000, highest=64)
    assert tried == [1, 2, 4, 8, 16, 32, 64]
    assert said == "no cliff up to C=64: throughput still grows or TTFT holds"


def test_a_level_that_nobody_answered_ends_the_doubling_and_is_named() -> None:
    silent = level(8, n=0)
    levels = [level(1, tps=100, ttft=0.1), level(2, tps=200, ttft=0.1), level(4, tps=400, ttft=0.1), silent]
    assert next_level(levels, 1024) == 6
    assert cliff_search_sentence(levels) == "no cliff up to C=4: at C=8 no request was answered"
    assert cliff_search_sentence([silent]) == "no cliff: nothing was measured"
    assert next_level([level(1, n=0)], 1024) is None
