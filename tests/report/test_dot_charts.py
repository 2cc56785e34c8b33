"""Charts on a grid of dots: what is drawn where, at every size.

UPDATE_SCREENS=1 rewrites the expected pictures; look at them before committing them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isclose, log10
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.capacity.marks import LevelMarks
from swarmtui.model.findings import Finding
from swarmtui.report.chart import Chart, ChartSeries
from swarmtui.report.charts import SessionData, comparison_charts, curve_charts
from swarmtui.report.dot_chart import paint_charts
from swarmtui.report.dot_grid import ACROSS, UP, DotGrid
from swarmtui.report.scales import TickLabel, level_axis, value_axis, visible_ticks
from swarmtui.report.table import Code
from tests.analysis.level_builders import level, summary

EXPECTED = Path(__file__).parent / "expected"
BRAILLE = {chr(0x2800 + mask) for mask in range(1, 256)}
DOUBLING = (1, 2, 4, 8, 16, 32)

numbers = st.floats(min_value=1e-6, max_value=1e12)


def text_of(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def capacity_charts() -> tuple[Chart, ...]:
    """A search for the capacity of a server with 16 slots: measured, so far, planned, baseline and limit."""

    def rate(c: int, slots: int) -> float:
        return min(c, slots) / (4.49 + 1.46 * min(c, slots)) * 1000

    first = dict(zip(DOUBLING, (0.03, 0.04, 0.05, 0.06, 0.11, 3.8), strict=True))
    levels = [level(c, tps=rate(c, 16), ttft=first[c], out_tps_steady_hw=0.06 * rate(c, 16)) for c in DOUBLING]
    limit = tuple((float(c), 300.0 + 55 * min(c, 16)) for c in DOUBLING)
    return curve_charts(
        levels,
        LevelMarks(True, 16, 32, missed=32),
        baseline=[level(c, tps=rate(c, 8), ttft=2 * first[c]) for c in DOUBLING],
        baseline_name="--max-num-seqs 8",
        planned=(18.0,),
        limit=limit,
    )


@pytest.mark.parametrize(("width", "height"), [(30, 8), (60, 10), (72, 16), (120, 24), (200, 40)])
def test_curve_matches_the_expected_picture(width: int, height: int) -> None:
    shown = "\n".join(text_of(paint_charts(capacity_charts(), width, height))) + "\n"
    path = EXPECTED / f"curve-{width}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [30, 72, 200])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_every_number_of_levels_fits_every_width(count: int, width: int) -> None:
    levels = [level(c, tps=20.0 * c, ttft=0.01 * c) for c in range(1, count + 1)]
    for height in (4, 8, 11, 30):
        lines = text_of(paint_charts(curve_charts(levels, LevelMarks(False, None, None)), width, height))
        assert len(lines) == height and {len(line) for line in lines} == {width}
        ticks = lines[-1].split()[1:]
        assert ticks[0] == "1" and ticks[-1] == str(count)


@pytest.mark.parametrize("width", [40, 72, 120])
def test_words_do_not_touch_the_right_edge(width: int) -> None:
    levels = [level(c, tps=tps) for c, tps in ((1, 80.0), (2, 150.0), (4, 120.0))]
    charts = [*capacity_charts(), *curve_charts(levels, LevelMarks(False, 2, 4), baseline=levels)]
    charts += curve_charts([level(c, tps=80.0) for c in (1, 1024)], LevelMarks(False, None, None))
    for chart in charts:
        lines = text_of(paint_charts([chart], width, 12))
        assert all(line.endswith(" ") for line in lines), "\n".join(lines)


def test_points_are_on_their_line() -> None:
    """The line enters and leaves the cell of a point in one of the two rows of dots that its sign covers."""
    series = ChartSeries("", tuple((float(x), 7.0 * x % 11) for x in range(1, 13)))
    chart = Chart("", "", "levels", "C", "y", (series,), linear=True)
    rows = text_of(paint_charts([chart], 120, 24))[1:-1]
    points = [(row, column) for row, line in enumerate(rows) for column, char in enumerate(line) if char == "●"]
    assert len(points) == 12
    for row, column in points:
        beside = [rows[y][x] for y in (row - 1, row, row + 1) for x in (column - 1, column + 1) if 0 <= y < len(rows)]
        assert any(char in BRAILLE for char in beside)


def test_marks_replace_the_signs_of_points() -> None:
    levels = [level(c, tps=tps) for c, tps in ((1, 80.0), (2, 150.0), (4, 120.0))]
    shown = "\n".join(text_of(paint_charts(curve_charts(levels, LevelMarks(False, 2, 4))[:1], 60, 12)))
    assert shown.count("●") == 1 and shown.count("▸") == 1 and shown.count("▼") == 1
    assert "best" in shown and "cliff" in shown and "┊" not in shown


def test_a_mark_is_visible_where_levels_are_close() -> None:
    levels = [level(c, tps=100.0) for c in (1, 2, 4, 8, 16, 31, 32, 33)]
    upper, _ = curve_charts(levels, LevelMarks(False, 32, None))
    assert "▸" in "".join(text_of(paint_charts([upper], 40, 8)))


def bounded_chart(kept: float, past: float, missed: float | None, planned: tuple[float, ...] = ()) -> Chart:
    levels = [level(c, tps=100.0 * min(c, 4)) for c in (1, 2, 4, 8, 9, 10, 14, 16, 19)]
    return curve_charts(levels, LevelMarks(True, kept, past, missed=missed), planned=planned)[0]


def boundary_columns(lines: Sequence[str]) -> list[int]:
    return sorted({at for line in lines for at, char in enumerate(line) if char == "┊"})


def tinted_columns(row: Sequence[tuple[str, str]]) -> list[int]:
    styles = [style for text, style in row for _ in text]
    return [at for at, style in enumerate(styles) if "on " in style]


def test_the_boundary_of_the_slo_is_between_the_levels_around_it() -> None:
    lines = text_of(paint_charts([bounded_chart(10, 14, 14)], 90, 16))
    (column,) = boundary_columns(lines)
    assert lines[-1].index("10") < column < lines[-1].index("14")
    assert any("kept ┊ missed" in line for line in lines)


@pytest.mark.parametrize(
    ("width", "names"), [(90, "kept ┊  not sure  ┊ missed"), (72, "kept ┊not sure ┊ ✖"), (40, "kept ┊ ?  ┊ ✖")]
)
def test_levels_that_are_neither_kept_nor_missed_are_between_two_lines(width: int, names: str) -> None:
    """Ten agents kept it once and missed it once, and fourteen were close to the limit."""
    rows = paint_charts([bounded_chart(9, 16, 16)], width, 16)
    lines = text_of(rows)
    first, last = boundary_columns(lines)
    signs = {char: at for line in lines for at, char in enumerate(line) if char in "▸▼"}
    open_levels = [at for line in lines for at, char in enumerate(line) if char == "●" and first <= at < last]
    assert signs["▸"] < first < last <= signs["▼"] and len(open_levels) == 2
    assert any(names in line for line in lines), "\n".join(lines)
    assert max(at for row in rows for at in tinted_columns(row)) == first - 1
    assert {"9", "16"} <= {*lines[-1].split()}


@pytest.mark.parametrize(("kept", "past", "width"), [(9, 10, 36), (10, 14, 48), (14, 16, 86)])
def test_the_name_past_the_boundary_is_clear_of_the_frame(kept: int, past: int, width: int) -> None:
    lines = text_of(paint_charts([bounded_chart(kept, past, None)], width, 16))
    assert not [line for line in lines if line.ljust(width)[width - 1] not in " ┊"]


def test_a_level_that_is_planned_within_the_boundary_is_not_sure_either() -> None:
    assert bounded_chart(10, 14, 14).boundary == ((10, 14), (10, 14))
    assert bounded_chart(10, 14, 14, planned=(12.0,)).boundary == ((10, 12), (12, 14))


def test_nothing_is_called_missed_if_no_level_surely_misses_the_slo() -> None:
    lines = text_of(paint_charts([bounded_chart(9, 10, None)], 90, 16))
    (column,) = boundary_columns(lines)
    assert any(line[column - 5 : column + 10] == "kept ┊ not sure" for line in lines)
    assert "missed" not in "".join(lines) and "✖" not in "".join(lines)


def test_the_levels_at_the_ends_of_the_boundary_are_labelled_before_others() -> None:
    between = text_of(paint_charts([bounded_chart(9, 16, 16)], 72, 16))[-1].split()
    assert between == ["C", "1", "2", "4", "8", "9", "10", "14", "16", "19"]
    beside = text_of(paint_charts([bounded_chart(10, 14, 14)], 30, 16))[-1].split()
    assert beside == ["C", "1", "2", "4", "10", "14"], "rather than the last level"


def test_what_is_kept_is_tinted_below_the_curve() -> None:
    (_, *rows, ticks) = paint_charts(capacity_charts()[:1], 72, 16)
    column, _ = boundary_columns(text_of(rows))
    tinted = [sum(len(text) for text, style in row if style.endswith("on throughput")) for row in rows]
    # More the lower, from the first level to the boundary.
    assert tinted == sorted(tinted) and tinted[0] == 0
    spans = rows[-1]
    starts = [sum(len(text) for text, _ in spans[:at]) for at in range(len(spans))]
    below = [(start, start + len(text)) for start, (text, style) in zip(starts, spans, strict=True) if "on " in style]
    assert (below[0][0], below[-1][1]) == (text_of([ticks])[0].index("1"), column)
    assert all(end == start for (_, end), (start, _) in pairwise(below))


def test_several_curves_that_count_alike_have_no_tint() -> None:
    pair = (ChartSeries("a", ((1.0, 5.0), (2.0, 9.0))), ChartSeries("b", ((1.0, 6.0), (2.0, 8.0)), hue="energy"))
    chart = Chart("", "", "levels", "C", "y", pair, linear=True)
    assert not [style for row in paint_charts([chart], 40, 10) for _, style in row if "on " in style]
    assert any(
        "on throughput" in style for row in paint_charts([chart._replace(series=pair[:1])], 40, 10) for _, style in row
    )


def test_both_axes_of_measured_values_are_named() -> None:
    series = ChartSeries("", ((10.0, 100.0), (5.0, 200.0)))
    chart = Chart("pareto", "", "xy", "tok/s per agent", "output tok/s per server", (series,))
    assert text_of(paint_charts([chart], 60, 12))[0].startswith(" output tok/s per server ↑, tok/s per agent →")


def test_a_single_level_is_a_point_beside_what_is_planned() -> None:
    charts = curve_charts([level(1, tps=80.0)], LevelMarks(False, None, None), planned=(1, 2, 4, 8))
    lines = text_of(paint_charts(charts[:1], 60, 10))
    assert sum(line.count("●") for line in lines) == 1 and lines[-2].count("╵") == 3
    assert lines[-1].split() == ["C", "1", "2", "4", "8"]


def test_a_limit_far_above_does_not_flatten_the_curve() -> None:
    levels = [level(c, tps=10.0 * c) for c in (1, 2, 4)]
    upper, _ = curve_charts(levels, LevelMarks(False, None, None), limit=((1, 9_000.0), (4, 9_900.0)))
    assert max(upper.ys) == 100.0 and value_axis(upper.ys, 5).high == 100.0


def first_token_chart(times: Sequence[float], p90: Mapping[int, float], slo: str = "") -> tuple[Chart, str]:
    levels = [level(c, tps=50.0 * c, ttft=time) for c, time in zip(DOUBLING, times, strict=False)]
    levels = [
        msgspec.structs.replace(one, ttft_s=msgspec.structs.replace(one.ttft_s, p90=p90.get(one.c))) for one in levels
    ]
    charts = curve_charts(levels, LevelMarks(True, None, None), slo=slo)
    return charts[1], "\n".join(text_of(paint_charts(charts, 72, 20)))


def test_names_that_do_not_fit_keep_the_flag_that_differs_and_its_value() -> None:
    names = ("--parallel 2 --ctx-size 16384", "--parallel 4 --ctx-size 32768")
    series = tuple(ChartSeries(name, ((1.0, 50.0), (2.0, 90.0)), hue="throughput") for name in names)
    chart = Chart("throughput", "Output throughput", "levels", "C", "output tok/s", series)
    wide, narrow = (text_of(paint_charts([chart], width, 12))[0] for width in (100, 60))
    assert all(name in wide for name in names)
    assert "● parallel 2 …  ◆ parallel 4 …" in narrow


def test_the_legend_names_a_p90_only_if_it_is_drawn() -> None:
    times = (0.5, 0.8, 1.2)
    assert "p90" not in first_token_chart(times, {4: 2.4})[1]
    assert "╌╌ p90" in first_token_chart(times, {2: 1.0, 4: 2.4})[1]


def test_the_old_run_is_dotted_and_the_p90_is_dashed() -> None:
    """Also in a comparison, where the old run has points."""
    slow = level(1, tps=9.0, ttft=0.5), level(4, tps=9.0, ttft=0.5)
    tails = [msgspec.structs.replace(one, ttft_s=msgspec.structs.replace(one.ttft_s, p90=1.0)) for one in slow]
    upper, lower = curve_charts(tails, LevelMarks(False, None, None), baseline=slow, baseline_name="before")
    assert {series.name: series.line for series in upper.series} == {"now": "line", "before": "dotted"}
    assert {series.name: series.line for series in lower.series} == {"median": "line", "p90": "dashed", "": "dotted"}
    both = comparison_charts([SessionData(name, summary(slow, name)) for name in ("before", "after")])
    assert [(series.name, series.line) for series in both[0].series] == [("before", "dotted"), ("after", "line")]
    drawn = {}
    for stroke in ("solid", "dashed", "dotted", "sparse"):
        series = ChartSeries("", ((1.0, 1.0), (2.0, 1.0)), stroke=stroke)
        chart = Chart("", "", "levels", "C", "y", (series,), linear=True)
        cells = "".join(char for line in text_of(paint_charts([chart], 60, 8)) for char in line if char in BRAILLE)
        drawn[stroke] = sum((ord(char) - 0x2800).bit_count() for char in cells)
    assert drawn["solid"] > drawn["dashed"] > drawn["dotted"] > drawn["sparse"]


@pytest.mark.parametrize("slo", ["", "ttft_p90=2s"])
@pytest.mark.parametrize("height", range(9, 31))
def test_values_that_differ_by_a_factor_of_two_are_in_different_rows(height: int, slo: str) -> None:
    times = ((1, 0.05), (2, 0.06), (4, 0.1), (8, 2.07), (16, 4.28))
    charts = curve_charts(
        [level(c, tps=80.0, ttft=time) for c, time in times], LevelMarks(True, 4, 8, missed=8), slo=slo
    )
    lines = text_of(paint_charts(charts, 76, height))
    rows = {column: at for at, line in enumerate(lines) for column, char in enumerate(line) if char == "●"}
    last = [rows[column] for column in sorted(rows)][-2:]
    assert last[0] > last[1], "\n".join(lines)


@pytest.mark.parametrize("height", range(4, 31))
def test_a_plot_that_is_shown_has_the_rows_to_be_read(height: int) -> None:
    """Four rows for the output, and three for the first token, which is left out where it would have fewer."""
    lines = text_of(paint_charts(capacity_charts(), 76, height))
    lower = [at for at, line in enumerate(lines) if "first token" in line]
    upper = (lower[0] if lower else height - 1) - 1
    assert upper >= min(4, height - 2)
    assert bool(lower) == (height >= 9) and (not lower or height - 1 - lower[0] >= 3)


def test_the_limit_of_an_slo_on_the_first_token_is_a_line_with_its_value() -> None:
    chart, shown = first_token_chart((0.5, 0.8, 1.2), {}, "ttft_p90=2s,stream_p10=20")
    assert chart.series[-1].points == ((1.0, 2.0), (4.0, 2.0)) and "⠂ ⠂ SLO 2 s" in shown
    low = first_token_chart((0.3, 0.5, 1.2), {}, "ttft_p90=2s")[0]
    small = text_of(paint_charts([low, low], 60, 10))
    assert any("first token (median), s  SLO 2 s" in line for line in small), (
        "without a legend, beside the name of the axis"
    )
    for times, slo in (((0.1, 0.1, 0.2), "ttft=2s"), ((0.5, 0.8, 1.2), "stream_p10=20"), ((3.0,), "ttft=2s")):
        assert "SLO" not in first_token_chart(times, {}, slo)[1], "far above, another figure, or one level"


@pytest.mark.parametrize("height", range(8, 41))
def test_a_point_just_above_the_slo_is_above_its_line_and_one_below_is_not(height: int) -> None:
    chart = first_token_chart((0.3, 1.99, 2.0, 2.01, 2.3), {}, "ttft=2s")[0]
    lines = paint_charts([chart], 72, height)[1:-1]
    limit_rows = [at for at, line in enumerate(lines) for text, style in line if style == "bad" and text.strip()]
    rows = {column: at for at, line in enumerate(text_of(lines)) for column, char in enumerate(line) if char == "●"}
    first, below, equal, above, far = (rows[column] for column in sorted(rows))
    assert len(set(limit_rows)) == 1
    assert far <= above < limit_rows[0] <= equal <= below <= first


@pytest.mark.parametrize("height", range(8, 31))
@pytest.mark.parametrize("last", [2.01, 2.24, 2.9, 3.6])
def test_a_point_beside_a_tick_has_about_its_value(last: float, height: int) -> None:
    """A point that few rows moved above the limit leaves no tick beside it or above it."""
    times = (0.3, 1.46, last)
    lines = text_of(paint_charts([first_token_chart(times, {}, "ttft=2s")[0]], 72, height))[1:-1]
    labels = [line[: re.search("[┤│]", line).start()].strip() for line in lines]  # type: ignore[union-attr]
    up = first_token_chart(times, {}, "ttft=2s")[0].ys
    row = value_axis(up, min(7, 1 + (height - 3) // 2), rows=height - 2).high / (height - 3)
    rows = {column: at for at, line in enumerate(lines) for column, char in enumerate(line) if char == "●"}
    for time, column in zip(times, sorted(rows), strict=True):
        label = labels[rows[column]]
        assert label in ("", "2") or abs(time - float(label)) <= 0.51 * row, "\n".join(lines)
    assert {"0", "2"} <= {*labels}


def styles_of(chart: Chart, width: int = 60, height: int = 16) -> dict[str, str]:
    """Return the dots and the signs of a chart by their styles."""
    found: dict[str, str] = {}
    for line in paint_charts([chart], width, height)[1:-1]:
        for text, style in line[1:]:
            hue = style.partition(" on ")[0]
            found[hue] = found.get(hue, "") + text.replace(" ", "")
    return found


MARKED = ((4.0, 180.0), (8.0, 200.0), (16.0, 190.0))
OWN = ChartSeries("now", MARKED, ((8.0, "best"), (16.0, "cliff")), half_widths=(0.0, 60.0, 40.0))


def test_an_interval_is_a_thin_line_at_its_point_and_a_baseline_has_none() -> None:
    dim = OWN._replace(name="before", hue="dim", marks=())
    chart = Chart("tps", "", "levels", "C", "tok/s", (OWN,))
    intervals = styles_of(chart)["throughput1"]
    assert intervals and set(intervals) <= {"⡇", "⢸", "⡀", "⢀", "⠁", "⠈", "⠃", "⠘", "⠇", "⠸", "⡄", "⢠", "⡆", "⢰"}
    assert "throughput1" not in styles_of(chart._replace(series=(OWN._replace(half_widths=()), dim)))


def test_the_marks_of_a_baseline_are_dim() -> None:
    dim = OWN._replace(name="before", hue="dim", points=tuple((x, y / 3) for x, y in MARKED))
    found = styles_of(Chart("tps", "", "levels", "C", "tok/s", (dim, OWN)))
    assert "▸" in found["good"] and "▼" in found["warn"]
    assert "▸" in found["dim"] and "▼" in found["dim"]
    assert found["good"].count("▸") == found["warn"].count("▼") == 1


def test_the_marks_of_two_curves_are_told_apart_without_colour() -> None:
    """Each has the sign of its curve beside it, which the legend names; that of one curve needs none."""
    near = OWN._replace(name="before", hue="dim", points=tuple((x, y - 60) for x, y in MARKED))
    both = text_of(paint_charts([Chart("tps", "", "levels", "C", "tok/s", (near, OWN))], 60, 20))
    assert "● before  ◆ now" in both[0]
    assert sorted("".join(both).count(sign) for sign in ("▸●", "▼●", "▸◆", "▼◆")) == [1, 1, 1, 1]
    alone = "".join(text_of(paint_charts([Chart("tps", "", "levels", "C", "tok/s", (OWN,))], 60, 20)))
    assert "▸●" not in alone and "▼●" not in alone


def test_a_mark_that_a_point_covers_has_no_sign() -> None:
    over = OWN._replace(marks=((16.0, "best"),))
    dim = OWN._replace(name="before", hue="dim", marks=((8.0, "best"),))
    lines = text_of(paint_charts([Chart("tps", "", "levels", "C", "tok/s", (dim, over))], 60, 20))[1:]
    assert "".join(lines).count("▸") == 1 and "●" not in "".join(lines)


@pytest.mark.parametrize("own", [frozenset({8.0}), frozenset[float]()])
def test_a_point_that_does_not_stand_for_its_level_is_explained_once_where_there_is_room(own: frozenset[float]) -> None:
    """Also if only the lower chart shows one, or the names of the curves leave no room above."""
    weak = OWN._replace(marks=(), hollow=frozenset({8.0}))
    for name in ("", "a name that leaves no room for anything else"):
        curves = (weak._replace(name=name, hollow=own), weak._replace(name=name, hollow=own, hue="dim"))
        upper = Chart("tps", "", "levels", "C", "tok/s", curves)
        lower = Chart("ttft", "", "levels", "C", "first token, ms", (weak,))
        shown = "\n".join(text_of(paint_charts([upper, lower], 60, 24)))
        assert shown.count("◇ too few requests") == 1, shown


@pytest.mark.parametrize("baseline", [(), ((8.0, "best"),)])
def test_levels_that_only_a_baseline_has_are_not_labelled(baseline: tuple[tuple[float, Code], ...]) -> None:
    points = ((1.0, 90.0), (16.0, 800.0), (25.0, 820.0), (32.0, 820.0))
    own = ChartSeries("now", points, ((16.0, "best"), (25.0, "cliff")))
    theirs = tuple((float(c), 50.0 * c) for c in (1, 6, 7, 8, 15, 26))
    dim = ChartSeries("before", theirs, baseline, hue="dim")
    for series in ((own, dim), (dim, own)):
        chart = Chart("tps", "", "levels", "C", "tok/s", series, planned=(20.0,))
        labels = text_of(paint_charts([chart], 60, 16))[-1].split()
        assert labels == ["C", "1", "16", "20", "25", "32"]
    alone = text_of(paint_charts([Chart("tps", "", "levels", "C", "tok/s", (dim,))], 60, 16))[-1].split()
    assert {"1", "6", "26"} <= {*alone}
    longer = dim._replace(points=(*theirs, (40.0, 900.0), (96.0, 900.0)))
    ends = text_of(paint_charts([Chart("tps", "", "levels", "C", "tok/s", (longer, own))], 60, 16))[-1].split()
    assert ends == ["C", "1", "16", "25", "32", "96"], "but for the end of the axis"


def test_where_labels_collide_a_marked_level_has_one_before_a_measured_one() -> None:
    own = ChartSeries("now", tuple((float(c), 50.0 * c) for c in (1, 24, 25, 26, 32)), ((25.0, "cliff"),))
    dim = ChartSeries("before", ((24.0, 900.0),), ((24.0, "best"),), hue="dim")
    chart = Chart("tps", "", "levels", "C", "tok/s", (dim, own))
    assert text_of(paint_charts([chart], 40, 12))[-1].split() == ["C", "1", "25"]


def test_what_is_not_measured_is_not_drawn() -> None:
    upper, lower = curve_charts([level(1, tps=None, ttft=0.2)], LevelMarks(False, None, None))
    assert upper.series == () and [series.points for series in lower.series] == [((1.0, 200.0),)]
    assert "●" not in "".join(text_of(paint_charts([upper], 40, 8)))


def test_a_level_without_a_figure_is_missing_in_the_curves_of_a_comparison() -> None:
    cut = level(12, tps=None, ttft=None, tokens_out=None, wall_s=None, by_run=())
    searched = [level(8, tps=557.0, ttft=1.0), cut, level(16, tps=600.0, ttft=2.0)]
    sessions = [SessionData(name, summary(levels, name)) for name, levels in (("a", searched[:1]), ("b", searched))]
    upper, lower = comparison_charts(sessions)[:2]
    assert [[x for x, _ in series.points] for series in (*upper.series, *lower.series)] == 2 * [[8], [8, 16]]


def test_a_figure_that_does_not_stand_for_its_level_is_hollow() -> None:
    few = Finding(code="steady_below_wall", text="too few requests for the time at C")
    levels = [level(8, tps=557.0), level(16, tps=61.0, flags=(few,)), level(32, tps=400.0, complete=False, by_run=())]
    upper, _ = curve_charts(levels, LevelMarks(False, None, None))
    assert upper.series[0].hollow == {16, 32}
    assert "".join(text_of(paint_charts([upper], 60, 12))).count("◇") == 3


# the grid


@given(st.integers(1, 30), st.integers(1, 8), st.data())
def test_lines_stay_in_the_grid_and_connect_their_ends(width: int, height: int, data: st.DataObject) -> None:
    dots = st.tuples(st.integers(0, width * ACROSS - 1), st.integers(0, height * UP - 1))
    start, end = data.draw(dots), data.draw(dots)
    grid = DotGrid(width, height)
    grid.line(start, end, "x")
    lines = grid.lines()
    assert len(lines) == height and all(len(text) == width for text in text_of(lines))
    rows = enumerate(reversed(text_of(lines)))
    filled = {(x, y) for y, text in rows for x, char in enumerate(text) if char != " "}
    assert {(x // ACROSS, y // UP) for x, y in (start, end)} <= filled
    # Every cell but the first touches another one.
    assert len(filled) == 1 or all(
        any((x + dx, y + dy) in filled for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy) for x, y in filled
    )


@given(st.integers(-5, 40), st.integers(-5, 12), st.text("abc", min_size=1, max_size=50))
def test_what_is_outside_of_the_grid_is_left_out(column: int, row: int, text: str) -> None:
    grid = DotGrid(20, 4)
    grid.put(column, row, text, "x")
    grid.dot(column * 3, row * 9, "y")
    grid.line((column, row), (column + 30, row + 20), "z")
    assert [len(line) for line in text_of(grid.lines())] == [20] * 4


def test_a_cell_shows_the_line_that_was_drawn_last() -> None:
    grid = DotGrid(2, 1)
    grid.line((0, 0), (3, 0), "below")
    grid.line((0, 3), (1, 3), "above")
    assert grid.lines() == [[("⠉", "above"), ("⣀", "below")]]
    assert not grid.is_free(0, 0) and not grid.is_free(1, 0, 2)


# the axes


@given(st.lists(numbers, min_size=1, max_size=40), st.integers(2, 12), st.booleans(), st.booleans())
def test_ticks_are_round_and_enclose_the_values(values: list[float], most: int, log: bool, from_zero: bool) -> None:
    axis = value_axis(values, most, may_log=log, from_zero=from_zero)
    assert 2 <= len(axis.ticks) <= most
    assert all(-1e-6 <= axis.share(value) <= 1 + 1e-6 for value in values)
    assert axis.share(axis.ticks[0]) == 0 and isclose(axis.share(axis.ticks[-1]), 1)
    for tick in axis.ticks:
        if tick:
            digits = tick / 10 ** (int(log10(abs(tick))) - 2)
            assert isclose(digits, round(digits), rel_tol=1e-6) or not from_zero


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=20), st.integers(2, 12), st.integers(2, 60))
def test_ticks_from_zero_are_the_same_number_of_rows_apart(values: list[float], most: int, rows: int) -> None:
    axis = value_axis(values, most, rows=rows)
    assert 2 <= len(axis.ticks) <= most and axis.ticks[0] == 0
    assert all(0 <= axis.share(value) <= 1 + 1e-6 for value in values)
    places = [axis.share(tick) * (rows - 1) for tick in axis.ticks]
    assert all(isclose(place, round(place), abs_tol=1e-6) for place in places)
    assert len({round(right - left) for left, right in pairwise(places)}) == 1


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_negative_values_are_shown(values: list[float]) -> None:
    axis = value_axis(values, 6)
    assert all(-1e-6 <= axis.share(value) <= 1 + 1e-6 for value in values)


@pytest.mark.parametrize(
    ("levels", "log"),
    [
        ((1, 2, 4, 8, 16, 32), True),
        ((1, 2, 4, 8, 12, 13, 14, 16), True),  # a search
        ((0.5, 1, 2, 4), True),
        (range(1, 41), False),
        ((1, 8, 16, 24, 32, 40), False),
        ((10, 20, 30), False),
        ((4,), False),
    ],
)
def test_the_levels_choose_their_axis(levels: tuple[float, ...], log: bool) -> None:
    axis = level_axis(levels)
    assert axis.log == log and axis.ticks == tuple(levels)


@given(st.sets(st.integers(1, 5_000), min_size=1, max_size=40))
def test_levels_keep_their_order_on_the_axis(levels: set[int]) -> None:
    axis = level_axis(levels)
    places = [axis.share(at) for at in sorted(levels)]
    assert places == sorted(set(places)) and (len(places) == 1 or (places[0] == 0 and isclose(places[-1], 1)))


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 6)), max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_labels_never_collide_and_the_level_of_the_answer_has_one(
    places: list[tuple[float, int]], important: list[int]
) -> None:
    labels = [TickLabel(number, centre, width) for number, (centre, width) in enumerate(sorted(places))]
    shown = visible_ticks(labels, important)
    assert bool(shown) == bool(labels)
    for left, right in pairwise(shown):
        assert right.centre - left.centre >= (left.width + right.width) / 2 + 1
    first = [number for number in (*important, 0) if number < len(labels)]
    assert not labels or labels[first[0]] in shown
