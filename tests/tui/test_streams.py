"""The streams: text that arrives stays where it is, and a heat map of many streams."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.pilot import Pilot

from swarmtui.analysis.capacity.words import first_token_texts
from swarmtui.analysis.limits.slo import DEFAULT_SLO
from swarmtui.model.client_protocol import StreamRate
from swarmtui.model.findings import SearchState
from swarmtui.model.worker_protocol import StreamRow, TextTail
from swarmtui.state.counts import RunningSlo
from swarmtui.tui.app import AppResult, SwarmApp
from swarmtui.tui.live.agent_lines import agent_columns, agent_lines, column_titles, has_times, text_window
from swarmtui.tui.live.heat_map import heat_cells, map_layout, map_lines
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live.stream_screen import StreamScreen
from swarmtui.tui.live.streams import NO_ROWS, FirstRows, StreamsPanel, streams_view
from swarmtui.tui.live_model import LiveModel
from tests.tui.frame_builders import RecordingSource, frame, hello
from tests.tui.screen_text import screen_text, text_of


def tail_of(text: str) -> TextTail:
    return TextTail(0, len(text), text[-200:])


def one_line(tail: TextTail, width: int) -> str:
    (line,) = text_window(tail, width)
    return line


@given(st.text(st.sampled_from("ab很😀e\u0301\n\x1b "), max_size=400), st.integers(2, 150))
def test_text_fits_and_is_the_end_of_the_answer(text: str, width: int) -> None:
    for longer in (1, 20, 5_000):
        assert cell_len(one_line(TextTail(0, len(text) + longer, text), width)) <= width
    shown = one_line(tail_of(text), width)
    assert cell_len(shown) <= width
    assert shown.isprintable()
    # The letter after an escape is part of a sequence: an accent that follows it may stay alone.
    assert shown == "" or unicodedata.normalize("NFD", shown)[-1] in text


def test_text_is_appended_until_the_line_is_full() -> None:
    """A line that moves with each token cannot be read, and all of it is painted each time."""
    answer = " ".join(f"word{number}" for number in range(400))
    shown = [one_line(tail_of(answer[:length]), 60) for length in range(1, len(answer))]
    moves = sum(not after.startswith(before) for before, after in pairwise(shown))
    assert moves <= len(answer) / 20 + 1
    assert all(30 <= len(text) <= 60 for text in shown[60:])
    assert all(text.startswith("word"[: len(text)]) for text in shown)


def rows(states: list[str]) -> tuple[list[StreamRow], dict[int, StreamRate]]:
    found = [StreamRow(n, state, n, "chat", 1, 1, 9, 0.1) for n, state in enumerate(states)]
    return found, {n: StreamRate(n, None, ()) for n in range(len(states))}


def test_heat_map_shows_speed_by_sign_and_style() -> None:
    streams, rates = rows(["writing"] * 5 + ["waiting", "idle", "backing off"])
    for agent, tps in enumerate((40.0, 41.0, 10.0, 30.0, 80.0)):
        rates[agent] = StreamRate(agent, tps, ())
    cells, median_tps = heat_cells(streams, rates)
    assert median_tps == 40.0
    assert "".join(cell.sign for cell in cells) == "░░█▒░◌·✖"
    steps = [int(cell.style.removeprefix("latency")) for cell in cells[:5]]
    assert steps[2] > steps[3] > steps[0] == steps[1] >= steps[4], "the slower, the brighter"
    assert [cell.style for cell in cells[5:]] == ["queue", "dim", "bad"]
    assert [cell.tps for cell in cells[4:6]] == ["80.0", ""]


@pytest.mark.parametrize(
    ("total", "width", "height"), [(64, 119, 8), (1000, 119, 9), (41, 60, 9), (5000, 79, 12), (64, 198, 51)]
)
def test_heat_map_fits_and_contains_the_cursor(total: int, width: int, height: int) -> None:
    cells, _ = heat_cells(*rows(["waiting"] * total))
    layout = map_layout(total, width, height)
    for cursor in (0, total // 2, total - 1):
        lines = map_lines(cells, layout, height, cursor, labelled=True)
        assert len(lines) <= height and max(cell_len(text_of([line])) for line in lines) <= width
        assert any(style == "selected" for line in lines for _, style in line)


def live(streams: int, text: str) -> LiveModel:
    model = LiveModel()
    model.apply(hello())
    for second in range(3):
        model.apply(frame(streams, at_s=10.0 + second, total=100 + 40 * second, text=text))
    return model


async def settle(app: SwarmApp, pilot: Pilot[AppResult]) -> None:
    """Let the layout follow the streams."""
    for _ in range(3):
        assert isinstance(app.screen, RunScreen)
        app.screen.update_panels()
        await pilot.pause()


def test_the_title_counts_what_agents_do_as_those_that_write_may_be_out_of_view() -> None:
    found, rates = rows(["waiting"] * 24 + ["writing"] * 4)
    shown = msgspec.structs.replace(frame(28), rows=tuple(found), telemetry=None)
    view = streams_view(shown, rates, "agent", "", 0, 6)
    assert view.titles == ("agents · 28: 4 writing, 24 waiting", "agents · 28")


def by_state(states: dict[int, str], sent_s: dict[int, float] | None = None, before: FirstRows = NO_ROWS) -> list[int]:
    """Return the agents in the order of their rows; `sent_s` are the times of their requests."""
    found = [
        StreamRow(agent, state, agent, "chat", int((sent_s or {}).get(agent, 1) * 1e9), 1, 9, None)
        for agent, state in states.items()
    ]
    shown = msgspec.structs.replace(frame(len(found)), rows=tuple(found), telemetry=None)
    return [line.agent for line in streams_view(shown, {}, "state", "", 0, 99, before=before).shown]


def test_agents_that_write_come_first_then_those_that_read_a_prompt_then_the_longest_wait() -> None:
    states = {0: "waiting", 1: "idle", 2: "prefill", 3: "waiting", 4: "writing", 5: "thinking", 6: "waiting"}
    assert by_state(states, {0: 3.0, 3: 1.0, 6: 2.0}) == [4, 5, 2, 3, 6, 0, 1]


def test_an_agent_that_writes_stays_in_its_row_and_one_that_begins_takes_the_row_of_one_that_ended() -> None:
    assert by_state(dict.fromkeys(range(4), "writing") | {4: "waiting", 5: "waiting"}) == [0, 1, 2, 3, 4, 5]
    before = FirstRows((0, 1, 2, 3), 4)
    begins = {0: "waiting", 1: "thinking", 2: "writing", 3: "writing", 4: "writing", 5: "waiting"}
    assert by_state(begins, {0: 9.0}, before) == [4, 1, 2, 3, 5, 0]
    # The next one to begin is in the free row already.
    fewer = {0: "waiting", 1: "writing", 2: "writing", 3: "writing", 4: "waiting", 5: "waiting"}
    assert by_state(fewer, {0: 9.0}, before) == [4, 1, 2, 3, 5, 0]
    # If it does not begin, the last one that writes moves up; the others stay.
    assert by_state(fewer, {0: 9.0}, FirstRows((4, 1, 2, 3), 3)) == [3, 1, 2, 4, 5, 0]
    assert by_state({0: "idle", 1: "idle"}, None, before) == [0, 1]


def test_the_rows_of_a_view_are_those_that_the_next_one_keeps() -> None:
    def view(states: str, before: FirstRows) -> FirstRows:
        names = {"w": "writing", ".": "waiting"}
        found, rates = rows([names[state] for state in states])
        shown = msgspec.structs.replace(frame(len(found)), rows=tuple(found), telemetry=None)
        return streams_view(shown, rates, "state", "", 0, 9, before=before).first

    first = view("ww...", NO_ROWS)
    gap = view(".w...", first)
    assert (first, gap) == (FirstRows((0, 1), 2), FirstRows((0, 1), 1))
    assert view(".ww..", gap) == FirstRows((2, 1), 2)
    assert view(".w...", gap) == FirstRows((1,), 1)


@pytest.mark.parametrize(
    ("waited_s", "text"), [(0.04, ""), (0.39, "> 0.3 s"), (0.99, "> 0.9 s"), (1.0, "> 1 s"), (12.9, "> 12 s")]
)
def test_a_wait_below_a_second_has_tenths_and_a_longer_one_whole_seconds(waited_s: float, text: str) -> None:
    seen = frame(1)
    waiting = StreamRow(0, "waiting", 0, "chat", seen.t_ns - int(waited_s * 1e9), 0, 0, None)
    (line,) = streams_view(msgspec.structs.replace(seen, rows=(waiting,)), {}, "state", "", 0, 9).shown
    assert line.ttft == text


@pytest.mark.parametrize("waited_s", [0.35, 1.0, 1.96, 2.31, 7.2])
def test_the_oldest_wait_of_the_header_is_the_longest_one_of_the_agents_that_count(waited_s: float) -> None:
    """Before the requests of a level come those with which it begins: they wait longer, and none is judged."""
    seen = frame(3)
    rows = tuple(
        StreamRow(agent, "waiting", agent, "chat", seen.t_ns - round(1e9 * wait), 0, 0, None, measured=agent > 0)
        for agent, wait in enumerate((waited_s + 3.0, waited_s, waited_s / 2))
    )
    judged = RunningSlo(DEFAULT_SLO, 1, 0)
    judged.see(rows, seen.t_ns)
    search = SearchState(goal="capacity", next_c=3, step="climb")
    seen = msgspec.structs.replace(seen, rows=rows, search=search, slo=DEFAULT_SLO, first_tokens=judged.first_tokens())
    first, oldest, _ = streams_view(seen, {}, "agent", "", 0, 9).shown
    assert f"oldest wait {oldest.ttft}" in first_token_texts(seen)[0]
    assert first.ttft == f"({int(waited_s + 3.0)} s)"
    assert first.without_text == "warm-up: not counted" and "counted" not in oldest.without_text
    # A run without a search judges nothing.
    assert streams_view(msgspec.structs.replace(seen, search=None), {}, "agent", "", 0, 9).shown[0].ttft.startswith(">")


async def test_a_map_has_each_agent_in_its_place_and_the_sort_key_begins_after_the_order_that_is_shown() -> None:
    app = SwarmApp(source=RecordingSource(live(8, "")))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        screen = app.screen
        assert isinstance(screen, RunScreen)
        orders = [screen.order]
        for key in ("m", "o"):
            await pilot.press(key)
            orders.append(screen.order)
        assert orders == ["state", "agent", "tok/s"]


async def test_arrow_keys_choose_a_stream_of_the_heat_map_and_enter_opens_it() -> None:
    source = RecordingSource(live(64, "once upon a time"))
    app = SwarmApp(source=source)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await pilot.press("down", "right", "right", "left")
        streams = app.screen.query_one(StreamsPanel)
        assert streams.as_map and streams.selected == 31
        assert source.texts[-1] == (31,), "without another frame, which a paused replay does not send"
        await settle(app, pilot)
        assert "░░" in screen_text(app) and "once upon a time" in screen_text(app)
        await pilot.press("m")
        await settle(app, pilot)
        assert not streams.as_map and streams.selected == 31
        assert 31 in source.texts[-1] and 1 < len(source.texts[-1]) < 30
        await pilot.press("enter")
        assert isinstance(app.screen, StreamScreen)
        assert source.texts[-1] == ()


async def test_text_of_visible_streams_is_requested_and_can_be_switched_off() -> None:
    source = RecordingSource(live(4, "once upon a time"))
    app = SwarmApp(source=source)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        assert source.texts == [(0, 1, 2, 3)]
        assert screen_text(app).count("once upon a time") == 4
        await pilot.press("v")
        await pilot.pause()
        assert source.texts[-1] == () and "once upon" not in screen_text(app)
        await pilot.press("v", "4", "4")
        await settle(app, pilot)
        assert source.texts[-1] == ()


async def test_a_click_on_a_cell_of_the_heat_map_selects_its_agent() -> None:
    app = SwarmApp(source=RecordingSource(live(64, "once upon a time")))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        streams = app.screen.query_one(StreamsPanel)
        columns = streams.layout_of_map.columns
        await pilot.click(streams, offset=(1 + 6 + 3 * columns, 2))
        await settle(app, pilot)
        assert streams.selected == 3 + (streams.layout_of_map.per_line if streams.layout_of_map.height == 1 else 0)
        assert streams.in_focus


@pytest.mark.parametrize(("size", "share"), [((200, 60), 0.7), ((120, 40), 0.5)])
async def test_a_heat_map_that_is_shown_alone_uses_the_room_and_names_its_agents(
    size: tuple[int, int], share: float
) -> None:
    app = SwarmApp(source=RecordingSource(live(64, "once upon a time")))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await pilot.press("2")
        await settle(app, pilot)
        streams = app.screen.query_one(StreamsPanel)
        layout, (width, height) = streams.layout_of_map, streams.inner_size
        covered = layout.per_line * layout.columns * layout.lines(64)
        assert covered >= share * width * height
        assert re.findall(r" (\d+)  40\.0", screen_text(app)) == [*map(str, range(64))]
        await pilot.press("down", "right")
        await settle(app, pilot)
        assert streams.selected == layout.per_line + 1
        row = next(at for at, line in enumerate(screen_text(app).splitlines()) if " 42  40.0" in line)
        for moved, agent in ((0, 42), (-1, 42), (layout.height - 1, 42 + layout.per_line)):
            column = 1 + 6 + 42 % layout.per_line * layout.columns
            await pilot.click(offset=(column, row + moved))
            await settle(app, pilot)
            assert streams.selected == agent


@pytest.mark.parametrize(("streams", "lines"), [(1, 6), (2, 3), (4, 1)])
async def test_few_agents_have_more_lines_of_text(streams: int, lines: int) -> None:
    answer = " ".join(f"word{number}" for number in range(200))
    model = live(streams, answer)
    tails = tuple(TextTail(n, len(answer), answer[-600:]) for n in range(streams))
    assert model.frame is not None
    model.frame = msgspec.structs.replace(model.frame, tails=tails)
    app = SwarmApp(source=RecordingSource(model))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        shown = screen_text(app)
        assert shown.count("word199") == streams
        text = [line for line in shown.splitlines() if "word1" in line]
        assert streams <= len(text) <= streams * lines


@pytest.mark.parametrize("text", ["", "an answer"])
@pytest.mark.parametrize("each", [1, 3])
def test_the_bars_of_the_times_are_explained_where_they_are_shown(text: str, each: int) -> None:
    """Above text, and where a replay has no text."""
    shown = streams_view(frame(4, text=text) if text else frame(4), {}, "agent", "", 0, 9).shown
    columns = agent_columns(118)
    title = text_of([column_titles(columns, has_times=has_times(shown, each))])
    longest_s = max(line.wait_s + line.write_s for line in shown)
    drawn = text_of([row for line in shown for row in agent_lines(line, columns, each, 118, longest_s, here=False)])
    assert ("▒ time to the first token" in title) is ("▒" in drawn or "█" in drawn)


def test_the_bars_of_an_agent_without_text_are_explained_beside_the_text_of_others() -> None:
    seen = frame(4, text="an answer")
    without = tuple(tail for tail in seen.tails if tail.agent != seen.rows[0].agent)
    shown = streams_view(msgspec.structs.replace(seen, tails=without), {}, "agent", "", 0, 9).shown
    longest_s = max(line.wait_s + line.write_s for line in shown)
    for width, titled in ((118, "text, or ▒ waiting █ writing"), (78, "text, or ▒ wait █ write")):
        columns = agent_columns(width)
        rows = [row for line in shown for row in agent_lines(line, columns, 1, width, longest_s, here=False)]
        assert "█" in text_of(rows) and "an answer" in text_of(rows)
        assert titled in text_of([column_titles(columns, has_times=has_times(shown, 1))])
