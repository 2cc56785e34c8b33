from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.limits.fail_if import parse_fail_if
from swarmtui.analysis.limits.quantities import QUANTITIES
from swarmtui.analysis.limits.slo import (
    DEFAULT_SLO,
    SloTally,
    goodput,
    is_awaited,
    parse_slo,
    slo_sentence,
    validate_slo,
)
from swarmtui.model.base import BadInput
from swarmtui.model.plan import LevelKey
from swarmtui.model.record import Record
from swarmtui.model.trace import ReplayedRequest
from tests.analysis.level_builders import level
from tests.analysis.record_builders import BOOT_NS, MS, end, request, stage

ONE = level(1, tps=90.0, ttft=0.2, tpot=0.01, contention=0.0)
FOUR = level(4, tps=250.0, ttft=0.8, tpot=0.016, contention=0.4)
LEVELS = [ONE, FOUR]


@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("ttft_p50>1s or out_tps_steady@4<200", False),
        ("ttft_p50>1s or out_tps_steady@4<251", True),
        ("ttft_p50>500ms", True),
        ("ttft_p50@1>500ms", False),
        ("ttft_p50 > 0.5 s", True),
        ("out_tps_steady<100 and contention>30%", True),
        ("out_tps_steady@1<100tok/s", True),
        ("contention@4>=0.4", True),
        ("errors>0", False),
        ("errors==0 and (ttft_p50>1s or tpot_mean>15ms)", True),
        ("(errors>0 or cap_hits>0) and ttft_p50>1us", False),
        ("error_rate>1%", False),
        ("ttft_s_p50>500ms", True),
        ("n!=16", False),
    ],
)
def test_conditions_are_evaluated(text: str, true: bool) -> None:
    assert parse_fail_if(text).evaluate(LEVELS).true is true


def test_and_binds_tighter_than_or() -> None:
    assert parse_fail_if("errors==0 or errors==0 and errors>0").evaluate(LEVELS).true is True
    assert parse_fail_if("(errors==0 or errors==0) and errors>0").evaluate(LEVELS).true is False


def test_result_names_deciding_figures() -> None:
    result = parse_fail_if("errors>0 or out_tps_steady@4<300").evaluate(LEVELS)
    assert result.because == ("out_tps_steady@4<300: out_tps_steady is 250 tok/s at C=4",)


def test_null_figure_counts_as_missed_with_reason() -> None:
    few = [level(1, tps=90.0, ttft=0.2, n=4)]
    result = parse_fail_if("ttft_p50>1s").evaluate(few)
    assert (result.true, result.missed) == (None, True)
    assert result.because == ("ttft_p50>1s: p50 needs 5 answers, C=1 has 4",)
    assert parse_fail_if("out_tps_steady@16<1").evaluate(few).because == (
        "out_tps_steady@16<1: no level C=16 was measured",
    )
    assert parse_fail_if("pass_rate<90%").evaluate(few).missed


def test_or_needs_one_true_part() -> None:
    assert parse_fail_if("pass_rate<90% or ttft_p50>500ms").evaluate(LEVELS).true is True
    assert parse_fail_if("pass_rate<90% and ttft_p50>10s").evaluate(LEVELS).true is False
    assert parse_fail_if("pass_rate<90% and ttft_p50>500ms").evaluate(LEVELS).true is None


@pytest.mark.parametrize(
    ("text", "problem", "position"),
    [
        ("ttft_p51>1s", "unknown figure ttft_p51, did you mean", 0),
        ("ttft_p50>1", "1 has no unit; write 1s or 1ms", 9),
        ("ttft_p50>1%", "expected a time, but % is a unit of share", 9),
        ("errors>1s", "expected a number, but s is a unit of time", 7),
        ("ttft_p50>1parsec", "'parsec' is not a known unit", 9),
        ("ttft_p50>1s or", "expected a figure", 14),
        ("ttft_p50 1s", "expected one of", 9),
        ("ttft_p50@x>1s", "expected a level after @", 9),
        ("ttft_p50@1.5>1s", "a level is a whole number", 9),
        ("(errors>0", "a closing ) is missing", 9),
        ("errors>0 errors>0", "expected and, or, or the end", 9),
        ("errors>0; import os", "';' is not valid here", 8),
        ("__import__>0", "unknown figure __import__", 0),
        ("ttft>1s", "unknown figure ttft, did you mean ttft_p50 or ttft_mean?", 0),
        ("TTFT_P50>1s", "unknown figure TTFT_P50, did you mean ttft_p50?", 0),
    ],
)
def test_syntax_errors_show_their_position(text: str, problem: str, position: int) -> None:
    with pytest.raises(BadInput) as raised:
        parse_fail_if(text)
    message = str(raised.value)
    assert message.startswith(f"--fail-if: {problem}")
    assert message.endswith(f"(at character {position + 1} of {text!r})") and "\n" not in message


