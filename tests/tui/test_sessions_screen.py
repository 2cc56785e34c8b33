"""The screen of saved sessions: filter, compare, delete and restore by keys."""

from __future__ import annotations

import fcntl
import json
import shutil
import socket
import threading
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from textual.events import MouseScrollDown
from textual.widgets import Input, Static

from swarmtui.client.catalogue import load_workload
from swarmtui.experiments.store import add_change
from swarmtui.model.findings import SearchedLevel, SearchState
from swarmtui.model.journal import SearchEntry, entry_encoder
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.model.tuning import LoggedChange
from swarmtui.prompts import library
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.marked import marked_session
from swarmtui.sessions.private import without_private
from swarmtui.sessions.replay import open_replay
from swarmtui.sessions.shared_file import import_shared, shared_bytes
from swarmtui.sessions.store import read_summary, write_summary
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.base_screens import KeyFooter
from swarmtui.tui.baseline import find_baseline
from swarmtui.tui.dialogs import HelpScreen
from swarmtui.tui.frame_source import ReplaySource, SavedSource
from swarmtui.tui.live.watch_screens import ReplayScreen, SavedScreen
from swarmtui.tui.sessions import screen as sessions_screen
from swarmtui.tui.sessions.screen import SessionCurvePanel, SessionsScreen
from swarmtui.tui.table_list import TableList
from tests.tui.conftest import Until
from tests.tui.screen_text import TOUCHING, match_snapshot, screen_text

SIZES = ((80, 24), (120, 40), (200, 50))
RECORDED = Path(__file__).with_name("recorded")


def saved_sessions(tmp_path: Path) -> Path:
    return Path(shutil.copytree(_with_summaries().name, tmp_path / "sessions"))


@cache
def _with_summaries() -> TemporaryDirectory[str]:
    """The recorded sessions with their summaries, computed once for all tests."""
    made = TemporaryDirectory()
    for directory in Path(shutil.copytree(RECORDED, made.name, dirs_exist_ok=True)).iterdir():
        write_summary(directory)
    return made


