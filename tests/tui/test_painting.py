"""What reaches the terminal: incremental painting shows the same as a full repaint, also with wide characters."""

from __future__ import annotations

import asyncio
import os
import pty
import queue
import re
from types import SimpleNamespace
from typing import Any

import msgspec
import pyte
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyte import modes
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import CompositorUpdate
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.drivers.headless_driver import HeadlessDriver
from textual.events import Resize
from textual.geometry import Size
from textual.screen import Screen
from textual.strip import Strip
from wcwidth import wcwidth

from swarmtui.analysis.limits.slo import DEFAULT_SLO
from swarmtui.model.answer import Answer, AnswerSentence
from swarmtui.model.client_protocol import Ended
from swarmtui.model.findings import SearchedLevel, SearchState
from swarmtui.text import sanitize
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.base_screens import Page
from swarmtui.tui.dialogs import QuitDialog
from swarmtui.tui.lines import Line, LineWidget, fit_line
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live_model import LiveModel
from swarmtui.tui.pick_list import PickItem, PickList
from swarmtui.tui.terminal_cells import Cell, TerminalCells, cells_of
from swarmtui.tui.textual_patches import PatchedApp, Terminal, _release_memory
from swarmtui.tui.themes import SWARM, line_styles
from tests.analysis.level_builders import level
from tests.tui.conftest import Until
from tests.tui.frame_builders import RecordingSource, frame, hello
from tests.tui.screen_text import screen_text

NARROW = "ab1 .─█▁›é"
WIDE = "很あ한😀🚀✅"
COMBINED = ("e\u0301", "a\u0308", "n\u0303\u0323")
STYLES = ("", "dim", "bold", "title", "bad", "selected")
SIZES = ((20, 6), (41, 9), (80, 24))

characters = st.sampled_from([*NARROW, *NARROW, *WIDE, *COMBINED])
texts = st.lists(characters, max_size=60).map("".join)
lines = st.lists(st.tuples(texts, st.sampled_from(STYLES)), max_size=4)
frames = st.lists(lines, max_size=30)


class LinesPanel(LineWidget):
    lines: list[Line] = []

    def show(self, lines: list[Line]) -> None:
        self.lines = lines
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        return self.lines


class PanelsScreen(Screen[None]):
    def compose(self) -> ComposeResult:
        with Horizontal():
            yield LinesPanel(id="lines")
            yield Page("text", id="page")
            yield PickList(id="list")


class PanelsApp(PatchedApp[None]):
    """Three panels side by side, so that their cells begin at different columns."""

    CSS = "Screen { layout: vertical; overflow: hidden; } LineWidget { width: 1fr; height: 1fr; }"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow")]
    VERTICAL_BREAKPOINTS = [(0, "-short")]

    def __init__(self) -> None:
        super().__init__((SWARM,), SWARM.name)
        self.line_styles = line_styles(SWARM)

    def first_screen(self) -> Screen[Any]:
        return PanelsScreen()


