"""The panels of the live screen: what is in their table has a class, a key and a place on the screen."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from swarmtui.tui import live
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.keys import ACTIONS
from swarmtui.tui.live.layout import CollapsedPanels
from swarmtui.tui.live.live_panel import LivePanel, load_panels
from swarmtui.tui.live.panels import PANELS
from tests.tui.frame_builders import RecordingSource
from tests.tui.screen_text import screen_text


def test_every_panel_with_a_key_is_in_the_table() -> None:
    modules = [
        importlib.import_module(f"swarmtui.tui.live.{module.name}") for module in pkgutil.iter_modules(live.__path__)
    ]
    classes = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    with_key = {kind for kind in classes if issubclass(kind, LivePanel) and kind.key}
    assert set(load_panels()) == with_key


def test_keys_of_the_table_are_those_of_the_classes() -> None:
    assert [panel.key for panel in load_panels()] == list(PANELS)
    assert all(panel.title for panel in load_panels())
    actions = {action.id: action for action in ACTIONS}
    assert all(actions[f"panel({key})"].keys == str(key) for key in PANELS)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_each_panel_can_be_shown_alone(size: tuple[int, int]) -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=size) as pilot:
        for panel in load_panels():
            await pilot.press(str(panel.key))
            await pilot.pause()
            shown = [other.key for other in app.screen.query(LivePanel) if other.is_on_screen and other.key]
            assert shown == [panel.key]
            assert f"── {panel.key} {panel.title} " in screen_text(app)
            await pilot.press("escape")


async def test_each_panel_has_a_place_or_a_line_on_a_large_screen() -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        collapsed = {int(panel.key) for panel in app.screen.query_one(CollapsedPanels).view or ()}
        shown = {panel.key for panel in app.screen.query(LivePanel) if panel.is_on_screen and panel.key}
        assert shown | collapsed == set(PANELS) and not shown & collapsed
