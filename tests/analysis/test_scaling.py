from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.capacity.cliff import slots_seen
from swarmtui.analysis.capacity.scaling import best_level, headline_level, scaling, server_slots, slots_from_flags
from swarmtui.model.findings import Finding, Slots
from swarmtui.model.session import Level
from swarmtui.model.telemetry import DiscoveredServer
from tests.analysis.level_builders import level, session


def swarm(a: float, c: float, levels: list[int], slots: int = 10**6, prefill: float = 0.05) -> list[Level]:
    """Build levels of X(C) = m/(a + c·m) with m = min(C, slots); the others wait for answers of 100 tokens."""
    levels_found = []
    for streams in levels:
        m = min(streams, slots)
        step = a + c * m
        wait = (streams - m) / m * 100 * step
        levels_found.append(level(streams, tps=m / step, tpot=step, ttft=prefill + wait, n=4 * streams + 4))
    return levels_found


@given(st.floats(0.001, 0.1), st.floats(0.0001, 0.01))
def test_fit_recovers_a_known_law(a: float, c: float) -> None:
    found = scaling(swarm(a, c, [1, 2, 4, 8, 16]))
    assert found.step_a_s == pytest.approx(a, rel=1e-6)
    assert found.step_c_s == pytest.approx(c, rel=1e-6)
    assert found.sigma == pytest.approx(c / (a + c), rel=1e-6)
    assert found.ceiling_tps == pytest.approx(1 / c, rel=1e-6)
    assert found.fit_error == pytest.approx(0.0, abs=1e-6)
    if 1.001 <= a / c <= 15.999:
        assert found.knee == pytest.approx(a / c, rel=1e-6)
    elif not 0.999 <= a / c <= 16.001:
        assert found.refused["knee"].code == "out_of_range"


def test_binding_slots_are_the_sweet_spot_and_more_streams_queue() -> None:
    found = scaling(swarm(0.005, 0.001, [1, 2, 4, 5, 8], slots=4), Slots(per_replica=2, replicas=2))
    assert found.sweet_spot == 4
    assert found.cliff is not None
    assert (found.cliff.c_before, found.cliff.c) == (4, 5)
    assert found.cliff.gain == pytest.approx(0.0)
    assert [delay.c for delay in found.queueing_delay] == [5, 8]
    assert found.queueing_delay[1].seconds == pytest.approx(100 * 0.009)
    spot = "sweet spot C=4 (2×2) = 2 replicas × 2 slots"
    assert found.sentence == f"{spot}; queue forms at C=5; cliff at C=5: +0 % tok/s for ×5.5 mean TTFT"


def test_sentence_of_small_gain_with_long_ttft() -> None:
    levels = [level(1, tps=90, ttft=0.5), level(4, tps=225, ttft=0.5), level(5, tps=229.5, ttft=4.5)]
    found = scaling(levels, Slots(per_replica=2, replicas=2))
    spot = "sweet spot C=4 (2×2) = 2 replicas × 2 slots"
    assert found.sentence == f"{spot}; queue forms at C=5; cliff at C=5: +2 % tok/s for ×9 mean TTFT"


def test_level_within_the_slots_is_no_cliff_however_long_its_ttft() -> None:
    """A server on few cores has slots, but four concurrent requests are already slower than one."""
    levels = [level(1, tps=130, ttft=0.08), level(4, tps=111, ttft=0.25), level(8, tps=126, ttft=0.37)]
    found = scaling(levels, Slots(per_replica=4))
    assert (found.sweet_spot, found.queue_forms) == (1, 8)
    assert found.sentence == "sweet spot C=1; queue forms at C=8; cliff at C=8: +14 % tok/s for ×2.2 mean TTFT"


def test_queue_forms_at_the_lowest_level_whose_own_queue_says_so() -> None:
    """Four slots of llama.cpp: requests deferred on average, and a TTFT that three cores make long anyway."""
    queues = {1: 0.0, 2: 0.0, 4: 0.0, 5: 0.46, 8: 3.43}
    ttfts = {1: 0.1, 2: 0.2, 4: 0.9, 5: 1.2, 8: 3.0}
    levels = [level(c, tps=100.0 + c, ttft=ttfts[c], queued=queue) for c, queue in queues.items()]
    for slots in (None, Slots(per_replica=4)):
        found = scaling(levels, slots)
        assert found.queue_forms == 5 and found.cliff is not None
        assert (found.cliff.c_before, found.cliff.c) == (4, 5)


def test_sweet_spot_is_a_measured_level_and_the_best_one() -> None:
    """Four slots whose four streams are the slowest of six levels, as seen on a server with few cores."""
    rates = {1: 120.0, 2: 115.0, 3: 112.0, 4: 90.0, 5: 119.0, 6: 121.0}
    for queued in (None, 0.0):
        levels = [level(c, tps=tps, ttft=0.1, queued=queued) for c, tps in rates.items()]
        for slots in (None, Slots(per_replica=4)):
            found, best = scaling(levels, slots), best_level(levels, slots)
            assert best is not None and found.sweet_spot == best.c == 1


