"""Compare the screens of a recorded session with the expected ones.

UPDATE_SCREENS=1 rewrites the expected screens; review the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swarmtui.sessions.replay import open_replay
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.frame_source import ReplaySource
from swarmtui.tui.live.curve import CurvePanel
from swarmtui.tui.live.history import HistoryPanel
from swarmtui.tui.live.stream_screen import StreamScreen
from swarmtui.tui.live.streams import StreamsPanel
from tests.tui.conftest import Until
from tests.tui.screen_text import screen_text

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
END_S = 1_000.0
FIRST = min(path.name for path in (HERE / "recorded").iterdir())

SCREENS = [
    ("live-80x24", (80, 24), 9.0, ()),
    ("live-120x40", (120, 40), 12.0, ()),
    ("live-200x60", (200, 60), END_S, ()),
    ("ended-80x24", (80, 24), END_S, ()),
    ("ended-120x40", (120, 40), END_S, ()),
    ("history-80x24", (80, 24), END_S, ("2",)),
    ("gpus-80x24", (80, 24), END_S, ("3",)),
    ("levels-80x24", (80, 24), END_S, ("4",)),
    ("curve-120x40", (120, 40), END_S, ("5",)),
    ("quality-80x24", (80, 24), 9.0, ("6",)),
    ("filtered-80x24", (80, 24), 9.0, ("slash", "t", "e", "s", "t")),
    ("stream-80x24", (80, 24), 9.0, ("enter",)),
    ("stream-120x40", (120, 40), 9.0, ("j", "enter")),
    ("help-80x24", (80, 24), 0.0, ("question_mark",)),
]


def replay_at(app: SwarmApp, at_s: float) -> ReplaySource:
    source = app._source
    assert isinstance(source, ReplaySource)
    source.playing = False
    source.seek(at_s)
    return source


@pytest.mark.parametrize(("name", "size", "at_s", "keys"), SCREENS, ids=[screen[0] for screen in SCREENS])
async def test_screen_matches_snapshot(
    name: str, size: tuple[int, int], at_s: float, keys: tuple[str, ...], until: Until
) -> None:
    app = SwarmApp(source=ReplaySource(open_replay(HERE / "recorded", FIRST), hz=4.0))
    async with app.run_test(size=size) as pilot:
        replay_at(app, at_s)
        await pilot.press(*keys)
        await pilot.pause()
        curves = [curve for curve in app.screen.query(CurvePanel) if curve.is_on_screen and curve.view]
        await until(lambda: all(curve.plotext is not None for curve in curves if curve.view and not curve.view.empty))
        await pilot.pause()
        shown = screen_text(app) + "\n"
    path = EXPECTED / f"{name}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        EXPECTED.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


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


async def test_a_click_shows_one_panel_or_chooses_a_stream(until: Until) -> None:
    app = SwarmApp(source=ReplaySource(open_replay(HERE / "recorded", FIRST), hz=4.0))
    async with app.run_test(size=(120, 40)) as pilot:
        replay_at(app, 9.0)
        await pilot.pause()
        await pilot.click(StreamsPanel, offset=(8, 3))
        await until(lambda: app.screen.query_one(StreamsPanel).cursor == 1)
        await pilot.click(HistoryPanel, offset=(8, 3))
        await until(lambda: not app.screen.query_one(StreamsPanel).is_on_screen)
        await pilot.click(HistoryPanel, offset=(8, 3))
        await until(lambda: app.screen.query_one(StreamsPanel).is_on_screen)
        await pilot.click(StreamsPanel, offset=(8, 2), times=2)
        await until(lambda: isinstance(app.screen, StreamScreen))
