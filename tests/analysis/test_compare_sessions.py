from __future__ import annotations

import math
from random import Random
from typing import Any

import msgspec
import pytest

from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.analysis.compare.differences import (
    comparison_refusals,
    describe_server_changes,
    flag_differences,
    parse_flags,
    server_changes,
)
from swarmtui.analysis.compare.leaderboard import leaderboard
from swarmtui.analysis.compare.pool import pool
from swarmtui.analysis.compare.sessions import Comparison, Pair, compare, compare_pair, headline_row
from swarmtui.analysis.compare.verdicts import likely_change
from swarmtui.analysis.machine.energy import gpu_names, session_gpus
from swarmtui.model.answer import Answer, AnswerSentence, NextStep
from swarmtui.model.base import BadInput
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.findings import Capacity, Finding
from swarmtui.model.load import Closed, Sessions
from swarmtui.model.plan import Plan
from swarmtui.model.session import ClientInfo, Spread, Summary
from swarmtui.model.session_tags import Series
from swarmtui.model.telemetry import DiscoveredServer, Energy, Gpu, HostUse, QualityLine, Telemetry, TtftSplit
from swarmtui.report.comparison import answer_lines, comparison_blocks, comparison_tables, unlike_text
from swarmtui.report.levels import level_table
from swarmtui.report.table import Facts, Sentence
from swarmtui.report.text import paint
from tests.analysis.level_builders import level, summary
from tests.bench.verdicts import Count
from tests.bench.verdicts import session as drawn_session

BEFORE = [100.0, 101.0, 99.5, 100.5]
AFTER = [125.0, 126.5, 125.5, 126.0]


def test_sessions_with_a_faster_flag_differ() -> None:
    a = summary([level(4, tps=100, runs=BEFORE)], "a", server_flags="vllm serve m --max-num-seqs 2")
    b = summary([level(4, tps=126, runs=AFTER)], "b", server_flags="vllm serve m --max-num-seqs 4 --enforce-eager")
    pair = compare_pair(a, b)
    assert pair.sentence == (
        "faster with 4 agents: 100 → 126 tok/s, +26 % (95 % sure: +22 % to +29 %; 4 v 4 runs of one session each)"
    )
    assert [str(flag) for flag in pair.flags] == ["--max-num-seqs 2 → 4", "+ --enforce-eager"]
    row = next(row for row in pair.rows if row.figure == "out_tps_steady")
    assert row.verdict is not None and row.interval == row.verdict.interval is not None
    assert row.change == pytest.approx(126 / 100 - 1)


def test_each_level_has_one_verdict_on_the_leading_figure() -> None:
    figures = {"stream": 25.0, "ttft": 0.5}
    a = summary([level(c, tps=100, runs=BEFORE, **figures) for c in (1, 4)], "a")  # type: ignore[arg-type]
    b = summary([level(c, tps=126, runs=AFTER, **figures) for c in (1, 4)], "b")  # type: ignore[arg-type]
    pair = compare_pair(a, b)
    assert [(row.c, row.figure) for row in pair.rows if row.verdict] == [(1, "out_tps_steady"), (4, "out_tps_steady")]
    others = [row for row in pair.rows if row.figure in ("per_stream_tps", "ttft_s")]
    assert [row.change for row in others] == [0.0] * 4


def test_medians_of_ttft_are_not_compared_with_means() -> None:
    few, many = Spread(n=4, mean=0.6), Spread(n=16, mean=0.5, p50=0.3)
    pair = compare_pair(summary([level(1, tps=1, ttft_s=many)]), summary([level(1, tps=1, ttft_s=few)], "b"))
    row = next(row for row in pair.rows if row.figure == "ttft_s")
    assert (row.before, row.after, row.change) == (0.5, 0.6, pytest.approx(0.2))  # type: ignore[comparison-overlap]


def test_levels_are_one_family() -> None:
    """A difference that one level alone would show is not claimed among four levels that are equal."""
    wide = [99.0, 103.0, 97.0, 101.0]
    shifted = [value * 1.05 for value in wide]
    seed = Plan(seed=1)
    a = summary([level(c, tps=100, runs=wide) for c in (1, 2, 4, 8)])
    equal = (level(c, tps=100, runs=wide) for c in (2, 4, 8))
    b = summary([level(1, tps=105, runs=shifted), *equal], "b", plan=seed)
    found = [row.verdict for row in compare_pair(a, b).rows if row.leads]
    assert found[0] is not None and found[0].p is not None and 0.05 / 4 < found[0].p < 0.05
    assert [one.word for one in found if one] == ["not sure yet"] * 4
    assert all(one and one.interval and one.interval.confidence == pytest.approx(1 - 0.05 / 4) for one in found)


