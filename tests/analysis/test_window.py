"""Figures of the steady window of closed loops: stream rate, first tokens, half-width, and times that were cut off."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.levels.stats import spread, survival_spread
from swarmtui.analysis.limits.slo import is_awaited
from swarmtui.model.journal import CapacitySearch
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.session import Level
from tests.analysis.record_builders import BOOT_NS, MS, end, request, stage

TOKEN_MS = 10.0
PREFILL_MS = 200.0
# Lengths of a pre-roll after which four streams with answers of 50 tokens are a quarter of a cycle apart.
APART = [10, 27, 45, 62]


def closed_loop(c: int, lengths: list[int], *, complete: bool = False) -> list[Record]:
    """Build C streams with a token every 10 ms after 200 ms of prefill; the run ends with the send after the last one.

    `lengths` are those of the pre-roll, the measured requests and one filler. Answers in flight at the end are cut.
    """
    records: list[Record] = []
    free = [float(agent) for agent in range(c)]
    measured = len(lengths) - c - 1
    for number, length in enumerate(lengths):
        agent = min(range(c), key=free.__getitem__)
        sent = free[agent]
        chunks = [sent + PREFILL_MS + TOKEN_MS * k for k in range(length)]
        phase = "preroll" if number < c else "level" if number < c + measured else "filler"
        records.append(request(sent, chunks, task=number, c=c, agent=agent, phase=phase))
        free[agent] = chunks[-1] + 1.0
    over_ns = max(record.t_sent_ns or 0 for record in records)
    return records if complete else [_cut(record, over_ns) for record in records]


def _cut(record: Record, over_ns: int) -> Record:
    if record.t_last_ns is None or record.t_last_ns <= over_ns:
        return record
    sent, times = ((record.t_sent_ns or 0) - BOOT_NS) / MS, record.chunk_times_ns()
    kept = [(time - BOOT_NS) / MS for time in times if time <= over_ns]
    fields: dict[str, Any] = {"agent": record.agent, "phase": record.phase, "c": record.c, "t_done_ns": over_ns}
    return request(sent, kept, task=record.task, error=CANCELLED, **fields)


def level_of(records: list[Record], c: int) -> Level:
    (level,) = level_figures(records, [stage(c=c)], [end()])
    return level


def lengths(random: Random, count: int) -> list[int]:
    return [random.randint(5, 120) for _ in range(count)]


def searched_level(slo: str, *, since_ms: float = 0.0) -> Level:
    """Build a visit at which the pre-roll has its first tokens in time, and the measured requests have not."""
    before = [request(n, [1900 + n, 2400 + n], task=n, c=4, agent=n, phase="preroll") for n in range(4)]
    late = [request(2401 + n, [4501 + n, 4600 + n], task=4 + n, c=4, agent=n) for n in range(4)]
    awaited = [
        request(
            4601 + n, [], task=8 + n, c=4, agent=n, phase="unfinished", error=CANCELLED, t_done_ns=BOOT_NS + 7000 * MS
        )
        for n in range(4)
    ]
    search = CapacitySearch(t_ns=BOOT_NS + round(since_ms * MS), slo=slo, alpha=0.2)
    (found,) = level_figures([*before, *late, *awaited], [stage(c=4)], [end()], search=search)
    return found


def test_the_ttft_beside_a_verdict_is_that_of_the_requests_that_were_judged() -> None:
    """The window has the first tokens of the pre-roll, too, and not those that were still awaited."""
    found = searched_level("ttft_p90=2s")
    assert found.judged_ttft_s == found.shown_ttft_s
    assert (found.shown_ttft_s.n, found.shown_ttft_s.min, found.shown_ttft_s.median) == (8, 2.1, None)
    assert is_awaited(found.shown_ttft_s)


@pytest.mark.parametrize(("slo", "since_ms"), [("e2e_p90=2s", 0.0), ("ttft_p90=2s", 1.0), ("unreadable", 0.0)])
def test_a_level_that_no_limit_on_the_first_token_judged_has_the_ttft_of_its_window(slo: str, since_ms: float) -> None:
    found = searched_level(slo, since_ms=since_ms)
    assert found.judged_ttft_s is None
    assert found.shown_ttft_s == found.ttft_s


def test_a_search_changes_no_other_figure() -> None:
    judged, plain = searched_level("ttft_p90=2s"), searched_level("", since_ms=1.0)
    assert msgspec.structs.replace(judged, judged_ttft_s=None) == plain


@pytest.mark.parametrize("c", [1, 4, 16])
def test_answers_that_are_cut_at_the_end_change_no_rate(c: int) -> None:
    """What still runs when the window is over is cancelled; waiting for it gives the same rates and first tokens."""
    drawn = lengths(Random(3), 4 * c + 1)
    cut, waited = level_of(closed_loop(c, drawn), c), level_of(closed_loop(c, drawn, complete=True), c)
    assert cut.out_tps_steady == waited.out_tps_steady
    assert cut.per_stream_tps.mean == pytest.approx(waited.per_stream_tps.mean)
    assert cut.per_stream_tps.mean == pytest.approx(1000 / TOKEN_MS, rel=0.02)
    assert cut.ttft_s.n == waited.ttft_s.n
    assert cut.ttft_s.mean == pytest.approx(waited.ttft_s.mean)
    assert cut.ttft_s.max == pytest.approx(PREFILL_MS / 1000)
    assert cut.n + cut.unfinished == waited.n == 3 * c
    assert (cut.errors, waited.unfinished) == (0, 0)


def test_figures_of_a_single_run_are_those_of_its_level() -> None:
    level = level_of(closed_loop(4, lengths(Random(3), 4 + 12 + 1)), 4)
    (run,) = level.by_run
    assert run.per_stream_tps == level.per_stream_tps.mean
    assert run.ttft_s == level.ttft_s.median


def test_half_width_leaves_out_an_incomplete_last_cycle() -> None:
    whole, more = (level_of(closed_loop(4, [*APART, *[50] * (n + 1)]), 4) for n in (16, 18))
    assert whole.out_tps_steady_hw is not None
    assert more.out_tps_steady_hw == pytest.approx(whole.out_tps_steady_hw, rel=0.02), "two more answers"


def test_equal_cycles_have_nearly_no_half_width() -> None:
    level = level_of(closed_loop(4, [*APART, *[50] * 13]), 4)
    assert level.out_tps_steady == pytest.approx(4 * 50 / ((PREFILL_MS + 49 * TOKEN_MS + 1) / 1000), rel=0.01)
    assert level.half_width is not None and level.half_width < 0.02, "a token more or less at the ends of cycles"


@pytest.mark.parametrize("cycles", [2, 3, 8])
def test_half_width_holds_the_true_rate_in_most_runs(cycles: int) -> None:
    c, random = 4, Random(5)
    long = level_of(closed_loop(c, lengths(random, 1 + c + 400 * c), complete=True), c)
    assert long.out_tps_steady is not None
    held = 0
    for _ in range(60):
        level = level_of(closed_loop(c, lengths(random, 1 + c + cycles * c)), c)
        assert level.out_tps_steady is not None and level.out_tps_steady_hw is not None
        held += abs(level.out_tps_steady - long.out_tps_steady) <= level.out_tps_steady_hw
    assert held >= 51


def test_half_width_of_streams_in_step_is_not_known() -> None:
    """They were equal all the time, which says nothing about a level that starts in another way."""
    assert level_of(closed_loop(4, [50] * 17), 4).out_tps_steady_hw is None


def test_short_failed_requests_of_a_single_stream_hardly_widen_the_interval() -> None:
    """A request that fails at once is a cycle without a token, and of nearly no time."""
    records = closed_loop(1, [50] * 8)
    last = records[-2]
    begun_ms = ((last.t_sent_ns or 0) - BOOT_NS) / MS
    failed = request(begun_ms - 1.0, [], task=99, c=1, agent=0, phase="level", error="http_500")
    level = level_of([*records, failed], 1)
    assert level.errors == 1 and level.half_width is not None and level.half_width < 0.02


@pytest.mark.parametrize(("lasting_ms", "widens"), [(1.0, True), (5_000.0, False)])
def test_requests_that_fail_at_once_at_another_level_widen_that_of_a_single_stream(
    lasting_ms: float, widens: bool
) -> None:
    """Five requests may see none of them fail; one that fails after a long time does so because of its level."""
    alone = closed_loop(1, [50, 60, 40, 55, 45, 50, 50])
    busy = [msgspec.structs.replace(record, stage=2) for record in closed_loop(4, lengths(Random(3), 41))]
    rejected = [
        msgspec.structs.replace(
            request(5.0 + agent, [], task=90 + agent, c=4, agent=agent, phase="preroll", error="http_503", stage=2),
            t_done_ns=BOOT_NS + round((5.0 + agent + lasting_ms) * MS),
        )
        for agent in range(4)
    ]

    def half_width(records: list[Record]) -> float:
        levels = level_figures(records, [stage(c=1), stage(2, c=4)], [end(), end(2)])
        return levels[0].half_width or 0.0

    without, found = half_width([*alone, *busy]), half_width([*alone, *busy, *rejected])
    assert found > 1.2 * without if widens else found == without


def test_few_requests_of_a_single_stream_leave_room_for_failures_that_they_did_not_see() -> None:
    """Most runs of five see none of 10 % failures; what was not seen counts for no more than what was."""
    alone = closed_loop(1, [50, 51, 49, 52, 48, 50, 50])
    busy = [msgspec.structs.replace(record, stage=2) for record in closed_loop(4, lengths(Random(3), 41))]
    few, (enough, _) = level_of(alone, 1), level_figures([*alone, *busy], [stage(c=1), stage(2, c=4)], [end(), end(2)])
    assert few.out_tps_steady == enough.out_tps_steady
    assert few.half_width is not None and enough.half_width is not None
    assert 1.2 * enough.half_width < few.half_width <= 2.0 * enough.half_width


@given(st.integers(2, 6), st.lists(st.integers(5, 120), min_size=24, max_size=40), st.integers(2, 9))
def test_half_width_is_a_share_of_the_rate_whatever_the_clock(c: int, drawn: list[int], slower: int) -> None:
    """That of a single stream depends on the pause of the client after an error, which is no share of the rate."""

    def slow_down(record: Record) -> Record:
        times = {name: getattr(record, name) for name in record.__struct_fields__ if name.endswith("_ns")}
        later = {name: BOOT_NS + slower * (t - BOOT_NS) for name, t in times.items() if t is not None}
        return msgspec.structs.replace(record, **later, chunk_us=tuple(slower * gap for gap in record.chunk_us))

    records = closed_loop(c, drawn)
    once, slowed = (level_of(found, c).half_width for found in (records, list(map(slow_down, records))))
    assert (once is None) is (slowed is None)
    assert once is None or once == pytest.approx(slowed, rel=1e-6)


def test_a_single_cycle_has_no_half_width() -> None:
    assert level_of(closed_loop(1, [50, 50, 50]), 1).out_tps_steady_hw is None


def test_a_failed_request_is_in_no_latency_of_the_window() -> None:
    records = closed_loop(2, [50] * 9)
    failed = [msgspec.structs.replace(r, error="reset") if r.task == 4 else r for r in records]
    whole, level = level_of(records, 2), level_of(failed, 2)
    assert level.ttft_s.n == whole.ttft_s.n - 1 and level.errors == 1
    assert level.out_tps_steady == whole.out_tps_steady, "its tokens arrived"


@given(st.lists(st.floats(0.1, 100.0), max_size=40))
def test_without_cut_times_the_estimate_is_the_sample(values: list[float]) -> None:
    assert survival_spread(values, []) == spread(values)


@given(st.lists(st.floats(0.1, 100.0), min_size=6, max_size=60), st.lists(st.floats(0.1, 100.0), min_size=1))
def test_times_that_were_cut_only_raise_percentiles(values: list[float], cut: list[float]) -> None:
    found, ordered = survival_spread(values, cut), sorted(values)
    assert (found.n, found.min, found.mean, found.max) == (len(values), ordered[0], None, None)
    if found.p50 is not None:
        assert found.p50 >= ordered[(len(ordered) - 1) // 2]


def test_percentiles_of_cut_times_by_hand() -> None:
    """Of seven, two were cut at 2.5 and 4.5 s: 5/7 survive 2 s, 3/4 of these 3 s, 2/3 of these 4 s."""
    assert survival_spread([1, 2, 3, 4, 5], [2.5, 4.5]).p50 == 4
    assert survival_spread([1, 2, 3, 4, 5], [0.5] * 9).p50 == 3
    assert survival_spread([1, 2, 3, 4, 5], [9.0] * 9).p50 is None, "most answers took longer than what was seen"


def test_streams_that_keep_in_step_are_flagged() -> None:
    """Four streams with answers of equal length start together, or a quarter of a cycle apart."""

    def flagged(records: list[Record]) -> bool:
        return "synchronised" in [flag.code for flag in level_of(records, 4).flags]

    together = closed_loop(4, [40] * 13)
    assert flagged(together)
    assert not flagged(closed_loop(4, [10, 25, 40, 55, *[40] * 9]))
    assert not flagged(closed_loop(4, lengths(Random(1), 13))), "answers of different length separate streams"


def test_clean_rate_is_of_the_same_time_as_the_rate_of_all_answers() -> None:
    """Answers of the pre-roll, which may be cut on purpose, are part of both."""
    drawn = closed_loop(4, lengths(Random(2), 21))
    records = [msgspec.structs.replace(record, cap_hit=record.phase == "preroll") for record in drawn]
    assert level_of(records, 4).per_stream_tps_clean.mean == level_of(records, 4).per_stream_tps.mean
