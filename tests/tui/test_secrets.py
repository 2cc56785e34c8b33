"""An API key appears on no screen, in no screenshot and in no crash report."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from textual.widgets import Input

from swarmtui.client.choices import RunChoices
from swarmtui.client.request_builder import build_request
from swarmtui.model.config import Config, EndpointConfig
from swarmtui.tui import launch
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.dialogs import HelpScreen
from swarmtui.tui.pick_list import PickList
from swarmtui.tui.setup.form import applicable
from tests.cli.scripted_server import ReceivedRequest, ScriptedHandler, respond_with_words, scripted_server
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
            await until(lambda: "● Enter " in screen_text(app))
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


VALUE = "canary-value-77aa"


async def test_parts_of_a_url_are_on_no_screen_and_in_no_file(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configured endpoint is picked, run, and then looked at on every screen and in an exported file."""
    monkeypatch.setenv("MY_KEY", KEY)
    root, shown = tmp_path / "sessions", list[tuple[str, str]]()
    with scripted_server(respond_with_words(3, gap_s=0.01)) as server:
        url = f"{server.url}/token/{KEY}/v1?api-version=7&user={VALUE}"
        config = Config(endpoints={"mine": EndpointConfig(url=url, api_key_env="MY_KEY", headers={"X-Team": VALUE})})
        app = SwarmApp(session_root=root, config=config)

        async def see(key: str, text: str) -> None:
            await pilot.press(*key.split())
            await until(lambda: text in screen_text(app))
            shown.append((text, app.export_screenshot()))

        async with app.run_test(size=(120, 40)) as pilot:
            await until(lambda: "mine" in screen_text(app))
            await see("1 g", "● Enter ")
            await until(lambda: app.screen.query_one("#endpoints", PickList).picked == url)
            await see("enter", "token/…/v1?api-version=7&user=…")
            await until(lambda: len(server.completed) > 20)
            await see("x", "R run again")
            await see("P", "publication checklist")
            await see("escape e", "Export")
            await see("enter", "✓ written")
            await see("escape L", "coding")
            await see("T", "tuning log")
            await see("escape H", "probe")
            await see("escape U", "tune")
            await see("question_mark", "Program")
    sent = {request.path for request in server.received}
    assert sent == {f"/token/{KEY}/v1/chat/completions?api-version=7&user={VALUE}"}
    assert [text for text, screenshot in shown if "canary" in screenshot] == []
    files = [path for top in (tmp_path, Path(os.environ["XDG_RUNTIME_DIR"])) for path in top.rglob("*")]
    texts = {path.name: path.read_bytes() for path in files if path.is_file()}
    assert {"journal.jsonl", "setup.json"} <= texts.keys() and any(name.endswith(".html") for name in texts)
    assert [name for name, text in texts.items() if b"canary" in text or "canary" in name] == []
