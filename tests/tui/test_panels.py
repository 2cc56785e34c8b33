"""The panels of the live screen: what is in their table has a class, a key and a place on the screen."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

import msgspec
import pytest

from swarmtui.model.client_protocol import Ended
from swarmtui.model.session import Spread, TaskFigures
from swarmtui.tui import live
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.keys import ACTIONS
from swarmtui.tui.live.layout import live_layout
from swarmtui.tui.live.live_panel import LivePanel, load_panels
from swarmtui.tui.live.panels import PANELS
from swarmtui.tui.live.screen import LiveScreen
from swarmtui.tui.screens import make_screen
from tests.analysis.level_builders import level
from tests.tui.conftest import Until
from tests.tui.frame_builders import RecordingSource, frame
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


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_a_key_goes_to_a_panel_then_shows_it_alone_and_it_stays_visible(size: tuple[int, int]) -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=size) as pilot:
        for panel in load_panels():
            await pilot.press("escape", str(panel.key))
            await pilot.pause()
            assert [other.key for other in visible(app) if other.in_focus] == [panel.key]
            if len(visible(app)) > 1:
                await pilot.press(str(panel.key))
                await pilot.pause()
            assert [other.key for other in visible(app)] == [panel.key]
            assert f"┏━ [{panel.key}] " in screen_text(app)
            for leave in (str(panel.key), "escape"):
                while [other.key for other in visible(app)] != [panel.key]:
                    await pilot.press(str(panel.key))
                    await pilot.pause()
                await pilot.press(leave)
                await pilot.pause()
                assert len(visible(app)) > 1
                assert [other.key for other in visible(app) if other.in_focus] == [panel.key]


async def test_a_key_pressed_twice_shows_its_panel_alone_also_from_another_one_that_is() -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("3", "3")
        for panel in load_panels():
            if panel.key != 3:
                await pilot.press(str(panel.key))
                await pilot.pause()
                assert len(visible(app)) > 1
                assert [other.key for other in visible(app) if other.in_focus] == [panel.key]
                await pilot.press(str(panel.key))
                await pilot.pause()
                assert [other.key for other in visible(app)] == [panel.key]


async def test_every_line_of_levels_that_are_alone_can_be_reached() -> None:
    keys = [(("j", "down"), ("k", "up"), 30), (("pagedown",), ("pageup",), 6), (("G",), ("g",), 1)]
    tasks = tuple(
        TaskFigures(
            c=1,
            type=f"task{n}",
            turn=0,
            n=3,
            ok=3,
            ttft_s=Spread(n=3, p50=0.1),
            per_stream_tps=40.0,
            e2e_s=1.0,
            tokens_out=9.0,
            verdicts={},
        )
        for n in range(30)
    )
    source = RecordingSource()
    source.live.apply(msgspec.structs.replace(frame(4), levels=(level(c=1), level(c=2)), tasks=tasks))
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "4")
        await pilot.pause()
        assert "task29" not in screen_text(app)
        for down, up, times in keys:
            await pilot.press(*down * times)
            assert "task29" in screen_text(app)
            await pilot.press(*up * times)
            assert "task29" not in screen_text(app) and "steady" in screen_text(app)


async def test_the_result_is_shown_at_the_end_also_if_another_panel_was_alone() -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "4")
        await pilot.pause()
        assert [panel.key for panel in visible(app)] == [4]
        source.live.apply(msgspec.structs.replace(frame(4), status="ended"))
        source.live.apply(Ended("done", "", ""))
        screen = app.screen
        assert isinstance(screen, LiveScreen)
        screen.data_changed()
        await pilot.pause()
        assert [panel.key for panel in visible(app) if panel.in_focus] == [7] and len(visible(app)) > 1


async def test_esc_removes_a_message_before_it_does_anything_else(until: Until) -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("3", "3")
        app.toast("one message")
        await until(lambda: "one message" in screen_text(app))
        app.toast("another message")
        await until(lambda: "another message" in screen_text(app) and "one message" not in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "another message" not in screen_text(app))
        assert [panel.key for panel in visible(app)] == [3]
        await pilot.press("escape")
        await until(lambda: [panel.key for panel in visible(app)] == [3, 4])


def visible(app: SwarmApp) -> list[LivePanel]:
    return [panel for panel in app.screen.query(LivePanel) if panel.is_on_screen and panel.key]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_tab_visits_every_region_and_a_click_goes_to_one(size: tuple[int, int]) -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        seen = set()
        for _ in range(len(visible(app))):
            await pilot.press("tab")
            await pilot.pause()
            seen |= {panel.key for panel in visible(app) if panel.in_focus}
        assert seen == {panel.key for panel in visible(app)}
        await pilot.press("shift+tab")
        levels = next(panel for panel in visible(app) if panel.place == "levels")
        await pilot.click(levels, offset=(3, 1))
        assert levels.in_focus
        await pilot.click(levels, offset=(3, 1), times=2)
        await pilot.pause()
        assert visible(app) == [levels]


async def test_what_has_no_region_is_behind_its_key_in_the_place_of_the_curve() -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        curve, levels = live_layout(80, 24).region("curve"), live_layout(80, 24).region("levels")
        for key in (2, 3, 5, 6):
            await pilot.press(str(key))
            await pilot.pause()
            assert {panel.key: panel.region for panel in visible(app)} == {key: curve, 4: levels}
        await pilot.press("escape")
        await pilot.pause()
        assert [panel.key for panel in visible(app)] == [1, 4]


async def test_the_footer_shows_what_works_in_the_panel_in_focus() -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        assert "enter open" in screen_text(app).splitlines()[-1]
        await pilot.press("4")
        await pilot.pause()
        assert "enter open" not in screen_text(app).splitlines()[-1]


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_the_names_of_the_legend_are_the_headings_of_the_table(size: tuple[int, int]) -> None:
    checked: dict[str, Any] = {"pass_rate": 1.0, "verdicts": {"ok": 4}}
    levels = tuple(level(c, tps=40.0 * c, stream=40.0, ttft=0.1, tpot=0.02, **checked) for c in (1, 2))
    source = RecordingSource()
    source.live.apply(msgspec.structs.replace(frame(2), levels=levels))
    app = SwarmApp(source=source)
    async with app.run_test(size=size) as pilot:
        await pilot.press("4", "4")
        await pilot.pause()
        lines = [line.strip(" ┃│") for line in screen_text(app).splitlines()]
        heading = next(line for line in lines if line.startswith("C "))
        names = {line.partition(":")[0] for line in lines if re.match(r"[\w± ]+: [a-z]", line)}
        assert "pass" in names and "per agent" in names
        assert all(re.search(rf"(^|  ){re.escape(name)}(  |$)", heading) for name in names), (names, heading)


async def test_after_the_end_the_panel_of_the_agents_says_how_to_see_them_again() -> None:
    source = RecordingSource()
    source.live.apply(msgspec.structs.replace(frame(2), rows=(), status="ended", levels=(level(2, tps=80.0),)))
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        shown = " ".join(screen_text(app).replace("┃", " ").split())
        assert "the run has ended, and its agents are gone" in shown and "A replay shows them again" in shown


@pytest.mark.parametrize("has_ended", [False, True])
async def test_help_begins_with_the_panel_in_focus_and_on_a_result_with_its_words(
    until: Until, has_ended: bool
) -> None:
    source = RecordingSource()
    if has_ended:
        source.live.apply(msgspec.structs.replace(frame(2), status="ended", levels=(level(2, tps=80.0),)))
        source.live.apply(Ended("done", "", "/nowhere"))
    app = SwarmApp(source=source)

    async def explained(title: str) -> None:
        await pilot.press("question_mark")
        await until(lambda: title in screen_text(app).splitlines()[1])
        await pilot.press("escape")

    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: ("[7] result" if has_ended else "[1] curve") in screen_text(app))
        await explained("The words of an answer" if has_ended else "[1] curve")
        await pilot.press("4")
        await explained("[4] levels")


async def test_esc_leads_from_another_panel_back_to_the_result_and_only_then_away_from_it(until: Until) -> None:
    source = RecordingSource()
    source.live.apply(msgspec.structs.replace(frame(2), status="ended", levels=(level(2, tps=80.0),)))
    source.live.apply(Ended("done", "", "/nowhere"))
    app = SwarmApp()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = make_screen("run", source, None)
        app.push_screen(screen)
        await until(lambda: "[7] result" in screen_text(app))
        await pilot.press("6")
        await until(lambda: "[6] measurement quality" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "[7] result" in screen_text(app) and app.screen is screen)
        await pilot.press("escape")
        await until(lambda: app.screen is not screen)


async def test_a_question_says_what_enter_and_escape_do() -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("N")
        await pilot.pause()
        assert "SLO of each agent: ttft_p90=2s,stream_p10=20" in screen_text(app)
        assert "enter starts · esc back" in screen_text(app).splitlines()[-1]
