"""Paint tables, sentences and facts as text for a terminal; the tables are also valid Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from swarmtui.report.table import Block, Cell, Facts, Layout, Sentence, Table, fit
from swarmtui.text import pad, sanitize, terminal_size, wrap_words

MAX_WIDTH = 100
_MIN_WIDTH = 40
_NAME = 12


def paint(blocks: Iterable[Block]) -> str:
    """Paint blocks below each other; tables, facts, titles and empty sentences begin a new paragraph."""
    parts: list[list[str]] = []
    joined = False
    for block in blocks:
        lines = _lines(block)
        if joined and isinstance(block, Sentence) and block.code != "title" and lines:
            parts[-1] += lines
        elif lines:
            parts.append(lines)
        joined = isinstance(block, Sentence) and bool(lines)
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _lines(block: Block) -> list[str]:
    if isinstance(block, Table):
        return paint_table(block)
    if isinstance(block, Facts):
        return _facts(block)
    if block.code == "command":  # on one line, to copy
        return [f"    {sanitize(block.text)}"]
    return wrap(sanitize(block.text), "    " if block.code == "detail" else "")


def _facts(facts: Facts) -> list[str]:
    indent = " " * (_NAME + 1)
    # A line of an answer is never broken in a pipe or a file.
    width = _terminal_width(sys.maxsize) if facts.answer else page_width()
    return [
        *wrap_words(sanitize(facts.head), width),
        *(
            line
            for name, value in facts.rows
            for line in wrap_words(
                sanitize(value), width, f"{name if facts.answer else name.lower():<{_NAME}} ", indent
            )
        ),
    ]


def paint_table(table: Table) -> list[str]:
    """Return a table with its title, what was dropped, and its note."""
    rows = tuple(tuple(Cell(cell.text.replace("|", "¦"), cell.code) for cell in row) for row in table.rows)
    layout = fit(table._replace(rows=rows), page_width() - 1, gaps=(3, 2, 1))
    hint = (
        f"not shown for lack of space: {', '.join(layout.dropped)}. A wider terminal or `swarmtui export` shows them."
    )
    below = [*(wrap(hint) if layout.dropped else []), *wrap(sanitize(table.note))]
    title = [sanitize(table.title), ""] if table.title else []
    return [*title, *markdown_rows(layout), *([""] if below else []), *below]


def markdown_rows(layout: Layout) -> list[str]:
    """Pad the cells and join them with bars; a gap of 1 is a bar without blanks."""
    before, after = " " * min(layout.gap - 1, 1), " " * (layout.gap - 2)
    right = [column.right for column in layout.columns]
    rule = [("-" * (w - 1) + ":" if to_right else "-" * w) for w, to_right in zip(layout.widths, right, strict=True)]
    rows = (layout.titles, *([cell.text for cell in row] for row in layout.rows))
    padded = [
        [pad(text, w, right=to_right) for text, w, to_right in zip(row, layout.widths, right, strict=True)]
        for row in rows
    ]
    return [f"|{before}{f'{after}|{before}'.join(row)}{after}|" for row in (padded[0], rule, *padded[1:])]


def page_width() -> int:
    """Return the width of the terminal, at most 100; always 100 if stdout is a pipe or a file."""
    return min(MAX_WIDTH, _terminal_width(MAX_WIDTH))


def fits_terminal(blocks: Iterable[Block]) -> bool:
    """Whether the first line is still visible after these were printed; always so if stdout is a pipe or a file."""
    lines = terminal_size(sys.stdout).lines
    return not lines or paint(blocks).count("\n") < lines


def _terminal_width(otherwise: int) -> int:
    columns = terminal_size(sys.stdout).columns
    return max(_MIN_WIDTH, columns) if columns else otherwise


def wrap(text: str, indent: str = "") -> list[str]:
    return wrap_words(text, page_width(), indent, indent + "  ")
