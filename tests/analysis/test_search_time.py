"""The time that a search for the capacity still takes."""

from __future__ import annotations

import pytest

from swarmtui.analysis.capacity.search_time import search_seconds
from swarmtui.analysis.capacity.slo_search import Visit, next_visit
from swarmtui.analysis.limits.slo import DEFAULT_SLO, parse_slo

SLO = parse_slo(DEFAULT_SLO)
HIGHEST = 1024


def visit(c: int, good: int, n: int) -> Visit:
    made = Visit(c, SLO)
    made.slo.add_counts(c, [(good, n)] * len(SLO.conditions))
    return made


@pytest.mark.parametrize("alpha", [0.2, 0.01])
@pytest.mark.parametrize("capacity", [0, 1, 5, 12, 40])
def test_the_estimate_follows_the_search_to_its_end(capacity: int, alpha: float) -> None:
    """A server that answers one request per second and agent: the estimate is the time that the search then takes."""
    visits: list[Visit] = []
    seconds: list[float] = []
    estimates: list[tuple[float, float | None]] = []
    while (following := next_visit(visits, SLO, HIGHEST, alpha)) is not None:
        estimates.append((sum(seconds), search_seconds(visits, seconds, following, SLO, HIGHEST, alpha)))
        keeps = following.c <= capacity
        n = following.requests + following.c if keeps else 8
        visits.append(visit(following.c, n if keeps else 0, n))
        seconds.append(n / following.c)
    assert search_seconds(visits, seconds, None, SLO, HIGHEST, alpha) == 0.0
    known = [(at, left) for at, left in estimates if left is not None]
    assert known
    total = sum(seconds)
    for at, left in known[-3:]:
        assert left == pytest.approx(total - at, rel=0.5, abs=0.1 * total)


def test_nothing_is_estimated_before_a_level_has_missed_the_slo() -> None:
    visits = [visit(1, 6, 6), visit(2, 6, 6)]
    assert search_seconds(visits, [6.0, 3.0], next_visit(visits, SLO, HIGHEST, 0.2), SLO, HIGHEST, 0.2) is None
