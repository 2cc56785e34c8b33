"""The loop that people go through all day, by keys alone, on the real simulator with the real conductor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from swarmtui.cli.follow import report
from swarmtui.cli.progress import progress_on
from swarmtui.client.client import attach, running
from swarmtui.model.client_protocol import Ended, Frame, Hello, Stop, Subscribe
from swarmtui.sessions.store import load, summarise
from swarmtui.tui.app import Outcome, SwarmApp
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live_model import Track
from tests.tui.conftest import Until
from tests.tui.screen_text import screen_text

FAST = "sim:moe-tp1?speed=20"


def track_of(app: SwarmApp) -> Track:
    screen = next(screen for screen in app.screen_stack if isinstance(screen, RunScreen))
    return screen.source.track


async def start_run(app: SwarmApp, pilot: Pilot[Outcome], until: Until, endpoint: str = FAST) -> Track:
    """Types an endpoint on the setup screen, and presses Enter."""
    await until(lambda: "coding" in screen_text(app))
    app.screen.query_one("#url", Input).focus()
    app.screen.query_one("#url", Input).value = endpoint
    await pilot.pause()
    await until(lambda: "Enter starts" in screen_text(app))
    await pilot.press("enter")
    await until(lambda: any(isinstance(screen, RunScreen) for screen in app.screen_stack))
    track = track_of(app)
    await until(lambda: track.frame is not None and track.frame.status == "running")
    return track


def c_of(track: Track) -> int:
    return track.frame.c if track.frame else 0


async def test_from_setup_to_a_saved_session(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        track = await start_run(app, pilot, until)
        assert c_of(track) == 1

        await pilot.press("plus")
        await until(lambda: c_of(track) == 2)
        await pilot.press("right_square_bracket")
        await until(lambda: c_of(track) == 4)
        await pilot.press("minus")
        await until(lambda: c_of(track) == 3)

        await pilot.press("s")
        await pilot.pause()
        entry = app.screen.query_one("Prompt Input", Input)
        entry.value = "1,2"
        await pilot.press("enter")
        await until(lambda: track.frame is not None and {1, 2} <= {level.c for level in track.frame.levels})
        await until(lambda: track.ended is not None)
        await pilot.pause()
        assert "saved:" in screen_text(app)
        await pilot.press("q")
    outcome = app.return_value
    assert outcome is not None and [ended.ending for ended in outcome.ended] == ["done"]
    summary = summarise(load(tmp_path / "sessions", "last"))
    assert {1, 2} <= {level.c for level in summary.levels}
    assert summary.session.simulated


async def test_a_sweep_is_run_again_and_held_against_the_one_before(tmp_path: Path, until: Until) -> None:
    """The ramp was turned into a sweep by hand: that is what R repeats."""
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        first = await start_run(app, pilot, until)
        await pilot.press("s")
        await pilot.pause()
        app.screen.query_one("Prompt Input", Input).value = "1,2"
        await pilot.press("enter")
        await until(lambda: first.ended is not None)
        await until(lambda: "R again" in screen_text(app).splitlines()[-1])
        await pilot.press("R")
        await until(lambda: track_of(app) is not first)
        again = track_of(app)
        await until(lambda: again.ended is not None)
        await until(lambda: "C=2:" in screen_text(app).splitlines()[2])
        await pilot.press("b", "R")
        await until(lambda: track_of(app) is not again)
        third = track_of(app)
        await until(lambda: third.ended is not None)
        await pilot.press("R")
        await until(lambda: track_of(app) is not third)
        fourth = track_of(app)
        await until(lambda: fourth.session is not None)
        await pilot.press("x", "x")
        await until(lambda: fourth.ended is not None)
    assert first.session is not None and again.session is not None
    assert again.session.plan.levels == (1, 2) and again.session.plan.mode == "sweep"
    assert again.session.previous == first.session.id
    # What was marked stays what is compared with, however many runs follow.
    assert fourth.session is not None and fourth.session.previous == again.session.id


async def test_a_ramp_without_a_level_says_what_was_done(
    tmp_path: Path, until: Until, capsys: pytest.CaptureFixture[str]
) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        track = await start_run(app, pilot, until, "sim:moe-tp1?speed=4")
        await pilot.press("c", "5", "0", "enter")
        await until(lambda: c_of(track) == 50)
        before = track.frame.finished if track.frame else 0
        await until(lambda: track.frame is not None and track.frame.finished > before + 2)
        await pilot.press("x", "x")
        await until(lambda: track.ended is not None)
    assert track.ended is not None
    report(track.ended, as_json=False, progress=progress_on(sys.stderr, True))
    said = capsys.readouterr().out
    assert "requests finished, but no C was held for 4·C completions" in said


async def test_a_pause_can_be_taken_back_before_it_has_come(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        track = await start_run(app, pilot, until)
        await pilot.press("p")
        await until(lambda: track.frame is not None and track.frame.status in ("draining", "paused"))
        await pilot.press("p")
        await until(lambda: track.frame is not None and track.frame.status == "running")
        await pilot.press("x", "x")
        await until(lambda: track.ended is not None)


async def test_quitting_while_a_run_is_on_asks_and_stops_and_saves(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        track = await start_run(app, pilot, until)
        await until(lambda: track.frame is not None and track.frame.finished >= 6)
        await pilot.press("q")
        await pilot.pause()
        assert "What becomes of it?" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "What becomes of it?" not in screen_text(app)
        await pilot.press("ctrl+c")
        await pilot.pause()
        await pilot.press("s")
        await until(lambda: track.ended is not None)
    assert app.return_value is not None
    assert app.return_value.ended[0].directory == str(load(tmp_path / "sessions", "last").directory)


async def test_a_run_goes_on_when_people_detach_and_can_be_joined_with_its_history(
    tmp_path: Path, until: Until
) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        track = await start_run(app, pilot, until)
        await until(lambda: len(track.points) > 4)
        await pilot.press("d")
        await pilot.pause()
    assert app.return_value is not None
    identity = app.return_value.goes_on
    assert identity in running()
    client = attach(identity, Subscribe(hz=10, rows=True))
    hello = client.next(5)
    assert isinstance(hello, Hello) and len(hello.history) > 4
    frames = [client.next(5) for _ in range(3)]
    assert all(isinstance(frame, Frame) and frame.status == "running" for frame in frames)
    client.say(Stop(grace_s=0.0))
    while not isinstance(client.next(5), Ended):
        pass
    client.close()


async def test_a_stream_is_opened_and_its_text_is_seen_as_it_is_written(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        track = await start_run(app, pilot, until, "sim:dense-tp1?speed=4")
        await until(lambda: track.frame is not None and bool(track.frame.rows))
        await pilot.press("enter")
        await until(lambda: "writing" in screen_text(app))
        await until(lambda: len(screen_text(app).partition("── answer")[2].split()) > 30)
        await pilot.press("escape", "x")
        await until(lambda: track.ended is not None)


async def test_the_display_stands_still_while_data_goes_on(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        track = await start_run(app, pilot, until)
        await pilot.press("space")
        await pilot.pause()
        still = screen_text(app)
        assert "DISPLAY FROZEN" in still
        finished = track.frame.finished if track.frame else 0
        await until(lambda: track.frame is not None and track.frame.finished > finished + 3)
        assert screen_text(app) == still
        await pilot.press("space")
        await pilot.pause()
        assert screen_text(app) != still
        await pilot.press("x", "x")
        await until(lambda: track.ended is not None)


async def test_label_note_and_place_are_saved_while_it_runs(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        track = await start_run(app, pilot, until)
        await pilot.press("w", "n", "e", "w", "tab", "w", "h", "y")
        app.screen.query_one("#place", Input).value = "relative"
        await pilot.press("enter")
        await pilot.pause()
        assert "a directory, from / or ~ on" in screen_text(app)
        app.screen.query_one("#place", Input).value = str(tmp_path / "elsewhere")
        await pilot.press("enter")
        await until(lambda: "new" in screen_text(app).splitlines()[0])
        await until(lambda: Path(track.directory).parent == tmp_path / "elsewhere")
        await until(lambda: track.frame is not None and track.frame.finished >= 5)
        await pilot.press("x")
        await until(lambda: track.ended is not None)
    session = load(tmp_path / "elsewhere", "last").journal.head.session
    assert (session.label, session.note) == ("new", "why")
    assert not list((tmp_path / "sessions").iterdir())


async def test_label_note_and_place_can_be_given_when_it_has_ended(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        track = await start_run(app, pilot, until)
        await until(lambda: track.frame is not None and track.frame.finished >= 5)
        await pilot.press("x", "x")
        await until(lambda: "w save as" in screen_text(app).splitlines()[-1] and "R again" in screen_text(app))
        await pilot.press("w", "l", "a", "t", "e")
        app.screen.query_one("#place", Input).value = str(tmp_path / "elsewhere")
        await pilot.press("enter")
        await until(lambda: "late" in screen_text(app).splitlines()[0])
        await pilot.press("q")
    loaded = load(tmp_path / "elsewhere", "last")
    assert loaded.journal.head.session.label == "late"
    assert 'label = "late"' in (loaded.directory / "summary.toml").read_text()
    assert app.return_value is not None and app.return_value.ended[0].directory == str(loaded.directory)


async def test_the_question_goes_away_when_the_run_ends_by_itself(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        track = await start_run(app, pilot, until, "sim:moe-tp1?speed=4")
        await pilot.press("s")
        await pilot.pause()
        app.screen.query_one("Prompt Input", Input).value = "1"
        await pilot.press("enter", "q")
        await pilot.pause()
        assert "What becomes of it?" in screen_text(app)
        await until(lambda: track.ended is not None)
        await until(lambda: "What becomes of it?" not in screen_text(app))
        assert "saved:" in screen_text(app)


async def test_an_endpoint_that_is_not_there_is_said_and_one_can_go_back(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "coding" in screen_text(app))
        app.screen.query_one("#url", Input).value = "http://127.0.0.1:9"
        app.screen.query_one("#url", Input).focus()
        await pilot.pause()
        await pilot.press("enter")
        await until(lambda: "unusable" in screen_text(app))
        assert "is the server up" in screen_text(app)
        await pilot.press("plus", "escape")
        await until(lambda: "what shall be measured?" in screen_text(app))


async def test_what_cannot_be_started_is_said_as_it_is_typed(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "Enter starts" in screen_text(app))
        for name, value, problem in (
            ("url", "ftp://x", "is not http:// or https://"),
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


async def test_choices_are_remembered(tmp_path: Path, until: Until) -> None:
    first = SwarmApp(session_root=tmp_path / "sessions")
    async with first.run_test(size=(80, 24)) as pilot:
        first.screen.query_one("#warmup", Input).value = "3"
        track = await start_run(first, pilot, until)
        await pilot.press("x", "x")
        await until(lambda: track.ended is not None)
    second = SwarmApp(session_root=tmp_path / "sessions")
    async with second.run_test(size=(80, 24)):
        await until(lambda: "warm-up  3" in screen_text(second))
        await until(lambda: f"› {FAST}  recent" in screen_text(second))
