"""Whole runs in the app, by keys alone, on the simulator with a real session process."""

from __future__ import annotations

import contextlib
import fcntl
import re
import sys
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from swarmtui.analysis.compare.sessions import compare
from swarmtui.cli.follow import Outputs, report
from swarmtui.cli.progress import open_progress
from swarmtui.client.session_client import attach, running_sessions
from swarmtui.model.client_protocol import Ended, Frame, Hello, Stop, Subscribe
from swarmtui.sessions.store import load_session, read_for_comparison, summarise
from swarmtui.tui.app import AppResult, SwarmApp
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live_model import LiveModel
from swarmtui.tui.pick_list import PickList
from tests.tui.conftest import Until
from tests.tui.screen_text import screen_text

FAST = "sim:moe-tp1?speed=20"


def live_model(app: SwarmApp) -> LiveModel:
    screen = next(screen for screen in app.screen_stack if isinstance(screen, RunScreen))
    return screen.source.live


async def start_run(app: SwarmApp, pilot: Pilot[AppResult], until: Until, endpoint: str = FAST) -> LiveModel:
    """Type an endpoint on the setup screen and press Enter: manual control, unless the workload has its own plan."""
    await until(lambda: "coding" in screen_text(app))
    plans = app.screen.query_one("#plans", PickList)
    if plans.picked == "quick":
        plans.pick("manual")
    app.screen.query_one("#url", Input).focus()
    app.screen.query_one("#url", Input).value = endpoint
    await pilot.pause()
    await until(lambda: "● Enter " in screen_text(app))
    await pilot.press("enter")
    await until(lambda: any(isinstance(screen, RunScreen) for screen in app.screen_stack))
    live = live_model(app)
    # A short run may be over before the app has a core.
    await until(lambda: live.frame is not None and live.frame.status not in ("starting", "warming up"))
    return live


def c_of(live: LiveModel) -> int:
    return live.frame.c if live.frame else 0