async def test_sessions_can_be_filtered_compared_deleted_and_restored(tmp_path: Path, until: Until) -> None:
    root = saved_sessions(tmp_path)
    first = min(path.name for path in root.iterdir())
    app = SwarmApp(source=ReplaySource(open_replay(root, first), hz=4.0), session_root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        assert "two slots" in screen_text(app)

        await pilot.press("slash", "t", "w", "o")
        await until(lambda: "four slots" not in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "four slots" in screen_text(app))
        sessions = app.screen.query_one(TableList)
        assert sessions.cursor == 1 and sessions.selected == first  # the cursor stays on the session
        await pilot.press("g")

        await pilot.press("m")
        assert sessions.cursor == 0 and len(sessions.marked) == 1  # a mark does not move the cursor
        await pilot.press("j", "space", "c")
        await until(lambda: "--max-num-seqs 2 → 4" in screen_text(app))
        assert "▲ faster with 8 agents" in screen_text(app)
        await pilot.press("escape")

        await pilot.press("g", "D")
        await until(lambda: "four slots" not in screen_text(app))
        assert len([path for path in root.iterdir() if not path.name.startswith(".")]) == 1
        await pilot.press("u")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("D")
        await until(lambda: len(list(root.glob(".deleted-*"))) == 1)

        await pilot.press("g", "r")
        await until(lambda: isinstance(app.screen, ReplayScreen) and len(app.screen_stack) == 3)
        await pilot.press("escape")
        await until(lambda: not isinstance(app.screen, ReplayScreen))
        await pilot.press("escape")
        await until(lambda: len(app.screen_stack) == 1)
        await until(lambda: not list(root.glob(".deleted-*")))
    assert len(list(root.iterdir())) == 1


async def test_an_experiment_is_one_row_and_enter_lists_its_sessions(tmp_path: Path, until: Until) -> None:
    root = saved_sessions(tmp_path)
    for directory in root.iterdir():
        first, rest = (directory / "journal.jsonl").read_bytes().split(b"\n", 1)
        head = json.loads(first)
        head["session"]["series"] = {"kind": "tune", "name": "slots-1234"}
        (directory / "journal.jsonl").write_bytes(json.dumps(head).encode() + b"\n" + rest)
        write_summary(directory)
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("L")
        await until(lambda: "▸ tune: slots-1234" in screen_text(app))
        assert "four slots" not in screen_text(app)
        await until(lambda: screen_text(app).splitlines()[-1].startswith(" enter its sessions  esc back"))
        footer = screen_text(app).splitlines()[-1]
        assert "mark" not in footer and "delete" not in footer
        await pilot.press("D", "enter")
        await until(lambda: "▾ tune: slots-1234" in screen_text(app) and "four slots" in screen_text(app))
        assert screen_text(app).count("└ 2026-11-15") == 2 and len(list(root.iterdir())) == 2
        assert screen_text(app).splitlines()[-1].startswith(" enter hide sessions")
        await pilot.press("down")
        await until(lambda: "endpoint   http://127.0.0.1" in screen_text(app))
        assert screen_text(app).splitlines()[-1].startswith(" enter result  m mark")
        await pilot.press("up", "enter")
        await until(lambda: "four slots" not in screen_text(app))


async def test_enter_opens_the_result_of_a_session_from_which_it_can_be_replayed_or_repeated(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = saved_sessions(tmp_path)
    app = SwarmApp(session_root=root)
    started: list[RunRequest] = []
    texts: list[str] = []
    monkeypatch.setattr(app, "open_run", started.append)
    monkeypatch.setattr(app, "toast", texts.append)
    newest, oldest = (row.id for row in list_sessions(root))
    change = LoggedChange(
        before=oldest, after=newest, what="--slots 2 → 4", effect="", verdict="more agents", agents=(4, 8)
    )
    add_change(root, change)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("G", "enter")
        await until(lambda: isinstance(app.screen, SavedScreen) and "Why no more" in screen_text(app))
        shown = screen_text(app)
        assert "since then: --slots 2 → 4: ▲ 4 → 8 agents" in shown, "what it advises has been tried"
        assert "best with 4 agents" in shown and "r replay" in shown and "R run again" in shown and "▼8" in shown
        await pilot.press("r")
        await until(lambda: isinstance(app.screen, ReplayScreen))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, SavedScreen))
        monkeypatch.setattr(library, "workload_digest", lambda found: "another")
        await pilot.press("R")
        await until(lambda: "cannot run it again" in " ".join(texts))
        assert not started
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, SessionsScreen))