@pytest.mark.parametrize(("cv", "seed"), [(0.01, 1), (0.03, 1), (0.01, 0)])
def test_equal_sessions_rarely_differ(cv: float, seed: int) -> None:
    """Any claim at four levels with four runs in at most 5 %; `seed` 0 is that of both sessions."""
    random, count = Random(11), Count()
    for _ in range(100):
        count.add(compare_pair(drawn_session(random, "a", cv), drawn_session(random, "b", cv, seed=seed)))
    assert count.any / count.trials <= 0.05
    assert count.contradictory == 0


def test_five_percent_at_one_percent_noise_is_found_at_any_level() -> None:
    random, count = Random(12), Count()
    for _ in range(100):
        b = drawn_session(random, "b", 0.01, change=0.05, seed=1)
        count.add(compare_pair(drawn_session(random, "a", 0.01), b))
    assert count.all >= 95 and count.contradictory == 0


def test_history_of_the_baseline_gives_the_spread_between_sessions() -> None:
    """Runs of one session agree to 1 %, sessions of the same configuration only to 5 %."""
    a = summary([level(4, tps=100, runs=BEFORE)], "a", plan=Plan(load=Closed(runs=4)))
    b = summary([level(4, tps=108, runs=[value * 1.08 for value in BEFORE])], "b", plan=Plan(load=Closed(runs=4)))
    repeats = [summary([level(4, tps=tps)], f"0{tps}", plan=Plan(load=Closed(runs=4))) for tps in (95, 105, 98)]
    assert "faster with 4 agents: 100 → 108 tok/s, +8.0 %" in compare_pair(a, b).sentence
    found = compare_pair(a, b, history=[*repeats, a, b])
    assert "not sure yet with 4 agents" in found.sentence and "spread of 4 sessions" in found.sentence
    others = [
        summary([level(4, tps=95)], "x", server_flags="--other 1", plan=Plan(load=Closed(runs=8))),
        summary([level(4, tps=95)], "y", workload_digest="ffff", plan=Plan(load=Closed(runs=4))),
    ]
    assert "faster with 4 agents" in compare_pair(a, b, history=others).sentence


def test_levels_of_a_search_have_no_verdict_by_earlier_searches() -> None:
    """Three searches that agree by chance do not make a few requests sure; a large change stays likely."""
    plan = Plan(goal="capacity", budget_s=60.0)
    earlier = [summary([level(c, tps=tps) for c in (1, 4)], f"0{tps}", plan=plan) for tps in (99.9, 100.1)]
    a = summary([level(c, tps=100, runs=BEFORE, n=34, out_tps_steady_hw=4.0) for c in (1, 4)], "a", plan=plan)
    runs = [value * 0.7 for value in BEFORE]
    slower = [level(1, tps=90, n=4, out_tps_steady_hw=40.0), level(4, tps=70, runs=runs, n=34, out_tps_steady_hw=4.0)]
    pair = compare_pair(a, summary(slower, "b", plan=plan), history=earlier)
    assert all(row.interval is None for row in pair.rows)
    found = [(row.verdict.word, row.likely) for row in pair.rows if row.leads and row.verdict]
    assert found == [("not sure yet", None), ("not sure yet", "slower")]
    # One visit of few requests, or one whose range is not known, may be a few slow seconds.
    for n, half_width in ((17, 4.0), (34, None)):
        again = compare_pair(a, summary([level(4, tps=70, n=n, out_tps_steady_hw=half_width)], "b", plan=plan))
        assert all(row.likely is None for row in again.rows)


def test_a_level_that_is_not_exact_is_not_sure_by_sessions_that_agree() -> None:
    earlier = [summary([level(1, tps=tps)], f"0{tps}") for tps in (99.9, 100.1)]
    a, b = summary([level(1, tps=100)], "a"), summary([level(1, tps=90)], "b")
    inexact = summary([level(1, tps=90, n=4, out_tps_steady_hw=40.0)], "b")
    words = [headline_row(compare_pair(a, other, history=earlier)) for other in (b, inexact)]
    assert [row.verdict.word for row in words if row and row.verdict] == ["slower", "not sure yet"]


