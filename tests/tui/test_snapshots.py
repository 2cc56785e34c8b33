"""Compare the screens of a recorded session with the expected ones.

UPDATE_SCREENS=1 rewrites the expected screens; review the difference before committing it.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console
from textual._compositor import CompositorUpdate
from textual.pilot import Pilot

from swarmtui.sessions.replay import open_replay
from swarmtui.tui.app import AppResult, SwarmApp
from swarmtui.tui.frame_source import ReplaySource
from swarmtui.tui.live.levels import LevelsPanel
from swarmtui.tui.live.screen import LiveScreen
from swarmtui.tui.live.stream_screen import StreamScreen
from swarmtui.tui.live.streams import StreamsPanel
from tests.bench.empty_cells import empty_share
from tests.tui.conftest import Until
from tests.tui.screen_text import TOUCHING, screen_text

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
END_S = 1_000.0
FIRST = min(path.name for path in (HERE / "recorded").iterdir())

# The states of the live screen: seconds from the start, and keys to press.
STATES = {
    "starting": (0.0, ()),
    "few-streams": (9.0, ()),
    "streams": (12.0, ()),
    "heat-map": (12.0, ("m", "l")),
    "without-text": (12.0, ("v",)),
    "history": (12.0, ("5", "5")),
    "ended": (END_S, ()),
}
SIZES = ((80, 24), (100, 30), (120, 40), (160, 45), (200, 60))
# SGR codes of bold, dim, reverse and the default colours, and of 16 colours.
UNCOLOURED = {"0", "1", "2", "7", "39", "49"}
SIXTEEN = {*UNCOLOURED, *(str(base + n) for base in (30, 40, 90, 100) for n in range(8))}

SCREENS = [
    ("agents-80x24", (80, 24), 12.0, ("2",)),
    ("machine-80x24", (80, 24), END_S, ("3",)),
    ("levels-80x24", (80, 24), END_S, ("4", "4")),
    ("curve-120x40", (120, 40), END_S, ("1", "1")),
    ("quality-80x24", (80, 24), 9.0, ("6",)),
    ("filtered-80x24", (80, 24), 9.0, ("2", "slash", "t", "e", "s", "t")),
    ("stream-80x24", (80, 24), 9.0, ("2", "enter")),
    ("stream-120x40", (120, 40), 9.0, ("j", "enter")),
    ("help-80x24", (80, 24), 0.0, ("question_mark",)),
]


def replay_at(app: SwarmApp, at_s: float) -> ReplaySource:
    source = app._source
    assert isinstance(source, ReplaySource)
    source.playing = False
    source.seek(at_s)
    return source


@pytest.mark.parametrize("state", STATES)
async def test_state_matches_snapshots_at_each_size(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with 16 colours and with NO_COLOR: the text is the same, and no other colours are written."""
    at_s, keys = STATES[state]
    app = SwarmApp(source=ReplaySource(open_replay(HERE / "recorded", FIRST), hz=4.0))
    async with app.run_test(size=SIZES[0]) as pilot:
        replay_at(app, at_s)
        await pilot.press(*keys)
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await settle(app, pilot)
            check(f"{state}-{size[0]}x{size[1]}", screen_text(app))
            assert not TOUCHING.search(screen_text(app)), "words touch a frame"
        text = screen_text(app)
        app.theme = "ansi-dark"
        await settle(app, pilot)
        assert painted_codes(app, "standard") <= SIXTEEN and screen_text(app) == text
        monkeypatch.setattr(app, "no_color", True)
        assert painted_codes(app, "standard") <= UNCOLOURED


async def test_little_of_a_screen_is_empty_once_two_levels_are_done() -> None:
    app = SwarmApp(source=ReplaySource(open_replay(HERE / "recorded", FIRST), hz=4.0))
    async with app.run_test(size=SIZES[0]) as pilot:
        replay_at(app, 9.0)
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await settle(app, pilot)
            assert empty_share(app) < 0.15, size


def painted_codes(app: SwarmApp, colours: Literal["standard"]) -> set[str]:
    """Return the SGR codes of the whole screen on a terminal with these colours."""
    update = app.screen._compositor.render_update(full=True)
    assert isinstance(update, CompositorUpdate)
    console = Console(color_system=colours, force_terminal=True, file=io.StringIO())
    written = update.render_segments(console)
    return {code for sequence in re.findall("\x1b\\[([0-9;]*)m", written) for code in sequence.split(";") if code}


async def test_palette_marks_its_item_without_colours(monkeypatch: pytest.MonkeyPatch, until: Until) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = SwarmApp(source=ReplaySource(open_replay(HERE / "recorded", FIRST), hz=4.0))
    async with app.run_test(size=SIZES[0]) as pilot:
        replay_at(app, 0.0)
        await pilot.press("ctrl+p")
        await until(lambda: "agents (2)" in screen_text(app))
        await until(lambda: "4" in painted_codes(app, "standard"))


async def settle(app: SwarmApp, pilot: Pilot[AppResult]) -> None:
    """Wait for the layout."""
    for _ in range(3):
        if isinstance(app.screen, LiveScreen):
            app.screen.update_panels()
        await pilot.pause()


def check(name: str, shown: str) -> None:
    path = EXPECTED / f"{name}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.write_text(shown + "\n", encoding="utf-8")
    assert shown + "\n" == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "size", "at_s", "keys"), SCREENS, ids=[screen[0] for screen in SCREENS])
async def test_screen_matches_snapshot(name: str, size: tuple[int, int], at_s: float, keys: tuple[str, ...]) -> None:
    app = SwarmApp(source=ReplaySource(open_replay(HERE / "recorded", FIRST), hz=4.0))
    async with app.run_test(size=size) as pilot:
        replay_at(app, at_s)
        await pilot.press(*keys)
        await settle(app, pilot)
        check(name, screen_text(app))


async def test_replay_can_be_paused_sped_up_and_rewound() -> None:
    app = SwarmApp(source=ReplaySource(open_replay(HERE / "recorded", FIRST), hz=4.0))
    async with app.run_test(size=(120, 40)) as pilot:
        replay = replay_at(app, 0.0)
        await pilot.press("right")
        assert replay.at_s == 10.0
        await pilot.press("left", "left")
        assert replay.at_s == 0.0
        await pilot.press("plus", "plus")
        assert replay.speed == 5
        await pilot.press("minus")
        assert replay.speed == 2
        await pilot.press("space")
        assert replay.playing
        await pilot.press("space")
        await pilot.pause()
        assert "paused" in screen_text(app)


async def test_a_click_goes_to_a_panel_or_chooses_an_agent(until: Until) -> None:
    app = SwarmApp(source=ReplaySource(open_replay(HERE / "recorded", FIRST), hz=4.0))
    async with app.run_test(size=(120, 40)) as pilot:
        replay_at(app, 9.0)
        await pilot.pause()
        agents, levels = app.screen.query_one(StreamsPanel), app.screen.query_one(LevelsPanel)
        await pilot.click(LevelsPanel, offset=(8, 3))
        await until(lambda: levels.in_focus)
        await pilot.click(StreamsPanel, offset=(8, 2 + agents.each))
        await until(lambda: agents.cursor == 1 and agents.in_focus)
        await pilot.click(LevelsPanel, offset=(8, 3), times=2)
        await until(lambda: not agents.is_on_screen)
        await pilot.click(LevelsPanel, offset=(8, 3), times=2)
        await until(lambda: agents.is_on_screen)
        await pilot.click(StreamsPanel, offset=(8, 2), times=2)
        await until(lambda: isinstance(app.screen, StreamScreen))
