"""The table of levels: what its rows and columns show, and which of them have room."""

from __future__ import annotations

import re

import msgspec
import pytest

from swarmtui.analysis.limits.slo import SloTally, parse_slo
from swarmtui.model.client_protocol import Ended, Frame, ProvisionalLevel
from swarmtui.model.findings import Finding, SearchedLevel, SearchState
from swarmtui.model.session import Level
from swarmtui.report.table import fit
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.live.curve import curve_view
from swarmtui.tui.live.levels import GAPS, WIDTHS, LevelNow, level_now, levels_view
from swarmtui.tui.tables import table_lines
from tests.analysis.level_builders import level
from tests.tui.frame_builders import RecordingSource, frame, model_of
from tests.tui.screen_text import screen_text, text_of


def provisional(c: int, done: int, of: int | None, tps: float, rate: float | None = None) -> ProvisionalLevel:
    return ProvisionalLevel(c=c, rate=rate, done=done, of=of, out_tps=tps, per_stream_tps=tps / c, ttft_s=0.123)


def test_a_level_is_shown_before_it_is_measured_completely() -> None:
    found = (provisional(1, 2, 4, 60.0), provisional(2, 3, 8, 90.0))
    view = levels_view((), provisional=found)
    lines = text_of(table_lines(view.table, 60)).splitlines()
    assert [line.split() for line in lines] == [
        ["C", "n", "tok/s", "±", "per", "agent", "TTFT", "p90", "slowdown"],
        ["○1", "2/4", "60.0", "60.0", "123", "ms"],
        ["○2", "3/8", "90.0", "45.0", "123", "ms"],
    ]
    narrow = text_of(table_lines(view.table, 30)).splitlines()
    assert all(len(line) <= 30 for line in narrow)
    assert [line.split()[0] for line in narrow] == ["C", "○1", "○2"] and "TTFT" in narrow[0]
    assert [marks.split()[-2:] for marks in view.marks] == [["measured", "now"], ["○", "now"]]
    # The first one has its requests, and waits for its figures; the second one was left early.
    left = (provisional(1, 4, 4, 60.0), *found[1:], provisional(4, 3, 8, 90.0))
    later = levels_view((), provisional=left, now=LevelNow(4, "measuring", ""))
    assert [row[0].text for row in later.table.rows] == ["1", "◇2", "○4"]
    assert later.marks[0].endswith("○ measured now · ◇ incomplete")
    (curve,) = curve_view((), (), "", "no level yet", found).charts[0].series
    assert curve.points == ((1, 60), (2, 90)) and curve.hollow == {1, 2}
    assert curve_view((), (), "", "no level yet").empty == "no level yet"


def test_a_provisional_level_of_an_open_loop_has_its_rate() -> None:
    """Its C is the number of agents in reserve."""
    found = (provisional(512, 23, None, 60.0, rate=4.0),)
    lines = text_of(table_lines(levels_view((), provisional=found).table, 60)).splitlines()
    assert lines[0].split()[:2] == ["rate", "done/s"] and lines[1].split()[:1] == ["○4"]


def test_levels_that_follow_are_listed_from_the_start() -> None:
    begun = levels_view((), planned=(1.0, 2.0, 4.0))
    assert [row[0].text for row in begun.table.rows] == ["1", "2", "4"]
    now = level_now(msgspec.structs.replace(frame(4), begun=3))
    later = levels_view([level(1), level(2)], planned=(1.0, 2.0, 4.0, 8.0), now=now)
    assert [row[1].text for row in later.table.rows][2:] == ["warming up", "planned"]


def test_a_level_that_measured_nothing_is_not_listed() -> None:
    table = levels_view([level(1), level(2, n=0)]).table
    assert [row[0].text for row in table.rows] == ["1"]


@pytest.mark.parametrize("width", [78, 118, 198])
def test_the_columns_of_the_levels_depend_on_the_width_only(width: int) -> None:
    measured = level(1, contention=0.0, rate_speedup=1.0, out_tps_steady_hw=0.5, cap_hits=3)
    states = (
        levels_view((), planned=(1.0,)),
        levels_view((), provisional=(provisional(1, 2, 4, 60.0),)),
        levels_view([measured], planned=(1.0, 2.0)),
        levels_view([measured, level(128, tps=1234.5)]),
    )
    titles = {text_of(table_lines(view.table, width, GAPS, WIDTHS)).splitlines()[0] for view in states}
    assert len(titles) == 1