def test_a_level_that_was_disturbed_in_one_run_is_named_beside_its_figures() -> None:
    """The number of agents is not touched where the level was kept, what the level shows is."""
    calm = level(4, tps=100)
    busy = msgspec.structs.replace(calm, host=HostUse(pressure=0.9, waited=0.5, others=0.4))
    for levels, said in (((calm, busy), "the host was busy at C=4 of the later run"), ((calm, calm), None)):
        a, b = (summary([one], name) for one, name in zip(levels, ("a", "b"), strict=True))
        assert {line.name: line.text for line in answer_lines(compare_pair(a, b))}.get("Note") == said


def test_a_doubted_comparison_has_no_verdict_wherever_it_is_shown() -> None:
    busy = QualityLine(code="host_pressure", name="host", value="90 %", state="doubtful", sentence="")
    a, b = (summary([level(4, tps=runs[0], runs=runs)], name) for name, runs in (("a", BEFORE), ("b", AFTER)))
    found = compare_pair(a, msgspec.structs.replace(b, quality=(busy,)))
    assert found.sentence.startswith("not sure yet with 4 agents: ") and found.verdict == "not sure yet"
    assert found.sentence.endswith("; the host was busy in the later run")
    shown = paint(comparison_blocks(Comparison(sessions=("a", "b"), pairs=(found,), leaderboard=()), {}))
    assert "not sure yet" in shown and "faster" not in shown and "95 % sure" not in shown
    assert answer_lines(found)[0].code == "unsure" and answer_lines(compare_pair(a, b))[0].code == "faster"


def test_the_answer_names_the_limit_that_moved_and_what_to_try() -> None:
    def answered(code: str, agents: int) -> Answer:
        said = AnswerSentence(code=code, sentence=f"{code} at {agents}")
        step = NextStep(code="slots", sentence="more slots", command="--parallel 8")
        return Answer(headline=said, limit=said, agents=agents, low=agents, high=agents, confidence=0.8, next=(step,))

    a, b = (
        msgspec.structs.replace(summary([level(4, tps=100)], name, server_flags=flags), answer=answer)
        for name, flags, answer in (
            ("a", "--parallel 2", answered("slots", 8)), ("b", "--parallel 4", answered("kv_cache", 18)),
        )
    )  # fmt: skip
    lines = {line.name: line.signed for line in answer_lines(compare_pair(a, b))}
    assert lines["Agents"] == "▲ more agents: 8 → 18, 80 % sure"
    assert lines["Changed"].startswith("--parallel 2 → 4 since the run of ")
    assert lines["Why no more"] == "kv_cache at 18"
    assert lines["Try next"] == "more slots: --parallel 8"
    still = msgspec.structs.replace(b, answer=answered("slots", 18))
    assert "Why no more" not in {line.name for line in answer_lines(compare_pair(a, still))}, "the result says it"


def test_same_seed_compares_run_by_run() -> None:
    lengths = [90.0, 100.0, 110.0, 105.0]
    for seed, paired in ((5, True), (6, False)):
        a = summary([level(4, tps=100, runs=lengths)], "a", plan=Plan(load=Closed(runs=4), seed=5))
        b = summary(
            [level(4, tps=103, runs=[92.8, 103.0, 113.2, 108.1])], "b", plan=Plan(load=Closed(runs=4), seed=seed)
        )
        assert ("paired" in compare_pair(a, b).sentence) is paired


def test_levels_of_one_session_only_are_listed_not_compared() -> None:
    a, b = summary([level(1, tps=1), level(2, tps=2)]), summary([level(2, tps=2), level(8, tps=8)])
    pair = compare_pair(a, b)
    assert {row.c for row in pair.rows} == {2}
    assert (pair.only_a, pair.only_b) == ((1,), (8,))
    assert compare_pair(summary([level(1, tps=1)]), summary([level(2, tps=2)])).sentence == "no level in common"


PLAYED = "pauses up to 2 s, time scale 1, 2C sessions"