async def test_a_surer_search_of_a_saved_result_starts_or_says_why_it_cannot(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = read_summary(saved_sessions(tmp_path), "last")
    app = SwarmApp(session_root=tmp_path)
    started: list[RunRequest] = []
    texts: list[str] = []
    monkeypatch.setattr(app, "open_run", started.append)
    monkeypatch.setattr(app, "toast", texts.append)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        endpoint = msgspec.structs.replace(summary.session.endpoints[0], url=url, embedded=False)
        quick = Plan(goal="capacity", slo="ttft_p90=1s", alpha=0.2, budget_s=60.0)
        digest = library.workload_digest(load_workload("coding"))
        session = msgspec.structs.replace(
            summary.session, endpoints=(endpoint,), plan=quick, workload="coding", workload_digest=digest
        )
        search = msgspec.structs.replace(summary, session=session)
        async with app.run_test(size=(120, 40)) as pilot:
            app.open_screen("result", SavedSource(summary, str(tmp_path)))
            await until(lambda: isinstance(app.screen, SavedScreen) and "R run again" in screen_text(app))
            await pilot.press("N")
            await until(lambda: "only a quick search can be asked again" in " ".join(texts))
            app.open_screen("result", SavedSource(search, str(tmp_path)))
            await until(lambda: "N surer search" in screen_text(app))
            await pilot.press("N")
            await until(lambda: bool(started))
            server.close()
            await pilot.press("N")
            await until(lambda: f"cannot run it again: nothing answers at {url}: start the" in " ".join(texts))
    assert [(request.plan.alpha, request.plan.budget_s) for request in started] == [(0.01, None)]


@pytest.mark.parametrize("slo", ["ttft_p90=2s", "of another version"])
async def test_the_result_of_a_search_is_shown_with_its_slo(tmp_path: Path, until: Until, slo: str) -> None:
    root = saved_sessions(tmp_path)
    newest = max(root.iterdir())
    first, rest = (newest / "journal.jsonl").read_bytes().split(b"\n", 1)
    head = json.loads(first)
    head["session"]["plan"] |= {"goal": "capacity", "slo": slo}
    (newest / "journal.jsonl").write_bytes(json.dumps(head).encode() + b"\n" + rest)
    summary = read_summary(root, newest.name) if slo == "ttft_p90=2s" else read_summary(root, min(root.iterdir()).name)
    session = msgspec.structs.replace(summary.session, plan=msgspec.structs.replace(summary.session.plan, slo=slo))
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(120, 40)):
        app.open_screen("result", SavedSource(msgspec.structs.replace(summary, session=session), str(newest)))
        await until(lambda: "Why no more" in screen_text(app))
        assert ("first token ≤ 2 s" in screen_text(app)) == (slo == "ttft_p90=2s")


async def test_the_result_of_a_saved_search_has_its_levels_as_it_had_during_the_run(
    tmp_path: Path, until: Until
) -> None:
    root = saved_sessions(tmp_path)
    newest = max(root.iterdir())
    kept = SearchedLevel(c=1, visits=1, n=16, good=16, state="kept")
    levels = (
        kept,
        msgspec.structs.replace(kept, c=2),
        msgspec.structs.replace(kept, c=4, state="unsure"),
        msgspec.structs.replace(kept, c=8, state="missed"),
    )
    began_ns = read_summary(root, newest.name).session.t0_ns
    entry = SearchEntry(t_ns=began_ns, search=SearchState(goal="capacity", low=4, high=8, visits=4, levels=levels))
    with (newest / "journal.jsonl").open("ab") as journal:
        journal.write(entry_encoder.encode(entry) + b"\n")
    write_summary(newest)
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("g", "enter")
        await until(lambda: "Why no more" in screen_text(app))
        assert "how many agents? 1 ✓ 2 ✓ 4 ? 8 ✖" in " ".join(screen_text(app).split())


async def test_a_session_is_compared_with_the_one_before_or_else_with_a_newer_one_and_exported(
    tmp_path: Path, until: Until
) -> None:
    root = saved_sessions(tmp_path)
    newest = max(path.name for path in root.iterdir())
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app) and "c compare with older" in screen_text(app))
        await pilot.press("G")
        await until(lambda: "c compare with newer" in screen_text(app))
        await pilot.press("c")
        await until(lambda: "compared with two slots each" in screen_text(app))
        assert "--max-num-seqs 2 → 4" in screen_text(app)
        await pilot.press("escape", "g")
        await until(lambda: "c compare with older" in screen_text(app))
        await pilot.press("c")
        await until(lambda: "[1] answer" in screen_text(app))
        await pilot.press("e")
        await until(lambda: "Export 2 sessions, compared" in screen_text(app) and "csv" not in screen_text(app))
        await pilot.press("escape", "escape", "e")
        await until(lambda: f"Export {newest}" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "✓ written" in screen_text(app))
        written = root / newest / f"{newest}.html"
        assert written.read_bytes().startswith(b"<!doctype html>")
        assert str(written) in str(app.screen.query_one("#outcome", Static).content)
        await pilot.press("j", "tab")
        app.screen.query_one("#file", Input).value = str(tmp_path / "missing" / "report.md")
        await pilot.press("enter")
        await until(lambda: "cannot be written: No such file" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "Export" not in screen_text(app))


