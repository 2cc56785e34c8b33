"""Ways between the list of sessions, results, new runs and comparisons, and what Esc and L lead back to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Input

from swarmtui.client.session_client import SessionClient, running_sessions, start_session
from swarmtui.model.client_protocol import Ended, Frame, Subscribe
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.base_screens import Page
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live.watch_screens import SavedScreen
from swarmtui.tui.sessions.compare_screen import CompareScreen
from swarmtui.tui.sessions.screen import SessionsScreen
from swarmtui.tui.table_list import TableList
from tests.tui.conftest import Until
from tests.tui.frame_builders import RecordingSource
from tests.tui.screen_text import screen_text
from tests.tui.test_sessions_screen import saved_sessions
from tests.tui.test_whole_loop import start_run


async def test_a_session_run_again_from_the_list_leads_back_to_the_list_with_the_new_one(
    tmp_path: Path, until: Until
) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        first = await start_run(app, pilot, until)
        await pilot.press("s")
        await pilot.pause()
        app.screen.query_one("InputLine Input", Input).value = "1,2"
        await pilot.press("enter")
        await until(lambda: first.ended is not None)
        await pilot.press("L")
        await until(lambda: isinstance(app.screen, SessionsScreen) and len(app.screen.query_one(TableList).ids) == 1)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, SavedScreen) and "R run again" in screen_text(app))
        await pilot.press("R")
        await until(lambda: isinstance(app.screen, RunScreen))
        run = app.screen
        assert isinstance(run, RunScreen)
        # The plan of the first one was manual control.
        await until(lambda: run.source.live.frame is not None and run.source.live.frame.done > 0)
        await pilot.press("x", "x")
        await until(lambda: run.source.live.ended is not None and "R run again" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, SessionsScreen) and len(app.screen.query_one(TableList).ids) == 2)
        new, sessions = run.source.live.session, app.screen.query_one(TableList)
        await until(lambda: new is not None and sessions.selected == new.id)


def start_elsewhere(root: Path) -> SessionClient:
    """Start a run that this app does not know; return once a request of it has ended."""
    plan = Plan(goal="manual", load=Closed(levels=(1,)), max_tokens=20)
    request = RunRequest(endpoints=("sim:moe-tp1?speed=4",), workload="coding", plan=plan, session_root=str(root))
    client = start_session(request, Subscribe(hz=10))
    while not (isinstance(message := client.receive(60.0), Frame) and message.done):
        assert message is not None, "the run has not started"
    return client


async def test_enter_on_a_running_session_attaches_to_it(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    client = start_elsewhere(root)
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("L")
        await until(lambda: "enter attach" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, RunScreen))
        run = app.screen
        assert isinstance(run, RunScreen)
        await until(lambda: run.source.live.frame is not None and run.source.live.frame.done > 0)
        (running,) = running_sessions()
        assert app.running_id == running
        await pilot.press("L")
        await until(lambda: isinstance(app.screen, SessionsScreen) and "enter attach" in screen_text(app))
        await pilot.press("enter")  # it is already attached
        await until(lambda: app.screen is run)
        await pilot.press("x", "x")
        await until(lambda: run.source.live.ended is not None)
    client.close()


async def test_another_session_does_not_replace_the_run_of_this_app(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "sessions"
    app = SwarmApp(session_root=root)
    texts: list[str] = []
    monkeypatch.setattr(app, "toast", texts.append)
    async with app.run_test(size=(120, 40)) as pilot:
        own = await start_run(app, pilot, until)
        client = await asyncio.to_thread(start_elsewhere, root)
        await pilot.press("L")
        await until(lambda: isinstance(app.screen, SessionsScreen) and len(app.screen.query_one(TableList).ids) == 2)
        await pilot.press("g")
        await until(lambda: "enter attach" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: f"elsewhere: swarmtui attach {max(running_sessions())}" in " ".join(texts))
        assert own.ended is None and app.running_id == min(running_sessions())
    client.close()


async def test_the_oldest_result_is_compared_with_another_session_and_leads_to_the_list(
    tmp_path: Path, until: Until
) -> None:
    root = saved_sessions(tmp_path)
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        listed = app.screen
        await pilot.press("G", "enter")
        await until(lambda: isinstance(app.screen, SavedScreen) and "c compare" in screen_text(app))
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, CompareScreen) and "compared with two slots" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, SavedScreen))
        await pilot.press("L")
        await until(lambda: app.screen is listed)


async def test_a_comparison_leads_to_the_list(tmp_path: Path, until: Until) -> None:
    """It goes back to the list that it was opened from; from that of a result it opens one."""
    app = SwarmApp(session_root=saved_sessions(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        listed = app.screen
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, CompareScreen) and "L sessions" in screen_text(app))
        await pilot.press("L")
        await until(lambda: app.screen is listed)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, SavedScreen) and "c compare" in screen_text(app))
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, CompareScreen))
        await pilot.press("L")
        await until(lambda: isinstance(app.screen, SessionsScreen) and "four slots" in screen_text(app))


async def test_a_panel_of_a_comparison_that_is_alone_fills_the_screen(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=saved_sessions(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, CompareScreen) and "[1] answer" in screen_text(app))
        await pilot.press("2")
        await until(lambda: "v first token" in screen_text(app))
        await pilot.press("1", "1")
        answer = app.screen.query_one("#compared", Page)
        await until(lambda: answer.size.height == 23)
        await pilot.press("1")
        await until(lambda: answer.size.height < 23)
        height = answer.size.height
        await pilot.press("1")
        await until(lambda: answer.size.height == 23 > height)
        assert "v first token" not in screen_text(app)  # there is none to change
        await pilot.press("1")
        await until(lambda: answer.size.height == height)


async def test_a_message_goes_with_the_screen_that_it_is_about(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=saved_sessions(tmp_path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("u")
        await until(lambda: bool(app.screen.query("Toast")))
        await pilot.press("escape")
        await until(lambda: not isinstance(app.screen, SessionsScreen))
        await pilot.pause()
        assert not app.screen.query("Toast")


async def test_the_message_that_a_run_stops_goes_when_it_has_stopped(until: Until) -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.press("x")
        await until(lambda: "requests in flight get up to 5 s" in screen_text(app))
        source.live.apply(Ended("stopped", "", "/nowhere"))
        run = app.screen
        assert isinstance(run, RunScreen)
        run.data_changed()
        await pilot.pause()
        assert not app.screen.query("Toast") and "in flight get" not in screen_text(app)


async def test_the_footer_of_a_saved_result_names_the_keys_of_panels(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=saved_sessions(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, SavedScreen) and "1–7 panels" in screen_text(app).splitlines()[-1])


async def test_levels_that_are_alone_explain_each_column(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=saved_sessions(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("G", "enter")
        await until(lambda: isinstance(app.screen, SavedScreen) and "[4] levels" in screen_text(app))
        assert " tok/s: output of all" not in screen_text(app)
        await pilot.press("4", "4")
        await until(lambda: " tok/s: output of all" in screen_text(app))
        shown = screen_text(app)
        assert all(f"┃ {name}: " in shown for name in ("per agent", "TTFT", "slowdown", "scaling")), shown
        assert "too few requests" in shown and "e2e:" not in shown  # a column without room


async def test_r_on_the_setup_screen_says_where_a_session_is_repeated(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(lambda: "coding" in screen_text(app))
        app.screen.query_one("#workloads").focus()
        await pilot.press("R")
        await until(lambda: "R repeats a session from its result" in screen_text(app))