class Emulator:
    """A terminal emulator that shows what the app writes."""

    def __init__(self, columns: int, rows: int) -> None:
        self.screen = pyte.Screen(columns, rows)
        # With auto-wrap pyte moves a combining character behind the last column to the next line.
        self.screen.reset_mode(modes.DECAWM >> 5, private=True)
        self._stream = pyte.Stream(self.screen)

    def feed(self, data: str) -> None:
        # pyte does not know synchronized updates.
        self._stream.feed(data.replace("\x1b[?2026h", "").replace("\x1b[?2026l", ""))

    def cells(self) -> list[list[tuple[str, str, str, bool, bool]]]:
        columns, buffer = range(self.screen.columns), self.screen.buffer
        rows = [[buffer[y][x] for x in columns] for y in range(self.screen.lines)]
        # Of a blank, only the background is visible.
        return [
            [
                (
                    cell.data,
                    "" if cell.data == " " and not cell.reverse else cell.fg,
                    cell.bg,
                    cell.data != " " and cell.bold,
                    cell.reverse,
                )
                for cell in row
            ]
            for row in rows
        ]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what the headless driver would write to a terminal."""
    parts: list[str] = []
    monkeypatch.setattr(HeadlessDriver, "is_headless", False)
    monkeypatch.setattr(HeadlessDriver, "write", lambda driver, data: parts.append(data))
    return parts


def repaint(app: PatchedApp[Any], columns: int, rows: int) -> Emulator:
    """Paint the present screen as a whole on another terminal."""
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    assert isinstance(update, CompositorUpdate)
    emulator = Emulator(columns, rows)
    emulator.feed(update.render_segments(app.console))
    return emulator


def assert_same(shown: Emulator, expected: Emulator) -> None:
    for y, (row, wanted) in enumerate(zip(shown.cells(), expected.cells(), strict=True)):
        assert row == wanted, f"line {y}: {shown.screen.display[y]!r} instead of {expected.screen.display[y]!r}"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("lines"), frames),
        st.tuples(st.just("page"), frames),
        st.tuples(st.just("items"), st.lists(texts, max_size=30)),
        st.tuples(st.just("scroll"), st.integers(-30, 30)),
        st.tuples(st.just("cursor"), st.integers(-30, 30)),
    ),
    min_size=1,
    max_size=12,
)


async def update(app: PatchedApp[Any]) -> None:
    """Let the widgets report their changes to the screen, and paint."""
    for _ in range(20):
        await asyncio.sleep(0)
    app.screen._on_timer_update()


async def test_regions_that_were_painted_are_forgotten() -> None:
    app = PanelsApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        panel = app.screen.query_one(LinesPanel)
        for column in range(20):
            panel.show([[(" " * column + "x", "")]])
            await update(app)
        assert len(panel._dirty_regions) <= 2


def test_texts_that_were_cut_are_released() -> None:
    Segment("▁▂很").split_cells(2)
    assert Segment._split_cells.cache_info().currsize > 0
    _release_memory()
    assert Segment._split_cells.cache_info().currsize == 0


async def test_the_end_of_a_run_reaches_the_terminal_at_once(written: list[str]) -> None:
    """The signs of the levels differ when the quality is judged: the line of the plan and the table change together."""
    search = SearchState(
        goal="capacity", low=8, high=12, visits=2,
        levels=(
            SearchedLevel(c=8, visits=1, n=17, good=17, state="kept"),
            SearchedLevel(c=12, visits=1, n=8, good=0, state="missed"),
        ),
    )  # fmt: skip
    levels = (level(8, tps=80.0), level(12, tps=70.0))
    running = msgspec.structs.replace(frame(12), search=search, levels=levels, slo=DEFAULT_SLO)
    judged = tuple(msgspec.structs.replace(one, state="unsure") if one.c == 12 else one for one in search.levels)
    said = AnswerSentence(code="capacity", sentence="8 agents")
    ended = msgspec.structs.replace(
        running,
        status="ended",
        search=msgspec.structs.replace(search, levels=judged),
        answer=Answer(headline=said, agents=8, low=8, high=15, limit=AnswerSentence(code="", sentence="")),
    )
    source = RecordingSource(LiveModel())
    for message in (hello(), running):
        source.live.apply(message)
    app, shown = SwarmApp(source=source), Emulator(80, 24)

    def signs() -> tuple[bool, bool, bool, bool]:
        """Whether the line of the plan, the table, the panels and the footer are those of the end."""
        rows = shown.screen.display
        table = any(re.search(r"12 +\? 0 of 8", row) for row in rows)
        return "12 ?" in rows[1], table, any("] result" in row for row in rows), "R run again" in rows[-1]

    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        shown.feed("".join(written))
        seen = [signs()]
        written.clear()
        for last in (ended, Ended("done", "", "/saved")):
            source.live.apply(last)
        screen = app.screen
        assert isinstance(screen, RunScreen)
        # As the reader of a socket does, outside of any message.
        asyncio.get_running_loop().call_soon(screen.data_changed)
        await pilot.pause()
        for data in written:
            shown.feed(data)
            seen.append(signs())
    assert {*seen} == {(False,) * 4, (True,) * 4}


@settings(max_examples=12)
@given(size=st.sampled_from(SIZES), steps=steps)
def test_incremental_painting_equals_a_full_repaint(size: tuple[int, int], steps: list[tuple[str, Any]]) -> None:
    async def paint() -> None:
        app = PanelsApp()
        with pytest.MonkeyPatch.context() as monkeypatch:
            parts: list[str] = []
            monkeypatch.setattr(HeadlessDriver, "is_headless", False)
            monkeypatch.setattr(HeadlessDriver, "write", lambda driver, data: parts.append(data))
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                shown = Emulator(*size)
                screen = app.screen
                for kind, value in steps:
                    match kind:
                        case "lines":
                            screen.query_one("#lines", LinesPanel).show(value)
                        case "page":
                            screen.query_one("#page", Page).show(value)
                        case "items":
                            items = [PickItem(str(number), text) for number, text in enumerate(value)]
                            screen.query_one("#list", PickList).set_items(items)
                        case "scroll":
                            screen.query_one("#page", Page).move(value)
                        case "cursor":
                            screen.query_one("#list", PickList).action_move(value)
                    await update(app)
                    shown.feed("".join(parts))
                    parts.clear()
                    assert_same(shown, repaint(app, *size))

    asyncio.run(paint())


@settings(max_examples=80)
@given(old=lines, new=lines, width=st.integers(1, 60))
@example(old=[("很x", "")], new=[("汉x", "")], width=3)
@example(old=[("很\u0301x", "")], new=[("很x", "")], width=3)
@example(old=[("很x", "")], new=[("很\u0301x", "")], width=3)
def test_only_changed_cells_are_written(old: Line, new: Line, width: int) -> None:
    before, after = fit_line(old, width), fit_line(new, width)
    assert cell_len("".join(text for text, _ in after)) == width
    shown, emulator = TerminalCells(), Emulator(width, 1)
    for line in (before, after):
        emulator.feed(shown.paint(Size(width, 1), [(0, 0, cells(line))]))
    whole = Emulator(width, 1)
    whole.feed(strip(after).render(Console(color_system="truecolor")))
    assert_same(emulator, whole)
    assert not shown.paint(Size(width, 1), [(0, 0, cells(after))])


def strip(line: Line) -> Strip:
    styles = line_styles(SWARM)
    return Strip([Segment(text, styles[style] if style else Style()) for text, style in line])


def cells(line: Line) -> list[Cell]:
    return cells_of(strip(line), ColorSystem.TRUECOLOR)


def test_widths_of_test_characters_are_those_of_the_emulator() -> None:
    for text in (*NARROW, *WIDE, *COMBINED):
        assert [cell_len(char) for char in text] == [wcwidth(char) for char in text]


@pytest.mark.parametrize("text", ["❤️", "☺️x", "1️⃣", "👍🏽", "👩‍👩‍👧‍👦", "e\u0301", "🇩🇪"])
def test_sanitized_text_is_as_wide_as_the_sum_of_its_characters(text: str) -> None:
    """Terminals disagree on the width of emoji sequences, so their modifiers are removed."""
    clean = sanitize(text)
    assert cell_len(clean) == sum(cell_len(char) for char in clean)


async def test_live_screen_is_painted_like_a_full_repaint(written: list[str]) -> None:
    size = (120, 40)
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=size) as pilot:
        shown = Emulator(*size)
        for second, words in enumerate(("implement", "很" * 9, "e\u0301🚀 plan", "x" * 200, "implement")):
            changed = frame(5 + 14 * second, at_s=10.0 + second, words=words, total=100 + 40 * second, text=words * 3)
            source.live.apply(msgspec.structs.replace(changed, note=words))
            assert isinstance(app.screen, RunScreen)
            app.screen.data_changed()
            for key in ("j", "q", "escape", "4", "4", "escape") if second == 1 else ("j",):
                await pilot.press(key)
                await pilot.pause()
                await update(app)
                shown.feed("".join(written))
                written.clear()
                assert_same(shown, repaint(app, *size))


async def test_cells_that_a_smaller_terminal_removed_are_written_again(written: list[str], until: Until) -> None:
    """The size is as before when Textual handles it."""
    size, smaller = Size(120, 40), Size(60, 20)
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(size.width, size.height)) as pilot:
        await pilot.pause()
        await update(app)
        shown = Emulator(*size)
        shown.feed("".join(written))
        written.clear()
        for new in (smaller, size):
            shown.screen.resize(new.height, new.width)
            app.post_message(Resize(new, new))
        await until(lambda: len("".join(written)) > 0)
        await pilot.pause()
        await update(app)
        shown.feed("".join(written))
        assert_same(shown, repaint(app, *size))


class _Queue:
    def __init__(self, queued: int) -> None:
        self._queue: queue.Queue[str] = queue.Queue()
        for _ in range(queued):
            self._queue.put("")


@pytest.mark.parametrize(("thread", "pending"), [(None, False), (_Queue(0), False), (_Queue(1), True)])
def test_output_is_pending_while_it_is_queued(thread: _Queue | None, pending: bool) -> None:
    terminal = Terminal.__new__(Terminal)
    terminal._writer_thread = thread  # type: ignore[assignment]
    assert terminal.output_pending is pending


def test_terminal_notices_that_it_was_closed() -> None:
    ours, theirs = pty.openpty()
    try:
        terminal = Terminal.__new__(Terminal)
        terminal.fileno = theirs
        assert not terminal.closed
        os.close(ours)
        assert terminal.closed
    finally:
        os.close(theirs)


async def test_nothing_is_painted_while_output_is_pending(monkeypatch: pytest.MonkeyPatch, until: Until) -> None:
    terminal = SimpleNamespace(pending=False)
    monkeypatch.setattr(SwarmApp, "output_pending", property(lambda app: terminal.pending))
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        assert isinstance(app.screen, RunScreen)
        app.screen.data_changed()
        await pilot.pause()
        before = screen_text(app)
        terminal.pending = True
        source.live.apply(frame(9, at_s=30.0))
        app.screen.data_changed()
        await pilot.pause()
        assert screen_text(app) == before
        terminal.pending = False
        await until(lambda: "0:30" in screen_text(app))


async def test_nothing_is_painted_below_a_dialog(written: list[str], until: Until) -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        live = app.screen
        assert isinstance(live, RunScreen)
        await pilot.press("q")
        await until(lambda: isinstance(app.screen, QuitDialog))
        source.live.apply(frame(9, at_s=30.0))
        live.data_changed()
        for screen in (live, app.screen):
            await pilot.pause()
            screen._on_timer_update()
        assert "0:30" not in "".join(written)
        await pilot.press("escape")
        await until(lambda: "0:30" in screen_text(app))


@pytest.mark.parametrize(
    ("keys", "share"),
    [(("4", "4"), 0.5), (("4", "4", "escape"), 0.5), (("q",), 0.25), (("q", "escape"), 0.25)],
    ids=["one panel", "all panels", "dialog", "dialog closed"],
)
async def test_what_a_key_opens_is_written_once(written: list[str], keys: tuple[str, ...], share: float) -> None:
    """Textual paints all again: after a layout, because of the sizes it has set, and when a screen opens or closes."""
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(120, 40)) as pilot:
        for key in keys:
            await pilot.pause()
            written.clear()
            await pilot.press(key)
        for _ in range(3):
            await pilot.pause()
            await update(app)
        whole = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
        assert isinstance(whole, CompositorUpdate)
        assert len("".join(written)) < share * len(whole.render_segments(app.console))


def test_dim_text_after_bold_and_dim_text_stays_dim() -> None:
    """One code switches both off."""
    both, dim = (
        cells_of(Strip([Segment("x", Style(bold=bold, dim=True))]), ColorSystem.TRUECOLOR) for bold in (True, False)
    )
    written = TerminalCells().paint(Size(2, 1), [(0, 0, both), (0, 1, dim)])
    assert "\x1b[22;2mx" in written


def test_strip_that_counts_more_cells_than_its_text_is_padded() -> None:
    """Textual may count the cells of a sequence of emoji differently."""
    found = cells_of(Strip([Segment("ab")], cell_length=5), ColorSystem.TRUECOLOR)
    assert "".join(text for text, _ in found) == "ab   "
    assert len(cells_of(Strip([Segment("abcdef")], cell_length=4), ColorSystem.TRUECOLOR)) == 4
