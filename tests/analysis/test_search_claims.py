"""What a running search says about its answer: a number grows, unless a level that was kept is measured again."""

from __future__ import annotations

import random

import pytest

from swarmtui.analysis.capacity.judged_levels import Visit
from swarmtui.analysis.capacity.slo_search import next_visit, search_state
from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.model.findings import SearchState

SLO, ALPHA = parse_slo("ttft_p90=2s"), 0.2


def visit(c: int, good: int, n: int) -> Visit:
    found = Visit(c, SLO)
    found.slo.add_counts(c, [(good, n)])
    return found


def states(*visits: Visit) -> list[SearchState]:
    """What is said after each visit."""
    said: list[SearchState] = []
    for end in range(1, len(visits) + 1):
        said.append(search_state(visits[:end], None, ALPHA, before=said[-1] if said else None))
    return said


def claims(*visits: Visit) -> list[tuple[int | None, int | None]]:
    return [(one.at_least, one.withdrawn) for one in states(*visits)]


def test_a_level_that_few_requests_kept_is_no_number_of_agents_yet() -> None:
    first, second = states(visit(4, 6, 6), visit(8, 16, 16))
    assert (first.low, first.at_least) == (4, None)
    assert (second.low, second.at_least) == (8, 8)


def test_a_level_that_is_missed_when_it_is_measured_again_withdraws_the_number() -> None:
    kept, again = visit(4, 16, 16), visit(8, 0, 16)
    assert claims(kept, visit(8, 16, 16), again) == [(4, None), (8, None), (4, 8)]
    # Until more visits show that it is kept all the same.
    assert claims(kept, visit(8, 16, 16), again, visit(12, 16, 16))[-1] == (12, None)


def test_a_visit_of_more_agents_withdraws_nothing() -> None:
    """Ten requests of each of two levels show together that the lower one is kept; then the higher one is missed."""
    seen = [visit(4, 10, 10), visit(8, 10, 10), visit(8, 0, 16)]
    assert [search_state(seen[:end], None, ALPHA).at_least for end in (2, 3)] == [4, None], "by the visits alone"
    assert claims(*seen) == [(None, None), (4, None), (4, None)]


@pytest.mark.parametrize("seed", range(40))
def test_the_number_falls_only_after_a_visit_of_no_more_agents(seed: int) -> None:
    rng = random.Random(seed)
    truth, visits, said = rng.choice((3, 9, 21)), list[Visit](), SearchState(goal="capacity")
    while (following := next_visit(visits, SLO, 256, ALPHA, quick=True)) is not None:
        share = min(0.99, max(0.01, 0.9 + 0.15 * (truth - following.c) / truth + rng.gauss(0.0, 0.1)))
        good = sum(rng.random() < share for _ in range(following.requests))
        visits.append(visit(following.c, good, following.requests))
        before, said = said, search_state(visits, None, ALPHA, before=said)
        if (said.at_least or 0) < (before.at_least or 0):
            assert following.c <= (before.at_least or 0) or (said.high or 0) <= (before.at_least or 0)
            assert said.withdrawn == before.at_least
