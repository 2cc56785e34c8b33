"""Find the cliff, choose the next C, and describe the result of a search."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.capacity.cliff import find_cliff, next_level
from swarmtui.analysis.capacity.scaling import cliff_search_sentence, scaling
from swarmtui.model.findings import Slots
from swarmtui.model.session import Level
from tests.analysis.level_builders import level


def searched_levels(slots: int, highest: int = 1024, wait: float = 1.0) -> list[Level]:
    """Search on a server whose throughput grows up to its slots; beyond them requests wait in rounds."""
    levels: list[Level] = []
    while (c := next_level(levels, highest)) is not None:
        assert len(levels) < 30
        levels.append(level(c, tps=100.0 * min(c, slots), ttft=0.1 + wait * max(0.0, c / slots - 1)))
    return levels


def search(slots: int, highest: int = 1024, wait: float = 1.0) -> tuple[list[int], str]:
    levels = searched_levels(slots, highest, wait)
    return [found.c for found in levels], cliff_search_sentence(levels)


def test_search_doubles_then_bisects() -> None:
    tried, sentence = search(8, wait=10.0)
    assert tried == [1, 2, 4, 8, 16, 12, 10, 9]
    assert sentence == "sweet spot C=8; cliff at C=9: +0 % tok/s for ×14 mean TTFT"


def test_large_factors_have_no_exponent() -> None:
    assert search(8, wait=100.0)[1].endswith("cliff at C=9: +0 % tok/s for ×126 mean TTFT")


@pytest.mark.parametrize("slots", [*range(1, 34), 48, 49, 50, 63, 64, 65, 100, 200, 301])
def test_search_finds_the_slots_within_eleven_percent(slots: int) -> None:
    """50 slots give more than half of the ideal gain between 32 and 64 streams; bisecting finds the cliff before 64."""
    levels = searched_levels(slots, wait=10.0)
    cliff = find_cliff(levels)
    assert cliff is not None and abs(cliff.c_before / slots - 1.0) <= 0.11
    assert len(levels) <= 16


def test_search_ends_when_two_doublings_bring_nothing() -> None:
    """Requests hardly wait, so that TTFT triples only far beyond the slots."""
    tried, sentence = search(4, wait=0.01)
    assert tried == [1, 2, 4, 8, 16]
    assert sentence == "sweet spot C=4; no cliff up to C=16: throughput still grows or TTFT holds"


def test_small_gain_with_long_ttft_is_a_cliff() -> None:
    levels = [level(1, tps=90, ttft=0.5), level(4, tps=225, ttft=0.5), level(5, tps=229.5, ttft=4.5)]
    sentence = cliff_search_sentence(levels, Slots(per_replica=2, replicas=2))
    assert sentence == "sweet spot C=4 (2 replicas × 2 slots); cliff at C=5: +2 % tok/s for ×9 mean TTFT"


def test_gradual_ttft_growth_is_compared_with_the_calm_levels() -> None:
    """No single step triples the TTFT, and no level that queues becomes the reference."""
    levels = [level(c, tps=400, ttft=0.1 * 2**k) for k, c in enumerate((4, 5, 6, 7, 8))]
    found = find_cliff([level(2, tps=200, ttft=0.1), level(3, tps=300, ttft=0.1), *levels])
    assert found is not None
    assert (found.c_before, found.c, found.ttft_factor) == (5, 6, 4.0)


@pytest.mark.parametrize("step", [1.1, 1.3, 2.0])
@pytest.mark.parametrize("wait", [0.03, 0.04, 0.078])
def test_ttft_that_creeps_up_over_close_levels_is_a_cliff(step: float, wait: float) -> None:
    """Past the slots TTFT grows by less than half from level to level, and ten times in all."""
    counts = sorted({round(20 * step**power) for power in range(-30, 30) if 1 <= 20 * step**power <= 100})
    found = find_cliff([level(c, tps=100.0 * min(c, 20), ttft=0.005 + wait * max(0.0, c / 20 - 1)) for c in counts])
    assert found is not None and 20 <= found.c_before <= 40


@pytest.mark.parametrize("slots", [24, 64])
def test_ttft_that_grows_with_the_decode_step_is_no_queue(slots: int) -> None:
    """More streams make steps longer and bring little throughput; only beyond the slots do requests wait."""
    levels: list[Level] = []
    while (c := next_level(levels, 1024)) is not None:
        step = 0.0045 + 0.00146 * min(c, slots)
        ttft = 4 * step + 10.0 * max(0.0, c / slots - 1)
        levels.append(level(c, tps=min(c, slots) / step, ttft=ttft, tpot=step))
    cliff = find_cliff(levels)
    assert cliff is not None and abs(cliff.c_before / slots - 1.0) <= 0.11


def test_one_slow_calm_level_is_no_reference() -> None:
    levels = [level(c, tps=100 * c, ttft=0.1) for c in (1, 2)] + [level(4, tps=400, ttft=0.25)]
    found = find_cliff([*levels, level(8, tps=410, ttft=0.4), level(16, tps=410, ttft=0.9)])
    assert found is not None and found.c == 8


def test_level_that_the_next_one_does_not_confirm_is_disturbed_and_no_cliff() -> None:
    """The server stopped for seconds at C=4: TTFT and throughput look like those of a queue."""
    levels = [level(1, tps=100, ttft=0.1), level(2, tps=200, ttft=0.1), level(4, tps=220, ttft=2.0)]
    assert find_cliff(levels) is None
    assert "C=4 may be the cliff" in scaling(levels).sentence
    levels.append(level(8, tps=800, ttft=0.1))
    assert find_cliff(levels) is None
    assert [finding.code for finding in scaling(levels).anomalies] == ["disturbed_level"]
    levels += [level(16, tps=820, ttft=1.0), level(32, tps=820, ttft=3.0)]
    cliff = find_cliff(levels)
    assert cliff is not None and (cliff.c_before, cliff.c) == (8, 16)


def test_level_with_a_much_shorter_ttft_confirms_no_cliff() -> None:
    """C=16 has three times the TTFT of the levels below a disturbed one, since steps take longer; nothing queues."""
    ttfts, rates = {1: 0.015, 2: 0.020, 4: 0.027, 8: 2.5, 16: 0.061}, {1: 167, 2: 268, 4: 382, 8: 300, 16: 566}
    levels = [level(c, tps=rates[c], ttft=ttft) for c, ttft in ttfts.items()]
    assert find_cliff(levels) is None
    assert [finding.code for finding in scaling(levels).anomalies] == ["disturbed_level", "unconfirmed_cliff"]


def test_search_measures_the_level_that_confirms_a_cliff() -> None:
    disturbed = [level(1, tps=100, ttft=0.1), level(2, tps=105, ttft=2.0)]
    assert next_level(disturbed, 1024) == 4 and next_level(disturbed, 2) is None
    assert next_level([*disturbed, level(4, tps=400, ttft=0.1)], 1024) == 8


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 100), st.integers(0, 12), st.booleans(), st.sampled_from([0.0, 0.01, 1.0]))
def test_one_disturbed_level_does_not_move_the_cliff(slots: int, number: int, seen: bool, wait: float) -> None:
    """Whatever level is disturbed: the client sees the slots, or the server reports its queue."""
    levels: list[Level] = []
    while (c := next_level(levels, 1024)) is not None:
        assert len(levels) < 30
        disturbed = len(levels) == number
        tps, ttft = 100.0 * min(c, slots), 0.1 + wait * max(0.0, c / slots - 1)
        evidence = {"streaming": min(c, slots)} if seen else {"queued": max(0.0, c - slots)}
        levels.append(level(c, tps=tps / 2 if disturbed else tps, ttft=5.0 if disturbed else ttft, **evidence))
    cliff = find_cliff(levels)
    assert cliff is not None and abs(cliff.c_before / slots - 1.0) <= 0.11


def test_longer_prefill_with_half_of_the_ideal_gain_is_calm() -> None:
    levels = [level(1, tps=100, ttft=0.1), level(2, tps=200, ttft=0.1), level(4, tps=310, ttft=0.5)]
    assert find_cliff(levels) is None
    assert next_level(levels, 1024) == 3
    assert next_level([*levels, level(3, tps=240, ttft=0.2)], 1024) == 8


def test_search_and_sweep_find_the_same_cliff() -> None:
    levels = [level(c, tps=100.0 * min(c, 6), ttft=0.1 + max(0, c - 6) / 6) for c in (1, 2, 4, 6, 7, 8, 10, 16)]
    swept, searched = scaling(levels).sentence, cliff_search_sentence(levels)
    assert "cliff at C=8: +0 % tok/s for ×4.3 mean TTFT" in swept
    assert "cliff at C=8: +0 % tok/s for ×4.3 mean TTFT" in searched


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