@pytest.mark.parametrize(
    ("field", "value", "code", "text"),
    [
        ("workload_digest", "ffff", "workload", "different workloads: coding (0123456789ab) and coding (ffff)"),
        ("workload_digest", "", "unknown_workload", "the workload of one session is not known"),
        ("plan", Plan(max_tokens=256), "token_cap", "different output caps: none and 256"),
        (
            "plan",
            Plan(load=Sessions(max_gap="2s")),
            "rules_of_play",
            f"different rules of play: {PLAYED} and other load",
        ),
    ],
)
def test_ratios_between_unlike_sessions_are_refused(field: str, value: Any, code: str, text: str) -> None:
    a = summary([level(1, tps=100, runs=BEFORE)])
    b = summary([level(1, tps=125, runs=AFTER)], **{field: value})
    pair = compare_pair(a, b)
    assert pair.refused == (Finding(code=code, text=text),)
    assert pair.sentence == f"not comparable: {text}"
    assert all(row.verdict is None and row.change is None for row in pair.rows)
    assert pair.rows[0].before == 100


def test_different_token_sources_refuse_ratio_but_both_usage_forms_match() -> None:
    by_usage, by_chunks = summary([level(1, tps=1)]), summary([level(1, tps=1, token_source="chunks")])
    in_chunks = summary([level(1, tps=1, token_source="usage_chunks")])
    (refusal,) = comparison_refusals(by_usage, by_chunks)
    assert refusal == Finding(code="token_source", text="different token sources: usage and chunks")
    assert comparison_refusals(by_usage, in_chunks) == ()


def test_notes_list_what_weakens_a_comparison() -> None:
    a = summary([level(1, tps=1, errors=1)], "a")
    b = summary([level(1, tps=1, complete=False)], "b", endpoints=(Endpoint(url="x", model="gemma"),))
    assert [(note.code, note.text) for note in compare_pair(a, b).notes] == [
        ("models", "different models: tokens of two tokenizers are not the same amount of text"),
        ("errors", "a: requests failed"),
        ("incomplete", "b: C=1 is incomplete"),
    ]


def test_row_of_the_headline_is_that_of_the_sentence() -> None:
    """A level that ended early does not decide."""
    a = summary([level(1, tps=100), level(4, tps=300, complete=False, by_run=())], "a")
    b = summary([level(1, tps=110), level(4, tps=600)], "b")
    pair = compare_pair(a, b)
    row = headline_row(pair)
    assert row is not None and row.c == 1 and row.change == pytest.approx(0.1)
    assert pair.sentence.startswith("not sure yet with 1 agent: 100 → 110 tok/s")


def test_leaderboard_shows_changes_per_row_and_best_per_model() -> None:
    """The stages of S1."""
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


def test_all_sessions_are_compared_with_the_first() -> None:
    found = compare([summary([level(1, tps=1)], name) for name in ("a", "b", "c")])
    assert [(pair.a, pair.b) for pair in found.pairs] == [("a", "b"), ("a", "c")]


def test_flags_are_parsed_in_every_spelling() -> None:
    text = "VLLM_USE_V1=1 vllm serve 'my model' --max_num_seqs=4 --dtype float16 --enforce-eager -np 5 --x '{\"a\": 1}'"
    assert parse_flags(text) == {
        "VLLM_USE_V1": "1", "": "vllm serve my model", "--max-num-seqs": "4", "--dtype": "float16",
        "--enforce-eager": "", "-np": "5", "--x": '{"a": 1}',
    }  # fmt: skip
    assert parse_flags("--a 'unbalanced") == {"--a": "'unbalanced"}
    same = [summary([], server_flags=flags) for flags in ("--a 1 --b", "--b --a=1")]
    assert flag_differences(*same) == ()


def test_where_a_server_listens_is_no_difference() -> None:
    before, after = (summary([], server_flags=f"--parallel 4 --port {port}") for port in (8080, 8090))
    assert flag_differences(before, after) == ()


def test_unknown_flags_give_no_differences() -> None:
    assert flag_differences(summary([], server_flags="--a 1"), summary([])) == ()


def test_discovered_flags_and_versions_are_compared() -> None:
    def found(version: str, seqs: str) -> Summary:
        server = DiscoveredServer(url="x", version=version, flags={"--max-num-seqs": seqs}, gpus=("a", "b"))
        return msgspec.structs.replace(summary([level(1, tps=1)]), servers=(server,))

    pair = compare_pair(found("0.19", "2"), found("0.20", "4"))
    assert [str(flag) for flag in pair.flags] == ["--max-num-seqs 2 → 4"]
    assert [str(difference) for difference in pair.differences] == ["server version 0.19 → 0.20"]