def test_empty_condition_and_deep_nesting_are_refused() -> None:
    with pytest.raises(BadInput, match="is empty"):
        parse_fail_if("  ")
    with pytest.raises(BadInput, match="too many brackets"):
        parse_fail_if("(" * 5000 + "errors>0" + ")" * 5000)


@given(st.text(alphabet="ab_<>=@()%. 14smorndtfp/;'\n\t", max_size=30) | st.text(max_size=20))
def test_parser_accepts_or_refuses_any_text(text: str) -> None:
    try:
        parse_fail_if(text).evaluate(LEVELS)
    except BadInput as error:
        assert str(error)


@settings(max_examples=80)
@given(st.sampled_from(sorted(QUANTITIES)), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.integers(0, 300))
def test_every_figure_can_be_compared(name: str, sign: str, limit: int) -> None:
    unit = "ms" if QUANTITIES[name].kind == "time" else ""
    result = parse_fail_if(f"{name}{sign}{limit}{unit}").evaluate(LEVELS)
    values = [value for one in LEVELS if (value := QUANTITIES[name].value(one)) is not None]
    scale = 1e-3 if unit else 1.0
    compare = {
        "<": float.__lt__, "<=": float.__le__, ">": float.__gt__, ">=": float.__ge__,
        "==": float.__eq__, "!=": float.__ne__,
    }[sign]  # fmt: skip
    hit = any(compare(float(value), limit * scale) for value in values)
    assert result.true is (True if hit else False if len(values) == len(LEVELS) else None)


def test_level_without_the_figure_leaves_a_condition_open() -> None:
    """p50 of TTFT needs five answers; C=8 has two."""
    levels = [level(4, ttft=0.2), level(8, ttft=9.0, n=2)]
    result = parse_fail_if("ttft_p50>1s").evaluate(levels)
    assert result.true is None and result.missed
    assert result.because == ("ttft_p50>1s: p50 needs 5 answers, C=8 has 2",)
    assert parse_fail_if("ttft_p50>100ms").evaluate(levels).true is True
    assert parse_fail_if("ttft_p50@4>1s").evaluate(levels).true is False


KNOWN = [msgspec.structs.replace(FOUR, out_tps_steady_hw=10.0)]  # 250 ± 10


@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("out_tps_steady@4<200", False),
        ("out_tps_steady@4<240", False),
        ("out_tps_steady@4<=240", None),
        ("out_tps_steady@4<250", None),
        ("out_tps_steady@4<260", None),
        ("out_tps_steady@4<=260", True),
        ("out_tps_steady@4<261", True),
        ("out_tps_steady@4>239", True),
        ("out_tps_steady@4>255", None),
        ("out_tps_steady@4==250", True),
        ("out_tps_steady<255 or errors==0", True),
        ("out_tps_steady<255 and errors>0", False),
        ("out_tps_steady<255 or errors>0", None),
        ("out_tps_steady<255 and errors==0", None),
    ],
)
def test_interval_decides_a_condition(text: str, true: bool | None) -> None:
    result = parse_fail_if(text).evaluate(KNOWN)
    assert result.true is true and result.unsure is (true is None)
    assert result.missed is bool(true)


def test_undecided_condition_says_the_interval() -> None:
    assert parse_fail_if("out_tps_steady@4<255").evaluate(KNOWN).because == (
        "out_tps_steady@4<255: out_tps_steady is 250 tok/s (95 % sure: 240 tok/s to 260 tok/s) at C=4",
    )


def test_missing_figure_outweighs_an_undecided_one() -> None:
    """What was not measured counts as missed, whatever an interval leaves open."""
    for text in ("out_tps_steady<255 or pass_rate<90%", "out_tps_steady<255 and pass_rate<90%"):
        result = parse_fail_if(text).evaluate(KNOWN)
        assert result.true is None and not result.unsure and result.missed


