from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.levels.flags import flag_misfits
from swarmtui.model.findings import Finding
from swarmtui.model.journal import Entry, RequestEntry, StageEnd, StageStart, TokenCount
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.session import Level
from swarmtui.sessions.journal import read_journal
from tests.analysis.level_builders import level as level_of
from tests.analysis.record_builders import BOOT_NS, MS, end, request, stage
from tests.sessions.session_builders import T0, head, record, write_session


def streams(c: int, requests: int, *, number: int, run: int = 1, gap: float = 10.0, start: float = 0.0) -> list[Record]:
    """Build C back-to-back streams; first token after 50 ms, then nine more, each after `gap`."""
    length = 50 + 9 * gap
    return [
        request(begin, [begin + 50 + gap * k for k in range(10)], task=1000 * agent + turn, stage=number, c=c, run=run)
        for agent in range(c)
        for turn in range(requests)
        for begin in (start + turn * length,)
    ]


def one(records: list[Record], c: int = 1, *, complete: bool = True) -> Level:
    (level,) = level_figures(records, [stage(c=c)], [end(complete=complete)])
    return level


def test_figures_of_a_sweep_of_equal_streams() -> None:
    """A single stream has a token every 10 ms, four streams one every 20 ms each."""
    records = streams(1, 5, number=1) + streams(4, 5, number=2, gap=20.0)
    single, four = level_figures(records, [stage(1, 1), stage(2, 4)], [end(1), end(2)])

    assert (single.c, single.runs, single.n, single.ok, single.errors, single.complete) == (1, 1, 5, 5, 0, True)
    assert single.wall_s == pytest.approx(5 * 0.140)
    assert single.out_tps_wall == pytest.approx(10 / 0.140)
    assert single.out_tps_steady == pytest.approx(10 / 0.140)
    assert single.prompt_tps == pytest.approx(10 / 0.140)
    assert single.total_tps == pytest.approx(20 / 0.140)
    assert single.per_stream_tps.mean == pytest.approx(100.0)
    assert single.ttft_s.p50 == pytest.approx(0.050)
    assert single.tpot_s.p50 == pytest.approx(0.010)
    assert single.e2e_s.max == pytest.approx(0.140)
    assert (single.contention, single.rate_speedup) == (0.0, 1.0)
    assert single.flags == ()

    assert (four.c, four.n, four.tokens_in, four.tokens_out) == (4, 20, 200, 200)
    assert four.c_achieved == pytest.approx(4.0)
    assert four.icl_s.n == 20 * 9
    assert four.icl_s.p90 == pytest.approx(0.020)
    assert four.longest_stall_s == pytest.approx(0.020)
    assert four.contention == pytest.approx(0.5)
    assert four.rate_speedup == pytest.approx(4 * 140 / 230)
    assert four.straggler == pytest.approx((40 / 0.230) / (4 * 50))
    assert (four.wall_speedup, four.token_ratio, four.pass_rate) == (None, None, None)


def test_no_contention_without_c_1() -> None:
    level = one(streams(2, 4, number=1), c=2)
    assert (level.contention, level.rate_speedup) == (None, None)


def test_warm_up_is_in_no_figure() -> None:
    warm = [request(0, [500, 900], stage=0, phase="warmup")]
    starts = [stage(0, phase="warmup"), stage(1)]
    levels = level_figures(warm + streams(1, 3, number=1), starts, [end(0), end(1)])
    assert levels == level_figures(streams(1, 3, number=1), starts, [end(0), end(1)])
    assert [level.n for level in levels] == [3]


def test_failed_and_cancelled_requests_are_in_no_latency() -> None:
    good = streams(1, 2, number=1)
    bad = [
        request(300, [900, 2000], error="reset", cap_hit=True, degenerate=True),
        request(2000, [], error="http_429", tokens_out=None, t_done_ns=BOOT_NS + 2001 * MS),
        request(2000, [], error="connect", t_sent_ns=None, tokens_out=None),
        request(2100, [2200], error=CANCELLED),
    ]
    level = one(good + bad)
    assert (level.n, level.ok, level.errors, level.unfinished) == (5, 2, 3, 1)
    assert level.error_counts == {"connect": 1, "http_429": 1, "reset": 1}
    assert (level.cap_hits, level.degenerate) == (0, 0)
    assert (level.ttft_s.n, level.e2e_s.n) == (2, 2)
    assert level.per_stream_tps.max == pytest.approx(100.0)
    assert level.tokens_out == 20
    assert level.wall_s == pytest.approx(2.001)
    assert "3 of 5 requests failed: 1 connect, 1 http_429, 1 reset" in map(str, level.flags)