def test_energy_rows_have_no_verdict() -> None:
    a = summary([level(1, tps=1, energy=Energy(seconds=1.0, j_per_token=2.0))])
    b = summary([level(1, tps=1, energy=Energy(seconds=1.0, j_per_token=1.5, mean_w=300.0))])
    rows = [(row.figure, row.before, row.after) for row in compare_pair(a, b).machine]
    assert rows == [("energy per token", 2.0, 1.5), ("GPU power, sum", None, 300.0)]


def test_estimated_ttft_parts_are_marked() -> None:
    reported = TtftSplit(ttft_s=1.0, queue_s=0.4, prefill_s=0.5, rest_s=0.1)
    estimated = TtftSplit(ttft_s=1.0, queue_s=0.3, prefill_s=0.7, estimated=True)
    a, b = (summary([level(4, tps=1, ttft_split=split)]) for split in (reported, estimated))
    assert [row.figure for row in compare_pair(a, b).machine] == [
        "mean TTFT", "mean TTFT: queue est. B", "mean TTFT: prefill est. B", "mean TTFT: rest",
    ]  # fmt: skip
    assert compare_pair(b, b).machine[1].figure == "mean TTFT: queue est."
    values = [row.before or 0.0 for row in compare_pair(a, b).machine]
    assert values[0] == pytest.approx(sum(values[1:])), "the parts add up to the mean above them"


def test_pooled_sessions_are_replicates() -> None:
    """Runs of one session agree to 0.1 %, sessions only to 3 %: four sessions do not decide where four runs would."""
    rates = {"a": (97.0, 103.0, 99.0, 101.0), "b": (100.0, 104.0, 98.0, 103.0)}
    sides = {
        side: [summary([level(4, tps=tps, runs=[tps, 1.001 * tps] * 2)], f"{side}{k}") for k, tps in enumerate(values)]
        for side, values in rates.items()
    }
    by_runs = compare_pair(sides["a"][0], sides["b"][0])
    assert "of one session each" in by_runs.sentence and by_runs.sentence.startswith("faster")
    by_sessions = compare_pair(pool(sides["a"]), pool(sides["b"]))
    assert by_sessions.sentence.startswith("not sure yet") and "4 v 4 sessions" in by_sessions.sentence
    assert "of one session each" not in by_sessions.sentence
    faster = compare_pair(pool(sides["a"]), pool([summary([level(4, tps=150 + k)], f"c{k}") for k in range(4)]))
    assert faster.sentence.startswith("faster with 4 agents: 100 → 152 tok/s, +5")
    row = by_sessions.rows[0]
    assert row.before == pytest.approx(100.0)
    assert row.after == pytest.approx(101.25)


def test_a_busy_host_does_not_undo_the_verdict_of_an_ab_test() -> None:
    """`compare` of its sessions says what the test says; elsewhere the busy run is a doubt."""
    busy = QualityLine(code="host_pressure", name="host", value="90 %", state="doubtful", sentence="")
    miscounted = msgspec.structs.replace(busy, code="token_counts")

    def side(name: str, values: list[float], line: QualityLine, *, in_turn: bool) -> Summary:
        runs = [summary([level(4, tps=tps)], f"{name}{at}") for at, tps in enumerate(values)]
        if in_turn:
            series = Series(kind="ab", name="ab-1", side=name)
            runs = [
                msgspec.structs.replace(run, session=msgspec.structs.replace(run.session, series=series))
                for run in runs
            ]
        return pool([*runs[:3], msgspec.structs.replace(runs[3], quality=(line,))])

    def found(line: QualityLine, *, in_turn: bool) -> Pair:
        return compare_pair(*(side(*one, line, in_turn=in_turn) for one in (("A", BEFORE), ("B", AFTER))))

    assert found(busy, in_turn=True).verdict == "faster" and "in some runs" in found(busy, in_turn=True).notes[0].text
    assert found(busy, in_turn=False).verdict == found(miscounted, in_turn=True).verdict == "not sure yet"


def test_pool_refuses_unlike_sessions_and_comparison_with_runs() -> None:
    one, two = summary([level(1, tps=1)], "a"), summary([level(1, tps=2)], "b")
    assert compare_pair(one, pool([one, two])).refused == (
        Finding(code="replicates", text="one side has runs as replicates, the other has sessions"),
    )
    with pytest.raises(BadInput, match=r"a \+ b: cannot be pooled: different workloads"):
        pool([one, summary([level(1, tps=2)], "b", workload_digest="ffff")])