async def test_run_from_setup_to_saved_session(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        live = await start_run(app, pilot, until)
        assert c_of(live) == 1

        await pilot.press("plus")
        await until(lambda: c_of(live) == 2)
        await pilot.press("right_square_bracket")
        await until(lambda: c_of(live) == 4)
        await pilot.press("minus")
        await until(lambda: c_of(live) == 3)

        await pilot.press("s")
        await pilot.pause()
        entry = app.screen.query_one("InputLine Input", Input)
        entry.value = "1,2"
        await pilot.press("enter")
        await until(lambda: live.frame is not None and {1, 2} <= {level.c for level in live.frame.levels})
        await until(lambda: live.ended is not None)
        await until(lambda: "R run again" in screen_text(app).splitlines()[-1])
        await pilot.press("q")
    outcome = app.return_value
    assert outcome is not None and [ended.ending for ended in outcome.ended] == ["done"]
    summary = summarise(load_session(tmp_path / "sessions", "last"))
    assert {1, 2} <= {level.c for level in summary.levels}
    assert summary.session.simulated


async def test_run_again_repeats_the_sweep_and_compares_it(tmp_path: Path, until: Until) -> None:
    """A manual run was changed to a sweep, which R repeats."""
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        first = await start_run(app, pilot, until)
        await pilot.press("s")
        await pilot.pause()
        app.screen.query_one("InputLine Input", Input).value = "1,2"
        await pilot.press("enter")
        await until(lambda: first.ended is not None)
        await until(lambda: "R run again" in screen_text(app).splitlines()[-1])
        await pilot.press("R")
        await until(lambda: live_model(app) is not first)
        again = live_model(app)
        await until(lambda: again.ended is not None)
        await until(lambda: "with 2 agents: " in screen_text(app))
        # What the screen says is what `compare` says later, with the doubts about both sessions.
        names = [first.session.id, again.session.id] if first.session and again.session else []
        summaries, history = read_for_comparison(tmp_path / "sessions", names)
        (said,) = compare(summaries, history=history).pairs
        screen = app.screen
        assert isinstance(screen, RunScreen)
        await until(lambda: screen.comparison.pair == said)
        await pilot.press("b", "R")
        await until(lambda: live_model(app) is not again)
        third = live_model(app)
        await until(lambda: third.ended is not None)
        await pilot.press("R")
        await until(lambda: live_model(app) is not third)
        fourth = live_model(app)
        await until(lambda: fourth.session is not None)
        await pilot.press("x", "x")
        await until(lambda: fourth.ended is not None)
    assert first.session is not None and again.session is not None
    assert again.session.plan.load.levels == (1, 2) and again.session.plan.goal == "sweep"
    assert again.session.previous == first.session.id
    # The marked baseline applies to all later runs.
    assert fourth.session is not None and fourth.session.previous == again.session.id


async def test_ramp_steered_by_keys_leaves_levels_marked_as_incomplete(
    tmp_path: Path, until: Until, capsys: pytest.CaptureFixture[str]
) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        live = await start_run(app, pilot, until, "sim:moe-tp1?speed=10")
        await until(lambda: live.frame is not None and live.frame.done > 0)
        # 4·200 completions take far longer than this test.
        await pilot.press("c", "2", "0", "0", "enter")
        await until(lambda: c_of(live) == 200 and live.frame is not None and live.frame.done > 2)
        await pilot.press("x", "x")
        await until(lambda: live.ended is not None)
        await until(lambda: re.search(r"◇ *200", screen_text(app)) is not None)
        await until(lambda: "incomplete" in screen_text(app))
    assert live.ended is not None
    assert live.frame is not None and [level.c for level in live.frame.levels] == [1, 200]
    report(live.ended, (), Outputs(open_progress(sys.stderr, True)))
    output = capsys.readouterr().out
    assert re.search(r"◇ *200 *\|", output) and "incomplete: it ended early" in output


async def test_quitting_during_a_run_asks_then_stops_and_saves(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        live = await start_run(app, pilot, until)
        await until(lambda: live.frame is not None and live.frame.finished >= 6)
        await pilot.press("q")
        await pilot.pause()
        assert "A run is in progress. How to quit?" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "A run is in progress. How to quit?" not in screen_text(app)
        await pilot.press("ctrl+c")
        await pilot.pause()
        await pilot.press("s")
        await until(lambda: live.ended is not None)
    assert app.return_value is not None
    assert app.return_value.ended[0].directory == str(load_session(tmp_path / "sessions", "last").directory)


async def test_a_frozen_display_does_not_change_and_a_detached_run_continues_and_can_be_attached_with_its_history(
    tmp_path: Path, until: Until
) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        live = await start_run(app, pilot, until)
        await pilot.press("space")
        await pilot.pause()
        frozen = screen_text(app)
        assert "DISPLAY FROZEN" in frozen
        finished = live.frame.finished if live.frame else 0
        await until(lambda: live.frame is not None and live.frame.finished > finished + 3)
        assert screen_text(app) == frozen
        await pilot.press("space")
        await pilot.pause()
        assert screen_text(app) != frozen
        await until(lambda: len(live.points) > 4)
        await pilot.press("d")
        await pilot.pause()
    assert app.return_value is not None
    session_id = app.return_value.running_id
    assert session_id in running_sessions()
    client = attach(session_id, Subscribe(hz=10, rows=True))
    hello = client.receive(5)
    assert isinstance(hello, Hello) and len(hello.history) > 4
    frames = [client.receive(5) for _ in range(3)]
    assert all(isinstance(frame, Frame) and frame.status == "running" for frame in frames)
    client.send(Stop(grace_s=0.0))
    while not isinstance(client.receive(5), Ended):
        pass
    client.close()


async def test_stream_screen_shows_text_as_it_arrives(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        live = await start_run(app, pilot, until, "sim:dense-tp1?speed=4")
        await until(lambda: live.frame is not None and bool(live.frame.rows))
        await pilot.press("2")
        await until(lambda: "[2] agents · 1" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "writing" in screen_text(app))
        await until(lambda: len(screen_text(app).partition("─ answer")[2].split()) > 30)
        await pilot.press("escape", "x")
        await until(lambda: live.ended is not None)


async def test_label_note_and_directory_can_be_changed_during_a_run(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        live = await start_run(app, pilot, until)
        await pilot.press("w", "n", "e", "w", "tab", "w", "h", "y")
        app.screen.query_one("#directory", Input).value = "relative"
        await pilot.press("enter")
        await pilot.pause()
        assert "must be an absolute path or start with ~" in screen_text(app)
        app.screen.query_one("#directory", Input).value = str(tmp_path / "elsewhere")
        await pilot.press("enter")
        await until(lambda: "new" in screen_text(app).splitlines()[0])
        await until(lambda: Path(live.directory).parent == tmp_path / "elsewhere")
        await until(lambda: live.frame is not None and live.frame.finished >= 5)
        await pilot.press("x")
        await until(lambda: live.ended is not None)
    session = load_session(tmp_path / "elsewhere", "last").journal.head.session
    assert (session.label, session.note) == ("new", "why")
    assert not list((tmp_path / "sessions").iterdir())


async def test_label_note_and_directory_can_be_changed_after_a_run(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        live = await start_run(app, pilot, until)
        await until(lambda: live.frame is not None and live.frame.finished >= 5)
        await pilot.press("x", "x")
        await until(lambda: "R run again" in screen_text(app).splitlines()[-1])
        await pilot.press("w", "l", "a", "t", "e")
        app.screen.query_one("#directory", Input).value = str(tmp_path / "elsewhere")
        await pilot.press("enter")
        await until(lambda: "late" in screen_text(app).splitlines()[0])
        await pilot.press("q")
    loaded = load_session(tmp_path / "elsewhere", "last")
    assert loaded.journal.head.session.label == "late"
    assert 'label = "late"' in (loaded.directory / "summary.toml").read_text()
    assert app.return_value is not None and app.return_value.ended[0].directory == str(loaded.directory)


async def test_label_that_cannot_be_saved_is_reported(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        live = await start_run(app, pilot, until)
        await until(lambda: live.frame is not None and live.frame.finished >= 5)
        await pilot.press("x", "x")
        await until(lambda: live.ended is not None)
        with (Path(live.directory) / "journal.jsonl").open("rb") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            await pilot.press("w", "l", "a", "t", "e", "enter")
            await until(lambda: "not saved:" in screen_text(app))
        await pilot.press("q")
    assert load_session(tmp_path / "sessions", "last").journal.head.session.label == ""


async def test_pause_can_be_cancelled_while_draining_and_the_quit_dialog_closes_when_the_run_ends(
    tmp_path: Path, until: Until
) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        live = await start_run(app, pilot, until)
        await pilot.press("p")
        await until(lambda: live.frame is not None and live.frame.status in ("pausing", "paused"))
        await pilot.press("p")
        await until(lambda: live.frame is not None and live.frame.status == "running")
        await pilot.press("q")
        await until(lambda: "A run is in progress. How to quit?" in screen_text(app))
        with contextlib.closing(attach(Path(live.directory).name, Subscribe())) as other:
            other.send(Stop(grace_s=0.0))
        await until(lambda: live.ended is not None)
        await until(lambda: "A run is in progress. How to quit?" not in screen_text(app))
        await until(lambda: "R run again" in screen_text(app).splitlines()[-1])


async def test_an_unreachable_endpoint_is_reported_and_esc_returns_to_setup(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "coding" in screen_text(app))
        app.screen.query_one("#url", Input).value = "http://127.0.0.1:9"
        app.screen.query_one("#url", Input).focus()
        await pilot.pause()
        await pilot.press("enter")
        await until(lambda: "unusable" in screen_text(app) and "is the server up" in screen_text(app))
        await pilot.press("plus", "escape")
        await until(lambda: "New benchmark" in screen_text(app))


async def test_invalid_choices_are_reported_while_typing(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "● Enter " in screen_text(app))
        for name, value, problem in (
            ("url", "ftp://x", "unsupported scheme ftp://"),
            ("url", "sim:moe-tp9", "did you mean"),
            ("file", "nothing.toml", "no such file"),
            ("warmup", "some", "neither a number nor none"),
        ):
            entry = app.screen.query_one(f"#{name}", Input)
            before, entry.value = entry.value, value
            await until(lambda problem=problem: problem in " ".join(screen_text(app).split()))  # type: ignore[misc]
            await pilot.press("f5")
            assert len(app.screen_stack) == 1
            entry.value = before or {"url": "sim:moe-tp1", "file": "chat"}.get(name, "")
            await pilot.pause()


async def test_setup_choices_are_remembered(tmp_path: Path, until: Until) -> None:
    first = SwarmApp(session_root=tmp_path / "sessions")
    async with first.run_test(size=(80, 24)) as pilot:
        first.screen.query_one("#warmup", Input).value = "3"
        live = await start_run(first, pilot, until)
        await pilot.press("x", "x")
        await until(lambda: live.ended is not None)
    second = SwarmApp(session_root=tmp_path / "sessions")
    async with second.run_test(size=(80, 24)):
        await until(lambda: "warm-up   3" in screen_text(second))
        await until(lambda: f"› {FAST}  recent" in screen_text(second))