def test_percentile_is_decided_by_its_interval() -> None:
    spread = msgspec.structs.replace(FOUR.ttft_s, p50=0.8, p50_interval=(0.7, 1.1))
    levels = [msgspec.structs.replace(FOUR, ttft_s=spread)]
    expected = {"0.6s": True, "1s": None, "1.2s": False}
    assert {limit: parse_fail_if(f"ttft_p50>{limit}").evaluate(levels).true for limit in expected} == expected


def test_goodput_counts_requests_that_meet_all_limits() -> None:
    records = [
        request(0, [100, 110, 120, 130]),
        request(0, [600, 610, 620, 630]),
        request(0, [100, 200, 300, 400]),
        request(0, [], error="reset", tokens_out=None, t_done_ns=BOOT_NS + MS),
    ]
    slo = parse_slo("ttft=500ms,tpot=50ms")
    (found,) = goodput([level(1, wall_s=2.0)], {(1, None): records}, slo)
    assert (found.n, found.good, found.share) == (4, 1, 0.25)
    assert (found.share_low, found.share_high) == pytest.approx((0.012741, 0.751395), abs=1e-6)  # by scipy.stats.beta
    assert found.per_s == pytest.approx(0.5)
    assert found.out_tps == pytest.approx(2.0)
    assert found.kept is False


@pytest.mark.parametrize("measured", [1, 3])
def test_goodput_of_only_good_requests_is_the_throughput(measured: int) -> None:
    """Pre-roll and fillers share the makespan of the measured requests, but are not counted in goodput."""
    phases = ("preroll", *["level"] * measured, "filler")
    records = [
        request(1000 * n, [1000 * n + 100 * k for k in range(1, 16)], task=n, c=2, phase=phase)
        for n, phase in enumerate(phases)
    ]
    (found,) = level_figures(records, [stage(c=2)], [end(at=60_000)])
    (good,) = goodput([found], {found.key: [r for r in records if r.phase == "level"]}, parse_slo("ttft=10s"))
    assert good.share == 1.0 and good.out_tps == pytest.approx(found.headline_tps)
    assert found.total_tps == pytest.approx((found.headline_tps or 0.0) + (found.prompt_tps or 0.0))


def test_goodput_does_not_count_what_failed_requests_wrote() -> None:
    """Every fourth request ends early, after half of its tokens: the good ones write 6 of 7 tokens."""
    records = [
        request(1000 * n, [1000 * n + 200 * k for k in range(1, 5)], task=n, phase="level" if n else "preroll")
        for n in range(13)
    ]
    records[4::4] = [
        msgspec.structs.replace(one, error="closed_early", tokens_out=None, chunks=2, chunk_us=one.chunk_us[:2])
        for one in records[4::4]
    ]
    (found,) = level_figures(records, [stage()], [end(at=60_000)])
    (good,) = goodput([found], {found.key: records[1:]}, parse_slo("ttft=10s"))
    assert found.headline_is_steady and good.good == 9 and found.headline_tps is not None
    assert good.out_tps == pytest.approx(found.headline_tps * 36 / 42)


@pytest.mark.parametrize(
    ("good", "n", "kept"),
    [(58, 58, None), (59, 59, True), (91, 92, None), (92, 93, True), (5, 8, False), (0, 0, None), (90, 100, False)],
)
def test_slo_is_kept_missed_or_undecided(good: int, n: int, kept: bool | None) -> None:
    """The bounds are those of Clopper and Pearson: 59 of 59 is the least that shows 95 %."""
    records = [request(0, [100])] * good + [request(0, [900])] * (n - good)
    (found,) = goodput([level(1)], {(1, None): records}, parse_slo("ttft=500ms"))
    assert found.kept is kept


def test_every_measured_request_must_meet_a_share_of_100_percent() -> None:
    for good, kept in ((8, True), (7, False)):
        records = [request(0, [100])] * good + [request(0, [900])] * (8 - good)
        (found,) = goodput([level(1)], {(1, None): records}, parse_slo("ttft=500ms,share=100%"))
        assert found.kept is kept


def test_answer_without_output_breaks_the_limit_on_it() -> None:
    empty = request(0, [], tokens_out=0, t_done_ns=BOOT_NS + MS)
    assert not parse_slo("ttft=500ms").met_by(empty)
    assert not parse_slo("e2e=500ms").met_by(empty)
    assert parse_slo("tpot=1ms,stall=1ms").met_by(empty)
    reasoning_only = request(0, [100, 110], t_first_content_ns=None)
    assert parse_slo("ttft=500ms").met_by(reasoning_only)
    assert not parse_slo("ttfo=500ms").met_by(reasoning_only)


