"""A key that is in use is on no screen, in no picture of one, and in no report of a crash."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from textual.widgets import Input

from swarmtui.tui import launch
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.config import Config, Known
from swarmtui.tui.help import HelpScreen
from swarmtui.tui.setup.choice import Choice, make_order
from tests.cli.scripted import Answering, Asked, scripted
from tests.tui.conftest import Until
from tests.tui.screen_text import screen_text

KEY = "canary-key-5d1f"


def parrot(to: Answering, asked: Asked) -> None:
    """Says the key back, in one piece and in many; half of its answers end in a complaint with it."""
    to.begin_stream()
    for piece in (f"parrot {KEY} ", *KEY, " over"):
        time.sleep(0.8 if piece == " over" else 0.02)
        to.event(f'{{"id":"x","choices":[{{"index":0,"delta":{{"content":"{piece}"}}}}]}}')
    if len(to.server.asked) % 2 == 0:
        to.event(f'{{"error":{{"message":"bad key {KEY}"}}}}')
    to.end_stream()


async def test_no_screen_shows_it_and_no_picture_of_one(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    pictures: list[str] = []
    with scripted(parrot) as server:
        known = {"mine": Known(url=server.url, api_key_env="MY_KEY")}
        app = SwarmApp(session_root=tmp_path / "sessions", config=Config(endpoints=known))
        async with app.run_test(size=(120, 40)) as pilot:
            await until(lambda: "mine" in screen_text(app))
            app.screen.query_one("#url", Input).focus()
            app.screen.query_one("#url", Input).value = server.url
            await pilot.pause()
            await until(lambda: "Enter starts" in screen_text(app))
            pictures.append(app.export_screenshot())
            await pilot.press("enter")
            await until(lambda: "error_event" in screen_text(app))
            pictures.append(app.export_screenshot())
            await pilot.press("enter")
            await until(lambda: "parrot … …" in screen_text(app))
            pictures.append(app.export_screenshot())
            await pilot.press("question_mark")
            await until(lambda: isinstance(app.screen, HelpScreen))
            pictures.append(app.export_screenshot())
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
    assert len(pictures) == 4 and "parrot" in pictures[2]
    assert [number for number, picture in enumerate(pictures) if "canary" in picture] == []


def test_a_crash_while_it_is_in_use_is_written_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    known = Known(url="http://127.0.0.1:9", api_key_env="MY_KEY")
    choice = Choice(endpoint="http://127.0.0.1:9", model="", workload="coding", plan="manual", known=known)
    order = make_order(choice, tmp_path)
    assert order.secrets.api_key == KEY
    try:
        raise ValueError(f"cannot start {order}")
    except ValueError as error:
        launch._own_up(error, "20261115-014455-3f9a")
    path = tmp_path / "state" / "swarmtui" / "crash.txt"
    told = capsys.readouterr()
    assert "cannot start" in path.read_text() and str(path) in told.err
    assert "canary" not in path.read_text() + told.err + told.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
