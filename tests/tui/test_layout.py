"""The live screen's regions: they follow from the terminal's size, and nothing moves with C, state or content."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Region, Size

from swarmtui.model.client_protocol import Ended, SessionMessage
from swarmtui.model.findings import Finding
from swarmtui.tui.app import SMALLEST, SwarmApp
from swarmtui.tui.lines import LineWidget
from swarmtui.tui.live.layout import EndedRows, live_layout
from swarmtui.tui.live.live_panel import LivePanel
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live_model import LiveModel
from tests.analysis.level_builders import level
from tests.tui.frame_builders import RecordingSource, frame, hello
from tests.tui.screen_text import screen_text

DESIGNED = [(80, 24), (100, 30), (120, 40), (160, 45), (200, 60)]
sizes = st.tuples(st.integers(SMALLEST.width, 320), st.integers(SMALLEST.height, 120))
ends = st.none() | st.builds(EndedRows, st.integers(3, 60), st.integers(3, 60))


@given(sizes, ends)
def test_regions_fill_the_screen_and_do_not_overlap(size: tuple[int, int], ended: EndedRows | None) -> None:
    cells = [0] * (size[0] * size[1])
    for _, (x, y, width, height) in live_layout(*size, ended).regions:
        for row in range(y, y + height):
            for column in range(x, x + width):
                cells[row * size[0] + column] += 1
    assert set(cells) == {1}


@given(st.integers(0, 320), st.integers(0, 120), ends)
def test_no_size_has_a_region_outside_of_it(width: int, height: int, ended: EndedRows | None) -> None:
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


@given(sizes, st.builds(EndedRows, st.integers(3, 60), st.integers(3, 60)))
def test_the_result_is_above_all_others_and_has_the_rows_that_it_needs(size: tuple[int, int], need: EndedRows) -> None:
    layout = live_layout(*size, need)
    result, levels = layout.region("result"), layout.region("levels")
    assert result is not None and result.width == size[0]
    assert all(region.y >= result.bottom for name, region in layout.regions if name not in ("header", "result"))
    if levels is None:
        assert result == layout.body
    else:
        assert result.height == need.result and levels.height >= 5
    assert layout.region(layout.shared) is not None


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
            assert isinstance(app.screen, RunScreen)
            own = app.screen.regions.place_of(widget.place) if isinstance(widget, LivePanel) else None
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
                fixed = {name: region for name, region in first.items() if name in ("HeaderPanel", "KeyFooter")}
                shown = (pair for pair in app.screen.regions.regions if pair[0] not in ("header", "footer"))
                first = {**fixed, **dict(shown)}
            assert regions(app) == first


async def test_after_the_end_rows_that_the_levels_leave_empty_go_to_the_machine() -> None:
    """Three rows were for remarks of more kinds than fit, which have one line; the machine was cut meanwhile."""
    codes = ("c_held", "coalesced_chunks", "first_reads", "host_pressure", "synchronised")
    flags = tuple(Finding(code=code, text=f"{code} is said of this level") for code in codes)
    levels = tuple(level(c, tps=40.0 * c, flags=flags) for c in (1, 2, 3, 4, 6, 8))
    source = RecordingSource(LiveModel())
    ended = msgspec.structs.replace(frame(4), status="ended", levels=levels)
    for step in (hello(), ended, Ended("done", "", "/nowhere")):
        source.live.apply(step)
    app = SwarmApp(source=source)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        shown = screen_text(app).splitlines()
        first = next(at for at, line in enumerate(shown) if "[4] levels" in line)
        inside = [line.strip("│┃ ") for line in shown[first + 1 : -2]]
        assert len(inside) > len(levels) and all(inside)
        assert isinstance(app.screen, RunScreen)
        heights = {name: region.height for name, region in app.screen.regions.regions}
        assert heights["machine"] > heights["numbers"] >= 7


async def test_what_a_region_will_show_is_named_from_the_start() -> None:
    source = RecordingSource(LiveModel())
    source.live.apply(hello())
    app = SwarmApp(source=source)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        shown = screen_text(app)
        for named in ("[1] curve", "[2] agents", "[3] GPU", "[4] levels", "tok/s", "per agent", "TTFT (10 s)"):
            assert named in shown