def test_timed_out_request_occupied_a_stream() -> None:
    silent = request(0, [32, 64], error="idle_timeout", t_done_ns=BOOT_NS + 1000 * MS)
    level = one([silent, request(1000, [1500, 2000])])
    assert level.wall_s == pytest.approx(2.0)
    assert level.c_achieved == pytest.approx(1.0)


def test_figures_are_null_when_all_requests_failed() -> None:
    level = one([request(0, [], error="http_500", tokens_out=None, tokens_in=None, t_done_ns=BOOT_NS + MS)])
    assert (level.n, level.ok, level.errors, level.runs) == (1, 0, 1, 1)
    nulls = (level.out_tps_wall, level.out_tps_steady, level.steady_s, level.prompt_tps, level.total_tps)
    assert nulls == (None,) * 5
    assert (level.tokens_out, level.tokens_in, level.token_source, level.stamp, level.coalesced_chunks) == (None,) * 5
    assert level.contention is None


def test_unfinished_level_has_null_figures() -> None:
    level = one([], c=8, complete=False)
    assert (level.c, level.runs, level.n, level.wall_s, level.c_achieved, level.by_run) == (8, 0, 0, None, None, ())
    assert level.complete is False
    assert [flag.code for flag in level.flags] == ["incomplete"]


def test_a_level_that_ended_before_a_request_did_has_the_first_tokens_that_are_known() -> None:
    """A visit of a search ends once enough first tokens are late."""
    begun = [request(0, [wait, wait + 10], phase="unfinished", error=CANCELLED) for wait in range(2100, 2700, 100)]
    waiting = request(0, [], phase="unfinished", error=CANCELLED, tokens_out=None, t_done_ns=BOOT_NS + 2700 * MS)
    level = one([*begun, waiting], c=7)
    assert (level.n, level.unfinished, level.out_tps_wall) == (0, 7, None)
    assert level.ttft_s.median == pytest.approx(2.4)


def test_rate_over_runs_is_summed_tokens_over_summed_time() -> None:
    """The pause of 100 ms between the runs is in neither."""
    records = streams(1, 5, number=1, run=1) + streams(1, 5, number=2, run=2, gap=20.0, start=800)
    (level,) = level_figures(records, [stage(1), stage(2, run=2)], [end(1), end(2)])
    assert level.runs == 2
    assert level.wall_s == pytest.approx(0.700 + 1.150)
    assert level.out_tps_wall == pytest.approx(100 / 1.850)
    assert level.out_tps_steady == pytest.approx(100 / 1.850)
    first, second = level.by_run
    assert (first.run, first.n, first.tokens_out) == (1, 5, 50)
    assert first.out_tps_steady == pytest.approx(50 / 0.7)
    assert second.run == 2
    assert second.per_stream_tps == pytest.approx(50.0)
    assert second.ttft_s == pytest.approx(0.05)


def test_missing_run_makes_level_incomplete() -> None:
    (level,) = level_figures(streams(1, 5, number=1), [stage(1), stage(2, run=2)], [end(1)])
    assert (level.runs, level.complete, level.has_complete_run) == (1, False, True)


