"""The servers of the start screen: which are listed, in which order, and what changes them."""

from __future__ import annotations

import itertools
import re
import threading
import time
from pathlib import Path

import msgspec
import pytest

from swarmtui.client import catalogue
from swarmtui.client.choices import RunChoices
from swarmtui.model.config import Config
from swarmtui.model.run_request import RunRequest
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.setup.form import LastSetup, write_setup
from swarmtui.tui.setup.view import server_items
from tests.tui.conftest import Until
from tests.tui.frame_builders import found_server
from tests.tui.screen_text import match_snapshot, screen_text


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_found_servers_come_first_and_simulators_are_folded(
    tmp_path: Path, size: tuple[int, int], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_setup(LastSetup(choices=RunChoices(endpoints=("sim:moe-tp1",), plan="quick")), Config())
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: (found_server(2, 4096),))
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=size) as pilot:
        await until(lambda: "› 127.0.0.1:1  llama.cpp, 2 slots" in screen_text(app))
        await pilot.pause()
        await match_snapshot(app, "setup")
        if size != (120, 40):
            return
        # A restarted server is looked at again when the user comes back.
        await pilot.press("question_mark")
        monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: (found_server(4),))
        await pilot.press("escape")
        await until(lambda: "4 slots, tiny" in screen_text(app) and "--parallel 4 --flash-attn" in screen_text(app))
        await pilot.press("G")
        await until(lambda: "Enter shows the simulators" in screen_text(app))
        await pilot.press("enter", "j")
        await until(lambda: "Enter hides" not in screen_text(app) and "› sim:" in screen_text(app))
        # What is not typed yet is no error, and texts follow the width.
        await pilot.press("3", "G")
        await until(lambda: "type the name of a workload file" in screen_text(app) and "✖" not in screen_text(app))
        assert "   chat              everyday questions: explain, write …" in screen_text(app)
        await pilot.resize_terminal(200, 50)
        await until(lambda: "   chat              everyday questions: explain, write, advise" in screen_text(app))


async def test_server_of_another_user_is_not_preselected_and_started_only_when_confirmed(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = msgspec.structs.replace(found_server(2), user="ann")
    write_setup(LastSetup(choices=RunChoices(endpoints=(other.url,), plan="manual")), Config())
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: (other,))
    app = SwarmApp(session_root=tmp_path)
    started: list[RunRequest] = []
    monkeypatch.setattr(app, "open_run", started.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "127.0.0.1:1  ? of ann, llama.cpp, 2 slots, tiny" in screen_text(app))
        await until(lambda: "› sim:moe-tp1" in screen_text(app))
        await pilot.press("g")
        await until(lambda: "› 127.0.0.1:1" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "ann started this server: Enter again sends load to it" in screen_text(app))
        assert not started
        await pilot.press("enter")
        await until(lambda: [request.endpoints for request in started] == [(other.url,)])


def test_a_recent_server_of_this_host_that_was_not_found_is_not_running() -> None:
    recent = ("http://127.0.0.1:8091", "http://localhost:1", "http://10.0.0.4:8000")
    rows = {item.id: item.text for item in server_items((found_server(2),), {}, recent, searched=True)}
    assert [rows[url] for url in recent] == [
        "127.0.0.1:8091  recent, not running",
        "localhost:1  recent",
        "10.0.0.4:8000  recent",
    ]
    assert server_items((), {}, recent)[0].text == "127.0.0.1:8091  recent", "it may be found yet"


def listed_servers(app: SwarmApp) -> list[tuple[str, str]]:
    """Return the ports of the servers that are listed, that with the cursor marked."""
    return re.findall(r"^[┃│] (›| ) 127\.0\.0\.1:(\d+)  (?:\? of ann, )?llama", screen_text(app), re.MULTILINE)