def test_different_gpus_or_power_limits_are_listed() -> None:
    def with_gpus(watts: float, count: int) -> Summary:
        gpus = tuple(
            Gpu(uuid=str(k), index=k, name="NVIDIA H200", memory_total=151 * 10**9, power_limit_w=watts)
            for k in range(count)
        )
        found = gpu_names(session_gpus([Telemetry(t_ns=0, gpus=gpus)], ()))
        return msgspec.structs.replace(summary([level(1, tps=50)]), gpus=found)

    (difference,) = compare_pair(with_gpus(700.0, 1), with_gpus(600.0, 2)).differences
    assert str(difference) == "GPUs NVIDIA H200, 141 GiB, 700 W → 2 × NVIDIA H200, 141 GiB, 600 W"


def test_gpu_names_are_limited_to_those_of_the_server() -> None:
    gpus = (
        Gpu(uuid="a", index=0, name="A"),
        Gpu(uuid="b", index=1, name="B"),
        Gpu(uuid="m", index=0, name="M", part_of="a"),
    )
    samples = [Telemetry(t_ns=0, gpus=gpus)]
    assert gpu_names(session_gpus(samples, ())) == ("A", "B")
    assert gpu_names(session_gpus(samples, [DiscoveredServer(url="x", gpus=("b",))])) == ("B",)


def test_any_session_can_be_baseline_and_rows_keep_their_order() -> None:
    three = [summary([level(4, tps=tps)], name) for name, tps in (("a", 100), ("b", 120), ("c", 90))]
    found = compare(three, baseline=1)
    assert [(pair.a, pair.b) for pair in found.pairs] == [("b", "a"), ("b", "c")]
    assert [stage.id for stage in found.leaderboard] == ["a", "b", "c"]


def discovered(flags: dict[str, str] | None, version: str = "", context: int | None = None) -> DiscoveredServer:
    return DiscoveredServer(url="http://127.0.0.1:8000", flags=flags, version=version, context=context)


@pytest.mark.parametrize(
    ("before", "after", "described"),
    [
        (
            discovered({"max-num-seqs": "2", "kv-cache-dtype": "auto"}),
            discovered({"max-num-seqs": "4", "kv-cache-dtype": "fp8"}),
            "--max-num-seqs 2 → 4, --kv-cache-dtype auto → fp8",
        ),
        (discovered({"enforce-eager": "true"}), discovered({}), "− --enforce-eager"),
        (discovered({}), discovered({"OMP_NUM_THREADS": "2"}), "+ OMP_NUM_THREADS 2"),
        (discovered({"a": "1"}), discovered({"a": "1"}), "the same flags"),
        (discovered({"a": "1"}, version="0.31"), discovered({"a": "1"}, version="0.32"), "version 0.31 → 0.32"),
        (discovered(None), discovered({"a": "1"}), "flags not known"),
        (
            discovered({"parallel": "2"}, context=8192),
            discovered({"parallel": "4"}, context=4096),
            "--parallel 2 → 4, context of a request 8,192 → 4,096",
        ),
        (
            discovered({"ctx-size": "8192"}, context=8192),
            discovered({"ctx-size": "4096"}, context=4096),
            "--ctx-size 8192 → 4096",
        ),
        (discovered(None, version="0.31"), discovered({}, version="0.32"), "flags not known, version 0.31 → 0.32"),
    ],
)
def test_changes_of_a_restarted_server_are_listed(
    before: DiscoveredServer, after: DiscoveredServer, described: str
) -> None:
    assert describe_server_changes(before, after) == described
    assert bool(server_changes(before, after)) == (described not in ("the same flags", "flags not known"))


def sweep(slots: int, session: str, faster: float = 1.0) -> Summary:
    """A sweep over a server whose throughput grows up to its slots; beyond them requests wait."""
    levels = [
        level(c, tps=tps, runs=[tps, tps + 1, tps - 1, tps], ttft=0.1 + 10 * max(0.0, c / slots - 1))
        for c in (1, 2, 4, 8, 16)
        for tps in (faster * 100.0 * min(c, slots),)
    ]
    return msgspec.structs.replace(summary(levels, session), scaling=scaling(levels))


@pytest.mark.parametrize(
    ("before", "after", "headline"),
    [
        (4, 4, 4),  # not C=16, where both only queue
        (2, 4, 4),  # where the one with more slots has room and the other does not
        (4, 2, 4),
        (16, 16, 16),  # no cliff
    ],
)
def test_headline_is_a_level_that_one_side_carries(before: int, after: int, headline: int) -> None:
    pair = compare_pair(sweep(before, "a"), sweep(after, "b", 1.1))
    assert pair.headline == (headline, None) and f"er with {headline} agents: " in pair.sentence


