"""Tables are painted by code, not by text, and fit their page."""

from __future__ import annotations

import pytest

from swarmtui.numbers import seconds
from swarmtui.report.table import Cell, Column, Facts, Fields, Sentence, Table, fit, keyed, tabulate
from swarmtui.report.text import paint
from swarmtui.text import display_width
from swarmtui.tui.tables import block_lines, table_lines

COLUMNS = (
    Column[tuple[str, float | None, int]]("name", "name", lambda item: item[0], right=False, least=4),
    Column[tuple[str, float | None, int]]("ttft", "TTFT", lambda item: item[1], seconds),
    Column[tuple[str, float | None, int]]("n", "n", lambda item: item[2]),
)


def example(*items: tuple[str, float | None, int]) -> Table:
    return tabulate("", items, COLUMNS, drop=("n", "ttft"))


def test_a_name_that_is_also_a_state_is_printed_as_it_is() -> None:
    table = tabulate("", ["ok", "best", "–"], [Column[str]("task", "task", lambda name: name, right=False)])
    assert paint([table]) == "| task |\n| ---- |\n| ok   |\n| best |\n| –    |\n"
    assert [line[0] for line in table_lines(table, 20)[1:]] == [("  ok  ", ""), ("  best", ""), ("  –   ", "")]


def test_what_was_not_measured_is_a_dash_and_an_empty_column_can_be_left_out() -> None:
    table = example(("a", None, 1), ("b", None, 0))
    assert [row[1] for row in table.rows] == [Cell("–", "missing")] * 2
    assert [column.id for column in table.without_missing().columns] == ["name", "n"]
    assert [column.id for column in example(("a", 0.2, 1)).without_missing().columns] == ["name", "ttft", "n"]


@pytest.mark.parametrize(
    ("width", "titles", "gap", "dropped"),
    [(40, ("name", "TTFT", "n"), 3, ()), (22, ("name", "TTFT", "n"), 3, ()), (16, ("name", "TTFT", "n"), 1, ()),
     (14, ("name", "TTFT"), 2, ("n",)), (6, ("name",), 2, ("TTFT", "n"))],
)  # fmt: skip
def test_cells_are_truncated_then_gaps_narrowed_then_columns_dropped(
    width: int, titles: tuple[str, ...], gap: int, dropped: tuple[str, ...]
) -> None:
    layout = fit(example(("a name of some length", 0.25, 7)), width, gaps=(3, 2, 1))
    assert (layout.titles, layout.gap, layout.dropped) == (titles, gap, dropped)
    assert sum(layout.widths) + layout.gap * len(layout.widths) <= width


def test_the_widest_cells_are_truncated_first() -> None:
    words = (keyed("a", "a", least=4), keyed("b", "b", least=4))

    def widths(a: str, b: str) -> tuple[int, ...]:
        rows: list[Fields] = [{"a": a, "b": b}]
        return fit(tabulate("", rows, words), 20, gaps=(2,)).widths

    assert widths("short one", "a much longer cell") == (8, 8)
    assert widths("short", "a much longer cell") == (5, 11)


def test_every_line_fits_and_names_from_outside_are_one_line() -> None:
    table = example(("evil\x1b[31m|name\nof 漢字", 0.25, 7))
    text = paint([table]).splitlines()
    assert text[2] == "| evil¦name of 漢字 | 250 ms |  7 |"
    for width in range(12, 40):
        assert all(sum(display_width(part) for part, _ in line) <= width for line in table_lines(table, width))


def test_blocks_are_spaced_and_styled_by_their_code() -> None:
    blocks = (Facts((("Session", "a"),)), Sentence("one"), Sentence("two", "alarm"), example(("ok", None, 1)))
    assert paint(blocks) == (
        "session      a\n\none\ntwo\n\n| name | TTFT |  n |\n| ---- | ---: | -: |\n| ok   |    – |  1 |\n"
    )
    assert block_lines(blocks, 40)[:3] == [[(" Session    ", "dim"), ("a", "")], [(" one", "")], [(" two", "bad")]]