@given(
    st.lists(st.tuples(st.integers(1, 64), st.floats(1.0, 1e4), st.floats(0.01, 100.0)), min_size=2, max_size=8),
    st.none() | st.integers(1, 32),
)
def test_best_level_is_at_the_sweet_spot_and_before_the_cliff(
    measured: list[tuple[int, float, float]], slots: int | None
) -> None:
    levels = [level(c, tps=tps, ttft=ttft) for c, tps, ttft in {one[0]: one for one in measured}.values()]
    known = None if slots is None else Slots(per_replica=slots)
    found, best = scaling(levels, known), best_level(levels, known)
    if len(levels) > 1:
        assert best is not None and found.sweet_spot in (None, best.c)
        assert found.cliff is None or best.c < found.cliff.c
    if found.cliff is not None and slots is not None:
        assert found.cliff.c > slots


def test_sentence_names_the_best_level_above_the_sweet_spot() -> None:
    levels = [level(8, tps=476, ttft=0.1), level(32, tps=595, ttft=0.1), level(64, tps=620, ttft=0.2)]
    found = scaling(levels, Slots(per_replica=64))
    assert found.sentence == "sweet spot C=32 (at least 95 % of the tok/s at C=64)"


def test_slots_are_inferred_from_the_cliff_with_a_reason() -> None:
    found = scaling(swarm(0.005, 0.001, [1, 2, 4, 8, 16], slots=4))
    assert found.slots is not None and found.slots.inferred
    assert found.slots.total == 4
    assert "requests wait at C=8" in found.slots.reason and "4 to 7 slots" in found.slots.reason
    assert "(4 to 7 slots, inferred)" in found.sentence


def test_slots_are_seen_from_the_client_at_twice_as_many_streams() -> None:
    plain = swarm(0.005, 0.001, [1, 2, 4, 6, 10], slots=5)
    levels = [msgspec.structs.replace(one, streaming=min(one.c, 5)) for one in plain]
    found = scaling(levels)
    assert found.slots is not None and (found.slots.total, found.slots.inferred) == (5, True)
    assert "never more than 5 streams received tokens at the same time, up to C=10" in found.slots.reason
    assert found.cliff is not None and (found.cliff.c_before, found.cliff.c) == (4, 6)
    assert slots_seen(levels[:-1]) is None, "6 streams may be 5 slots, or one in prefill"


def test_no_slots_and_no_sweet_spot_without_a_queue() -> None:
    found = scaling(swarm(0.01, 0.001, [1, 2, 4]))
    assert (found.slots, found.sweet_spot, found.cliff) == (None, None, None)
    assert found.refused["sweet spot"].code == "still_growing"
    assert found.refused["knee"] == Finding(code="too_few_levels", text="3 levels of different load; 5 are needed")
    assert found.sentence == "no sweet spot: tok/s still grew up to C=4"


def test_slots_above_the_highest_level_do_not_bind() -> None:
    found = scaling(swarm(0.01, 0.001, [1, 2, 4]), Slots(per_replica=64))
    assert found.sweet_spot is None


def test_plateau_below_the_slots_is_the_sweet_spot() -> None:
    levels = [level(c, tps=tps, ttft=0.1, tpot=0.01) for c, tps in ((1, 50), (2, 98), (4, 100), (8, 101))]
    assert scaling(levels, Slots(per_replica=64)).sweet_spot == 2


def test_throughput_drop_with_full_slots_is_an_anomaly() -> None:
    """S1's 27B: 225.4 at C=4, 167.0 at C=8, with 2 × 2 slots."""
    levels = [level(1, tps=81.8, ttft=1.0), level(4, tps=225.4, ttft=1.44), level(8, tps=167.0, ttft=19.0)]
    found = scaling(levels, Slots(per_replica=2, replicas=2))
    (anomaly,) = found.anomalies
    assert anomaly.code == "throughput_drop"
    assert anomaly.text.startswith("throughput fell by 26 % from C=4 to C=8 while all 4 slots were full")
    assert anomaly.text in found.sentence


def test_saturation_is_no_anomaly() -> None:
    """S1's MoE: 282.7 and 282.2."""
    levels = [level(4, tps=282.7, ttft=0.705), level(8, tps=282.2, ttft=13.4)]
    found = scaling(levels, Slots(per_replica=4))
    assert found.anomalies == ()
    assert found.cliff is not None and found.cliff.ttft_factor == pytest.approx(19.0, abs=0.01)


