"""Published figures of the seed documents S0 to S4: which conclusions they support."""

from __future__ import annotations

import pytest

from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.analysis.compare.verdicts import compare_replicates, decide
from swarmtui.analysis.levels.serial import Batch, wall_speedup
from swarmtui.analysis.levels.stats import ratio
from swarmtui.model.findings import Slots
from swarmtui.model.session import RateSummary
from tests.analysis.level_builders import level, run, summary


@pytest.mark.parametrize(
    ("serial_s", "swarm_s", "seed"), [(74.5, 26.3, 2.83), (57.1, 27.7, 2.06), (229.1, 74.7, 3.07), (218.3, 39.5, 5.53)]
)
def test_s0_wall_speedup(serial_s: float, swarm_s: float, seed: float) -> None:
    found, _ = wall_speedup(Batch(tasks=4, wall_s=serial_s), Batch(tasks=4, wall_s=swarm_s))
    assert found.speedup == pytest.approx(seed, abs=0.005)


def test_s0_dense_clean_speedup_is_3_12_with_token_ratio() -> None:
    """Two serial runs of four tasks, 218.3 s each on average; one task was cut at 8,192 tokens after 221 s."""
    serial = Batch(tasks=8, wall_s=2 * 218.3, tokens_out=round(2 * 218.3 * 39), capped=1, capped_s=221.0)
    found, token_ratio = wall_speedup(serial, Batch(tasks=4, wall_s=39.5, tokens_out=round(39.5 * 127)))
    assert found.speedup == pytest.approx(5.53, abs=0.005)
    assert found.clean_speedup == pytest.approx(3.12, abs=0.005)
    assert token_ratio == pytest.approx(0.59, abs=0.005)


def test_no_clean_speedup_when_swarm_answers_were_cut() -> None:
    found, _ = wall_speedup(Batch(tasks=4, wall_s=100), Batch(tasks=4, wall_s=40, capped=1, capped_s=40))
    assert found.clean_speedup is None
    assert found.reason.startswith("1 answer of the concurrent run hit the token limit too")


@pytest.mark.parametrize(("single", "four", "seed"), [(167, 126, 25), (168, 101, 40), (31, 24, 23), (39, 37, 5)])
def test_s0_contention(single: float, four: float, seed: int) -> None:
    """S0 prints 7 % for the dense model on one GPU, which does not follow from its rates (39 and 37)."""
    kept = ratio(four, single)
    assert kept is not None
    assert round(100 * (1 - kept)) == seed


def test_s0_two_v_two_runs_are_undecided() -> None:
    found = decide(compare_replicates([335.0, 337.0], [398.0, 400.0]))
    assert found.word is None
    assert found.change == pytest.approx(0.19, abs=0.005)


def s1_dense() -> list[tuple[int, float, float, float]]:
    return [(1, 81.8, 11.2, 1.0), (2, 154.0, 11.9, 0.84), (4, 225.4, 15.1, 1.44), (8, 167.0, 20.4, 19.0)]


def test_s1_dense_sweet_spot_is_its_slots_and_throughput_falls_beyond() -> None:
    levels = [level(c, tps=tps, tpot=ms / 1e3, ttft=ttft) for c, tps, ms, ttft in s1_dense()]
    found = scaling(levels, Slots(per_replica=2, replicas=2))
    assert found.sweet_spot == 4
    assert found.sentence.startswith(
        "sweet spot C=4 (2×2) = 2 replicas × 2 slots; queue forms at C=8; cliff at C=8: −26 % tok/s for ×19 mean TTFT; "
        "throughput fell by 26 %"
    )
    assert "knee" in found.refused
    assert found.queueing_delay[0].seconds == pytest.approx(17.56)


def test_s1_moe_saturates_at_its_four_slots() -> None:
    rows = [(1, 98.9, 10.04, 0.277), (2, 161.5, 11.85, 0.556), (4, 282.7, 13.47, 0.705), (8, 282.2, 13.56, 13.4)]
    levels = [level(c, tps=tps, tpot=ms / 1e3, ttft=ttft) for c, tps, ms, ttft in rows]
    found = scaling(levels, Slots(per_replica=4))
    assert found.sentence == "sweet spot C=4 (4 slots); queue forms at C=8; cliff at C=8: +0 % tok/s for ×24 mean TTFT"
    assert found.anomalies == ()


def test_s1_speedup_between_different_workloads_is_refused() -> None:
    """90.3 at C=1 was 256 tokens out, 161.5 at C=2 was 1,024."""
    short = summary([level(1, tps=90.3)], "short", workload="random 1024/256", workload_digest="a" * 64)
    longer = summary([level(2, tps=161.5)], "long", workload="random 1024/1024", workload_digest="b" * 64)
    (refusal,) = compare_pair(short, longer).refused
    assert refusal.code == "workload"
    assert refusal.text == "different workloads: random 1024/256 (aaaaaaaaaaaa) and random 1024/1024 (bbbbbbbbbbbb)"


def test_s2_total_and_output_rates_differ() -> None:
    """51,200 tokens in and 25,600 out, in 70 s; 42 minutes serially."""
    assert ratio(25_600, 70.0) == pytest.approx(365.7, abs=0.05)
    assert ratio(51_200 + 25_600, 70.0) == pytest.approx(1097, abs=0.5)
    found, _ = wall_speedup(Batch(tasks=50, wall_s=2510), Batch(tasks=50, wall_s=70))
    assert found.speedup == pytest.approx(36, abs=0.2)


def test_s3_single_runs_have_no_verdict() -> None:
    a = summary([level(1, tps=78.6, stream=78.6, by_run=(run(out_tps_steady=78.6),))], "with")
    b = summary([level(1, tps=75.4, stream=75.4, by_run=(run(out_tps_steady=75.4),))], "without")
    pair = compare_pair(a, b)
    found = next(row.verdict for row in pair.rows if row.figure == "out_tps_steady")
    assert found is not None
    assert found.word is None
    assert found.sentence == "not sure yet: −4.1 % may be noise: 1 v 1 runs, 4 of each are needed"


@pytest.mark.parametrize(("single", "five", "seed"), [(64, 290, 353), (135, 191, 41)])
def test_s4_ttft_degradation(single: float, five: float, seed: int) -> None:
    found = ratio(five, single)
    assert found is not None
    assert round(100 * (found - 1)) == seed


def test_s4_gpt_oss_has_no_ceiling_without_a_fit() -> None:
    rows = [(1, 127.0), (2, 49.0), (3, 45.0), (5, 34.0)]
    levels = [
        level(c, tps=c * rate, tpot=1 / rate, ttft=0.1, per_stream_tps=RateSummary(mean=rate)) for c, rate in rows
    ]
    assert scaling(levels, Slots(per_replica=5)).ceiling_tps is None