async def test_keys_on_an_empty_list_say_what_to_do(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []
    app = SwarmApp(session_root=tmp_path)
    monkeypatch.setattr(app, "toast", texts.append)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("L")
        await until(lambda: "no sessions yet" in screen_text(app))
        await pilot.press("enter", "m", "c", "e", "D", "P")
        await until(lambda: len(texts) == 6)
    assert all("F5 on the setup screen" in text for text in texts)


async def test_all_lines_of_the_export_dialog_fit_into_the_smallest_terminal(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=saved_sessions(tmp_path))
    async with app.run_test(size=(60, 16)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("e")
        await until(lambda: "esc: close" in screen_text(app) and ".html" in screen_text(app))


async def test_the_curve_of_a_running_session_follows_at_its_end(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    path = max(root.iterdir()) / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))  # without its end
    with path.open("rb") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        app = SwarmApp(session_root=root)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("L")
            await until(lambda: "the curve follows at the end" in screen_text(app))


async def test_a_short_list_has_preview_and_curve_below_and_a_long_one_takes_their_room(
    tmp_path: Path, until: Until
) -> None:
    root = saved_sessions(tmp_path)
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("L")
        await until(lambda: "[2] preview" in screen_text(app) and "[3] curve" in screen_text(app))
        assert app.screen.query_one(TableList).size.height == 2 + 3
        await pilot.press("slash", *"two")
        await until(lambda: "four slots" not in screen_text(app))
        assert app.screen.query_one(TableList).size.height == 2 + 3, "nothing moves while a filter is typed"
        await pilot.press("enter", "3", "3")
        await until(lambda: "[1] sessions" not in screen_text(app))
        assert app.screen.query_one(SessionCurvePanel).size.height == 23
        await pilot.press("escape", "escape")
        await until(lambda: "four slots" in screen_text(app))
        newest = max(root.iterdir())
        for number in range(7):
            shutil.copytree(newest, root / f"{newest.name[:-1]}{number}x")
        await pilot.press("escape", "L")
        await until(lambda: "newest first · 9" in screen_text(app))
        await until(lambda: "[2] preview" not in screen_text(app))
        await pilot.resize_terminal(80, 40)
        await until(lambda: "[2] preview" in screen_text(app))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_screens_match_snapshots(
    tmp_path: Path, size: tuple[int, int], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list, the export dialog, the comparison of two sessions, and the list of themes."""
    saved_sessions(tmp_path)
    monkeypatch.chdir(tmp_path)
    app = SwarmApp(session_root=Path("sessions"))
    async with app.run_test(size=size) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app) and "┤" in screen_text(app))
        await pilot.pause()
        await match_snapshot(app, "sessions")
        assert not TOUCHING.search(screen_text(app)), "words touch a frame"
        await pilot.press("e")
        await until(lambda: "enter: write" in screen_text(app))
        await match_snapshot(app, "export")
        await pilot.press("escape", "c")
        await until(lambda: "[1] answer" in screen_text(app) and "output tok/s" in screen_text(app))
        await match_snapshot(app, "compare")
        assert not TOUCHING.search(screen_text(app)), "words touch a frame"
        await pilot.press("t")
        await until(lambda: "enter: use it" in screen_text(app))
        await match_snapshot(app, "theme")


async def test_mouse_chooses_rows_opens_them_scrolls_and_presses_keys(tmp_path: Path, until: Until) -> None:
    root = saved_sessions(tmp_path)
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.click(TableList, offset=(20, 3))
        await until(lambda: "›  2026-11-15 03:03  two slots" in screen_text(app))
        await pilot.click(TableList, offset=(20, 2))
        await until(lambda: "›  2026-11-15 03:03  four slots" in screen_text(app))
        sessions = app.screen.query_one(TableList)
        sessions.post_message(MouseScrollDown(sessions, 1, 1, 0, 1, 0, False, False, False))
        await until(lambda: sessions.cursor == 1)
        footer = screen_text(app).split("\n")[-1]
        await pilot.click(KeyFooter, offset=(footer.index("? help"), 0))
        await until(lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("escape")
        await pilot.click(TableList, offset=(20, 3), times=2)
        await until(lambda: isinstance(app.screen, SavedScreen))


async def test_a_shared_file_is_imported_and_becomes_the_baseline(tmp_path: Path, until: Until) -> None:
    root = saved_sessions(tmp_path)
    newest = max(path.name for path in root.iterdir())
    theirs = without_private(read_summary(root, newest), label="their box").summary
    session = msgspec.structs.replace(theirs.session, id="20261101-000000-aaaa")
    path = tmp_path / "box.swarm.json.gz"
    path.write_bytes(shared_bytes(msgspec.structs.replace(theirs, session=session)))
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("i", "x")
        await until(lambda: "import a shared file: x" in screen_text(app))
        problem = app.screen.query_one(".input-line--problem", Static)
        await until(lambda: "ends with .swarm.json.gz" in str(problem.content))
        app.screen.query_one(Input).value = str(path)
        await pilot.press("enter")
        await until(lambda: "their box" in screen_text(app) and "shared" in screen_text(app))
        await pilot.press("G", "enter")
        await until(lambda: isinstance(app.screen, SavedScreen) and "tok/s" in screen_text(app))
        await pilot.press("R")
        await until(lambda: "measured elsewhere" in screen_text(app))
        await pilot.press("b")
        assert marked_session(root) == session.id
        await pilot.press("b")
        await until(lambda: "is no baseline any more" in screen_text(app) and not marked_session(root))
        await pilot.press("b")
        await until(lambda: marked_session(root) == session.id)
        # The same one on the command line.
        assert read_summary(root, "marked").session.id == session.id
        run = msgspec.structs.replace(
            read_summary(root, newest).session, id="20261231-000000-bbbb", previous=session.id
        )
        assert find_baseline(root, run).name == "their box"
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, SessionsScreen))
        await pilot.press("g", "m", "G", "m", "c")
        await until(lambda: "compared with" in screen_text(app))


async def test_a_session_is_shared_with_one_key_on_the_list_and_on_its_result(tmp_path: Path, until: Until) -> None:
    root = saved_sessions(tmp_path)
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        for place in (SessionsScreen, SavedScreen):
            if place is SavedScreen:
                await pilot.press("enter")
            await until(lambda place=place: isinstance(app.screen, place) and "S share" in screen_text(app))  # type: ignore[misc]
            await pilot.press("S")
            await until(lambda: "Not in it" in screen_text(app))
            shown = screen_text(app)
            assert "written: " in shown and "Hardware" in shown and "Nothing is sent" in shown
            assert "four slots" not in shown, "the label of a session is private"
            await pilot.press("escape")
            await until(lambda: "four slots" in screen_text(app))
    files = sorted(root.glob("*/shared/*"))
    assert [path.name.split(".", 1)[1] for path in files] == ["md", "png", "svg", "swarm.json.gz"]
    name = import_shared(files[-1], tmp_path / "elsewhere")
    assert read_summary(tmp_path / "elsewhere", name).levels


async def test_a_key_before_the_sessions_are_read_does_not_say_that_there_are_none(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_sessions(tmp_path)
    may_end, read = threading.Event(), sessions_screen.read_sessions

    def read_late(root: Path) -> sessions_screen.ListedSessions:
        may_end.wait(60.0)
        return read(root)

    monkeypatch.setattr(sessions_screen, "read_sessions", read_late)
    app = SwarmApp(session_root=tmp_path / "sessions")
    texts: list[str] = []
    monkeypatch.setattr(app, "toast", texts.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("L")
        await until(lambda: "[1] sessions" in screen_text(app))
        assert isinstance(app.screen, SessionsScreen)
        app.screen.update_panels()
        await pilot.press("c")
        assert texts == ["the sessions are being read"]
        may_end.set()
        await until(lambda: "four slots" in screen_text(app))