def test_steered_stages_that_ended_early_are_levels_of_their_own_only() -> None:
    """C=2 has a complete run, so its incomplete one does not count; C=4 has none; at C=8 nothing was answered."""
    records = (
        streams(2, 2, number=1)
        + streams(4, 1, number=2, start=300)
        + streams(2, 3, number=3, start=500)
        + streams(2, 1, number=4, start=1000)
    )
    starts = [stage(n, c, steered=True) for n, c in ((1, 2), (2, 4), (3, 2), (4, 2), (5, 8))]
    ends = [end(1), end(2, complete=False), end(3), end(4, complete=False), end(5, complete=False)]
    level, early = level_figures(records, starts, ends)
    assert (early.c, early.runs, early.n, early.complete, early.has_complete_run) == (4, 1, 4, False, False)
    assert [flag.text for flag in early.flags if flag.code == "incomplete"] == [
        "incomplete: it ended early, after 4 requests"
    ]
    assert (level.c, level.runs, level.n, level.complete) == (2, 2, 10, True)
    assert [(run.run, run.n) for run in level.by_run] == [(1, 4), (2, 6)]


def test_repeated_run_replaces_the_paused_one() -> None:
    records = streams(2, 2, number=1) + streams(2, 3, number=2, start=900)
    (level,) = level_figures(records, [stage(1, 2), stage(2, 2)], [end(1, complete=False), end(2)])
    assert (level.runs, level.n, level.complete) == (1, 6, True)


def test_output_after_the_stage_end_is_not_steady() -> None:
    """After 140 ms, streams of the next stage share the server."""
    records = streams(2, 2, number=1)
    (level,) = level_figures(records, [stage(1, 2)], [end(1, at=140)])
    assert level.steady_s == pytest.approx(0.140)
    assert level.wall_s == pytest.approx(0.280)


def test_requests_count_when_their_stage_line_is_damaged() -> None:
    (level,) = level_figures(streams(4, 5, number=9), [], [])
    assert (level.c, level.n, level.complete) == (4, 20, False)


def test_tokens_of_a_cancelled_request_are_steady() -> None:
    """The second stream is cancelled at 200 ms, in its second request; the first continues to 420 ms."""
    records = [r for r in streams(2, 3, number=1) if r.task < 1001]
    cancelled = request(140, [190], task=1001, c=2, error=CANCELLED, t_done_ns=BOOT_NS + 200 * MS)
    level = one([*records, cancelled], c=2)
    assert level.steady_s == pytest.approx(0.200)
    assert level.out_tps_steady == pytest.approx(23 / 0.200)
    assert level.c_achieved == pytest.approx((3 * 140 + 140 + 60) / 420)


def test_clean_rates_exclude_cap_hits() -> None:
    slow = request(1000, [1050, 1150, 1250, 1350], cap_hit=True)
    level = one([*streams(1, 2, number=1), slow])
    assert level.cap_hits == 1
    assert level.per_stream_tps.min == pytest.approx(10.0)
    assert level.per_stream_tps_clean.min == pytest.approx(100.0)
    assert "1 of 3 finished answers were cut at the token limit" in map(str, level.flags)


def test_answers_of_two_tokens_have_latencies_and_no_rate() -> None:
    """Also where the end of the level cuts them off: the answer that is cancelled waits for its second token."""
    answers = [request(100 * n, [100 * n + 50, 100 * n + 51], task=n) for n in range(6)]
    cut = request(
        10, [60, 61], task=6, phase="unfinished", error=CANCELLED, tokens_out=None, t_done_ns=BOOT_NS + 500 * MS
    )
    after = [request(600 + n, [], task=7 + n, phase="filler", error=CANCELLED, tokens_out=None) for n in range(2)]
    level = one([*answers, cut, *after], c=2)
    assert level.ttft_s.p50 == pytest.approx(0.05) and level.headline_tps
    assert {level.per_stream_tps.mean, level.per_stream_tps.p50, level.tpot_s.mean} == {None} and not level.tpot_s.n
    assert level.slowdown is None and level.straggler is None


def test_c_held_ignores_ramp_up_and_drain() -> None:
    """C is held from the fourth send to the last one; the mean in flight also has the end, with one stream left."""
    records = streams(4, 4, number=1)
    drained = [r for r in records if r.task not in (1003, 2003, 3003)]
    level = one(drained, c=4)
    assert level.c_achieved == pytest.approx(13 / 4)
    assert level.c_held == pytest.approx(4.0)
    assert level.flags == ()


def test_c_held_counts_from_when_all_streams_have_started() -> None:
    records = [request(sent, [sent + 300], task=sent) for sent in (0, 100, 200, 300, 400)]
    assert one(records, c=3).c_held == pytest.approx(3.0)


