"""The state of a session: what entries, worker frames and ticks make of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from swarmtui.model.findings import SearchedLevel, SearchState
from swarmtui.model.journal import CapacitySearch, RequestEntry, SearchEntry, StageStart, SweepEntry
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.model.session import Event
from swarmtui.model.telemetry import HostUse
from swarmtui.model.worker_protocol import StreamRow, WorkerFrame
from swarmtui.state.session_state import SessionState
from tests.analysis.level_builders import level, summary
from tests.analysis.record_builders import request


def stage(c: int, number: int = 1, **given: Any) -> StageStart:
    return StageStart(number=number, t_ns=0, c=c, run=1, phase="level", **given)


def at_c(c: int) -> SessionState:
    state = SessionState(0)
    state.apply(stage(c))
    return state


def first_tokens(t_s: float, ttft_s: float, streams: int) -> WorkerFrame:
    """A frame in which all streams have just received their first token."""
    rows = tuple(StreamRow(agent, "writing", agent, "", 1, 2, 2, ttft_s) for agent in range(streams))
    return WorkerFrame(int(t_s * 1e9), streams, streams, 0, 0, rows, 0.0, 0, 0, 0)


def test_ttft_follows_a_change_of_c_immediately() -> None:
    state = at_c(1)
    for second in range(1, 30):
        state.apply_frame(0, first_tokens(second / 10, 0.02, 1))
    assert state.frame(0, rows=False).ttft_s == 0.02
    state.apply(stage(6))
    assert state.frame(0, rows=False).ttft_s is None, "it would be that of the level before"
    state.apply_frame(0, first_tokens(3.5, 1.5, 3))
    assert state.frame(0, rows=False).ttft_s == 1.5


def test_ttft_is_the_median_of_the_last_requests() -> None:
    state = at_c(3)
    for tenth, ttft_s in enumerate((0.5, 0.1, 0.2, 0.4, 0.3)):
        state.apply_frame(0, first_tokens(tenth / 10, ttft_s, 1))
    assert state.frame(0, rows=False).ttft_s == 0.3


def test_ttft_ignores_old_requests() -> None:
    state = at_c(1)
    for second in range(8):
        state.apply_frame(0, first_tokens(second, 0.02, 1))
    state.apply_frame(0, first_tokens(60, 3.0, 1))
    assert state.frame(0, rows=False).ttft_s == 3.0


def chunks(t_s: float, count: int) -> WorkerFrame:
    """A frame in which one stream has received `count` chunks since the last frame."""
    row = StreamRow(0, "writing", 0, "", 1, count, 1000, None)
    return WorkerFrame(round(t_s * 1e9), 1, 1, 0, 0, (row,), 0.0, 0, 0, 0)


def test_rate_covers_the_last_second() -> None:
    state = SessionState(0)
    for frame in range(30):
        state.apply_frame(0, chunks(frame / 10, 10))
    assert state.frame(0, rows=False).out_tps == pytest.approx(100.0)
    for frame in range(30, 35):
        state.apply_frame(0, chunks(frame / 10, 0))
    assert state.frame(0, rows=False).out_tps == pytest.approx(50.0)
    for frame in range(35, 41):
        state.apply_frame(0, chunks(frame / 10, 0))
    assert state.frame(0, rows=False).out_tps == 0.0


def test_rate_of_a_stream_does_not_depend_on_how_many_wait() -> None:
    """Eight streams of which two write 20 tok/s each: in each second others, and none during the last moment."""
    state = at_c(8)
    for tenth in range(1, 100):
        agent, total = tenth // 20, 2 * (tenth % 20)
        rows = tuple(
            StreamRow(agent + pair, "writing", agent, "", 1, 2, total, 0.1, span_s=max(0, total - 1) / 20)
            for pair in (0, 4)
        )
        state.apply_frame(0, WorkerFrame(tenth * 10**8, 8, 8, 6, 0, rows, 0.0, 0, 0, 0))
    state.apply_frame(0, WorkerFrame(10**10, 8, 8, 8, 0, (), 0.0, 0, 0, 0))
    assert state.frame(0, rows=False).per_stream_tps == pytest.approx(20.0)


@pytest.mark.parametrize("seen", [0, 10, 25])
def test_rate_has_the_chunks_that_arrive_after_the_last_row_of_an_answer(seen: int) -> None:
    """Ten answers of 30 chunks per second, each between two frames but for the chunks that the first of them has."""
    state = at_c(1)
    for task in range(30):
        t_ns, sent_ns = (task + 1) * 10**8, (task + 1) * 10**8 - 10**7
        row = StreamRow(0, "writing", task, "", sent_ns, seen, seen, 0.1, span_s=(seen - 1) / 1000)
        state.apply_frame(0, WorkerFrame(t_ns, 1, 1, 0, 0, (row,) if seen else (), 0.0, 0, 0, 0))
        last_ns = sent_ns + 29 * 10**6
        record = Record(task=task, t_sent_ns=sent_ns, t_first_ns=sent_ns, t_last_ns=last_ns, chunks=30, tokens_out=30)
        state.end_stream(record)
        state.apply(RequestEntry(record=record))
    frame = state.frame(0, rows=False)
    assert frame.out_tps == pytest.approx(300.0) and frame.per_stream_tps == pytest.approx(1000.0)


def test_rate_is_unknown_before_a_quarter_of_the_window() -> None:
    state = SessionState(0)
    for t_s in (0.0, 0.1, 0.2):
        state.apply_frame(0, chunks(t_s, 10))
    assert state.frame(0, rows=False).out_tps is None
    state.apply_frame(0, chunks(0.3, 10))
    assert state.frame(0, rows=False).out_tps == pytest.approx(100.0)


def ramp(*steps: tuple[float, int, int, float]) -> SessionState:
    """The state after ticks of a steered run: time, C, finished requests at this C, tok/s."""
    state, c_now, done_now = SessionState(0), 0, 0
    for number, (at_s, c, done, tps) in enumerate(steps):
        if c != c_now:
            state.apply(stage(c, number, steered=True))
            c_now, done_now, started = c, 0, number
        for task in range(done_now, done):
            state.apply(RequestEntry(record=Record(task=task, c=c, stage=started)))
        done_now = done
        for tenth in range(11):
            row = StreamRow(0, "writing", 0, "", 1, round(tps / 10), 1000, None)
            t_ns = round((at_s + tenth / 10) * 1e9)
            state.apply_frame(0, WorkerFrame(t_ns, 1, 1, 0, 0, (row,), 0.0, 0, 0, 0))
        state.tick(round((at_s + 1) * 1e9))
    return state


def provisional(state: SessionState) -> list[tuple[int, int, int | None, float | None]]:
    return [(level.c, level.done, level.of, level.out_tps) for level in state.frame(0, rows=False).provisional]


def test_a_level_is_provisional_from_its_first_finished_request() -> None:
    state = ramp((1, 1, 0, 40), (2, 1, 1, 50), (3, 1, 2, 60), (4, 2, 0, 70), (5, 2, 3, 90), (6, 4, 0, 99))
    first, second = provisional(state)
    assert (first[:3], second[:3]) == ((1, 2, 4), (2, 3, 8))
    assert [first[3], second[3]] == pytest.approx([55.0, 80.0])


def test_a_measured_level_replaces_the_provisional_one() -> None:
    state = ramp((1, 1, 3, 50), (2, 2, 1, 90))
    state.levels = (level(1, tps=52.0),)
    assert [c for c, *_ in provisional(state)] == [2]


def test_a_shorter_stay_at_the_same_c_does_not_replace_a_longer_one() -> None:
    assert provisional(ramp((1, 1, 3, 50), (2, 2, 1, 90), (3, 1, 1, 10)))[0][:2] == (1, 3)


def test_nothing_is_zero_before_it_was_measured() -> None:
    frame = SessionState(0).frame(0, rows=False)
    unknown = (frame.lag_ms, frame.worker_cpu, frame.coalesced_chunks, frame.clock_steps, frame.out_tps, frame.ttft_s)
    assert unknown == (None,) * 6


def test_at_the_end_errors_and_levels_are_those_of_the_saved_session() -> None:
    state = ramp((1, 1, 3, 50), (2, 2, 1, 90))
    for stage_number, error in ((0, "refused"), (0, "refused"), (1, "closed_early")):
        state.apply(RequestEntry(record=Record(task=9, c=1, stage=stage_number, error=error)))
    assert state.frame(0, rows=False).errors == 3
    state.finish(summary([level(1, errors=2, error_counts={"refused": 2})]))
    shown = state.frame(0, rows=False)
    assert (shown.errors, shown.error_counts, shown.provisional) == (2, {"refused": 2}, ())


def test_a_level_counts_the_agents_that_began_until_it_measures() -> None:
    state = SessionState(0)
    state.apply(stage(4))
    assert state.frame(0, rows=False).begun == 0
    state.apply_frame(0, first_tokens(1.0, 0.2, 3))
    assert state.frame(0, rows=False).begun == 3
    state.apply_frame(0, first_tokens(1.2, 0.2, 4))
    assert state.frame(0, rows=False).begun is None
    state.apply(stage(8, 2, steered=True))
    assert state.frame(0, rows=False).begun is None


def test_the_requests_of_the_running_level_are_counted_by_condition_of_the_slo() -> None:
    state = SessionState(0)
    state.apply(CapacitySearch(t_ns=0, slo="ttft_p90=2s,stream_p10=20", alpha=0.2))
    state.apply(stage(2))
    slow = [4000, *(4010 + 10 * n for n in range(20))]
    for record in (request(0, [100, 110, 120]), request(0, slow), request(0, [100, 110], stage=7)):
        state.apply(RequestEntry(record=record))
    shown = state.frame(0, rows=False)
    assert shown.slo == "ttft_p90=2s,stream_p10=20"
    assert [(one.good, one.n) for one in shown.slo_kept] == [(1, 2), (2, 2)]
    state.apply(stage(4, 2))
    assert [one.n for one in state.frame(0, rows=False).slo_kept] == [0, 0]


def test_a_late_first_token_has_missed_the_slo_before_its_request_ends() -> None:
    state = SessionState(0)
    state.apply(CapacitySearch(t_ns=0, slo="ttft_p90=2s,stream_p10=20", alpha=0.2))
    state.apply(stage(2))

    def counts(t_s: float) -> list[tuple[int, int]]:
        return [(one.good, one.n) for one in state.frame(int(t_s * 1e9), rows=False).slo_kept]

    def show(t_s: float, *rows: StreamRow) -> None:
        state.apply_frame(0, WorkerFrame(int(t_s * 1e9), 4, 4, 0, 0, rows, 0.0, 0, 0, 0))

    late = StreamRow(0, "waiting", 3, "", 5, 0, 0, None, measured=True)
    # One that keeps C in flight is not measured, and the last one is of the level before.
    state.apply_frame(0, WorkerFrame(1, 3, 3, 3, 0, (late, StreamRow(1, "waiting", 4, "", 5, 0, 0, None)), 0, 0, 0, 0))
    show(0.0, StreamRow(2, "waiting", 5, "", -1, 0, 0, None, measured=True))
    assert counts(1.9) == [(0, 0), (0, 0)]
    assert counts(2.1) == [(0, 1), (0, 0)]
    show(3.0, StreamRow(0, "writing", 3, "", 5, 1, 1, 2.9, measured=True))
    assert counts(3.5) == [(0, 1), (0, 0)]
    # Its answer is checked before its record counts; then it counts once.
    show(4.0, StreamRow(0, "idle", -1, "", 0, 0, 0, None))
    assert counts(4.1) == [(0, 1), (0, 0)]
    record = msgspec.structs.replace(request(0, [2900, 2910, 2920], task=3), t_sent_ns=5)
    state.apply(RequestEntry(record=record))
    assert counts(4.2) == [(0, 1), (1, 1)]
    state.apply(stage(4, 2))
    assert counts(9.0) == [(0, 0), (0, 0)]


@pytest.mark.parametrize("ttft_s", [0.5, 2.9])
def test_a_request_counts_once_while_its_last_row_is_older_than_its_record(ttft_s: float) -> None:
    """A level had more first tokens than requests: each request that ended between two rows was counted twice."""
    state = SessionState(0)
    state.apply(CapacitySearch(t_ns=0, slo="ttft_p90=2s", alpha=0.2))
    state.apply(stage(2))
    rows = [StreamRow(agent, "writing", 3, "", 5, 1, 1, ttft_s, measured=True) for agent in (0, 1)]
    state.apply_frame(0, WorkerFrame(3_000_000_000, 2, 2, 0, 0, tuple(rows), 0.0, 0, 0, 0))
    first_ns = 5 + round(1e9 * ttft_s)
    record = msgspec.structs.replace(request(0, [1, 2], task=3), t_sent_ns=5, t_first_ns=first_ns, t_last_ns=first_ns)
    in_time, good = (2, 1) if ttft_s < 2.0 else (0, 0)
    for in_flight in (2, 1):
        shown = state.frame(3_000_000_000, rows=False)
        known = shown.first_tokens
        assert known is not None and (known.in_time, known.late) == (in_time, 2 - in_time)
        assert known.in_flight == (in_flight if in_time else 0)
        state.apply(RequestEntry(record=record))
    assert [(one.good, one.n) for one in shown.slo_kept] == [(good, 1 if in_time else 2)]


def test_a_late_first_output_stays_late_once_it_is_there() -> None:
    state = SessionState(0)
    state.apply(CapacitySearch(t_ns=0, slo="ttfo_p90=2s", alpha=0.2))
    state.apply(stage(1))
    for t_s, row in (
        (2.5, StreamRow(0, "thinking", 3, "", 5, 4, 4, 0.5, measured=True)),
        (3.0, StreamRow(0, "writing", 3, "", 5, 1, 5, 0.5, measured=True)),
    ):
        state.apply_frame(0, WorkerFrame(int(t_s * 1e9), 1, 1, 0, 0, (row,), 0.0, 0, 0, 0))
        assert [(one.good, one.n) for one in state.frame(int(t_s * 1e9), rows=False).slo_kept] == [(0, 1)]


def test_the_percentile_of_the_first_tokens_is_that_of_the_slo() -> None:
    state = SessionState(0)
    state.apply(CapacitySearch(t_ns=0, slo="ttft_p80=2s", alpha=0.2))
    state.apply(stage(10))
    rows = tuple(StreamRow(n, "writing", n, "", 5, 1, 1, (n + 1) / 10, measured=True) for n in range(10))
    state.apply_frame(0, WorkerFrame(int(3e9), 10, 10, 0, 0, rows, 0.0, 0, 0, 0))
    found = state.frame(int(3e9), rows=False).first_tokens
    assert found is not None and (found.in_time, found.percentile_s) == (10, 0.8)


def test_the_ttft_of_a_running_level_is_that_of_the_requests_that_its_search_counts() -> None:
    """Not of those before them, whose first tokens are the newest; one that is awaited and late counts, too."""
    state = SessionState(0)
    state.apply(CapacitySearch(t_ns=0, slo="ttft_p90=2s", alpha=0.2))
    state.apply(stage(2))

    def median(*records: Record) -> float | None:
        for record in records:
            state.apply(RequestEntry(record=record))
        state.tick(int(9e9))
        (shown,) = state.frame(int(9e9), rows=False).provisional
        return shown.ttft_s

    fast = StreamRow(0, "writing", 1, "", 5, 1, 1, 0.1)
    state.apply_frame(0, WorkerFrame(int(8e9), 4, 4, 0, 0, (fast,), 0.0, 0, 0, 0))
    assert median(*(request(0, [ttft, ttft + 10], task=ttft) for ttft in (1500, 1600, 2100, 2200))) == pytest.approx(
        1.85
    )
    late = StreamRow(1, "waiting", 2, "", 5, 0, 0, None, measured=True)
    state.apply_frame(0, WorkerFrame(int(8e9), 4, 4, 0, 0, (fast, late), 0.0, 0, 0, 0))
    state.frame(int(8e9), rows=False)
    assert median(request(0, [2300, 2310], task=9)) == pytest.approx(2.15)


def test_the_first_tokens_of_requests_in_flight_say_how_a_level_is_going() -> None:
    state = SessionState(0)
    state.apply(CapacitySearch(t_ns=0, slo="ttft_p90=2s,stream_p10=20", alpha=0.2))
    state.apply(stage(4))

    def known(t_s: float, *rows: StreamRow) -> tuple[int, int, float | None, float, bool] | None:
        state.apply_frame(0, WorkerFrame(int(t_s * 1e9), 4, 4, 0, 0, rows, 0.0, 0, 0, 0))
        found = state.frame(int(t_s * 1e9), rows=False).first_tokens
        if found is None:
            return None
        assert (found.limit_s, found.percentile) == (2.0, 90)
        return found.in_time, found.late, found.oldest_s, found.percentile_s, found.awaited

    def row(agent: int, sent_s: float, ttft_s: float | None) -> StreamRow:
        return StreamRow(
            agent, "writing" if ttft_s else "waiting", agent, "", int(sent_s * 1e9), 0, 0, ttft_s, measured=True
        )

    assert known(0.5, StreamRow(0, "waiting", 9, "", 1, 0, 0, None)) is None
    assert known(1.5, row(0, 1.0, None), row(1, 1.25, None)) == (0, 0, 0.5, 0.5, True)
    # A wait that may still end in time is not in the percentile once another request has its first token.
    assert known(2.0, row(0, 1.0, 0.75)) == (1, 0, 0.75, 0.75, False)
    assert known(3.5, row(0, 1.0, 0.75)) == (1, 1, 2.25, 2.25, True)
    assert known(4.0, row(1, 1.25, 2.5)) == (1, 1, None, 2.5, False)
    state.apply(stage(8, 2))
    assert known(5.0, *(StreamRow(agent, "idle", -1, "", 0, 0, 0, None) for agent in (0, 1))) is None


def test_a_search_that_another_goal_ended_is_not_shown() -> None:
    state = SessionState(0)
    state.apply(SearchEntry(t_ns=0, search=SearchState(goal="capacity", next_c=2, step="climb")))
    state.apply(stage(2))
    assert state.frame(0, rows=False).search is not None
    state.apply(stage(3, 2, steered=True))
    assert state.frame(0, rows=False).search is None


def test_the_next_level_of_a_search_is_shown_without_the_figures_of_the_one_before() -> None:
    """Its stage starts when the server has ended the requests that were cancelled, which may take a second."""
    state = SessionState(0)
    state.apply(CapacitySearch(t_ns=0, slo="ttft_p90=2s", alpha=0.1))
    state.apply(SearchEntry(t_ns=0, search=SearchState(goal="capacity", next_c=4, step="climb")))
    state.apply(stage(4, of=8))
    for at in range(8):
        state.apply_frame(0, first_tokens(1 + at / 4, 0.1, 4))
    state.apply(RequestEntry(record=request(0, [100], stage=1)))
    state.tick(int(3e9))
    before = state.frame(int(3e9), rows=False)
    assert (before.c, before.done, before.begun) == (4, 1, None)
    assert before.out_tps and before.ttft_s and before.slo_kept[0].n
    known = SearchedLevel(c=2, visits=1, n=9, good=9, state="kept")
    search = SearchState(goal="capacity", next_c=2, step="decide", levels=(known,))
    state.apply(SearchEntry(t_ns=int(3e9), search=search))
    # An answer that was cancelled is reported late.
    state.apply(RequestEntry(record=request(0, [100], stage=1)))
    for at in range(4):
        state.apply_frame(0, WorkerFrame(int((3 + at / 4) * 1e9), 0, 0, 0, 0, (), 0.0, 0, 0, 0))
    state.tick(int(4e9))
    shown = state.frame(int(4e9), rows=False)
    assert (shown.c, shown.run, shown.done, shown.of, shown.begun) == (2, 2, 0, None, 0)
    assert (shown.out_tps, shown.per_stream_tps, shown.ttft_s, shown.first_tokens) == (None, None, None, None)
    assert shown.slo_kept[0].n == 0 and state.history[-1].c == 2


@pytest.mark.parametrize(("busy_c", "is_disturbed"), [(2, False), (8, True)])
def test_a_busy_host_disturbs_levels_that_are_not_kept(busy_c: int, is_disturbed: bool) -> None:
    """What was kept was kept in spite of it."""
    state = SessionState(0)
    busy = HostUse(pressure=0.9, waited=0.9, others=0.5)
    state.levels = tuple(msgspec.structs.replace(level(c), host=busy if c == busy_c else None) for c in (2, 8))
    kept = SearchedLevel(c=2, visits=1, n=16, good=16, state="kept")
    missed = SearchedLevel(c=8, visits=1, n=6, good=0, state="missed")
    search = SearchState(goal="capacity", next_c=4, step="bisect", levels=(kept, missed))
    state.apply(SearchEntry(t_ns=0, search=search))
    assert not state.is_disturbed(0), "it is too early to tell"
    state.apply(RequestEntry(record=request(0, [100, 6000])))
    assert state.is_disturbed(int(6e9)) == is_disturbed


def test_a_sweep_that_the_user_starts_takes_the_place_of_a_search_until_another_goal_ends_it() -> None:
    state = SessionState(0)
    state.apply(SearchEntry(t_ns=0, search=SearchState(goal="capacity", next_c=1, step="climb")))
    state.apply(SweepEntry(t_ns=0, levels=(1, 2, 4)))
    state.apply(stage(2))
    shown = state.frame(0, rows=False)
    assert shown.search is None and shown.planned == (1, 2, 4)
    state.apply(stage(3, 9, steered=True))
    assert state.frame(0, rows=False).planned == ()


def test_at_the_end_a_search_has_the_verdicts_of_the_summary() -> None:
    """Requests that were cancelled at the end of a visit are counted after it."""
    state = SessionState(0)
    state.apply(SearchEntry(t_ns=0, search=SearchState(goal="capacity")))
    level_2 = SearchedLevel(c=2, visits=1, n=7, good=5, state="missed")
    judged = SearchState(goal="capacity", levels=(level_2,))
    state.finish(msgspec.structs.replace(summary([]), search=judged))
    assert state.frame(0, rows=False).search == judged


def test_requests_are_counted_as_those_of_the_levels() -> None:
    state = at_c(2)
    phases: tuple[tuple[Phase, str | None], ...] = (
        ("warmup", None), ("preroll", None), ("level", None), ("level", "http_500"), ("filler", None),
        ("unfinished", CANCELLED),
    )  # fmt: skip
    for phase, error in phases:
        state.apply(RequestEntry(record=request(0, [100], error=error, phase=phase)))
    shown = state.frame(0, rows=False)
    assert (shown.finished, shown.measured) == (6, 2)


def test_errors_of_the_warm_up_are_not_those_of_the_levels() -> None:
    state = SessionState(0)
    state.apply(StageStart(number=1, t_ns=0, c=1, run=0, phase="warmup"))
    state.apply(RequestEntry(record=request(0, [], error="http_500", phase="warmup")))
    assert state.frame(0, rows=False).errors == 1
    state.apply(stage(1, 2))
    assert state.frame(0, rows=False).errors == 0


def test_a_restart_of_the_server_is_said_at_once_and_for_a_while() -> None:
    state = at_c(4)
    state.apply(Event(t_ns=1_000_000_000, name="server_back", detail="after 3 s; C=4 starts again"))
    state.apply(stage(4, 2))
    assert state.frame(2_000_000_000, rows=False).note == "the server is back after 3 s; C=4 starts again"
    assert state.frame(60_000_000_000, rows=False).note == ""


def test_chunks_from_a_buffer_tell_no_rate_of_a_stream() -> None:
    state = at_c(1)
    row = StreamRow(0, "writing", 0, "", 1, 60, 60, 0.1, 0.001)
    state.apply_frame(0, WorkerFrame(1_000_000_000, 1, 1, 0, 0, (row,), 0.0, 0, 0, 0))
    state.tick(1_000_000_000)
    state.tick(3_000_000_000)
    shown = state.frame(3_000_000_000, rows=True)
    assert shown.per_stream_tps is None and [rate.rate for rate in shown.rates] == [None]
