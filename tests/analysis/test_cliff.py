"""Find the cliff, choose the next C, and describe the result of a search."""

from __future__ import annotations

from swarmtui.analysis.capacity.cliff import find_cliff, next_level
from swarmtui.analysis.capacity.scaling import cliff_search_sentence, scaling
from swarmtui.model.findings import Slots
from swarmtui.model.session import Level
from tests.analysis.level_builders import level


def search(
    slots: int, noise: float = 0.0, highest: int = 1024, known: Slots | None = None, wait: float = 1.0
) -> tuple[list[int], str]:
    """Search on a server whose throughput grows up to its slots; beyond them requests wait in rounds."""
    levels: list[Level] = []
    while (c := next_level(levels, highest, known)) is not None:
        assert len(levels) < 30
        tps = 100.0 * min(c, slots) * (1 + noise * (slots < c < 2 * slots + 1))
        levels.append(level(c, tps=tps, ttft=0.1 + wait * max(0.0, c / slots - 1)))
    return [found.c for found in levels], cliff_search_sentence(levels, known)


def test_search_doubles_then_bisects() -> None:
    tried, sentence = search(8)
    assert tried == [1, 2, 4, 8, 16, 12, 10, 9]
    assert sentence == "sweet spot C=8; cliff at C=10: +0 % tok/s for ×3.5 TTFT"


def test_search_stops_doubling_past_known_slots() -> None:
    """Requests hardly wait, so that TTFT triples only far beyond the slots."""
    two_by_two = Slots(per_replica=2, replicas=2)
    tried, sentence = search(4, wait=0.1, known=two_by_two)
    assert tried == [1, 2, 4, 8, 6, 5]
    assert sentence == "sweet spot C=4 (2 replicas × 2 slots); no cliff up to C=8: throughput still grows or TTFT holds"
    tried, sentence = search(4, wait=4.0, known=two_by_two)
    assert sentence == "sweet spot C=4 (2 replicas × 2 slots); cliff at C=5: +0 % tok/s for ×11 TTFT"


def test_small_gain_with_long_ttft_is_a_cliff() -> None:
    levels = [level(1, tps=90, ttft=0.5), level(4, tps=225, ttft=0.5), level(5, tps=229.5, ttft=4.5)]
    sentence = cliff_search_sentence(levels, Slots(per_replica=2, replicas=2))
    assert sentence == "sweet spot C=4 (2 replicas × 2 slots); cliff at C=5: +2 % tok/s for ×9 TTFT"


def test_gradual_ttft_growth_is_compared_with_the_last_good_level() -> None:
    """No single step triples the TTFT."""
    levels = [level(c, tps=400, ttft=0.1 * 2**k) for k, c in enumerate((4, 5, 6, 7))]
    found = find_cliff([level(2, tps=200, ttft=0.1), *levels])
    assert found is not None
    assert (found.c_before, found.c, found.ttft_factor) == (4, 6, 4.0)


def test_search_and_sweep_find_the_same_cliff() -> None:
    levels = [level(c, tps=100.0 * min(c, 6), ttft=0.1 + max(0, c - 6) / 6) for c in (1, 2, 4, 6, 7, 8, 10, 16)]
    swept, searched = scaling(levels).sentence, cliff_search_sentence(levels)
    assert "cliff at C=8: +0 % tok/s for ×4.3 TTFT" in swept
    assert "cliff at C=8: +0 % tok/s for ×4.3 TTFT" in searched


def test_noise_at_the_cliff_does_not_extend_the_search() -> None:
    tried, sentence = search(4, noise=0.06)
    assert max(tried) <= 64
    assert "cliff at C=" in sentence


def test_search_reports_no_cliff() -> None:
    tried, sentence = search(10_000, highest=64)
    assert tried == [1, 2, 4, 8, 16, 32, 64]
    assert sentence == "no cliff up to C=64: throughput still grows or TTFT holds"


def test_unanswered_level_ends_the_doubling() -> None:
    unanswered = level(8, n=0)
    levels = [level(1, tps=100, ttft=0.1), level(2, tps=200, ttft=0.1), level(4, tps=400, ttft=0.1), unanswered]
    assert next_level(levels, 1024) == 6
    assert cliff_search_sentence(levels) == "no cliff up to C=4: at C=8 no request was answered"
    assert cliff_search_sentence([unanswered]) == "no cliff: nothing was measured"
    assert next_level([level(1, n=0)], 1024) is None