def test_an_answer_that_the_model_ended_at_once_counts_only_if_it_came_too_late() -> None:
    """The server counted an end of sequence: there is no first token to judge, and it is no fault of the server."""
    slo = parse_slo("ttft_p90=2s,stream_p10=20")
    in_time, late = (request(0, [], tokens_out=1, t_done_ns=BOOT_NS + ms * MS) for ms in (40, 2500))
    tally = SloTally(slo, [request(0, [50, 60]), in_time, in_time])
    assert (tally.good, tally.n) == (1, 1) and tally.counts == [(1, 1), (1, 1)]
    tally.add(late)
    assert tally.counts[0] == (1, 2) and tally.least_values[0] == [0.05, 2.5]
    # What a proxy or a broken server returned has no token.
    tally.add(request(0, [], tokens_out=0, t_done_ns=BOOT_NS + MS))
    assert tally.counts[0] == (1, 3)


def test_request_must_meet_the_limits_of_all_percentiles() -> None:
    slo = parse_slo("ttft_p95=200ms,e2e_p50=300ms")
    assert slo.met_by(request(0, [100, 250]))
    assert not slo.met_by(request(0, [250, 260])) and not slo.met_by(request(0, [100, 350]))


def test_figures_that_an_answer_cannot_have_are_ignored() -> None:
    assert parse_slo("tpot=1ms,stall=1ms").met_by(request(0, [100]))
    assert not parse_slo("stall=50ms").met_by(request(0, [100, 110, 200]))
    assert not parse_slo("e2e=100ms").met_by(request(0, [50, 101]))


def test_median_and_percentile_of_a_condition_are_of_the_requests_that_it_counts() -> None:
    """A request that failed, or still waits, has no time: it is longer than any, as it is counted."""
    slo = parse_slo("ttft_p90=2s,stream_p10=20")
    late = [request(0, [at]) for at in (2200, 2500)]
    quick = [request(0, [at]) for at in (1000, 1400, 1500)]
    failed = request(0, [100], error="reset", tokens_out=None)
    waiting = request(0, [], phase="unfinished", error="cancelled", t_done_ns=BOOT_NS + 2100 * MS)
    before = request(0, [9000], phase="preroll")
    for records, good, n, median in (
        ([*late, *quick, before], 3, 5, 1.5), ([*late, *quick[:1], failed], 1, 4, 2.35),
        ([*late, *quick, failed, waiting], 3, 7, 2.2), ([failed, waiting], 0, 2, None),
    ):  # fmt: skip
        (found,) = goodput([level(1)], {(1, None): records}, slo)
        first = found.conditions[0]
        assert (first.good, first.n, first.value) == (good, n, None) and first.median == pytest.approx(median), records
    (found,) = goodput([level(1)], {(1, None): [*late * 5, *quick * 10]}, slo)
    assert found.conditions[0].value == 2.5 and found.conditions[0].median == pytest.approx(1.45)
    assert (found.conditions[1].good, found.conditions[1].median) == (40, None), "answers of one token have no rate"


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=40))
def test_the_median_is_on_the_side_of_the_limit_that_most_requests_are_on(first_ms: list[int]) -> None:
    (found,) = goodput([level(1)], {(1, None): [request(0, [at]) for at in first_ms]}, parse_slo("ttft_p90=2s"))
    (counted,) = found.conditions
    assert counted.median is not None
    if 2 * counted.good != counted.n:
        assert (counted.median <= 2.0) == (2 * counted.good > counted.n)


def test_slo_share_can_be_set() -> None:
    assert [one.share for one in parse_slo("ttft=500ms").conditions] == [0.95]
    assert [one.share for one in parse_slo("ttft=500ms, share=99%").conditions] == pytest.approx([0.99])


def test_slo_with_percentiles_has_a_share_for_each_limit() -> None:
    slo = parse_slo("ttft_p95=2s,stream_p5=20tok/s,e2e=10s")
    assert str(slo) == "E2E ≤ 10 s for 95 % of requests and TTFT p95 ≤ 2 s and ≥ 20 tok/s per user (p5)"
    assert [condition.share for condition in slo.conditions] == [0.95, 0.95, 0.95]
    slow, late = request(0, [100, 200, 300, 400]), request(0, [2100, 2110, 2120, 2130])
    (found,) = goodput([level(1)], {(1, None): [late] * 4 + [slow] * 196}, parse_slo("ttft_p90=2s,stream_p50=20"))
    assert (found.n, found.good, found.kept) == (200, 0, False)
    assert [(one.good, one.required, one.kept) for one in found.conditions] == [(196, 0.9, True), (4, 0.5, False)]
    assert slo_sentence([found]) == (
        "SLO missed at C=1: 4 of 200 requests met ≥ 20 tok/s per user (p50), 50 % required"
    )


