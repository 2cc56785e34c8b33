"""An API key appears on no screen, in no screenshot and in no crash report."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from textual.widgets import Input

from swarmtui.client.choices import RunChoices
from swarmtui.client.request_builder import build_request
from swarmtui.model.config import Config, EndpointConfig
from swarmtui.model.run_request import RunRequest
from swarmtui.tui import launch
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.dialogs import HelpScreen
from swarmtui.tui.setup.form import applicable
from tests.cli.scripted_server import ReceivedRequest, ScriptedHandler, scripted_server
from tests.tui.conftest import Until
from tests.tui.screen_text import screen_text

KEY = "canary-key-5d1f"


def echo_key(to: ScriptedHandler, request: ReceivedRequest) -> None:
    """Answer with the key, in one chunk and in many; half of the answers end with an error that contains it."""
    to.begin_stream()
    for piece in (f"parrot {KEY} ", *KEY, " over"):
        time.sleep(0.8 if piece == " over" else 0.02)
        to.event(f'{{"id":"x","choices":[{{"index":0,"delta":{{"content":"{piece}"}}}}]}}')
    if len(to.server.received) % 2 == 0:
        to.event(f'{{"error":{{"message":"bad key {KEY}"}}}}')
    to.end_stream()


async def test_key_is_on_no_screen_and_in_no_screenshot(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    screenshots: list[str] = []
    with scripted_server(echo_key) as server:
        known = {"mine": EndpointConfig(url=server.url, api_key_env="MY_KEY")}
        app = SwarmApp(session_root=tmp_path / "sessions", config=Config(endpoints=known))
        async with app.run_test(size=(120, 40)) as pilot:
            await until(lambda: "mine" in screen_text(app))
            app.screen.query_one("#url", Input).focus()
            app.screen.query_one("#url", Input).value = server.url
            await pilot.pause()
            await until(lambda: "Enter starts" in screen_text(app))
            screenshots.append(app.export_screenshot())
            await pilot.press("enter")
            await until(lambda: "error_event" in screen_text(app))
            screenshots.append(app.export_screenshot())
            await pilot.press("enter")
            await until(lambda: "parrot …" in screen_text(app))
            screenshots.append(app.export_screenshot())
            await pilot.press("question_mark")
            await until(lambda: isinstance(app.screen, HelpScreen))
            screenshots.append(app.export_screenshot())
    assert {request.headers["authorization"] for request in server.received} == {f"Bearer {KEY}"}
    assert len(screenshots) == 4 and "parrot" in screenshots[2]
    assert [number for number, screenshot in enumerate(screenshots) if "canary" in screenshot] == []


def test_key_is_not_in_the_crash_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    known = EndpointConfig(url="http://127.0.0.1:9", api_key_env="MY_KEY")
    choices = RunChoices(endpoints=("http://127.0.0.1:9",), plan="manual")
    request = build_request(applicable(choices), (known,), tmp_path)
    assert isinstance(request, RunRequest)
    assert request.secrets.api_key == KEY
    try:
        raise ValueError(f"cannot start {request}")
    except ValueError as error:
        launch._report_crash(error, "20261115-014455-3f9a")
    path = tmp_path / "state" / "swarmtui" / "crash.txt"
    output = capsys.readouterr()
    assert "cannot start" in path.read_text() and str(path) in output.err
    assert "canary" not in path.read_text() + output.err + output.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