def test_agents_of_a_trace_are_not_compared_with_slots() -> None:
    levels = [msgspec.structs.replace(one, load="sessions") for one in swarm(0.005, 0.001, [4, 8, 16])]
    found = scaling(levels, Slots(per_replica=4))
    assert (found.slots, found.anomalies, found.refused["fit"].code) == (None, (), "agents")
    assert found.sentence == "no sweet spot: tok/s still grew up to C=16"
    # A cliff does not show how many slots there are either.
    queued = [msgspec.structs.replace(one, load="sessions") for one in swarm(0.005, 0.001, [1, 2, 4, 8, 16], slots=4)]
    assert scaling(queued).sentence == "sweet spot C=4; queue forms at C=8; cliff at C=8: +0 % tok/s for ×19 mean TTFT"


def test_poor_fit_is_refused() -> None:
    """S4's gpt-oss: 7.9 ms with one stream, 20.4 ms with two."""
    steps = ((1, 7.9), (2, 20.4), (3, 22.2), (5, 29.4))
    found = scaling([level(c, tps=1e3 * c / ms, tpot=ms / 1e3, ttft=0.1) for c, ms in steps])
    assert (found.step_a_s, found.ceiling_tps) == (None, None)
    assert found.refused["fit"].code == "poor_fit"


def test_flat_steps_have_no_ceiling() -> None:
    found = scaling([level(c, tps=100 * c, tpot=0.01, ttft=0.1) for c in (1, 2, 4)])
    assert found.ceiling_tps is None
    assert found.refused["ceiling"].code == "no_slope"


def test_two_levels_are_too_few_to_fit() -> None:
    found = scaling(swarm(0.01, 0.001, [1, 4]))
    assert str(found.refused["fit"]) == "2 levels with a time per token; 3 are needed"


def test_single_level_has_no_sweet_spot() -> None:
    found = scaling([level(8, tps=100.0, tpot=0.01)], Slots(per_replica=4))
    assert found.sentence == "no sweet spot: only one level"
    assert "0 levels with a time per token up to C=4" in str(found.refused["fit"])


def test_throughput_of_few_answers_does_not_fall() -> None:
    """Three requests at C=6 say nothing about the throughput of six streams."""
    texts = [scaling([level(5, tps=380.0), level(6, tps=348.0, n=n)], Slots(per_replica=4)).sentence for n in (3, 6)]
    assert ["fell" in text for text in texts] == [False, True]


def test_scaling_without_throughput_is_refused() -> None:
    assert scaling([]).sentence == "no sweet spot: no level has a throughput"
    assert scaling([level(1)]).sweet_spot is None


@pytest.mark.parametrize(
    ("flags", "replicas", "total"),
    [
        ("vllm serve m --max-num-seqs 2 --dtype float16", 2, 4),
        ("--max_num_seqs=64", 1, 64),
        ("llama-server -np 5 --cont-batching", 1, 5),
        ("OLLAMA_NUM_PARALLEL=3 ollama serve", 1, 3),
        ("--max-num-seqs-of-something 4", 1, None),
        ("--parallel-loading", 1, None),
        ("", 1, None),
    ],
)
def test_slots_from_flags(flags: str, replicas: int, total: int | None) -> None:
    found = slots_from_flags(flags, replicas)
    assert (found.total if found else None) == total


def test_best_level_is_the_lowest_near_the_maximum_before_the_cliff() -> None:
    """401 of 415 tok/s with half the streams is better: more streams bring little."""
    near = [level(1, tps=158.0), level(4, tps=401.0), level(8, tps=415.0)]
    clear = [level(1, tps=158.0), level(4, tps=401.0), level(8, tps=450.0)]
    past = [level(1, tps=158.0, ttft=0.1), level(4, tps=401.0, ttft=0.1), level(8, tps=430.0, ttft=2.0)]
    best = [best_level(levels, Slots(per_replica=slots)) for levels, slots in ((near, 64), (clear, 64), (past, 4))]
    assert [found.c for found in best if found] == [4, 8, 4]
    assert best_level(near[:1]) is None and best_level([]) is None


def test_incomplete_levels_are_neither_best_nor_part_of_the_scaling() -> None:
    levels = [level(1, tps=100.0), level(2, tps=190.0), level(4, tps=900.0, complete=False, by_run=())]
    found = best_level(levels)
    assert found is not None and found.c == 2
    assert headline_level(levels[1:]) is levels[1] and headline_level(levels[2:]) is levels[2]
    assert scaling(levels).sentence == scaling(levels[:2]).sentence
    assert scaling(levels[2:]).sentence == "no sweet spot: no level is complete"


def test_reported_slots_replace_those_of_the_given_flags() -> None:
    asked = session(server_flags="--max-num-seqs 2")
    reported = DiscoveredServer(url="", engine="simulator", slots=4, flags={"replicas": "2"})
    assert str(server_slots(asked, [reported])) == "2 replicas × 2 slots"
    assert str(server_slots(asked, [DiscoveredServer(url="", engine="vLLM")])) == "2 slots"