def test_headline_is_the_capacity_where_it_was_searched() -> None:
    a, b = sweep(16, "a"), sweep(16, "b", 1.1)
    searched = Capacity(slo="ttft_p90=2s", agents=2, low=2, high=4, next_c=4, alpha=0.01, visits=2, requests=88)
    pair = compare_pair(*(msgspec.structs.replace(side, capacity=searched) for side in (a, b)))
    assert pair.headline == (2, None)


def test_sessions_after_both_do_not_change_a_verdict() -> None:
    plan = Plan(load=Closed(runs=4))
    a = summary([level(4, tps=100, runs=BEFORE)], "a", plan=plan)
    b = summary([level(4, tps=125, runs=AFTER)], "b", plan=plan)
    later = [summary([level(4, tps=tps)], f"c{tps}", plan=plan) for tps in (60, 140, 98)]
    assert compare_pair(a, b, history=later).sentence == compare_pair(a, b).sentence


def test_another_box_is_compared_per_gpu_and_per_watt() -> None:
    """Two GPUs that are twice as fast as one are as fast per GPU; what differs is named before the answer."""

    def box(name: str, tps: float, watts: float, gpus: tuple[str, ...], **fields: Any) -> Summary:
        energy = Energy(seconds=9.0, mean_w=watts, tokens_per_j=tps / watts, j_per_token=watts / tps)
        found = summary([level(4, tps=tps, runs=[tps] * 4, energy=energy)], name, **fields)
        return msgspec.structs.replace(found, gpus=gpus)

    theirs = box(
        "a", 200.0, 700.0, ("RTX 3090",) * 2, endpoints=(Endpoint(url="", model="m", engine="vLLM"),),
        client=ClientInfo(version="0.9.0", python="3.11", host="", cores=4),
    )  # fmt: skip
    mine = box("b", 100.0, 300.0, ("RTX 4090",), endpoints=(Endpoint(url="http://h:1", model="m", engine="vLLM"),))
    pair = compare_pair(theirs, mine)
    rows = {row.figure: (row.before, row.after, row.change) for row in pair.machine}
    assert rows["output per GPU"] == (100.0, 100.0, 0.0)
    assert list(rows["output per W"]) == pytest.approx([2 / 7, 1 / 3, 1 / 6])
    assert unlike_text(pair) == "not alike: client swarmtui 0.9.0 → swarmtui 0.1.0"
    assert {found.code for found in pair.differences} == {"client_version", "gpus"}, (
        "an address that is not known is none"
    )
    first, second = comparison_blocks(Comparison(sessions=("a", "b"), pairs=(pair,), leaderboard=()), {})[:2]
    assert isinstance(first, Sentence) and first.text.startswith("not alike") and isinstance(second, Facts)
    same = compare_pair(mine, msgspec.structs.replace(mine, session=msgspec.structs.replace(mine.session, id="c")))
    assert not [row for row in same.machine if row.figure.startswith("output per")] and unlike_text(same) == ""


def test_ratios_that_a_difference_forbids_are_refused() -> None:
    real = msgspec.structs.replace(summary([level(4, tps=100, runs=BEFORE)], "a"), gpus=("H200",))
    simulated = msgspec.structs.replace(summary([level(4, tps=126, runs=AFTER)], "b", simulated=True), gpus=("SIM",))
    pair = compare_pair(real, simulated)
    assert [found.code for found in pair.refused] == ["simulated"]
    assert pair.sentence == "not comparable: one of them was simulated"
    assert all(row.change is None for row in pair.rows) and all(row.change is None for row in pair.machine)
    assert "simulated no → yes" in unlike_text(pair)


def test_quantisation_is_a_difference() -> None:
    def served(name: str, flags: dict[str, str]) -> Summary:
        found = summary([level(4, tps=100)], name)
        return msgspec.structs.replace(found, servers=(DiscoveredServer(url="", engine="vLLM", flags=flags),))

    pair = compare_pair(served("a", {"quantization": "awq"}), served("b", {"quantization": "fp8"}))
    assert unlike_text(pair) == "not alike: quantisation awq → fp8"