def test_stream_is_held_until_its_response_ends() -> None:
    """A server that ends its responses long after the last token leaves no time for the next request."""
    ends = [BOOT_NS + round(at * MS) for at in (100, 200, 300)]
    level = one([request(100 * n, [100 * n + 50], task=n, t_done_ns=t_ns) for n, t_ns in enumerate(ends)])
    assert level.c_held == pytest.approx(1.0) and level.c_achieved == pytest.approx(0.6)


def test_answers_without_a_token_count_have_no_rate() -> None:
    """Null, not 0: also with unmeasured requests, whose tokens share the makespan."""
    phases = ("preroll", "level", "level", "filler")
    empty = [
        request(100 * n, [], task=n, phase=phase, tokens_out=None, t_done_ns=BOOT_NS + (100 * n + 90) * MS)
        for n, phase in enumerate(phases)
    ]
    level = one(empty)
    assert (level.ok, level.out_tps_wall, level.out_tps_steady) == (2, None, None)


def test_c_held_below_95_percent_is_flagged() -> None:
    shorter = [r for r in streams(4, 4, number=1) if r.task not in (3001, 3002)]
    level = one(shorter, c=4)
    assert level.c_held == pytest.approx((4 + 3 + 3) / 3)
    assert Finding(code="c_held", text="C held 3.33, planned 4") in level.flags


def test_c_held_is_null_without_more_requests_than_streams() -> None:
    assert one(streams(4, 1, number=1), c=4).c_held is None
    (batch,) = level_figures(streams(4, 2, number=1), [stage(c=4, load="barrier")], [end()])
    assert batch.c_held is None


