"""The time that a search for the capacity still takes."""

from __future__ import annotations

import pytest

from swarmtui.analysis.capacity.judged_levels import Visit
from swarmtui.analysis.capacity.search_time import search_seconds
from swarmtui.analysis.capacity.slo_search import next_visit
from swarmtui.analysis.limits.slo import DEFAULT_SLO, parse_slo
from swarmtui.model.client_protocol import FindCapacity
from tests.seeds.virtual_session import simulate_time_left

SLO = parse_slo(DEFAULT_SLO)
HIGHEST = 1024


def visit(c: int, good: int, n: int) -> Visit:
    made = Visit(c, SLO)
    made.slo.add_counts(c, [(good, n)] * len(SLO.conditions))
    return made


@pytest.mark.parametrize("alpha", [0.2, 0.01])
@pytest.mark.parametrize("capacity", [0, 1, 5, 12, 40])
def test_the_estimate_follows_the_search_to_its_end(capacity: int, alpha: float) -> None:
    """A server answers one request per second and agent, and each agent sends one before those that are measured."""
    visits: list[Visit] = []
    seconds: list[float] = []
    estimates: list[tuple[float, float | None]] = []
    while (following := next_visit(visits, SLO, HIGHEST, alpha)) is not None:
        estimates.append((sum(seconds), search_seconds(visits, seconds, following, SLO, HIGHEST, alpha)))
        keeps = following.c <= capacity
        n = following.requests if keeps else 8
        visits.append(visit(following.c, n if keeps else 0, n))
        seconds.append((n + following.c) / following.c)
    assert search_seconds(visits, seconds, None, SLO, HIGHEST, alpha) == 0.0
    known = [(at, left) for at, left in estimates if left is not None]
    assert known
    total = sum(seconds)
    for at, left in known[-3:]:
        assert left == pytest.approx(total - at, rel=0.5, abs=0.1 * total)


def test_nothing_is_estimated_before_a_level_has_missed_the_slo() -> None:
    visits = [visit(1, 6, 6), visit(2, 6, 6)]
    assert search_seconds(visits, [6.0, 3.0], next_visit(visits, SLO, HIGHEST, 0.2), SLO, HIGHEST, 0.2) is None


def test_a_simulated_search_takes_about_as_long_as_it_says() -> None:
    """Halfway it says neither twice nor half of what it then takes."""
    estimates = simulate_time_left("moe-tp1", FindCapacity(slo=DEFAULT_SLO, alpha=0.05))
    late = estimates[len(estimates) // 2 :]
    assert late
    for said, taken in late:
        assert taken / 2 <= said <= max(2 * taken, taken + 5.0)


def test_a_quick_search_says_when_it_ends_at_the_latest_from_its_start() -> None:
    """That time never changes, while an estimate would, with each level."""
    goal = FindCapacity(slo=DEFAULT_SLO, alpha=0.2, budget_s=60.0)
    said = simulate_time_left("moe-tp1", goal)
    total = said[0][1]
    assert [left + total - taken for left, taken in said] == pytest.approx([60.0] * len(said))