def test_values_and_changes_fit_each_other_and_changes_that_are_not_sure_have_a_sign() -> None:
    before = summary([level(4, tps=156.3)], "20261115-000001-aaaa")
    after = summary([level(4, tps=145.7, out_tps_steady_hw=11.0)], "20261115-000002-bbbb")
    pair = compare_pair(before, after)
    rows = {row[1].text: row for row in comparison_tables(pair)[0].rows}
    assert [cell.text for cell in rows["steady tok/s"][2:5]] == ["156", "146", "? −7 %"]
    assert rows["steady tok/s"][4].code == "unsure" == rows["wall tok/s"][4].code
    for sides, shown in (((before, after), ("146", "156")), ((after, before), ("156", "146"))):
        table = level_table(sides[1].levels, baseline=compare_pair(*sides))
        at = {column.id: number for number, column in enumerate(table.columns)}
        assert tuple(table.rows[0][at[name]].text.strip(" ▸") for name in ("steady", "baseline")) == shown


def test_single_runs_show_what_a_large_change_likely_is() -> None:
    """One run each gives no verdict, but a reader sees the cost: −52 % is not what repeats of one server differ by."""

    def measured(id: str, n: int, *levels: tuple[int, float, float, float]) -> Summary:
        return summary([level(c, tps=tps, stream=stream, ttft=ttft, n=n) for c, tps, stream, ttft in levels], id)

    slow, fast = ((1, 100, 100.0, 0.1), (4, 400, 100.0, 0.1)), ((1, 104, 104.0, 0.1), (4, 192, 48.0, 0.9))
    before, after = measured("a", 30, *slow), measured("b", 30, *fast)
    pair = compare_pair(before, after)
    less = ((1, 104, 104.0, 0.1), (4, 300, 75.0, 0.9))
    few = compare_pair(before, measured("b", 29, *less))
    rates = [row for row in few.rows if row.figure != "ttft_s"]
    assert few.likely is None and all(row.likely is None for row in rates), "29 requests are too few for −25 %"
    (first,) = [row for row in few.rows if row.figure == "ttft_s" and row.c == 4]
    assert first.likely == "slower", "nine times as long is no chance"
    halved = {row.figure: row.likely for row in compare_pair(before, measured("b", 29, *fast)).rows if row.c == 4}
    assert (halved["per_stream_tps"], halved["ttft_s"]) == ("slower", "slower"), "but not for half as much"
    assert pair.sentence == (
        "likely slower with 4 agents: 400 → 192 tok/s, −52 % (one run each; 4 of each are needed to be sure)"
    )
    assert pair.verdict is None, "it is no verdict"
    assert answer_lines(pair)[0].signed.startswith("▽ likely slower")
    (table,) = comparison_tables(pair)
    shown = {(row[0].text, row[1].text): row[4].text for row in table.rows}
    assert shown["1", "steady tok/s"] == "? +4.0 %"
    assert shown["4", "steady tok/s"] == "▽ −52 %" and shown["", "tok/s per agent"] == "▽ −52 %"
    assert shown["", "TTFT"] == "▽ +800 %", "a later first token is worse"
    assert level_table(after.levels, baseline=pair).rows[1][6].text == "▽ −52 % likely"
    busy = QualityLine(code="host_pressure", name="host", value="90 %", state="doubtful", sentence="")
    doubted = compare_pair(before, msgspec.structs.replace(after, quality=(busy,)))
    assert "likely" not in doubted.sentence and not any(row.likely for row in doubted.rows)


def test_repeats_of_one_server_are_rarely_likely_to_differ() -> None:
    """Servers drift by 5 %, and each level has a half-width that its scatter is within in 95 % of cases."""
    rng = Random(7)

    def measured(half_width: float) -> float:
        return 100.0 * math.exp(rng.gauss(0.0, 0.05) + rng.gauss(0.0, half_width / 1.96))

    for half_width in (0.01, 0.05, 0.1):
        changes = [measured(half_width) / measured(half_width) - 1.0 for _ in range(2000)]
        falsely = sum(likely_change(change, half_width) is not None for change in changes) / len(changes)
        assert falsely <= 0.03, half_width
    assert likely_change(0.5, 0.05) == "faster" and likely_change(-0.4, None) == "slower"
    assert likely_change(3.0, None, "first_token") == "slower" and likely_change(0.5, None, "first_token") is None
    assert likely_change(0.5, None, "time") == "slower" and likely_change(-0.3, None, "time") == "faster"
    assert likely_change(0.4, 0.2) is None, "the figures are not known better"