def closed_loop(c: int, measured: int, *, number: int = 1, start: float = 0.0) -> list[Record]:
    """Build requests of 140 ms: pre-roll, measured ones, and fillers that are cancelled with the last answer."""
    found = []
    for turn in range(measured // c + 2):
        phase = "preroll" if not turn else "level" if turn <= measured // c else "filler"
        for agent in range(c):
            begin = start + 140 * turn + 10 * agent
            times = [begin + 50 + 10 * k for k in range(10)]
            over = start + 140 * turn + 10 * c
            cut: dict[str, Any] = {"error": CANCELLED, "t_done_ns": BOOT_NS + round(over * MS)}
            ended = {} if phase != "filler" else cut
            kept = [t for t in times if not ended or t <= over]
            found.append(request(begin, kept, task=100 * turn + agent, stage=number, c=c, phase=phase, **ended))
    return found


def test_figures_of_a_closed_loop_come_from_measured_requests() -> None:
    records = closed_loop(4, 16)
    early = [(r.t_sent_ns or 0) - 40 * MS if r.phase == "preroll" else r.t_sent_ns for r in records]
    slow = [msgspec.structs.replace(r, t_sent_ns=sent) for r, sent in zip(records, early, strict=True)]
    for found in (records, slow):
        level = one(found, c=4)
        assert (level.n, level.ok, level.unfinished, level.errors) == (16, 16, 0, 0)
        assert level.ttft_s.n == 16
        assert level.ttft_s.max == pytest.approx(0.05)
        assert level.tokens_out == 160
        assert level.steady_s == pytest.approx(4 * 140 / 1e3), "four whole cycles"
        assert level.out_tps_steady == pytest.approx(4 * 10 / 0.140)
        assert level.out_tps_wall == pytest.approx(4 * 10 / 0.140, rel=0.03), "fillers run to the end of the makespan"
        assert level.c_held == pytest.approx(4.0)
        assert level.c_achieved == pytest.approx(4.0)
        assert [flag.code for flag in level.flags] == ["synchronised"], "answers of equal length start together"


def test_failed_pre_roll_and_fillers_are_in_the_error_count() -> None:
    def fail(record: Record) -> Record:
        return msgspec.structs.replace(record, error="http_500", tokens_out=None)

    records = [fail(r) if r.phase == "preroll" else r for r in closed_loop(4, 16)]
    level = one(records, c=4)
    assert (level.n, level.ok, level.errors, level.error_counts) == (16, 16, 4, {"http_500": 4})
    assert level.ttft_s.n == 16
    assert (level.by_run[0].n, level.by_run[0].errors) == (16, 4)
    text = "4 of 20 requests failed (4 unmeasured: pre-roll or fillers): 4 http_500"
    assert Finding(code="errors", text=text) in level.flags
    (level,) = level_figures([r for r in records if r.phase == "preroll"], [stage(c=4)], [end(complete=False)])
    assert (level.n, level.ok, level.errors, level.runs) == (0, 0, 4, 0), "no request was measured"


def test_errors_of_a_repeated_pre_roll_are_counted() -> None:
    first = [msgspec.structs.replace(r, error="reset") for r in closed_loop(4, 0) if r.phase == "preroll"]
    again = closed_loop(4, 16, number=2, start=1000)
    (level,) = level_figures([*first, *again], [stage(1, c=4), stage(2, c=4)], [end(1, complete=False), end(2)])
    assert (level.n, level.ok, level.errors) == (16, 16, 4)


def test_prompt_rate_of_a_closed_loop_follows_the_steady_rate() -> None:
    level = one(closed_loop(4, 16), c=4)
    assert level.prompt_tps == level.out_tps_steady
    assert level.total_tps == pytest.approx(2 * (level.out_tps_steady or 0.0))


def test_errors_of_a_repeated_attempt_stay_in_the_level() -> None:
    first = [*streams(2, 1, number=1), request(150, [], stage=1, c=2, error="refused", tokens_out=None)]
    records = first + streams(2, 3, number=2, start=900)
    (level,) = level_figures(records, [stage(1, 2), stage(2, 2)], [end(1, complete=False), end(2)])
    assert (level.runs, level.n, level.ok, level.errors) == (1, 6, 6, 1)
    assert level.error_counts == {"refused": 1}
    assert level.complete and "1 of 7 requests failed: 1 refused" in map(str, level.flags)


def test_request_across_a_change_of_c_is_in_no_latency_but_its_tokens_count() -> None:
    """C rises from 1 to 2 at 210 ms: a request of the first stage ends at 280 ms, during the second."""
    records = [
        *streams(1, 2, number=1),
        *[msgspec.structs.replace(r, agent=1) for r in streams(1, 3, number=2, start=210)],
        *streams(1, 2, number=2, start=280),
    ]
    records = [msgspec.structs.replace(r, task=task) for task, r in enumerate(records)]
    starts = [stage(1, 1, steered=True), stage(2, 2, steered=True, t_ns=BOOT_NS + 210 * MS)]
    single, double = level_figures(records, starts, [end(1, at=210), end(2, at=620)])
    assert (single.n, single.ttft_s.n) == (1, 1)
    assert single.steady_s == pytest.approx(0.210)
    assert single.out_tps_steady == pytest.approx(13 / 0.210), "also the tokens of the request that continues"
    assert (double.n, double.ttft_s.n) == (4, 4), "one ends after 620 ms"
    assert double.steady_s == pytest.approx(0.350)
    assert double.out_tps_steady == pytest.approx((7 + 20 + 20) / 0.350, rel=0.1)


def test_steady_below_wall_is_flagged() -> None:
    """Two requests overlap for 50 ms in which little arrives."""
    records = [request(0, [10 * k for k in range(1, 20)]), request(150, [151, 195, *range(200, 390, 5)])]
    level = one(records, c=2)
    assert (level.out_tps_steady or 0.0) < 0.95 * (level.out_tps_wall or 0.0)
    assert "steady_below_wall" in [flag.code for flag in level.flags]


def test_flags_have_codes_and_texts() -> None:
    records = [
        request(0, [10, 20, 30], token_source="chunks", stamp="read", coalesced_chunks=2),
        request(30, [40, 50, 60], token_source="chunks", stamp="read", degenerate=True),
    ]
    level = one(records)
    assert (level.token_source, level.stamp, level.degenerate) == ("chunks", "read", 1)
    assert level.coalesced_chunks == pytest.approx(2 / 6)
    assert [(flag.code, flag.text) for flag in level.flags] == [
        ("degenerate", "1 of 2 answers were empty or made no sense"),
        ("token_source", "tokens are counted by chunks (~): the server did not report them"),
        ("coalesced_chunks", "33.3 % of chunks arrived together with another one: gaps are inexact"),
        ("read_stamps", "timestamps are from the reader, not from the kernel"),
    ]


def test_different_sources_are_mixed() -> None:
    level = one([request(0, [10, 20]), request(20, [30, 40], token_source="engine", stamp="read")])
    assert (level.token_source, level.stamp) == ("mixed", "mixed")


def test_uncounted_answer_is_flagged_and_missing_prompt_tokens_null_prompt_rates() -> None:
    level = one([request(0, [10, 20]), request(20, [30, 40], tokens_out=None, first_tokens=None, tokens_in=None)])
    assert (level.tokens_out, level.tokens_in) == (2, 10)
    assert level.out_tps_wall == pytest.approx(2 / 0.040)
    assert (level.prompt_tps, level.total_tps) == (None, None)
    assert "1 of 2 answers have no token count and are in no rate" in map(str, level.flags)


def test_pass_rate_counts_answers_with_a_verdict() -> None:
    verdicts = ("pass", "pass in reasoning", "fail", "empty content", None)
    level = one([request(20 * k, [20 * k + 9, 20 * k + 19], verdict=v) for k, v in enumerate(verdicts)])
    assert level.pass_rate == 0.5


def test_ttfo_follows_reasoning() -> None:
    level = one([request(0, [10, 20, 30], t_first_content_ns=BOOT_NS + 20 * MS)])
    assert level.ttft_s.min == pytest.approx(0.010)
    assert level.ttfo_s.min == pytest.approx(0.020)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 100),
            st.lists(st.integers(0, 30), min_size=1, max_size=8),
            st.sampled_from([None, None, "reset", CANCELLED]),
        ),
        min_size=1,
        max_size=15,
    )
)
def test_wall_and_mean_in_flight_match_brute_force(drawn: list[tuple[int, list[int], str | None]]) -> None:
    """Count the requests in flight at each millisecond."""
    records = [
        request(sent, [sent + sum(waits[: k + 1]) for k in range(len(waits))], error=error)
        for sent, waits, error in drawn
    ]
    level = one(records, c=3)
    spans = [(sent, sent + sum(waits)) for sent, waits, _ in drawn]
    finished = [span for span, (_, _, error) in zip(spans, drawn, strict=True) if error != CANCELLED]
    first, last = min((a for a, _ in finished), default=0), max((b for _, b in finished), default=0)
    if first == last:
        assert (level.wall_s, level.c_achieved, level.out_tps_wall) == (None, None, None)
        return
    assert level.wall_s == pytest.approx((last - first) / 1e3)
    in_flight = sum(a <= at < b for at in range(first, last) for a, b in spans)
    assert level.c_achieved == pytest.approx(in_flight / (last - first))
    ok = [len(waits) for _, waits, error in drawn if error is None]
    assert level.out_tps_wall == (pytest.approx(1e3 * sum(ok) / (last - first)) if ok else None)