def test_answer_too_short_for_a_rate_does_not_miss_one() -> None:
    """The second token of a tool call may wait for the prompt of another agent."""
    short, slow = request(0, [100, 900]), request(0, [100, 900, 1700, 2500])
    (found,) = goodput([level(1)], {(1, None): [short] * 40 + [slow] * 4}, parse_slo("stream_p10=20,tpot_p90=50ms"))
    assert [(one.good, one.n) for one in found.conditions] == [(40, 44), (40, 44)]


def test_slo_sentence() -> None:
    slo = parse_slo("ttft=500ms")
    good, bad = [request(0, [100])] * 64, [request(0, [900])] * 24 + [request(0, [100])] * 40
    finished: dict[LevelKey, list[Record]] = {(1, None): good, (4, None): good, (8, None): bad, (16, None): good[:8]}
    found = goodput([level(1), level(4), level(8), level(16)], finished, slo)
    assert slo_sentence(found) == "SLO met up to C=4; missed at C=8: 40 of 64 requests met it, 95 % required"
    assert slo_sentence(found[:2]) == "SLO met up to C=4"
    assert slo_sentence(found[3:]) == (
        "SLO not sure yet at C=16: 8 of 8 requests met it, 95 % required; at least 59 requests are needed to decide"
    )


@pytest.mark.parametrize("text", ["ttft", "ttft=1", "speed=1s", "ttft=1s,ttft=2s", "ttft=5%", "share=90%", "", "x=y",
                                  "ttft_p5=1s", "stream_p95=20", "stream_p5=20ms", "ttft_p95=1s,share=90%",
                                  "ttft_p0=1s", "share_p5=90%", "ttft_p95=1s,ttft_p95=2s"])  # fmt: skip
def test_invalid_slo_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--slo"):
        parse_slo(text)


@pytest.mark.parametrize(
    ("text", "first_ms", "met"),
    [
        ("ttft=50ms", None, False),
        ("ttft=50ms", 60, False),
        ("ttft=50ms", 40, True),
        ("e2e=150ms", 40, False),
        ("e2e=1s", 40, None),
        ("tpot=1ms", 40, None),
        ("ttft_p95=50ms,stream_p5=1000", 60, False),
        ("ttft_p95=50ms,stream_p5=1000", 40, None),
    ],
)
def test_unfinished_request_counts_only_if_a_limit_was_already_met_or_missed(
    text: str, first_ms: int | None, met: bool | None
) -> None:
    """It was cancelled 200 ms after it was sent."""
    cut = request(0, [] if first_ms is None else [first_ms, first_ms + 10], phase="unfinished", error="cancelled")
    cut = msgspec.structs.replace(cut, t_done_ns=BOOT_NS + 200 * MS)
    tally = SloTally(parse_slo(text), [cut])
    assert (tally.n, tally.good) == (int(met is not None), int(met is True))


def test_the_first_tokens_of_a_verdict_are_those_of_the_requests_that_it_counts() -> None:
    """Awaited ones that are late count, as longer than the limit; failed, empty and open ones are in no latency."""
    answered = [request(0, [ttft, ttft + 10]) for ttft in (10, 20, 30)]
    unfinished = [request(0, chunks, phase="unfinished", error="cancelled") for chunks in ([40, 50], [60, 70])]
    awaited = [
        msgspec.structs.replace(request(0, [], phase="unfinished", error="cancelled"), t_done_ns=BOOT_NS + age * MS)
        for age in (49, 51)
    ]
    others = [request(0, [90], phase="preroll"), request(0, [90], error="closed_early"), request(0, [])]
    tally = SloTally(parse_slo("ttft_p90=50ms"), [*answered, *unfinished, *awaited, *others])
    found = tally.first_tokens()
    assert tally.counts == [(4, 8)]
    assert (found.n, found.p50, found.min, found.max, found.mean) == (6, 0.035, 0.01, None, None)
    assert SloTally(parse_slo("e2e_p90=50ms"), answered).first_tokens().n == 0