def test_levels_of_a_search_have_the_requests_that_met_the_slo() -> None:
    found = (
        SearchedLevel(c=1, visits=1, n=16, good=16, state="kept"),
        SearchedLevel(c=2, visits=1, n=20, good=3, state="missed"),
    )
    so_far = ProvisionalLevel(c=4, done=3, of=8, out_tps=80.0, per_stream_tps=20.0, ttft_s=0.1)
    search = SearchState(goal="capacity", low=1, high=2, levels=found)
    table = levels_view([level(1), level(2)], provisional=(so_far,), search=search, now=LevelNow(4, "", "2 of 3")).table
    ids = [column.id for column in table.columns]
    assert "n" not in ids, "there is one count for each level"
    at = ids.index("slo")
    assert [(row[at].text, row[at].code) for row in table.rows] == [
        ("✓ 16 of 16", "kept"), ("✖ 3 of 20", "missed"), ("2 of 3", "partial"),
    ]  # fmt: skip


def test_levels_of_a_search_have_the_room_to_the_limit_instead_of_a_p90_that_few_requests_do_not_have() -> None:
    rooms = ((1, 0.5), (8, 0.27), (12, -0.124), (16, -1.0), (20, None))
    found = tuple(SearchedLevel(c=c, visits=1, n=16, good=16, state="kept", room=room) for c, room in rooms)
    search = SearchState(goal="capacity", low=8, high=12, levels=found)
    table = levels_view([level(c) for c, _ in rooms], search=search).table
    at = [column.id for column in table.columns].index("room")
    assert [row[at].text for row in table.rows] == ["≥50 %", "27 %", "−12 %", "≤−100 %", "–"]
    assert "ttft_p90" not in [column.id for column in table.columns]
    for other in (None, msgspec.structs.replace(search, goal="cliff")):
        ids = [column.id for column in levels_view([level(1)], search=other).table.columns]
        assert "ttft_p90" in ids and "room" not in ids


@pytest.mark.parametrize("next_c", [None, 16])
def test_a_level_whose_visits_were_not_alike_shows_each_where_no_column_is_lost(next_c: int | None) -> None:
    again = SearchedLevel(
        c=14, visits=2, n=34, good=22, state="unsure", kept_visits=1, missed_visits=1, by_visit=((17, 17), (5, 17))
    )
    kept = SearchedLevel(c=12, visits=2, n=34, good=34, state="kept", kept_visits=2, by_visit=((17, 17), (17, 17)))
    search = SearchState(goal="capacity", low=12, high=14, next_c=next_c, levels=(kept, again))
    view = levels_view([level(12, tps=900.0), level(14, tps=800.0)], search=search)

    def shown(width: int) -> list[str]:
        table = view.table_for(range(2), width)
        at = [column.id for column in table.columns].index("slo")
        return [row[at].text for row in table.rows]

    columns = {width: fit(view.table, width, GAPS, WIDTHS).columns for width in range(40, 160)}
    for width, without in columns.items():
        assert fit(view.table_for(range(2), width), width, GAPS, WIDTHS).columns == without
    versions = ["? 17 of 17, then 5 of 17", "? 17/17, then 5/17", "? 22 of 34"]
    assert {text for width in columns for text in shown(width)[1:]} == {*versions}
    assert shown(118) == ["✓ 34 of 34", versions[1]]
    visited = LevelNow(14, "measuring", "again 22 of 34")
    running = levels_view([level(12), level(14)], search=search, now=visited)
    assert running.visits == ()


def test_the_row_of_a_level_that_is_visited_again_is_of_the_visits_before_until_it_is_judged() -> None:
    """Its other figures are from before as well: a new count beside them would be of another time."""
    before = SearchedLevel(c=8, visits=1, n=16, good=16, state="kept")
    search = SearchState(goal="capacity", low=8, next_c=8, step="repeat", levels=(before,))
    tally = SloTally(parse_slo("ttft_p90=2s"))
    tally.add_counts(8, [(7, 10)])
    seen = msgspec.structs.replace(frame(8), c=8, run=2, search=search, slo="ttft_p90=2s", slo_kept=tally.conditions())

    def count(seen: Frame) -> str:
        view = levels_view([level(8)], search=seen.search, now=level_now(seen))
        return view.table.rows[0][[column.id for column in view.table.columns].index("slo")].text

    assert count(seen) == "was 16 of 16"
    judged = msgspec.structs.replace(before, visits=2, n=26, good=23, state="unsure")
    found = msgspec.structs.replace(search, levels=(judged,))
    assert count(msgspec.structs.replace(seen, search=found)).endswith(" 23 of 26")