def test_decode_rate_after_a_recount_excludes_the_first_chunk(tmp_path: Path) -> None:
    """Four tokens per chunk of 10 ms are 400 tok/s; with a single token in the first chunk they would be 433 tok/s."""
    entries: list[Entry] = [head(), StageStart(number=1, t_ns=T0, c=1, run=1, phase="level")]
    for task in range(5):
        entries.append(RequestEntry(record=record(task, sent=200 * task, token_source="chunks")))
        entries.append(TokenCount(stage=1, task=task, turn=0, tokens_out=40))
    journal = read_journal(
        write_session(tmp_path / "s", [*entries, StageEnd(number=1, t_ns=T0 + 10**9, complete=True)])
    )
    (level,) = level_figures(journal.records, journal.stages, journal.ends)
    assert (level.token_source, level.tokens_out) == ("tokenize", 200)
    assert level.per_stream_tps.mean == pytest.approx(400.0)
    assert level.tpot_s.mean == pytest.approx(0.0025)
    # Five answers of 140 ms, 60 ms apart.
    assert level.out_tps_steady == pytest.approx(200 / 0.940), "all tokens of an answer count in the throughput"


def test_stream_faster_than_a_single_one_has_a_remark_and_no_slowdown() -> None:
    records = [
        request(0, [10, 30, 50, 70], c=1, stage=1),
        request(1000, [1010, 1020, 1030, 1040], c=2, stage=2),
    ]
    slow, fast = level_figures(records, [stage(1, c=1), stage(2, c=2)], [end(1), end(2)])
    assert slow.slowdown == 0.0
    assert fast.contention == pytest.approx(-1.0)
    assert fast.slowdown is None
    assert "faster_stream" in [flag.code for flag in fast.flags]