@given(
    st.lists(st.integers(1, 100), max_size=40),
    st.lists(st.integers(1, 100), max_size=40),
)
@example(came=[1, 50, 58], waited=[])
def test_no_median_contradicts_the_count_of_a_verdict(came: list[int], waited: list[int]) -> None:
    """A median is within the limit only if at least half of the requests are."""
    requests = [request(0, [ttft, ttft + 10]) for ttft in came]
    requests += [
        msgspec.structs.replace(request(0, [], phase="unfinished", error="cancelled"), t_done_ns=BOOT_NS + age * MS)
        for age in waited
    ]
    tally = SloTally(parse_slo("ttft_p90=50ms"), requests)
    ((good, n),) = tally.counts
    found = tally.first_tokens()
    assert found.n == n
    if found.median is not None:
        assert 2 * good >= n if found.median <= 0.05 else 2 * good <= n
    elif is_awaited(found):
        assert 2 * good <= n


def test_an_slo_is_said_in_plain_words() -> None:
    slo = parse_slo(DEFAULT_SLO)
    assert slo.words() == "a first token within 2 s and 20 tok/s each, for 90 % of requests"
    assert slo.short_words() == "first token ≤ 2 s · ≥ 20 tok/s"
    mixed = parse_slo("tpot=50ms,share=99%,stall_p95=1s").words()
    assert mixed == "50 ms per token, for 99 % of requests; no stall above 1 s, for 95 % of requests"


def turn(at: float, task: int, number: int, **fields: Any) -> Record:
    """A turn of a conversation of two; it takes a second."""
    return request(at, [at + 500, at + 1000], task=task, turn=number, turns=2, **fields)


def test_slo_on_a_job_counts_conversations() -> None:
    slo = parse_slo("job_p90=3s")
    assert str(slo) == "time per job p90 ≤ 3 s" and slo.words() == "a job within 3 s, for 90 % of jobs"
    fast, slow = [turn(0, 1, 0), turn(1100, 1, 1)], [turn(0, 2, 0), turn(2100, 2, 1)]
    failed = [turn(0, 3, 0), turn(1100, 3, 1, error="reset")]
    (found,) = goodput([level(1)], {(1, None): [*fast, *slow, *failed]}, slo)
    assert (found.n, found.good, found.out_tps) == (3, 1, None)
    assert slo_sentence([found]) == "SLO missed at C=1: 1 of 3 jobs met it, 90 % required"


@pytest.mark.parametrize(("cut_ms", "n"), [(2900, 0), (3100, 1)])
def test_a_job_that_was_cut_off_is_missed_if_it_was_late_already(cut_ms: int, n: int) -> None:
    cut = request(1100, [], task=1, turn=1, turns=2, phase="unfinished", error="cancelled")
    cut = msgspec.structs.replace(cut, t_done_ns=BOOT_NS + cut_ms * MS)
    tally = SloTally(parse_slo("job_p90=3s"), [cut, turn(0, 1, 0)])
    assert (tally.n, tally.good) == (n, 0)


def test_a_job_may_begin_with_pre_roll_but_not_end_with_it() -> None:
    slo = parse_slo("job_p90=3s,ttft_p90=1s")
    begun = [turn(0, 1, 0, phase="preroll"), turn(1100, 1, 1)]
    tally = SloTally(slo, begun)
    assert tally.counts == [(1, 1), (1, 1)] and (tally.n, tally.good) == (1, 1)
    assert SloTally(slo, [msgspec.structs.replace(r, phase="preroll") for r in begun]).n == 0


def test_a_recorded_session_is_a_job_if_it_was_played_from_its_start() -> None:
    def played(at: float, number: int, skipped: int) -> Record:
        replayed = ReplayedRequest(play=4, session="s", turn=number, requests=2, skipped=skipped)
        return request(at, [at + 500, at + 1000], task=int(at), replayed=replayed)

    slo = parse_slo("job=5s")
    assert SloTally(slo, [played(0, 0, 0), played(3000, 1, 0)]).counts == [(1, 1)]
    assert SloTally(slo, [played(0, 1, 1), played(3000, 1, 1)]).n == 0


def test_slo_on_a_job_needs_a_workload_with_jobs() -> None:
    assert validate_slo("job_p90=120s") == "job_p90=120s"
    with pytest.raises(BadInput, match="a conversation or a recorded session"):
        validate_slo("job_p90=120s", has_jobs=False)
