"""The live screen's regions: they follow from the terminal's size, and nothing moves with C, state or content."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Region, Size

from swarmtui.model.client_protocol import Ended, SessionMessage
from swarmtui.tui.app import SMALLEST, SwarmApp
from swarmtui.tui.lines import LineWidget
from swarmtui.tui.live.layout import live_layout
from swarmtui.tui.live.live_panel import LivePanel
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live_model import LiveModel
from tests.analysis.level_builders import level
from tests.tui.frame_builders import RecordingSource, frame, hello
from tests.tui.screen_text import screen_text

DESIGNED = [(80, 24), (100, 30), (120, 40), (160, 45), (200, 60)]
sizes = st.tuples(st.integers(SMALLEST.width, 320), st.integers(SMALLEST.height, 120))


@given(sizes, st.booleans())
def test_regions_fill_the_screen_and_do_not_overlap(size: tuple[int, int], ended: bool) -> None:
    cells = [0] * (size[0] * size[1])
    for _, (x, y, width, height) in live_layout(*size, ended).regions:
        for row in range(y, y + height):
            for column in range(x, x + width):
                cells[row * size[0] + column] += 1
    assert set(cells) == {1}


@given(st.integers(0, 320), st.integers(0, 120), st.booleans())
def test_no_size_has_a_region_outside_of_it(width: int, height: int, ended: bool) -> None:
    whole = Region(0, 0, width, height)
    for _, region in live_layout(width, height, ended).regions:
        assert region.height >= 0 and (not region.area or whole.contains_region(region))


@given(sizes)
def test_the_curve_is_the_largest_region(size: tuple[int, int]) -> None:
    layout = live_layout(*size)
    curve = layout.region("curve")
    assert curve is not None
    assert all(curve.area >= region.area for _, region in layout.regions)
    assert curve.height >= 8 or size[1] < 24


@given(sizes)
def test_the_result_has_the_rows_of_the_agents_and_more_if_the_others_have_some_to_spare(size: tuple[int, int]) -> None:
    running, ended = live_layout(*size), live_layout(*size, True)
    assert [name for name, _ in running.regions] == [name for name, _ in ended.regions]
    assert running.result is not None and ended.result is not None
    assert ended.result.height >= running.result.height
    least = {(80, 24): 14, (120, 40): 13, (200, 60): 13}
    assert all(live_layout(*size, True).result.height >= rows for size, rows in least.items())  # type: ignore[union-attr]


@pytest.mark.parametrize("size", DESIGNED)
def test_designed_sizes_show_what_they_are_designed_for(size: tuple[int, int]) -> None:
    shown = {name for name, _ in live_layout(*size).regions}
    wanted = {"header", "numbers", "curve", "levels", "footer"}
    wanted |= {"agents", "machine"} if size[0] >= 100 else set()
    wanted |= {"history", "quality"} if size[0] >= 200 else set()
    assert shown == wanted


def regions(app: SwarmApp) -> dict[str, Region]:
    """Where each part of the screen stands, by what is named there."""
    found = {}
    for widget in app.screen.query(LineWidget):
        if widget.display:
            own = live_layout(*app.size).place_of(widget.place) if isinstance(widget, LivePanel) else None
            found[own or type(widget).__name__] = widget.region
    return found


@pytest.mark.parametrize("size", DESIGNED)
async def test_nothing_moves_with_c_or_levels_and_the_end_moves_it_once(size: tuple[int, int]) -> None:
    source = RecordingSource(LiveModel())
    app = SwarmApp(source=source)
    levels = tuple(level(c, tps=40.0 * c) for c in (1, 2, 4, 8))
    many = frame(64, text="text " * 40)
    steps: list[SessionMessage] = [
        hello(), msgspec.structs.replace(frame(1), levels=(), telemetry=None, provisional=()), frame(8, text="text"),
        msgspec.structs.replace(many, levels=levels), msgspec.structs.replace(frame(4), status="paused", levels=levels),
        msgspec.structs.replace(frame(4), status="ended", levels=levels), Ended("done", "", "/nowhere"),
    ]  # fmt: skip
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        first = regions(app)
        assert Size(*size).area == sum(region.area for region in first.values())
        for step in steps:
            source.live.apply(step)
            assert isinstance(app.screen, RunScreen)
            app.screen.data_changed()
            await pilot.pause()
            if app.screen.has_ended:
                layout = live_layout(*size, True)
                first = first | {name: region for name, region in layout.regions if name in first}
                if layout.covers_numbers and layout.result is not None:
                    # In a low terminal, the result has the rows of the numbers, too.
                    first = first | {"curve": layout.result}
                    first.pop("numbers", None)
            assert regions(app) == first


async def test_what_a_region_will_show_is_named_from_the_start() -> None:
    source = RecordingSource(LiveModel())
    source.live.apply(hello())
    app = SwarmApp(source=source)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        shown = screen_text(app)
        for named in ("[1] curve", "[2] agents", "[3] GPU", "[4] levels", "tok/s", "per agent", "first token"):
            assert named in shown