@pytest.mark.parametrize(
    ("rates", "misfit"),
    [
        ({4: 100.0, 5: 250.0, 6: 104.0}, 5),
        ({4: 300.0, 5: 100.0, 6: 310.0}, 5),
        # As many times more as there are more agents, a peak before a cliff, a plateau, and a level at an end.
        ({1: 100.0, 4: 390.0, 8: 200.0}, None),
        ({1: 100.0, 2: 190.0, 4: 350.0, 8: 260.0}, None),
        ({4: 300.0, 8: 310.0, 16: 305.0}, None),
        ({4: 100.0, 5: 250.0}, None),
    ],
)
def test_a_level_that_does_not_fit_those_beside_it_has_a_remark(rates: dict[int, float], misfit: int | None) -> None:
    levels = flag_misfits([level_of(c, tps=tps) for c, tps in rates.items()])
    assert [level.c for level in levels if level.flags] == ([] if misfit is None else [misfit])
    assert [flag.code for level in levels for flag in level.flags] == (["misfit"] if misfit else [])


def test_the_remark_on_a_misfit_has_its_neighbours_and_needs_as_many_requests_as_agents() -> None:
    levels = [level_of(4, tps=100.0), level_of(5, tps=250.0), level_of(6, tps=125.0)]
    (flag,) = flag_misfits(levels)[1].flags
    assert flag.text.startswith("does not fit the levels beside it: its tok/s are 2.5 times those of C=4 and 2 times")
    levels[1] = level_of(5, tps=250.0, n=4)
    assert not any(level.flags for level in flag_misfits(levels))


def test_run_that_was_repeated_although_it_was_complete_counts() -> None:
    """As in a search that returns to a level."""
    records = streams(2, 2, number=1) + streams(2, 3, number=2, start=900)
    (level,) = level_figures(records, [stage(1, 2), stage(2, 2)], [end(1), end(2)])
    assert (level.runs, level.n, level.complete) == (2, 10, True)
    assert [(run.run, run.n) for run in level.by_run] == [(1, 4), (2, 6)]


def test_c_held_is_weighted_by_the_time_of_the_runs() -> None:
    """C = 2 is held for 140 ms in the first run; in the second, for 1,260 ms, one of two streams pauses at times."""
    short = streams(2, 2, number=1)
    long = [r for r in streams(2, 10, number=2, run=2, start=1000) if r.task not in (1002, 1004, 1006)]
    (level,) = level_figures(short + long, [stage(1, 2), stage(2, 2, run=2)], [end(1), end(2)])
    (alone,) = level_figures(long, [stage(2, 2, run=2)], [end(2)])
    assert alone.c_held == pytest.approx(2 - 3 / 9)
    assert level.c_held == pytest.approx((2 * 1 + (2 - 3 / 9) * 9) / 10)


@pytest.mark.parametrize(("coalesced", "flagged"), [(0, False), (2, False), (3, True)])
def test_chunks_that_share_a_timestamp_are_flagged_above_a_quarter(coalesced: int, flagged: bool) -> None:
    """Fewer of them blur gaps only, which measurement quality notes."""
    level = one([msgspec.structs.replace(r, coalesced_chunks=coalesced) for r in streams(1, 4, number=1)])
    assert level.coalesced_chunks == pytest.approx(coalesced / 10)
    assert ("coalesced_chunks" in [flag.code for flag in level.flags]) == flagged
