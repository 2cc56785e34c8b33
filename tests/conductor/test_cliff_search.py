"""Which C is tried next, and what the search comes to."""

from __future__ import annotations

import msgspec

from swarmtui.conductor.cliff import answer, next_level
from swarmtui.model.session import Level, Spread
from tests.analysis.made_levels import level as made


def level(c: int, tps: float, ttft_s: float) -> Level:
    found = made(c)
    return msgspec.structs.replace(found, out_tps_steady=tps, ok=4 * c, ttft_s=Spread(n=9, mean=ttft_s, p50=ttft_s))


def search(seats: int, noise: float = 0.0, highest: int = 1024) -> tuple[list[int], str]:
    """A server whose throughput grows up to its seats; beyond them requests wait in rounds."""
    levels: list[Level] = []
    while (c := next_level(levels, highest)) is not None:
        assert len(levels) < 30
        full = min(c, seats)
        tps = 100.0 * full * (1 + noise * (c > seats) * (c < 2 * seats + 1))
        levels.append(level(c, tps, 0.1 + max(0, c / seats - 1)))
    return [found.c for found in levels], answer(levels)


def test_c_is_doubled_until_the_edge_and_then_the_gap_is_halved() -> None:
    tried, said = search(8)
    assert tried == [1, 2, 4, 8, 16, 12, 10, 9]
    assert said.startswith("sweet spot C=8; cliff at C=10")


def test_noise_at_the_edge_does_not_lead_far_beyond_it() -> None:
    tried, said = search(4, noise=0.06)
    assert max(tried) <= 64
    assert "cliff at C=" in said


def test_where_there_is_no_cliff_that_is_said() -> None:
    tried, said = search(10_000, highest=64)
    assert tried == [1, 2, 4, 8, 16, 32, 64]
    assert said.startswith("no cliff up to C=64")
