"""Paint the tables, sentences and facts of `report` as lines of the app."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from swarmtui.report.table import Block, Cell, Code, Facts, Layout, Row, Sentence, Table, fit
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, ljust, rjust, wrap

STYLES: dict[Code | None, str] = {
    "ok": "good", "best": "good", "kept": "good", "faster": "good",
    "missed": "bad", "failed": "bad", "slower": "bad", "refused": "bad", "alarm": "bad",
    "cliff": "warn", "unknown": "warn", "note": "warn", "likely faster": "warn", "likely slower": "warn",
    "not applicable": "dim", "partial": "dim", "incomplete": "dim", "same": "dim", "unsure": "dim", "detail": "dim",
    "difference": "bold", "active": "focus", "title": "title", "lead": "bold",
}  # fmt: skip

_NAME = 11


def block_lines(blocks: Iterable[Block], width: int) -> list[Line]:
    """Return the lines of a page, with a blank one before each title; a cell is between tables and the frame."""
    lines: list[Line] = []
    for block in blocks:
        if isinstance(block, Table):
            lines += table_lines(block, width - 1)
        elif isinstance(block, Sentence):
            lines += ([[]] if block.code == "title" and lines else []) + sentence_lines(block, width)
        else:
            lines += fact_lines(block, width)
    return lines


def fact_lines(facts: Facts, width: int) -> list[Line]:
    """Return names and values side by side, below the head; facts without a value are left out."""
    lines = sentence_lines(Sentence(facts.head, "lead"), width) if facts.head else []
    for name, value in facts.rows:
        parts = wrap(sanitize(value), max(8, width - _NAME - 2)) if value else []
        lines += [[(f" {ljust('' if at else name, _NAME)}", "dim"), (part, "")] for at, part in enumerate(parts)]
    return lines


def sentence_lines(sentence: Sentence, width: int) -> list[Line]:
    first, *more = wrap(sanitize(sentence.text), max(8, width - 4))
    style = STYLES.get(sentence.code, "")
    return [[(f" {first}", style)], *([(f"   {part}", style)] for part in more)]


def table_lines(
    table: Table, width: int, gaps: Sequence[int] = (2,), least: Mapping[str, int] | None = None
) -> list[Line]:
    """Return the title if there is one, the titles of the columns, and the rows; the note is below them."""
    layout = fit(table, width, gaps, least)
    title: list[Line] = [[(f" {sanitize(table.title)}", "title")]] if table.title else []
    lines = [titles_line(layout), *(row_line(row, layout) for row in layout.rows)]
    return [*title, *lines, *(sentence_lines(Sentence(table.note, "detail"), width) if table.note else [])]


def titles_line(layout: Layout) -> Line:
    return row_line(tuple(Cell(text, "detail") for text in layout.titles), layout)


def row_line(row: Row, layout: Layout, plain: str = "") -> Line:
    """Return a row with the styles of its codes; `plain` is that of cells without one.

    Text that takes more cells here than in a file, such as a label in Tamil, is cut.
    """
    return [
        (" " * layout.gap + (rjust if column.right else ljust)(cell.text, w), STYLES.get(cell.code) or plain)
        for cell, w, column in zip(row, layout.widths, layout.columns, strict=True)
    ]