async def test_the_best_level_and_the_running_one_stay_in_a_small_table() -> None:
    found = tuple(
        SearchedLevel(c=c, visits=1, n=8, good=8 if c < 3 else 0, state="unsure" if c == 2 else "missed")
        for c in range(2, 10)
    )
    search = SearchState(goal="capacity", low=2, at_least=2, high=3, next_c=4, step="decide", levels=found)
    levels = tuple(level(c) for c in range(2, 10))
    seen = msgspec.structs.replace(frame(4), search=search, levels=levels, provisional=())
    app = SwarmApp(source=RecordingSource(model_of(seen)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        text = screen_text(app)
        table = text[text.index("[4] levels") :]
        assert all(f"│    {row} " in table for row in ("▸2", " 4")), "the rows next to the answer, not the newest"
        assert "│     9 " not in table
        assert "of 8, all: press 4 twice" in table
        await pilot.press("4")
        await pilot.pause()
        assert "of 8, all: press 4 ━" in screen_text(app)
        await pilot.press("4")
        await pilot.pause()
        assert all(f"┃    {'▸' if c == 2 else ' '}{c} " in screen_text(app) for c in (2, 4, 5, 6, 7, 8, 9))


async def table_after_the_end(levels: tuple[Level, ...], size: tuple[int, int]) -> str:
    """Return what the screen shows of the levels of a run that has ended."""
    source = RecordingSource(model_of(msgspec.structs.replace(frame(4), status="ended", levels=levels, provisional=())))
    source.live.apply(Ended("done", "", ""))
    app = SwarmApp(source=source)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        return screen_text(app).partition("[4] levels")[2]


@pytest.mark.parametrize(
    ("size", "errors", "named"),
    [((80, 24), 0, False), ((80, 24), 1, False), ((100, 30), 0, True), ((100, 30), 1, True)],
)
async def test_a_row_of_a_level_comes_before_the_number_of_remarks(
    size: tuple[int, int], errors: int, named: bool
) -> None:
    """The heading names the remarks that have no line; those of failed requests are in the header as well."""
    flags = (
        Finding(code="coalesced_chunks", text="40 % of chunks were coalesced"),
        Finding(code="errors", text="1 of 16 requests failed: 1 http_500"),
    )[: 1 + errors]
    levels = tuple(msgspec.structs.replace(level(c, tps=10.0 * c, flags=flags), errors=errors) for c in range(1, 13))
    table = await table_after_the_end(levels, size)
    assert "of 12, all" in table and (f"all, {12 + 12 * errors} remarks: press 4 twice" in table) == named
    assert "requests failed in" not in table and "kinds of remarks" not in table


@pytest.mark.parametrize(
    ("size", "explained"), [((120, 40), {1: True, 12: False}), ((200, 60), {1: True, 4: True, 12: False})]
)
async def test_columns_are_explained_in_lines_that_levels_leave(
    size: tuple[int, int], explained: dict[int, bool]
) -> None:
    """A high terminal keeps them in one place, whatever is remarked; in others remarks come first."""
    remark = Finding(code="coalesced_chunks", text="40 % of chunks were coalesced")
    places = set()
    for count, is_explained in explained.items():
        for flags in ((), (remark,)) if size == (200, 60) else ((),):
            levels = tuple(level(c, tps=10.0 * c, flags=flags) for c in range(1, count + 1))
            seen = msgspec.structs.replace(frame(4), levels=levels, provisional=())
            app = SwarmApp(source=RecordingSource(model_of(seen)))
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                lines = screen_text(app).splitlines()
                place = next((at for at, line in enumerate(lines) if "tok/s: output of all agents" in line), None)
            assert (place is not None) == is_explained, (count, flags)
            places.add(place)
    assert len(places - {None}) == 1


@pytest.mark.parametrize("errors", [0, 1])
async def test_in_a_high_terminal_levels_come_before_what_columns_mean_and_remarks(errors: int) -> None:
    remark = Finding(code="errors", text="1 of 16 requests failed: 1 http_500")
    done = level(1, tps=10.0, flags=(remark,))
    levels = (msgspec.structs.replace(done, errors=errors), *(level(c, tps=10.0 * c) for c in range(2, 10)))
    seen = msgspec.structs.replace(frame(4), levels=levels, provisional=())
    app = SwarmApp(source=RecordingSource(model_of(seen)))
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        table = screen_text(app).partition("[4] levels")[2]
    assert all(re.search(f"│ +[▸▼]?{c} ", table) for c in range(1, 10)) and "all: press 4" not in table
    assert "tok/s: output of all agents" in table, "in the lines that are left"


@pytest.mark.parametrize("size", [(120, 40), (160, 45), (200, 60)])
async def test_after_the_end_all_of_ten_levels_are_shown(size: tuple[int, int]) -> None:
    levels = tuple(level(c, tps=10.0 * c) for c in range(1, 11))
    table = await table_after_the_end(levels, size)
    assert "all: press 4" not in table and all(re.search(f"[ ▸▼]{c}  ", table) for c in range(1, 11))
