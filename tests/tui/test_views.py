"""What is written on the screen of a frame: words that a reader may rely on."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from swarmtui.model.client_protocol import Ended, Frame
from swarmtui.model.plan import Plan
from swarmtui.model.session import Session, Spread
from swarmtui.model.telemetry import Discovered, ServerState, Telemetry, Trust
from swarmtui.model.worker_protocol import StreamRow
from swarmtui.sessions.store import Listed, load, write_summary
from swarmtui.text import signed
from swarmtui.tui.baseline import Before, changed_flags, find_before
from swarmtui.tui.live import stream_view
from swarmtui.tui.live.header_view import figures, head_view, phase
from swarmtui.tui.live.streams_view import apart, primary_type, streams_view
from swarmtui.tui.live_model import Pace
from swarmtui.tui.numbers import percent, rate
from swarmtui.tui.sessions.view import session_line
from tests.tui.made_frames import frame, hello

RECORDED = Path(__file__).parent / "recorded"


def manual(**changes: object) -> tuple[Session, Frame]:
    """A run that people steer: its stretch has no end."""
    session = msgspec.structs.replace(hello().session, plan=Plan(mode="manual", levels=(1,)))
    return session, msgspec.structs.replace(frame(2), of=None, steered=True, warnings=(), note="", **changes)


def test_nothing_at_all_is_a_plain_nought_and_not_known_is_a_dash() -> None:
    assert [rate(0.0), rate(None), rate(8.424), rate(0.64)] == ["0", "–", "8.42", "0.64"]


def test_a_steered_stretch_says_how_far_it_is_from_a_level() -> None:
    assert head_view(*manual(done=3), None, None).progress == "3 done of 8 for a level"
    assert head_view(*manual(done=9), None, None).progress == "9 done, enough for a level"


def test_prefill_is_not_claimed_while_the_server_has_a_queue() -> None:
    rows = (StreamRow(0, "prefill", 1, "", 1, 0, 0, None), StreamRow(1, "writing", 2, "", 1, 4, 9, 0.1))
    for waiting, state in ((1.0, "waiting"), (0.0, "prefill"), (None, "prefill")):
        server = ServerState(engine="vLLM", url="", waiting=waiting)
        _, seen = manual(rows=rows, telemetry=Telemetry(t_ns=1, servers=(server,)))
        lines = streams_view(seen, {}, "agent", "", 0, 9).shown
        assert [line.state for line in lines] == [state, "writing"]
        assert len(streams_view(seen, {}, "agent", state, 0, 9).shown) == 1


def lines_of(lines: list[list[tuple[str, str]]]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


def test_a_stream_tells_its_stamps_its_gaps_and_what_it_answered_before() -> None:
    seen = frame(2, text="one two")
    told = lines_of(stream_view.facts(0, seen.watched, seen, 40.0, 100))
    for part in (
        "agent 0  writing  task 7",
        "sent +0.1 ms",
        "headers +3.0 ms",
        "first token +120 ms",
        "last token +5.00 s",
    ):
        assert part in told
    assert "TTFT    120 ms" in told and "between 100 chunks: p50 49.0 ms · p99 – (needs 299) · longest 310 ms" in told
    assert "max 310 ms" in told and "40.0 tok/s now" in told
    assert lines_of(stream_view.answer(seen.watched, True, 60)) == " ┊ one two\n one two"
    assert lines_of(stream_view.before(seen.watched, 100)).startswith(
        " ✔ pass in reasoning  task 0 implement, 90 tokens"
    )
    assert "no text yet" in lines_of(stream_view.answer(None, True, 60))
    assert "--keep-text" in lines_of(stream_view.answer(None, False, 60))


def test_a_request_without_a_token_says_how_long_it_waits() -> None:
    seen = frame(2)
    assert seen.watched is not None
    waiting = msgspec.structs.replace(seen.watched, t_first_ns=None, t_last_ns=None, gaps_s=Spread(n=0), chunks=0)
    told = lines_of(stream_view.facts(0, waiting, seen, None, 100))
    assert "waiting for 5.00 s" in told and "TTFT    –" in told and "two chunks make the first" in told


def test_a_mixed_load_tells_its_main_task_apart() -> None:
    session = msgspec.structs.replace(hello().session, workload_spec={"primary": {"type": ""}})
    rows = (StreamRow(0, "writing", 1, "primary", 1, 4, 9, 0.1), StreamRow(1, "writing", 2, "tests", 1, 4, 9, 0.1))
    seen = msgspec.structs.replace(frame(2), rows=rows, load="mixed")
    paces = {0: Pace(0), 1: Pace(0)}
    paces[0].rate, paces[1].rate = 30.0, 20.0
    told = figures(seen, None, apart(session, seen, paces))
    assert [(figure.label, figure.value, figure.beside) for figure in told if figure.label == "primary"] == [
        ("primary", "30.0", "side 20.0")
    ]
    shown = streams_view(seen, paces, "agent", "", 0, 9, primary_type(session)).shown
    assert [line.primary for line in shown] == [True, False]


def test_an_open_loop_has_a_rate_and_shows_only_the_streams_that_are_used() -> None:
    rows = (StreamRow(0, "writing", 1, "", 1, 4, 9, 0.1), StreamRow(1, "idle", -1, "", 0, 0, 0, None))
    seen = msgspec.structs.replace(frame(2), rows=rows, load="open", rate=2.5, late_s=0.0012, c=512)
    told = {figure.label: figure.value for figure in figures(seen, None)}
    assert (told["requests/s"], told["late"]) == ("2.5", "1 ms") and "C" not in told
    assert phase(seen).startswith("2.5 requests/s")
    assert [line.agent for line in streams_view(seen, {}, "agent", "", 0, 9).shown] == [0]


def test_the_trust_light_is_that_of_the_worst_line() -> None:
    lines = (
        Trust(name="clock", state="ok", value="", sentence=""),
        Trust(name="lag", state="doubtful", value="", sentence=""),
        Trust(name="reads", state="wrong", value="", sentence=""),
    )
    assert head_view(*manual(trust=lines), None, None).trust == "✖ wrong: reads +1"


def test_what_was_found_stays_when_the_run_has_ended() -> None:
    session, seen = manual(answer="sweet spot C=4")
    notice = head_view(session, seen, Ended("done", "", "/saved"), None, "flags changed").notice
    assert notice == "sweet spot C=4 · done · saved: /saved"
    assert head_view(*manual(), None, None, "flags changed").notice == "flags changed"


def test_flags_that_changed_since_the_session_before_are_told(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    old, new = sorted(directory.name for directory in root.iterdir())
    write_summary(root / old)
    journal = load(root, new).journal
    session = journal.head.session
    before = find_before(root, session)
    assert before.levels and not before.server_name  # another port: nobody knows whether it is the same server
    held = find_before(root, msgspec.structs.replace(session, previous=old))
    assert held.levels == before.levels
    assert "--seats 2 → 4" in changed_flags(held, journal.servers)


def test_the_same_or_unknown_flags_are_not_news() -> None:
    server = Discovered(url="http://127.0.0.1:8000", flags={"seats": "2"})
    before = Before(server=server, server_name="last")
    assert changed_flags(before, (server,)) == ""
    assert changed_flags(before, ()) == ""
    assert changed_flags(before, (msgspec.structs.replace(server, flags=None),)) == ""


def test_a_run_that_ended_before_it_began_says_why() -> None:
    ended = Ended("interrupted", "the conductor failed (see errors.log)", "")
    view = head_view(None, None, ended, None)
    assert view.phase == "ended" and view.notice_mood == "bad"
    assert view.notice == "interrupted: the conductor failed (see errors.log) · nothing was measured"


def test_with_less_room_the_title_keeps_model_and_workload() -> None:
    session = hello(model="qwen", label="mine").session
    assert head_view(session, None, None, None).title == (
        "mine · 127.0.0.1:8000 · vLLM · qwen · coding",
        "mine · 127.0.0.1:8000 · qwen · coding",
        "mine · qwen · coding",
    )


def test_a_change_is_written_with_a_true_minus_and_from_a_thousand_on_without_a_fraction() -> None:
    assert [signed(0.256), signed(-0.041), signed(-0.12, 0), signed(19.097)] == [
        "+25.6 %",
        "−4.1 %",
        "−12 %",
        "+1,910 %",
    ]
    assert percent(-0.123) == "−12 %"


def test_columns_of_sessions_never_run_into_each_other() -> None:
    row = Listed(id="x", label="l" * 60, model="m" * 60, workload="w" * 60, state="done", simulated=True)
    for width in (80, 120, 200):
        cells = session_line(row, width).cells
        assert all(cell.endswith("… ") for cell in cells[1:4]) and cells[1].startswith("l")
