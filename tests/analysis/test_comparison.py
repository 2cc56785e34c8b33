from __future__ import annotations

from typing import Any

import msgspec
import pytest

from swarmtui.analysis.compare.differences import comparison_refusals, flag_differences, parse_flags
from swarmtui.analysis.compare.pool import pool
from swarmtui.analysis.compare.sessions import compare, compare_pair, leaderboard
from swarmtui.analysis.machine.energy import gpu_names
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.plan import Plan
from swarmtui.model.schema import BadInput
from swarmtui.model.session import Summary
from swarmtui.model.telemetry import DiscoveredServer, Energy, Gpu, Telemetry, TtftSplit
from tests.analysis.level_builders import level, summary

BEFORE = [100.0, 101.0, 99.5, 100.5]
AFTER = [125.0, 126.5, 125.5, 126.0]


def test_a_flag_that_helped_is_found_with_its_interval() -> None:
    a = summary([level(4, tps=100, runs=BEFORE)], "a", server_flags="vllm serve m --max-num-seqs 2")
    b = summary([level(4, tps=126, runs=AFTER)], "b", server_flags="vllm serve m --max-num-seqs 4 --enforce-eager")
    pair = compare_pair(a, b)
    assert pair.sentence == "C=4: +25.4 % output tok/s, faster (4 v 4 runs, p = 0.029)"
    assert [str(flag) for flag in pair.flags] == ["--max-num-seqs 2 → 4", "+ --enforce-eager"]
    row = next(row for row in pair.rows if row.figure == "out_tps_steady")
    assert row.verdict is not None and row.verdict.interval is not None
    assert row.verdict.interval.low < 0.2544 < row.verdict.interval.high


def test_levels_that_only_one_has_are_named_and_not_compared() -> None:
    a, b = summary([level(1, tps=1), level(2, tps=2)]), summary([level(2, tps=2), level(8, tps=8)])
    pair = compare_pair(a, b)
    assert {row.c for row in pair.rows} == {2}
    assert (pair.only_a, pair.only_b) == ((1,), (8,))
    assert compare_pair(summary([level(1, tps=1)]), summary([level(2, tps=2)])).sentence == "no level in common"


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("workload_digest", "ffff", "different workloads: coding (0123456789ab) and coding (ffff)"),
        ("workload_digest", "", "the workload of one is not known"),
        ("plan", Plan(max_tokens=256), "different output caps: none and 256"),
    ],
)
def test_ratios_between_unlike_sessions_are_refused(field: str, value: Any, reason: str) -> None:
    a = summary([level(1, tps=100, runs=BEFORE)])
    b = summary([level(1, tps=125, runs=AFTER)], **{field: value})
    pair = compare_pair(a, b)
    assert pair.refused == (reason,)
    assert pair.sentence == f"no ratio: {reason}"
    assert all(row.verdict is None for row in pair.rows)
    assert pair.rows[0].before == 100


def test_token_sources_must_be_the_same_but_usage_is_usage() -> None:
    by_usage, by_chunks = summary([level(1, tps=1)]), summary([level(1, tps=1, token_source="chunks")])
    in_chunks = summary([level(1, tps=1, token_source="usage_chunks")])
    assert comparison_refusals(by_usage, by_chunks) == ("different token sources: usage and chunks",)
    assert comparison_refusals(by_usage, in_chunks) == ()


def test_what_weakens_a_comparison_is_noted() -> None:
    a = summary([level(1, tps=1, errors=1)], "a")
    b = summary([level(1, tps=1, complete=False)], "b", endpoints=(Endpoint(url="x", model="gemma"),))
    assert compare_pair(a, b).notes == (
        "different models: tokens of two tokenisers are not the same amount of text",
        "a: requests failed",
        "b: a level ended before all that was planned",
    )


def test_the_leaderboard_has_one_change_a_row_and_the_best_of_each_model() -> None:
    """S1's stages."""
    stages = [
        summary([level(1, tps=25.1)], "1", server_flags="--dtype float16 --enforce-eager"),
        summary([level(1, tps=43.2)], "2", server_flags="--dtype float16"),
        summary([level(1, tps=51.1)], "3", server_flags="--dtype float16 --speculative-config n=3"),
        summary(
            [level(1, tps=81.8), level(4, tps=225.4)], "8", server_flags="--dtype float16 --speculative-config n=3"
        ),
        summary([level(4, tps=282.7)], "moe", endpoints=(Endpoint(url="x", model="moe"),)),
    ]
    rows = leaderboard(stages)
    assert [row.best_out_tps for row in rows] == [25.1, 43.2, 51.1, 225.4, 282.7]
    assert [row.best_of_model for row in rows] == [False, False, False, True, True]
    assert rows[0].changes == ()
    assert rows[1].changes == ("− --enforce-eager",)
    assert rows[2].changes == ("+ --speculative-config n=3",)
    assert "model qwen3 → moe" in rows[4].changes
    assert (rows[3].out_tps_alone, rows[3].best_c) == (81.8, 4)


def test_all_others_are_held_against_the_first() -> None:
    found = compare([summary([level(1, tps=1)], name) for name in ("a", "b", "c")])
    assert [(pair.a, pair.b) for pair in found.pairs] == [("a", "b"), ("a", "c")]


