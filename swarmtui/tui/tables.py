"""Paint the tables, sentences and facts of `report` in the app: as lines, or as cells of a DataTable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.style import Style
from rich.text import Text

from swarmtui.report.table import Block, Cell, Code, Sentence, Table, fit
from swarmtui.text import pad, sanitize
from swarmtui.tui.lines import Line, wrap

STYLES: dict[Code | None, str] = {
    "ok": "good", "best": "good", "faster": "good",
    "missed": "bad", "failed": "bad", "slower": "bad", "refused": "bad", "alarm": "bad",
    "cliff": "warn", "unknown": "warn", "note": "warn",
    "not applicable": "dim", "partial": "dim", "same": "dim", "unsure": "dim", "detail": "dim",
    "difference": "second", "title": "title", "lead": "bold",
}  # fmt: skip


def block_lines(blocks: Iterable[Block], width: int) -> list[Line]:
    """Return the lines of a page, with a blank one before each title."""
    lines: list[Line] = []
    for block in blocks:
        if isinstance(block, Table):
            lines += table_lines(block, width)
        elif isinstance(block, Sentence):
            lines += ([[]] if block.code == "title" and lines else []) + sentence_lines(block, width)
        else:
            for name, value in block.rows:
                lines += sentence_lines(Sentence(f"{name}: {value}"), width)
    return lines


def sentence_lines(sentence: Sentence, width: int) -> list[Line]:
    first, *more = wrap(sanitize(sentence.text), max(8, width - 4))
    style = STYLES.get(sentence.code, "")
    return [[(f" {first}", style)], *([(f"   {part}", style)] for part in more)]


def table_lines(table: Table, width: int) -> list[Line]:
    """Return the title if there is one, the titles of the columns, and the rows; the note is below them."""
    layout = fit(table, width, gaps=(2, 1))
    title: list[Line] = [[(f" {sanitize(table.title)}", "title")]] if table.title else []
    rows = [tuple(Cell(text, "detail") for text in layout.titles), *layout.rows]
    lines: list[Line] = [
        [
            (" " * layout.gap + pad(cell.text, w, right=column.right), STYLES.get(cell.code, ""))
            for cell, w, column in zip(row, layout.widths, layout.columns, strict=True)
        ]
        for row in rows
    ]
    return [*title, *lines, *(sentence_lines(Sentence(table.note, "detail"), width) if table.note else [])]


def cell_text(cell: Cell, styles: Mapping[str, Style]) -> Text:
    """Return a cell for a DataTable; `styles` are the `line_styles` of the app."""
    return Text(sanitize(cell.text), styles[STYLES.get(cell.code, "")])
