"""The views of the live screens: texts made from frames."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.experiments.groups import ListRow, SessionGroup
from swarmtui.model.client_protocol import Ended, Frame, Status, StreamRate
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.session import Session, Spread, TaskFigures
from swarmtui.model.telemetry import DiscoveredServer, HistoryPoint, QualityLine, ServerState, Telemetry
from swarmtui.model.tuning import LoggedChange
from swarmtui.model.worker_protocol import StreamRow
from swarmtui.numbers import local_time, percent, rate, signed_percent
from swarmtui.report.session_list import IN_APP, common_values, session_table
from swarmtui.report.text import paint
from swarmtui.report.tuning import log_table
from swarmtui.sessions.edit import set_description
from swarmtui.sessions.index import SessionRow
from swarmtui.sessions.store import earlier_sessions, load_session, write_summary
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.baseline import Baseline, changed_flags, find_baseline
from swarmtui.tui.lines import cell_width, scale_top
from swarmtui.tui.live.header import HeaderPanel, header_view, phase, status_line
from swarmtui.tui.live.history import HistoryTrace, history_view, recent_columns, trace_lines
from swarmtui.tui.live.levels import levels_view
from swarmtui.tui.live.machine import MachinePanel, MachineView
from swarmtui.tui.live.now import now_view
from swarmtui.tui.live.screen import LiveScreen
from swarmtui.tui.live.stream_screen import answer_lines, earlier_lines, fact_lines
from swarmtui.tui.live.streams import primary_type, streams_view
from swarmtui.tui.tables import block_lines
from tests.analysis.level_builders import level
from tests.tui.frame_builders import RecordingSource, cells, frame, hello, live_data, model_of
from tests.tui.screen_text import screen_text, text_of

RECORDED = Path(__file__).parent / "recorded"


def manual(**changes: object) -> tuple[Session, Frame]:
    """A manually controlled run, whose stage has no end."""
    session = msgspec.structs.replace(hello().session, plan=Plan(goal="manual", load=Closed(levels=(1,))))
    return session, msgspec.structs.replace(frame(2), of=None, steered=True, warnings=(), note="", **changes)


def figures(seen: Frame, session: Session | None = None) -> dict[str, tuple[str, str]]:
    """The four numbers by unit, each with its note."""
    view = now_view(live_data(model_of(seen, session)), 20)
    return {figure.units[0]: (figure.value, figure.note) for figure in view.figures}


def test_zero_is_0_and_unknown_is_a_dash() -> None:
    assert [rate(0.0), rate(None), rate(8.424), rate(0.64)] == ["0", "–", "8.42", "0.64"]


def test_progress_of_a_steered_stage_counts_up_to_a_level() -> None:
    assert header_view(*manual(done=3), None, None).progress == "3 done of 8 for a level"
    assert header_view(*manual(done=9), None, None).progress == "9 done, enough for a level"


def test_prefill_is_shown_as_waiting_while_the_server_has_a_queue() -> None:
    rows = (StreamRow(0, "prefill", 1, "", 1, 0, 0, None), StreamRow(1, "writing", 2, "", 1, 4, 9, 0.1))
    for waiting, state in ((1.0, "waiting"), (0.0, "prefill"), (None, "prefill")):
        server = ServerState(engine="vLLM", url="", waiting=waiting)
        _, seen = manual(rows=rows, telemetry=Telemetry(t_ns=1, servers=(server,)))
        lines = streams_view(seen, {}, "agent", "", 0, 9).shown
        assert [line.state for line in lines] == [state, "writing"]
        assert len(streams_view(seen, {}, "agent", state, 0, 9).shown) == 1


def test_stream_screen_shows_timestamps_gaps_and_earlier_answers() -> None:
    seen = frame(2, text="one two")
    text = text_of(fact_lines(0, seen.watched, seen, 40.0, 100))
    for part in (
        "agent 0  writing  task 7",
        "sent +0.080 ms",
        "headers +3.00 ms",
        "first token +120 ms",
        "last token +5.00 s",
    ):
        assert part in text
    assert "TTFT    120 ms" in text and "between 100 chunks: p50 49.0 ms · p99 – (needs 299) · max 310 ms" in text
    assert "max 310 ms" in text and "40.0 tok/s now" in text
    assert text_of(answer_lines(seen.watched, True, 60)) == " ┊ one two\n one two"
    assert text_of(earlier_lines(seen.watched, 100)).startswith(" ✔ pass in reasoning  task 0 implement, 90 tokens")
    assert "no text yet" in text_of(answer_lines(None, True, 60))
    assert "--keep-text" in text_of(answer_lines(None, False, 60))


def test_a_request_without_a_token_shows_how_long_it_has_waited() -> None:
    seen = frame(2)
    assert seen.watched is not None
    waiting = msgspec.structs.replace(seen.watched, t_first_ns=None, t_last_ns=None, gaps_s=Spread(n=0), chunks=0)
    text = text_of(fact_lines(0, waiting, seen, None, 100))
    assert "waiting for 5.00 s" in text and "TTFT    –" in text and "they need two chunks" in text
    queued = Telemetry(t_ns=seen.t_ns, servers=(ServerState(engine="vllm", waiting=2.0),))
    prefill = tuple(msgspec.structs.replace(row, state="prefill") for row in seen.rows)
    text = text_of(fact_lines(0, waiting, msgspec.structs.replace(seen, telemetry=queued, rows=prefill), 40.0, 100))
    assert "agent 0  waiting" in text, "as in the list of streams"
    assert "tok/s now" not in text, "that is the rate of the answer before"


def test_a_mixed_load_shows_its_primary_task_separately() -> None:
    session = msgspec.structs.replace(hello().session, workload_spec={"primary": {"type": ""}})
    rows = (StreamRow(0, "writing", 1, "primary", 1, 4, 9, 0.1), StreamRow(1, "writing", 2, "tests", 1, 4, 9, 0.1))
    seen = msgspec.structs.replace(frame(2), rows=rows, load="mixed")
    stream_rates = {0: StreamRate(0, 30.0, ()), 1: StreamRate(1, 20.0, ())}
    rated = msgspec.structs.replace(seen, rates=tuple(stream_rates.values()))
    assert figures(rated, session)["per agent while it writes"] == ("30.0", "side 20.0")
    shown = streams_view(seen, stream_rates, "agent", "", 0, 9, primary_type(session)).shown
    assert [line.primary for line in shown] == [True, False]


def test_figures_of_levels_are_those_of_reports() -> None:
    """The rate of side tasks is tokens / time, the send delay a p99; without a steady rate the headline is wall."""
    task = TaskFigures(c=2, type="main", turn=0, n=1, ok=1, ttft_s=Spread(n=1), per_stream_tps=30.0, e2e_s=1.0,
                       tokens_out=100.0, verdicts={})  # fmt: skip
    sides = [msgspec.structs.replace(task, type=name, per_stream_tps=tps, tokens_out=n)
             for name, tps, n in (("a", 400.0, 4.0), ("b", 20.0, 396.0))]  # fmt: skip
    view = levels_view([level(2, tps=50.0, load="mixed")], tasks=[task, *sides])
    assert cells(view.table)["side"] == rate(400 / (4 / 400 + 396 / 20))
    late = level(512, tps=50.0, load="open", rate=2.0, send_delay_s=Spread(n=400, p99=0.002, max=0.5))
    view = levels_view([late])
    assert cells(view.table)["send_delay"] == "2.00 ms"
    unsteady = level(2, tps=50.0, out_tps_steady=None)
    shown = figures(msgspec.structs.replace(frame(2), levels=(unsteady,), c=2))
    assert shown["tok/s now"] == ("80.0", "wall 50.0")


def test_an_open_loop_shows_its_rate_and_only_busy_streams() -> None:
    rows = (StreamRow(0, "writing", 1, "", 1, 4, 9, 0.1), StreamRow(1, "idle", -1, "", 0, 0, 0, None))
    seen = msgspec.structs.replace(frame(2), rows=rows, load="open", rate=2.5, send_delay_s=0.0012, c=512)
    assert now_view(live_data(model_of(seen)), 20).title == "now · 2.5 requests/s"
    assert header_view(None, seen, None, None).detail[0] == "sent 1.20 ms late at most"
    assert phase(seen).startswith("2.5 requests/s")
    assert [line.agent for line in streams_view(seen, {}, "agent", "", 0, 9).shown] == [0]


@pytest.mark.parametrize(("status", "left"), [("running", ", 1:00 left"), ("stopping", ""), ("saving", "")])
def test_a_run_that_stops_has_no_time_left_of_its_plan(status: Status, left: str) -> None:
    seen = msgspec.structs.replace(frame(2), status=status)
    assert header_view(None, seen, None, None).clock[0] == f"0:10 elapsed{left}"


def test_newest_value_is_on_the_axis_of_its_trace() -> None:
    """The columns are means of a second, below the newest value."""
    point = HistoryPoint(t_ns=0, c=1, in_flight=1, waiting=0, out_tps=100.0, ttft_s=0.1, errors=0)
    newest = msgspec.structs.replace(point, t_ns=500_000_000, out_tps=900.0)
    after = history_view([point, newest], 0, 40, whole_session=True, ended=True).traces[0]
    assert (after.now, after.top) == ("", 1000.0), "no value of a moment after the end"
    trace = history_view([point, newest], 0, 40, whole_session=False).traces[0]
    assert trace.top is not None and trace.top >= 900.0


def test_numbers_and_history_show_the_same_present_values() -> None:
    """The last point of the history may be a quarter of a second older than the frame."""
    seen = frame(2)
    point = HistoryPoint(t_ns=seen.t_ns, c=2, in_flight=1, waiting=1, out_tps=900.0, ttft_s=0.5, errors=0)
    shown = {trace.label: trace.now for trace in history_view([point], 0, 40, False, now=seen.point).traces}
    values = {unit: value for unit, (value, _) in figures(seen).items()}
    assert (shown["output tok/s"], shown["TTFT"], shown["waiting"]) == (
        values["tok/s now"],
        values["first token (10 s), median"],
        values["waiting"],
    )


def test_after_the_end_the_numbers_are_those_of_the_best_level() -> None:
    levels = tuple(level(c, tps=tps, queued=0.0) for c, tps in ((1, 50.0), (2, 90.0), (4, 70.0)))
    live = model_of(msgspec.structs.replace(frame(4), status="ended", levels=levels))
    view = now_view(live_data(live, has_ended=True), 20)
    assert view.title == "at 2 agents" and view.figures[0].value == "90.0"
    assert [figure.units[-1] for figure in view.figures] == ["tok/s", "per agent", "TTFT", "queued"]
    assert view.bars[0] == "a bar for each level, 1 to 4 agents"
    # A queue that no server reported at this level has no figure.
    unknown = tuple(msgspec.structs.replace(one, queued=None if one.c == 2 else 3.0) for one in levels)
    live = model_of(msgspec.structs.replace(frame(4), status="ended", levels=unknown))
    view = now_view(live_data(live, has_ended=True), 20)
    assert [figure.units[-1] for figure in view.figures] == ["tok/s", "per agent", "TTFT"]


def test_one_level_has_one_figure_with_the_same_digits_everywhere() -> None:
    rough = level(2, tps=265.4, stream=133.7, out_tps_steady_hw=132.7)
    live = model_of(msgspec.structs.replace(frame(2), status="ended", levels=(level(1, tps=150.0), rough)))
    figures = now_view(live_data(live, has_ended=True), 20).figures
    shown = cells(levels_view([rough]).table)
    assert (figures[0].value, figures[0].note, figures[1].value) == ("265", "± 50 %", "134")
    assert (shown["steady"], shown["half_width"], shown["stream"]) == ("265", "50 %", "134")
    assert figures[2].note == ""


def test_agents_that_wait_are_told_apart_from_requests_in_the_queue_of_the_server() -> None:
    queue = Telemetry(t_ns=1, servers=(ServerState(engine="vllm", waiting=5.0),))
    assert figures(msgspec.structs.replace(frame(8), waiting=7, telemetry=queue))["waiting"] == (
        "7",
        "queue of the server 5",
    )


def test_an_agent_without_a_first_token_does_not_show_its_last_answer() -> None:
    seen = frame(2, text="an answer")
    waiting = msgspec.structs.replace(seen.rows[1], state="waiting", total=0, ttft_s=None)
    shown = streams_view(msgspec.structs.replace(seen, rows=(seen.rows[0], waiting)), {}, "agent", "", 0, 9).shown
    assert [line.tail is not None for line in shown] == [True, False]


@given(seconds=st.integers(1, 300), columns=st.integers(4, 80), whole=st.booleans())
def test_a_sparkline_fills_its_whole_width_from_the_first_second(seconds: int, columns: int, whole: bool) -> None:
    point = HistoryPoint(t_ns=0, c=1, in_flight=1, waiting=0, out_tps=100.0, ttft_s=0.1, errors=0)
    points = [msgspec.structs.replace(point, t_ns=7_000_000_000 + n * 250_000_000) for n in range(seconds * 4)]
    buckets = recent_columns(points, 0, columns, whole).buckets
    assert len(buckets) == columns and all(buckets)
    newest = [known.t_ns for bucket in buckets for known in bucket]
    assert max(newest) == points[-1].t_ns
    length_s = seconds if whole else min(seconds, max(60, columns))
    assert points[-1].t_ns - min(newest) <= (length_s + max(1.0, length_s / columns)) * 1e9


@given(quarters=st.integers(2, 1200), columns=st.integers(4, 60))
def test_bars_of_the_numbers_say_which_time_they_fill_from_the_first_second(quarters: int, columns: int) -> None:
    live = model_of(frame(2))
    start_ns = live.session.t0_ns if live.session else 0
    live.points[:] = [
        HistoryPoint(t_ns=start_ns + n * 250_000_000, c=1, in_flight=1, waiting=0, out_tps=1.0, ttft_s=0.1, errors=0)
        for n in range(quarters)
    ]
    view = now_view(live_data(live), columns)
    assert None not in view.figures[0].values and len(view.figures[0].values) == columns
    assert view.bars[-1] == ("bars: last minute" if quarters > 59 * 4 + 1 else "bars: so far")


@pytest.mark.parametrize(
    ("now", "top", "shown"),
    [("48.7 ms", "120 ms", " 48.7/120 ms"), ("319 ms", "1.00 s", " 319 ms/1.00 s"), ("48.7 ms", "1.00 s", " 48.7 ms")],
)
def test_a_blank_separates_the_label_of_a_low_trace_from_its_bars(now: str, top: str, shown: str) -> None:
    label, _ = trace_lines(HistoryTrace("TTFT", now, 1.0, top, (1.0,)), 2, "")[1]
    assert label[0] == shown.ljust(15) and label[0].endswith(" ")


def test_columns_of_the_history_change_once_a_second() -> None:
    """Otherwise the panel is painted as a whole with every point, at 10 KB per second."""
    point = HistoryPoint(t_ns=0, c=1, in_flight=1, waiting=0, out_tps=100.0, ttft_s=0.1, errors=0)
    points = [msgspec.structs.replace(point, t_ns=n * 250_000_000, out_tps=100.0 + n) for n in range(800)]
    for whole in (True, False):
        kept = 0
        for end in range(200, 300):
            before, after = (history_view(points[:last], 0, 100, whole).traces[0].values for last in (end, end + 1))
            kept += before[:-2] == after[:-2]
        assert kept >= 70
    ended = history_view(points[:246], 0, 100, whole_session=True, ended=True)
    assert len(ended.traces[0].values) == 100 and None not in ended.traces[0].values
    stopped = history_view(points[:80] + points[160:246], 0, 62, whole_session=True, ended=True).traces[0].values
    assert [column for column, value in enumerate(stopped) if value is None] == list(range(21, 40))


@given(st.floats(1e-6, 1e9))
def test_scales_end_at_a_round_number_just_above_the_data(value: float) -> None:
    top = scale_top(value)
    assert value * (1 - 1e-9) <= top <= 1.34 * value


def test_notes_leave_the_quality_ok() -> None:
    seen = msgspec.structs.replace(
        frame(2), quality=(QualityLine(code="x", name="x", state="note", value="", sentence=""),)
    )
    assert header_view(None, seen, None, None).quality == ("● quality ok",)


def test_quality_is_not_ok_before_it_is_judged() -> None:
    """A doubt counts at once; before there is a line, and while one may still become a doubt, it is not judged."""
    ok = QualityLine(code="clock", name="clock", state="ok", value="", sentence="")
    steal = QualityLine(code="host_steal", name="steal", state="note", value="40 %", sentence="", early=True)
    for lines in ((), (ok, steal)):
        assert header_view(*manual(quality=lines), None, None).quality == (
            "· quality not judged yet", "· not judged yet", "· not judged",
        )  # fmt: skip
    doubt = msgspec.structs.replace(ok, state="doubtful")
    assert header_view(*manual(quality=(steal, doubt)), None, None).quality[-1] == "? not sure"
    for width in (80, 120):
        panel = HeaderPanel()
        panel.view = header_view(*manual(quality=(ok, steal)), None, None)
        assert "not judged" in text_of(panel.draw(width, 3)[:1])


def test_quality_is_that_of_the_worst_line() -> None:
    lines = (
        QualityLine(code="clock", name="clock", state="ok", value="", sentence=""),
        QualityLine(code="lag", name="lag", state="doubtful", value="", sentence=""),
        QualityLine(code="reads", name="reads", state="wrong", value="", sentence=""),
    )
    assert header_view(*manual(quality=lines), None, None).quality[0] == "✖ wrong: reads and 1 more"


def test_a_doubt_is_said_in_words_and_does_not_hide_what_is_measured() -> None:
    doubts = (("host_pressure", "host CPU"), ("coalesced_chunks", "coalesced chunks"))
    lines = tuple(QualityLine(code=code, name=n, state="doubtful", value="", sentence="") for code, n in doubts)
    view = header_view(*manual(quality=lines), None, None)
    said = "the host was busy and 1 more"
    assert view.quality == (f"? quality not sure: {said}", f"? {said}", "? quality not sure", "? not sure")
    for width in (80, 200):
        panel = HeaderPanel()
        panel.view = view
        line = text_of(panel.draw(width, 3)).splitlines()[0]
        assert view.title[-1] in line and "127.0.0.1:8000" in line and "? " in line
    assert "the host was busy and 1 more" in line


def test_the_header_names_what_failed_as_the_result_does() -> None:
    counts = {"refused": 3, "idle_timeout": 12}
    view = header_view(*manual(errors=15, error_counts=counts), None, None)
    assert view.errors == ("✖ 15 failed: 12 idle_timeout, 3 refused", "✖ 15 failed: 12 idle_timeout …", "✖ 15 failed")
    wide, narrow = ("".join(text for text, _ in status_line(view, width)) for width in (120, 60))
    assert "12 idle_timeout, 3 refused" in wide and "✖ 15 failed" in narrow and len(narrow) <= 60
    one = header_view(*manual(errors=2, error_counts={"reset": 2}), None, None)
    assert one.errors == ("✖ 2 failed: 2 reset", "✖ 2 failed")
    assert header_view(*manual(errors=0, error_counts={}), None, None).errors == ()


def test_the_header_says_what_a_new_goal_waits_for() -> None:
    draining = header_view(*manual(status="draining", in_flight=2), None, None)
    assert draining.phase == "2 requests in flight: the answers are awaited"


def test_the_header_says_what_changed_and_after_the_end_how_it_ended_and_where_it_is_saved() -> None:
    view = header_view(*manual(), Ended("stopped", "", "/saved"), None, "flags changed")
    assert (view.phase, view.notice, view.detail[0]) == ("stopped", (), "saved: /saved")
    measuring = header_view(*manual(measured=3), None, None, "flags changed").detail
    assert measuring[0] == "3 requests measured · flags changed" and measuring[-1] == "3 requests measured"


def test_changed_flags_since_the_last_session_are_reported(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    old, new = sorted(directory.name for directory in root.iterdir())
    write_summary(root / old)
    journal = load_session(root, new).journal
    session = journal.head.session
    before = find_baseline(root, session)
    assert before.levels and not before.server_name  # another port may be another server
    chosen = find_baseline(root, msgspec.structs.replace(session, previous=old))
    assert chosen.levels == before.levels
    assert "--slots 2 → 4" in changed_flags(chosen, journal.servers)
    assert chosen.name == "two slots each"


def test_a_baseline_without_a_label_is_named_by_the_flags_that_differ(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    old, new = sorted(directory.name for directory in root.iterdir())
    set_description(root / old, "", "")
    journal = load_session(root, new).journal
    session = msgspec.structs.replace(journal.head.session, previous=old)
    assert find_baseline(root, session, journal.servers).name == "--max-num-seqs 2"
    repeated = msgspec.structs.replace(session, server_flags="--max-num-seqs 2")
    assert find_baseline(root, repeated, journal.servers).name.startswith("the run of 11-15 ")


def test_verdict_during_a_run_uses_the_earlier_sessions_that_the_one_after_it_uses(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    old, between = sorted(directory.name for directory in root.iterdir())
    for name in (old, between):
        write_summary(root / name)
    before = load_session(root, old).journal.head.session
    now = msgspec.structs.replace(load_session(root, between).journal.head.session, id="29990101", previous=old)
    live = [summary.session.id for summary in find_baseline(root, now).history]
    assert live == [summary.session.id for summary in earlier_sessions(root, (before, now))]
    assert between in live


def test_same_or_unknown_flags_are_not_reported() -> None:
    server = DiscoveredServer(url="http://127.0.0.1:8000", flags={"slots": "2"})
    before = Baseline(server=server, server_name="last")
    assert changed_flags(before, (server,)) == ""
    assert changed_flags(before, ()) == ""
    assert changed_flags(before, (msgspec.structs.replace(server, flags=None),)) == ""


def test_a_run_that_ended_before_its_start_shows_why() -> None:
    ended = Ended("interrupted", "the session process failed (see errors.log)", "")
    view = header_view(None, None, ended, None)
    assert view.phase == "ended" and view.notice_style == "bad"
    assert view.notice == ("interrupted: the session process failed (see errors.log)",)


def test_shorter_titles_keep_model_and_workload() -> None:
    session = hello(model="qwen", label="mine").session
    assert header_view(session, None, None, None).title == (
        "mine · 127.0.0.1:8000 · vLLM · qwen · coding",
        "mine · 127.0.0.1:8000 · qwen · coding",
        "mine · qwen · coding",
    )


def test_changes_have_a_minus_sign_and_no_decimals_from_1000_percent() -> None:
    assert [signed_percent(0.256), signed_percent(-0.041), signed_percent(-0.12, 0), signed_percent(19.097)] == [
        "+26 %",
        "−4.1 %",
        "−12 %",
        "+1,910 %",
    ]
    assert percent(-0.123) == "−12 %"


def test_session_columns_are_those_that_differ() -> None:
    row = ListRow(SessionRow(id="x", label="l" * 60, model="m" * 60, workload="w" * 60, state="done", simulated=True))
    other = ListRow(SessionRow(id="y", model="n", workload="v", state="failed"))
    for width in (80, 120, 200):
        _, first, _ = block_lines([session_table([row, other], {"x": "--flag 1"}, IN_APP, "%H:%M")], width)
        line = text_of([first])
        assert len(line) <= width and line.rstrip().endswith("done")
        assert all(f"{char}… " in line for char in "mw") and "l…" in line and "--flag 1 " in line
    common = common_values([row])
    assert common == {"model": f"(sim) {'m' * 60}", "workload": "w" * 60, "state": ""}
    assert common_values([row, other]) == {}
    shown = [name for name in IN_APP if name not in common]
    same = text_of(block_lines([session_table([row], {"x": "--flag 1"}, shown, "%H:%M")], 200))
    assert "mm" not in same and "ww" not in same and "done" not in same
    assert f"{'l' * 60} · --flag 1" in same


def test_times_of_sessions_are_never_cut() -> None:
    row = SessionRow(id="x", label="l" * 60, model="m" * 60, workload="w" * 60, created="2026-11-15T20:30:12Z")
    group = SessionGroup(id="tune:t", kind="tune", name="n" * 60, sessions=(row,), result="r" * 60)
    table = session_table([ListRow(group, opened=True), ListRow(row, "tune:t")], {}, IN_APP)
    time = local_time(row.created)
    lines = text_of(block_lines([table], 120))
    assert f" {time} " in f" {lines}" and f"└ {time} " in lines


def test_a_long_result_of_an_experiment_leaves_room_for_labels_and_states() -> None:
    row = SessionRow(id="x", label="--parallel 4 --ctx-size 16384", state="stopped", created="2026-11-15T20:30:12Z")
    result = "so far 1,670 tok/s at C=8 with --slots 8"
    group = SessionGroup(id="tune:t", kind="tune", name="t", sessions=(row,), result=result)
    table = session_table([ListRow(group), ListRow(row)], {}, ("time", "name", "answer", "state"), "%m-%d %H:%M")
    _, first, second = map(text_of, ([line] for line in block_lines([table], 75)))
    assert "so far 1,670 tok/s at C…" in first and "--parallel …x-size 16384 " in second
    assert all(line.rstrip().endswith("stopped") for line in (first, second))


def test_times_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-5")
    time.tzset()
    try:
        assert local_time("2026-11-15T20:30:12Z") == "2026-11-16 01:30"
        assert local_time(1_794_774_612.0, "%H:%M") == "01:30"
        assert local_time("never") == ""
        change = LoggedChange(
            number=1, created="2026-11-15T20:30:12Z", before="", after="", what="", effect="", verdict=None
        )
        assert "2026-11-16 01:30" in paint([log_table([change])])
        assert "2026-11-16 01:30" in text_of(block_lines([log_table([change])], 120))
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_the_machine_shows_one_gpu_in_detail_and_many_in_a_line_each() -> None:
    seen = frame(4)
    assert seen.telemetry is not None
    (gpu,) = seen.telemetry.gpus
    source = RecordingSource(model_of(seen))
    app = SwarmApp(source=source)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        shown = screen_text(app)
        assert "[3] GPU 0 · implement" in shown and "8.0/24.0 GiB" in shown and "200/350 W" in shown
        gpus = tuple(msgspec.structs.replace(gpu, uuid=str(n), index=n) for n in range(8))
        telemetry = msgspec.structs.replace(seen.telemetry, gpus=gpus)
        source.live.apply(msgspec.structs.replace(seen, telemetry=telemetry))
        assert isinstance(app.screen, LiveScreen)
        app.screen.update_panels()
        await pilot.pause()
        shown = screen_text(app)
        assert "[3] 8 GPUs" in shown and "↑↓ 1–" in shown and "SIMULATED" not in shown
        await pilot.press("3", "3")
        await pilot.pause()
        assert screen_text(app).count("8.0/24.0 GiB") == 8


@pytest.mark.parametrize("width", [30, 38, 46, 54, 62, 90])
def test_lines_of_the_machine_are_whole_where_they_have_room_and_else_end_with_an_ellipsis(width: int) -> None:
    seen = frame(4)
    assert seen.telemetry is not None
    (gpu,) = seen.telemetry.gpus
    gpu = msgspec.structs.replace(gpu, unified_memory=True, throttle=("power cap", "thermal"))
    server = ServerState(engine="vLLM", running=4.0, waiting=12.0, preemptions=3.0, cache_queries=9.0, cache_hits=1.0)
    telemetry = msgspec.structs.replace(seen.telemetry, gpus=(gpu,), servers=(server,))
    panel = MachinePanel()
    panel.view = MachineView(
        telemetry=telemetry,
        power={},
        server=None,
        slots=None,
        joules=1.5,
        client="client: CPU 12 % of a core, lag 0.1 ms",
        kv_room=("room for 12 contexts of 8k tokens in the KV cache, by the slots",),
        is_replay=False,
    )
    high, lines = (
        ["".join(text for text, _ in line).rstrip() for line in panel.draw(width, height)[1:]] for height in (40, 7)
    )
    assert all(cell_width(line) <= width for line in (*high, *lines))
    said = " ".join(line.strip() for line in high)
    assert "server: 4 running · 12 waiting · 3 preempted · 11.1 % cache hits" in said
    assert panel.view.kv_room[0] in said
    whole = {
        "throttled:": "power cap, thermal",
        "room for": "by the slots",
        "client:": "0.1 ms",
    }
    for name, ending in whole.items():
        (line,) = [line for line in lines if name in line]
        assert "…" in line or line.endswith(ending)
        assert width < 90 or line.endswith(ending)
    # The queue is what matters: the rest is left out without a sign, which would look like a part of it.
    (said,) = [line for line in lines if "4 running · 12 waiting" in line]
    assert "…" not in said and (width < 90 or said.endswith("% cache hits"))


@pytest.mark.parametrize(
    ("used", "utilisation", "said"),
    [
        (500 << 20, 0.0, "not used: nothing is loaded on it"),
        (500 << 20, 0.3, "busy 30 %"),
        (20 << 30, 0.0, "busy 0 %"),
        (None, 0.0, "busy 0 %"),
    ],
)
def test_a_gpu_without_a_process_is_said_to_be_not_used(used: int | None, utilisation: float, said: str) -> None:
    """A server that runs on the CPUs of a host with GPUs is not measured by them."""
    seen = frame(4)
    assert seen.telemetry is not None
    (gpu,) = seen.telemetry.gpus
    gpu = msgspec.structs.replace(gpu, memory_used=used, memory_total=140 << 30, utilisation=utilisation)
    panel = MachinePanel()
    panel.view = MachineView(
        telemetry=msgspec.structs.replace(seen.telemetry, gpus=(gpu,), servers=()),
        power={}, server=None, slots=None, joules=None, client="", kv_room=(), is_replay=False,
    )  # fmt: skip
    assert any("".join(text for text, _ in line).startswith(f" {said}") for line in panel.draw(60, 40))