def test_flags_by_name_however_they_are_written() -> None:
    text = "VLLM_USE_V1=1 vllm serve 'my model' --max_num_seqs=4 --dtype float16 --enforce-eager -np 5 --x '{\"a\": 1}'"
    assert parse_flags(text) == {
        "VLLM_USE_V1": "1", "": "vllm serve my model", "--max-num-seqs": "4", "--dtype": "float16",
        "--enforce-eager": "", "-np": "5", "--x": '{"a": 1}',
    }  # fmt: skip
    assert parse_flags("--a 'unbalanced") == {"--a": "'unbalanced"}
    same = [summary([], server_flags=flags) for flags in ("--a 1 --b", "--b --a=1")]
    assert flag_differences(*same) == ()


def test_flags_that_are_not_known_differ_in_nothing() -> None:
    assert flag_differences(summary([], server_flags="--a 1"), summary([])) == ()


def test_flags_and_versions_that_were_found_on_the_host_count_like_given_ones() -> None:
    def found(version: str, seqs: str) -> Summary:
        server = DiscoveredServer(url="x", version=version, flags={"--max-num-seqs": seqs}, gpus=("a", "b"))
        return msgspec.structs.replace(summary([level(1, tps=1)]), servers=(server,))

    pair = compare_pair(found("0.19", "2"), found("0.20", "4"))
    assert [str(flag) for flag in pair.flags] == ["--max-num-seqs 2 → 4"]
    assert [str(difference) for difference in pair.differences] == ["server version 0.19 → 0.20"]


def test_energy_stands_side_by_side_without_a_verdict() -> None:
    a = summary([level(1, tps=1, energy=Energy(seconds=1.0, j_per_token=2.0))])
    b = summary([level(1, tps=1, energy=Energy(seconds=1.0, j_per_token=1.5, mean_w=300.0))])
    rows = [(row.figure, row.before, row.after) for row in compare_pair(a, b).machine]
    assert rows == [("energy a token", 2.0, 1.5), ("GPU power", None, 300.0)]


def test_parts_of_ttft_that_are_estimates_are_named_so() -> None:
    told = TtftSplit(ttft_s=1.0, queue_s=0.4, prefill_s=0.5, rest_s=0.1)
    guessed = TtftSplit(ttft_s=1.0, queue_s=0.3, prefill_s=0.7, estimated=True)
    a, b = (summary([level(4, tps=1, ttft_split=split)]) for split in (told, guessed))
    assert [row.figure for row in compare_pair(a, b).machine] == [
        "TTFT: queue est. B", "TTFT: prefill est. B", "TTFT: rest",
    ]  # fmt: skip
    assert compare_pair(b, b).machine[0].figure == "TTFT: queue est."


def test_sessions_taken_together_are_replicates_themselves() -> None:
    """Runs within a session agree to 0.1 %, sessions only to 3 %: four of each decide nothing that runs would."""
    rates = {"a": (97.0, 103.0, 99.0, 101.0), "b": (100.0, 104.0, 98.0, 103.0)}
    made = {
        side: [summary([level(4, tps=tps, runs=[tps, 1.001 * tps] * 2)], f"{side}{k}") for k, tps in enumerate(values)]
        for side, values in rates.items()
    }
    by_runs = compare_pair(made["a"][0], made["b"][0])
    assert by_runs.sentence.endswith("faster (4 v 4 runs, p = 0.029)")
    by_sessions = compare_pair(pool(made["a"]), pool(made["b"]))
    assert "undecided (4 v 4 sessions, p = 0." in by_sessions.sentence
    row = by_sessions.rows[0]
    assert row.before == pytest.approx(100.0)
    assert row.after == pytest.approx(101.25)


def test_runs_are_not_held_against_sessions_and_unlike_ones_not_taken_together() -> None:
    one, two = summary([level(1, tps=1)], "a"), summary([level(1, tps=2)], "b")
    assert compare_pair(one, pool([one, two])).refused == (
        "the replicates of one are runs, those of the other are sessions",
    )
    with pytest.raises(BadInput, match=r"a \+ b: cannot be taken together: different workloads"):
        pool([one, summary([level(1, tps=2)], "b", workload_digest="ffff")])


def test_other_cards_or_another_power_limit_are_named() -> None:
    def watched(watts: float, count: int) -> Summary:
        gpus = tuple(
            Gpu(uuid=str(k), index=k, name="NVIDIA H200", memory_total=151 * 10**9, power_limit_w=watts)
            for k in range(count)
        )
        found = gpu_names([Telemetry(t_ns=0, gpus=gpus)], ())
        return msgspec.structs.replace(summary([level(1, tps=50)]), gpus=found)

    (difference,) = compare_pair(watched(700.0, 1), watched(600.0, 2)).differences
    assert str(difference) == "GPUs NVIDIA H200, 151 GB, 700 W → 2 × NVIDIA H200, 151 GB, 600 W"


def test_only_cards_that_the_server_uses_are_named_where_that_is_known() -> None:
    gpus = (
        Gpu(uuid="a", index=0, name="A"),
        Gpu(uuid="b", index=1, name="B"),
        Gpu(uuid="m", index=0, name="M", part_of="a"),
    )
    moments = [Telemetry(t_ns=0, gpus=gpus)]
    assert gpu_names(moments, ()) == ("A", "B")
    assert gpu_names(moments, [DiscoveredServer(url="x", gpus=("b",))]) == ("B",)


def test_any_session_can_be_the_baseline_and_the_stages_keep_their_order() -> None:
    three = [summary([level(4, tps=tps)], name) for name, tps in (("a", 100), ("b", 120), ("c", 90))]
    found = compare(three, baseline=1)
    assert [(pair.a, pair.b) for pair in found.pairs] == [("b", "a"), ("b", "c")]
    assert [stage.id for stage in found.stages] == ["a", "b", "c"]