async def test_what_is_found_later_does_not_move_the_cursor(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second search finds servers that the first one listed as silent, or did not list."""
    chosen, early, ann = (
        msgspec.structs.replace(found_server(2), url=f"http://127.0.0.1:{port}", user=user)
        for port, user in ((9, ""), (1, ""), (2, "ann"))
    )
    silent = msgspec.structs.replace(early, reachable=False, problem="no answer in time")
    monkeypatch.setattr(
        catalogue,
        "discover_servers",
        lambda timeout_s: (early, ann, chosen) if timeout_s > 1 else (chosen, ann, silent),
    )
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)):
        await until(lambda: listed_servers(app) == [("›", "9"), (" ", "1"), (" ", "2")])


@pytest.mark.parametrize(("last", "ports"), [("", "129"), ("http://127.0.0.1:9", "912")])
async def test_the_cursor_is_on_the_first_server_that_of_the_last_run_or_else_the_first_that_was_found(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch, last: str, ports: str
) -> None:
    found = tuple(msgspec.structs.replace(found_server(2), url=f"http://127.0.0.1:{port}") for port in (1, 2, 9))
    write_setup(LastSetup(choices=RunChoices(endpoints=(last,) if last else (), plan="quick")), Config())
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: found)
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: listed_servers(app) == list(zip("›  ", ports, strict=True)))
        # Where the user goes, the lines stay.
        await pilot.press("down")
        await until(lambda: listed_servers(app) == list(zip(" › ", ports, strict=True)))


@pytest.mark.parametrize("keys", [("down", "ctrl+r"), ("question_mark", "escape")])
async def test_a_server_that_went_away_keeps_the_cursor(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    """Its user restarts it: Enter must not send load to another server, found by ^r or behind a closed help."""
    first, second, ann = (
        msgspec.structs.replace(found_server(2), url=f"http://127.0.0.1:{port}", user=user)
        for port, user in ((1, ""), (2, ""), (9, "ann"))
    )
    gone = second if "down" in keys else first
    found = [first, second, ann]
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: tuple(found))
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: listed_servers(app) == [("›", "1"), (" ", "2"), (" ", "9")])
        await pilot.press(keys[0])
        found.remove(gone)
        await pilot.press(keys[1])
        await until(lambda: f"› {gone.url.removeprefix('http://')}  recent, not running" in screen_text(app))
        found.append(gone)
        await pilot.press("question_mark", "escape")
        await until(lambda: ("›", gone.url[-1]) in listed_servers(app))


async def test_a_restarted_server_shows_its_new_flags_and_nothing_moves_meanwhile(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user looks at the start screen, and presses no key."""
    monkeypatch.setattr("swarmtui.tui.setup.endpoint._LOOK_S", 0.01)
    first, second = (
        msgspec.structs.replace(found_server(2), url=f"http://127.0.0.1:{port}", models=("small", "large"))
        for port in (1, 2)
    )
    listening = [first, second]
    monkeypatch.setattr(catalogue, "listening_sockets", lambda: frozenset(map(id, listening)))
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: tuple(listening))
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: listed_servers(app) == [("›", "1"), (" ", "2")])
        await pilot.press("2", "down")
        await until(lambda: "› large" in screen_text(app))
        before = screen_text(app).splitlines()

        def moved() -> list[int]:
            """The lines that differ, without those about the server, its slots and what Enter does."""
            now = screen_text(app).splitlines()
            return [at for at in range(4, len(before)) if now[at][:60] != before[at][:60] and at not in (6, 7, 8, 38)]

        listening.remove(first)
        await until(lambda: "› 127.0.0.1:1  ✖ not running" in screen_text(app))
        await until(lambda: "? 127.0.0.1:1 does not answer; Enter tries" in screen_text(app))
        assert listed_servers(app) == [(" ", "2")] and not moved()
        restarted = msgspec.structs.replace(first, slots=4, flags={"parallel": "4"})
        loading = msgspec.structs.replace(restarted, reachable=False, models=(), problem="it is loading")
        listening.append(loading)
        await until(lambda: "› 127.0.0.1:1  ✖ it is loading" in screen_text(app))
        assert "› large" in screen_text(app) and not moved()
        listening[-1] = restarted
        await until(lambda: "› 127.0.0.1:1  llama.cpp, 4 slots" in screen_text(app))
        await until(lambda: "flags: --parallel 4 " in screen_text(app) and "● Enter asks 127" in screen_text(app))
        assert listed_servers(app) == [("›", "1"), (" ", "2")] and not moved()
        assert "› large" in screen_text(app)


