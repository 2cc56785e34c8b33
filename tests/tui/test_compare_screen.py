"""The compare screen: curves in one plot, the table of differences, and a baseline that can be changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.levels import ComparisonRow
from swarmtui.analysis.compare.sessions import compare, compare_pair
from swarmtui.analysis.compare.verdicts import Interval
from swarmtui.model.answer import AnswerSentence
from swarmtui.numbers import local_time
from swarmtui.report.changes import change_bar, change_tables
from swarmtui.report.charts import SessionData, comparison_charts
from swarmtui.report.comparison import comparison_blocks
from swarmtui.report.text import paint
from swarmtui.sessions.replay import open_replay
from swarmtui.sessions.store import load_session, summarise, write_summary
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.base_screens import Page
from swarmtui.tui.frame_source import ReplaySource
from swarmtui.tui.sessions.compare_screen import CompareScreen, OverlayPanel, timed_names
from swarmtui.tui.tables import block_lines
from tests.analysis.level_builders import level, summary
from tests.analysis.test_compare_agents import quick_search
from tests.tui.conftest import Until
from tests.tui.screen_text import screen_text, text_of

RECORDED = Path(__file__).with_name("recorded")
SLOW, FAST = [100.0, 101.0, 99.0, 100.5], [125.0, 126.0, 124.0, 125.5]


async def test_b_changes_the_baseline_and_v_the_curve(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    for directory in root.iterdir():
        write_summary(directory)
    first = min(path.name for path in root.iterdir())
    app = SwarmApp(source=ReplaySource(open_replay(root, first), hz=4.0), session_root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("m", "j", "space", "c")
        await until(lambda: isinstance(app.screen, CompareScreen) and "┤" in screen_text(app))
        before = screen_text(app)
        assert "● two slots" in before and "◆ four slots" in before
        assert "output tok/s" in before and "first token (median), ms" in before
        assert "▲ +68 %" in before and "= +0.2 %" in before and "? −1.1 %" in before
        assert before.count("--max-num-seqs 2 → 4") == 1 and before.count("▲ faster with 8 agents") == 1
        assert "total slots" not in before  # they follow from the flag
        assert "b swap" in before.splitlines()[-1]
        await pilot.press("4")
        await until(lambda: "A: two slots each · B: four slots each" in screen_text(app))
        await pilot.press("3", "b")
        await until(lambda: "--max-num-seqs 4 → 2" in screen_text(app))
        assert [shown.message for shown in app._notifications] == ["swapped: compared with four slots each now"]
        assert "● four slots" in screen_text(app) and "▼ slower with 8 agents" in screen_text(app)
        await pilot.press("v")
        await until(lambda: "Rate of one agent" in screen_text(app))
        await pilot.press("v")
        await until(lambda: "Pareto: tok/s per agent" in screen_text(app))
        assert "v show slowdown" in screen_text(app).splitlines()[-1]
        assert "◆" in screen_text(app)
        await pilot.press("v", "v", "v")
        await until(lambda: "first token (median), ms" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: not isinstance(app.screen, CompareScreen))


async def test_number_keys_go_to_a_panel_and_then_show_it_alone(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    for directory in root.iterdir():
        write_summary(directory)
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("c")
        # The answer and the changes; the curves have no room.
        await until(lambda: "▲ +68 %" in screen_text(app))
        shown = screen_text(app)
        said = ("▲ faster with 8 agents", "Changed", "How sure", "Why no more", "first token")
        assert all(part in shown for part in said) and "[2] curves" not in shown
        await pilot.press("2")
        await until(lambda: "[2] curves" in screen_text(app))
        assert "[1] answer" in screen_text(app) and "[3] change" not in screen_text(app)
        await pilot.press("2")
        await until(lambda: "[1] answer" not in screen_text(app))
        assert "all panels" in screen_text(app).splitlines()[-1]
        await pilot.press("escape")
        await until(lambda: "[1] answer" in screen_text(app))
        # The one that was alone stays.
        assert "[2] curves" in screen_text(app) and "[3] change" not in screen_text(app)
        await pilot.press("escape")
        await until(lambda: not isinstance(app.screen, CompareScreen))


async def test_curves_of_a_short_list_of_changes_can_be_told_apart(tmp_path: Path, until: Until) -> None:
    both = [summary((level(4, tps=tps, runs=runs),), id) for id, tps, runs in (("a", 100, SLOW), ("b", 125, FAST))]
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "New benchmark" in screen_text(app))
        app.push_screen(CompareScreen(tmp_path, both, {"a": "before", "b": "after"}))
        await until(lambda: "▲ faster" in screen_text(app))
        lines = screen_text(app).splitlines()
        assert lines[4].split()[1] == "tok/s", "below the large figure"
        await pilot.press("2")
        await until(lambda: "[2] curves" in screen_text(app))
        assert app.screen.query_one(OverlayPanel).size.height >= 12
        assert screen_text(app).count("│  ") >= 3 and "●" in screen_text(app) and "◆" in screen_text(app)


async def test_a_long_answer_leaves_the_changes_in_view_and_the_focused_region_scrolls(
    tmp_path: Path, until: Until
) -> None:
    ids = ("20261115-014455-3f9a", "20261115-020000-aaaa")
    both = [quick_search(id, 20, flags=flags) for id, flags in zip(ids, ("--parallel 2", "--parallel 4"), strict=True)]
    whys = [AnswerSentence(code=code, sentence=f"{code} took longer: {90 * 'words '}") for code in ("slots", "queue")]
    long = [
        msgspec.structs.replace(one, answer=msgspec.structs.replace(one.answer, limit=why))
        for one, why in zip(both, whys, strict=True)
        if one.answer is not None
    ]
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "New benchmark" in screen_text(app))
        app.push_screen(CompareScreen(tmp_path, long, dict(zip(ids, ("before", "after"), strict=True))))
        await until(lambda: "[1] answer" in screen_text(app))
        await pilot.pause()
        answer, changes = (app.screen.query_one(f"#{id}", Page) for id in ("compared", "changes"))
        rows = ["  output tok/s  "]
        assert len(answer.lines) > answer.size.height and all(row in screen_text(app) for row in rows)
        assert "Try next" in screen_text(app)
        first = str(answer.lines[0][-1][0])
        await pilot.press("pagedown")
        await until(lambda: changes.top > 0)
        assert first in screen_text(app), "the answer has no focus"
        await pilot.press("1", "pagedown")
        await until(lambda: first not in screen_text(app))
        assert changes.top and "Change of output tok/s" in screen_text(app)


async def test_help_of_a_comparison_begins_with_its_signs(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    for directory in root.iterdir():
        write_summary(directory)
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("L")
        await until(lambda: "four slots" in screen_text(app))
        await pilot.press("c")
        await until(lambda: "▲ faster" in screen_text(app))
        await pilot.press("question_mark")
        await until(lambda: "The signs of a change" in screen_text(app))
        shown = screen_text(app)
        assert shown.index("▲ ▼") < shown.index("△ ▽") < shown.index("not sure yet") < shown.index("Repeat the plan")
        assert shown.index("Repeat the plan") < shown.index("Ask the same again"), "its own keys come first"
        assert "on a curve" not in shown
        await pilot.press("escape", "2", "question_mark")
        await until(lambda: "on a curve" in screen_text(app))


def test_table_has_intervals_and_verdicts() -> None:
    a, b = summary((level(4, tps=100, runs=SLOW),), "a"), summary((level(4, tps=125, runs=FAST),), "b")
    shown = text_of(block_lines(comparison_blocks(compare([a, b]), {"a": "before", "b": "after"}), 100))
    row = next(line for line in shown.splitlines() if "steady tok/s" in line)
    assert "+25 %" in row and "…" in row
    assert shown.count("▲ faster with 4 agents: 100 → 125 tok/s") == 1


def test_changes_are_bars_around_zero_with_their_intervals() -> None:
    a = summary((level(4, tps=100, runs=SLOW), level(8, tps=125, runs=FAST)), "a")
    b = summary((level(4, tps=125, runs=FAST), level(8, tps=100, runs=SLOW)), "b")
    lines = text_of(block_lines(comparison_blocks(compare([a, b]), {}), 100)).splitlines()
    head = next(number for number, line in enumerate(lines) if "Change of output tok/s" in line)
    titles, better, worse = lines[head + 1 : head + 4]
    zero = titles.index("0·")
    for line, sign, word in ((better, "▲ +25 %", "faster"), (worse, "▼ −20 %", "slower")):
        assert sign in line and line.rstrip().endswith(word) and line[zero] == "│"
    assert worse.index("●") < zero < better.index("●") and "± %" in titles
    assert sum("± %" in line for line in lines) == 2, "also with the same load on both sides"
    assert [line.partition(" % ")[2].split()[0] for line in (better, worse)] == ["0.9", "0.5"]


def test_a_wide_interval_leaves_the_axis_to_the_changes() -> None:
    a = summary((level(4, tps=100, runs=SLOW), level(8, tps=100, runs=[85, 115, 95, 105])), "a")
    b = summary((level(4, tps=113, runs=[1.13 * tps for tps in SLOW]), level(8, tps=103, runs=[108, 98, 118, 88])), "b")
    shown = text_of(block_lines(comparison_blocks(compare([a, b]), {}), 100))
    lines = [line for line in shown.partition("Change of output")[2].splitlines() if "●" in line]
    assert "+15 %" in shown and lines[0].index("●") > lines[1].index("●") + 5
    assert "←" not in lines[0] and "←" in lines[1] and "→" in lines[1]
    assert "← →: outside the axis." in " ".join(shown.split())


@given(st.floats(-5, 5), st.floats(0, 1), st.floats(0, 1), st.floats(0.001, 2))
def test_a_bar_keeps_its_width_and_shows_the_change(change: float, below: float, above: float, top: float) -> None:
    found = Interval(middle=change, low=max(-0.99, change - below), high=max(-0.98, change + above))
    row = ComparisonRow(c=4, figure="out_tps_steady", before=1.0, after=1.0, change=change, interval=found)
    bar = change_bar(row, top)
    if abs(change) > top:
        assert len(bar) == 25 and "●" not in bar and bar[-1 if change > 0 else 0] == ("→" if change > 0 else "←")
        return
    assert len(bar) == 25 and bar.count("●") == 1
    assert bar[12] in "│●" and (bar.index("●") >= 12 if change >= 0 else bar.index("●") <= 12)


@pytest.mark.parametrize(
    ("changes", "axis", "arrows"),
    [
        ((0.79, 0.14, 0.18, 0.15, 0.19, -0.06), "+25 %", 1),
        ((0.79, 0.14), "+100 %", 0),
        ((0.79, 0.5, 0.6, 0.4), "+100 %", 0),
        ((0.15, 0.0, 0.01, 0.0), "+20 %", 0),
    ],
)
def test_one_noisy_level_does_not_choose_the_axis(changes: tuple[float, ...], axis: str, arrows: int) -> None:
    """The other levels can be told apart; a change outside has an arrow at the border."""
    sides = [
        summary(
            tuple(level(2**at, tps=100 * (1 + by * x), out_tps_steady_hw=30.0) for at, x in enumerate(changes)),
            id,
        )
        for by, id in ((0, "a"), (1, "b"))
    ]
    shown = text_of(block_lines(change_tables(compare_pair(*sides)), 100))
    assert axis in shown and sum("━→" in line for line in shown.splitlines()) == arrows
    assert ("→: outside the axis." in " ".join(shown.split())) == bool(arrows)


def test_incomparable_sessions_show_the_reason_and_no_ratio() -> None:
    a, b = summary((level(4, tps=100, runs=SLOW),), "a"), summary((level(4, tps=125, runs=FAST),), "b")
    b = msgspec.structs.replace(b, session=msgspec.structs.replace(b.session, workload_digest="another"))
    shown = text_of(block_lines(comparison_blocks(compare([a, b]), {}), 80))
    assert "✗ not comparable: different workloads" in shown and "+25" not in shown


def test_session_list_keeps_its_order_with_any_baseline() -> None:
    all_three = [summary((level(4, tps=tps),), name) for name, tps in (("a", 100), ("b", 120), ("c", 90))]
    shown = text_of(block_lines(comparison_blocks(compare(all_three, baseline=2), {}), 80))
    assert shown.count("A: c; B: a") == shown.count("A: c; B: b") == 1
    board = shown[shown.index("All sessions") :].splitlines()
    assert [line.split()[0] for line in board[2:5]] == ["a", "▸", "c"]


def test_levels_that_are_close_to_each_other_are_averaged_and_others_are_not() -> None:
    """Two searches visit levels side by side, which chance moves up and down."""
    rates = {1: 100, 2: 190, 8: 400, 9: 340, 10: 460, 20: 420}
    sides = [SessionData(name, summary([level(c, tps=tps) for c, tps in rates.items()], name)) for name in ("a", "b")]
    upper = comparison_charts(sides)[0]
    for series in upper.series:
        drawn = dict(series.points)
        assert [c for c in rates if drawn[c] != pytest.approx(rates[c], rel=0.001)] == [8, 9, 10]
        near = [drawn[c] for c in (8, 9, 10)]
        assert min(near) > 340 and max(near) - min(near) < 60
    far = [SessionData(name, summary([level(c, tps=50 * c) for c in (1, 2, 4, 8)], name)) for name in ("a", "b")]
    assert all(dict(series.points) == {1: 50, 2: 100, 4: 200, 8: 400} for series in comparison_charts(far)[0].series)


def test_a_session_without_values_has_no_curve() -> None:
    charts = comparison_charts(
        [SessionData(name, summary((level(1, tps=tps),), name)) for name, tps in (("a", 50), ("b", None))]
    )
    assert [series.name for series in charts[0].series] == ["a"]


async def test_checklist_shows_values_and_limits(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    first = min(path.name for path in root.iterdir())
    app = SwarmApp(source=ReplaySource(open_replay(root, first), hz=4.0), session_root=root)
    async with app.run_test(size=(120, 60)) as pilot:
        await pilot.press("P")
        await until(lambda: "publication checklist" in screen_text(app) and "warm-up" in screen_text(app))
        shown = screen_text(app)
        for check in summarise(load_session(root, first)).checks:
            assert f"{check.name}: " in shown
            assert check.state == "not applicable" or f"{check.value}; required {check.limit}"[:40] in shown


def test_levels_of_one_session_only_are_named_with_their_unit() -> None:
    closed = level(4, tps=100)
    a, b = summary((closed,), "a"), summary((closed, msgspec.structs.replace(closed, load="open", rate=2.0)), "b")
    found = compare([a, b])
    blocks = comparison_blocks(found, {})
    assert "only in B: 2/s" in text_of(block_lines(blocks, 80)) and "only in B: 2/s" in paint(blocks)


def test_sessions_that_only_their_ids_tell_apart_are_named_by_their_times() -> None:
    times = {"a-1": "2026-03-01T11:02:51+00:00", "a-2": "2026-03-01T11:09:00+00:00"}
    found = [summary([level(c=1)]) for _ in times]
    found = [
        msgspec.structs.replace(one, session=msgspec.structs.replace(one.session, id=id, created=at))
        for one, (id, at) in zip(found, times.items(), strict=True)
    ]
    named = timed_names(found, {"a-1": "a-1", "a-2": "tuned (a-2)"})
    assert named == {"a-1": local_time(times["a-1"]), "a-2": f"tuned ({local_time(times['a-2'])})"}
