"""Scripts whose syllables terminals measure differently: what is painted in parts is what a full repaint shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual._compositor import LayoutUpdate
from textual.drivers.headless_driver import HeadlessDriver
from textual.widgets import Input
from wcwidth import wcwidth

from swarmtui.report.table import Column, tabulate
from swarmtui.text import display_width, sanitize, truncate
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.cell_text import CONTINUED, ClusterText, with_stand_ins
from swarmtui.tui.lines import cell_width, fit_line, ljust, wrap
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.tables import table_lines
from swarmtui.tui.terminal_cells import TerminalCells
from swarmtui.tui.textual_patches import FullUpdate
from tests.cli.programs import ROOT
from tests.tui.frame_builders import RecordingSource, frame
from tests.tui.streaming_scripts import END, STEPS, WORDS, answer
from tests.tui.test_painting import Emulator, assert_same, update

texts = st.text(st.sampled_from([*"".join(WORDS), "a", "很"]), max_size=40).map(sanitize)


@given(texts, st.integers(0, 40))
def test_lines_have_exactly_their_width(text: str, width: int) -> None:
    line = "".join(part for part, _ in fit_line([(text, "")], width))
    assert cell_len(line) == width == cell_len(ljust(text, width))
    assert all(cell_len(part) <= max(4, width) for part in wrap(text, max(4, width)))
    assert with_stand_ins(with_stand_ins(text)) == with_stand_ins(text)


@given(texts)
def test_a_cluster_has_room_for_what_any_terminal_uses(text: str) -> None:
    # A mark without a letter is left out.
    text = "a" + text.replace(" ", "a")
    assert cell_width(text) >= display_width(text)
    assert display_width(truncate(text, 7)) <= 7


def test_rows_of_a_table_have_the_width_of_its_titles() -> None:
    table = tabulate("", [(word, "end") for word in WORDS], [
        Column("word", "word", lambda row: row[0], right=False), Column("end", "", lambda row: row[1])
    ])  # fmt: skip
    assert len({cell_width("".join(text for text, _ in line)) for line in table_lines(table, 80)}) == 1


def repaint(app: SwarmApp, columns: int, rows: int) -> Emulator:
    """Paint the present screen as a whole on another terminal."""
    whole = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    assert isinstance(whole, LayoutUpdate)
    emulator = Emulator(columns, rows)
    emulator.feed(FullUpdate(whole, TerminalCells()).render_segments(app.console))
    return emulator


def narrow_marks(char: str) -> int:
    return wcwidth(char)


def wide_marks(char: str) -> int:
    """As terminals do that give vowel signs and jamo cells of their own."""
    return 1 if unicodedata.category(char) == "Mc" or "\u1160" <= char <= "\u11ff" else wcwidth(char)


@pytest.mark.parametrize("measure", [narrow_marks, wide_marks])
async def test_streamed_scripts_are_painted_like_a_full_repaint(
    measure: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(HeadlessDriver, "is_headless", False)
    monkeypatch.setattr(HeadlessDriver, "write", lambda driver, data: written.append(data))
    monkeypatch.setattr("pyte.screens.wcwidth", measure)
    size = (120, 40)
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=size) as pilot:
        shown = Emulator(*size)
        for step in range(STEPS):
            seen = frame(6, at_s=10.0 + step, words=WORDS[step % len(WORDS)], total=100 + step, text=answer(step))
            source.live.apply(msgspec.structs.replace(seen, note=answer(step), warnings=()))
            assert isinstance(app.screen, RunScreen)
            app.screen.data_changed()
            await pilot.pause()
            await update(app)
            shown.feed("".join(written))
            written.clear()
            assert_same(shown, repaint(app, *size))
            # Nothing was moved: the frames end in the last column.
            assert all(line[-1] in "╮│╯┓┃┛" for line in shown.screen.display[3:-1])


@given(texts, st.data())
def test_style_of_a_character_is_that_of_its_whole_cluster(text: str, data: st.DataObject) -> None:
    # A mark without a letter is left out.
    text = "a" + text.replace(" ", "a")
    at = data.draw(st.integers(0, len(text)))
    shown = ClusterText(text)
    shown.pad_right(1)
    shown.stylize("bold", at, at + 1)
    (span,) = shown.spans
    before, styled, after = shown.plain[: span.start], shown.plain[span.start : span.end], shown.plain[span.end :]
    assert styled and with_stand_ins(text) + " " == before + styled + after
    assert CONTINUED not in (styled[0], after[:1])


async def test_cursor_of_a_field_moves_over_clusters() -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("slash")
        field = app.screen.query_one("InputLine Input", Input)
        field.value = "நிab"
        await pilot.press("home")
        start = field.cursor_screen_offset
        columns = []
        for _ in range(4):
            await pilot.press("right")
            columns.append(field.cursor_screen_offset.x - start.x)
        # The field has a cell more at its end.
        assert (field.value, columns) == ("நிab", [1, 2, 3, 5])
        await pilot.click(offset=(start.x + 2, start.y))
        await pilot.press("x")
        assert field.value == "நிxab"


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Run a command of tmux, with a server of its own."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("TMUX", "NO_COLOR", "COLUMNS", "LINES")
    }
    environment |= {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("STATE", "CONFIG", "DATA")}

    def run(*words: str) -> str:
        command = ["tmux", "-u", "-f", "/dev/null", "-S", str(tmp_path / "tmux"), *words]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    try:
        yield run
    finally:
        run("kill-server")


def captured(tmux: Callable[..., str], condition: Callable[[str], bool]) -> list[str]:
    deadline = time.monotonic() + 60
    while not condition(shown := tmux("capture-pane", "-p")):
        if time.monotonic() > deadline:
            pytest.fail(f"not within a minute:\n{shown}")
        time.sleep(0.05)
    return shown.splitlines()


def test_tmux_shows_streamed_scripts_like_a_full_repaint(tmux: Callable[..., str]) -> None:
    app = [sys.executable, "-m", "tests.tui.streaming_scripts"]
    tmux("new-session", "-d", "-x", "120", "-y", "40", "-c", str(ROOT), *app)
    before = captured(tmux, lambda shown: END in shown)
    # Keys are handled in order: when the display is frozen, it was painted again.
    tmux("send-keys", "C-l")
    tmux("send-keys", "Space")
    after = captured(tmux, lambda shown: "FROZEN" in shown)
    differing = [(old, new) for old, new in zip(before[:2] + before[3:-1], after[:2] + after[3:-1], strict=True)
                 if old != new]  # fmt: skip
    assert not differing


@pytest.mark.parametrize("word", ["நிலை", "தமிழ்", "ភាសាខ្មែរ", "\u1112\u1161\u11ab"])
def test_tmux_shows_a_typed_filter_like_a_full_repaint(tmux: Callable[..., str], word: str) -> None:
    app = [sys.executable, "-m", "tests.tui.streaming_scripts"]
    tmux("new-session", "-d", "-x", "120", "-y", "40", "-c", str(ROOT), *app)
    captured(tmux, lambda shown: END in shown)
    tmux("send-keys", "Space", "/")
    tmux("send-keys", "-l", f"{word} end")
    before = captured(tmux, lambda shown: " end " in shown.splitlines()[-1])
    tmux("send-keys", "-R")  # an empty screen
    tmux("send-keys", "C-l")
    assert captured(tmux, lambda shown: "esc back" in shown)[-1] == before[-1]
