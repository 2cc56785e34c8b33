"""Text from servers and models never breaks the layout and never reaches the terminal as control sequences."""

from __future__ import annotations

import unicodedata

import pytest
from rich.cells import cell_len
from textual.widgets import Input
from wcwidth import wcwidth

from swarmtui.tui.app import SwarmApp
from swarmtui.tui.cell_text import OWN_CHARACTERS, with_stand_ins
from swarmtui.tui.dialogs import SaveDialog, SessionDetails
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live_model import LiveModel
from tests.tui.frame_builders import RecordingSource, frame, hello
from tests.tui.screen_text import screen_text

HOSTILE = [
    "[bold red]markup[/] [link=http://x]y[/link] $(x)",
    "\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b31m",
    "\u202eright to left\u2066isolated\u2069 \u200b\u200d\ufeff zero",
    "one\ntwo\r\nthree\ttab\x00nul\x08\x7f",
    "很" * 200,
    "e\u0301\u0302\u0303" * 50 + "👩‍👩‍👧‍👦" * 20,
    "x" * 5_000,
]


def test_our_own_characters_have_one_cell_by_every_measure() -> None:
    assert {
        char for char in OWN_CHARACTERS if not cell_len(char) == wcwidth(char) == len(with_stand_ins(char)) == 1
    } == set()


def model_with(words: str) -> LiveModel:
    live = LiveModel()
    live.apply(hello(model=words, label=words))
    for second in range(5):
        live.apply(frame(12, at_s=10.0 + second, words=words, total=100 + 40 * second, text=words))
    return live


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
async def test_hostile_text_does_not_break_a_screen(size: tuple[int, int]) -> None:
    source = RecordingSource(LiveModel())
    app = SwarmApp(source=source)
    async with app.run_test(size=size) as pilot:
        for words in HOSTILE if size[0] < 100 else HOSTILE[-3:]:
            source.live = model_with(words)
            for key in ("6", "3", "escape", "m", "m", "enter", "escape"):
                await pilot.press(key)
                if isinstance(app.screen, RunScreen):
                    app.screen.update_panels()
                await pilot.pause()
                strips = app.screen._compositor.render_strips()
                assert [strip.cell_length for strip in strips] == [size[0]] * size[1]
                shown = screen_text(app)
                assert not [char for char in shown if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs")]
                assert all(cell_len(line) <= size[0] for line in shown.splitlines())


async def test_markup_is_shown_literally() -> None:
    app = SwarmApp(source=RecordingSource(model_with("[b]x[/b]")))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert isinstance(app.screen, RunScreen)
        app.screen.update_panels()
        await pilot.pause()
        assert "[b]x[/b]" in screen_text(app)
        app.toast("[b]toast[/b]")
        await pilot.pause()


async def test_prefilled_fields_contain_no_control_characters() -> None:
    """A label may come from a journal that somebody else wrote; OSC 52 sets the clipboard."""
    app = SwarmApp(source=RecordingSource(model_with("x")))
    words = "a\x1b]52;c;cm0gLXJm\x07b \u202e c\nd\x9b2J "
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(SaveDialog(SessionDetails(label=words, note=words, directory=f"/tmp/{words}")))
        await pilot.pause()
        shown = [entry.value for entry in app.screen.query(Input)]
        assert shown == ["ab  c d ", "ab  c d ", "/tmp/ab  c d "]
        strips = app.screen._compositor.render_strips()
        assert not [s for strip in strips for s in strip if {"\x1b", "\x07", "\x9b", "\u202e"} & set(s.text)]


async def test_small_terminal_shows_a_message_until_it_grows() -> None:
    app = SwarmApp(source=RecordingSource(model_with("x")))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.resize_terminal(40, 10)
        await pilot.pause()
        assert "40×10 is too small" in screen_text(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "[1] curve" in screen_text(app)