async def test_servers_are_not_searched_behind_another_screen(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swarmtui.tui.setup.endpoint._LOOK_S", 0.01)
    sockets, searches = itertools.count(), list[float]()
    monkeypatch.setattr(catalogue, "listening_sockets", lambda: frozenset([next(sockets)]))

    def search(timeout_s: float) -> tuple[DiscoveredServer, ...]:
        searches.append(timeout_s)
        return ()

    monkeypatch.setattr(catalogue, "discover_servers", search)
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: len(searches) > 3)
        await pilot.press("question_mark")
        await until(lambda: not any(worker.group == "discover" for worker in app.workers))
        behind = len(searches)
        await pilot.press("escape")
        await until(lambda: len(searches) > behind + 3)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_message_leaves_the_line_that_says_what_enter_does(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: (found_server(2),))
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(lambda: "● Enter asks 127.0.0.1:1" in screen_text(app))
        expected = screen_text(app).splitlines()
        await pilot.press("R")
        await until(lambda: "Enter opens one" in screen_text(app))
        assert screen_text(app).splitlines()[1:] == expected[1:]


async def test_while_servers_are_searched_no_server_of_another_user_is_chosen(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = msgspec.structs.replace(found_server(2), user="ann", models=("a-model-with-a-long-name",))
    silent = DiscoveredServer(url="http://127.0.0.1:5", engine="vLLM", reachable=False, user="bob")
    later = threading.Event()

    def search(timeout_s: float = 1.0) -> tuple[DiscoveredServer, ...]:
        if timeout_s > 1:
            later.wait(120)
        return ann, silent

    monkeypatch.setattr(catalogue, "discover_servers", search)
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(80, 24)):
        await until(lambda: "? of ann" in screen_text(app))
        assert "› 127.0.0.1:1" not in screen_text(app)
        later.set()
        await until(lambda: "› sim:moe-tp1" in screen_text(app))


@pytest.mark.parametrize("key", ["enter", "f5", "ctrl+j"])
async def test_enter_while_servers_are_searched_starts_the_run_when_one_has_answered(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """The terminal sends Ctrl-J for an Enter that was typed before the app had started."""
    found, silent = threading.Event(), DiscoveredServer(url="http://127.0.0.1:5", reachable=False)

    def search(timeout_s: float = 1.0) -> tuple[DiscoveredServer, ...]:
        if timeout_s <= 1:
            return (silent,)
        found.wait(120)
        return silent, found_server(2)

    monkeypatch.setattr(catalogue, "discover_servers", search)
    app = SwarmApp(session_root=tmp_path)
    started: list[RunRequest] = []
    monkeypatch.setattr(app, "open_run", started.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "looking for servers on this host …" in screen_text(app))
        await pilot.press(key)
        await until(lambda: "then the run starts; Esc: not yet" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "then the run starts" not in screen_text(app))
        await pilot.press(key)
        await until(lambda: "then the run starts" in screen_text(app) and not started)
        found.set()
        await until(lambda: [one.endpoints for one in started] == [("http://127.0.0.1:1",)])


async def test_servers_that_do_not_answer_in_time_get_more_of_it(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = DiscoveredServer(url="http://127.0.0.1:1", reachable=False, problem="no answer in time")
    monkeypatch.setattr(
        catalogue, "discover_servers", lambda timeout_s: (found_server(2) if timeout_s > 1 else silent,)
    )
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)):
        await until(lambda: "› 127.0.0.1:1  llama.cpp, 2 slots, tiny" in screen_text(app))


async def test_search_that_took_all_its_time_is_made_again(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose process says nothing, and that answers late, would be taken for none."""

    def search(timeout_s: float) -> tuple[DiscoveredServer, ...]:
        time.sleep(timeout_s if timeout_s <= 1 else 0.0)
        return (found_server(2),) if timeout_s > 1 else ()

    monkeypatch.setattr(catalogue, "discover_servers", search)
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)):
        await until(lambda: "› 127.0.0.1:1  llama.cpp, 2 slots, tiny" in screen_text(app))
