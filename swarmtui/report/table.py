"""What a result consists of before it is painted: tables of cells, sentences and facts.

A table is built once, from columns that read their cell from an item, and painted by `text`, `markdown`, `html` and the
app. Nothing is looked up by a title or styled by a text: columns have ids, and cells have codes.

    c = Column("c", "C", lambda level: level.c)
    ttft = Column("ttft", "TTFT", lambda level: level.ttft_s.median, seconds)
    print(paint([tabulate("Latency", levels, [c, ttft])]))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from swarmtui.numbers import MISSING, significant
from swarmtui.text import display_width, sanitize, truncate, truncate_middle

Item = TypeVar("Item")

Code = Literal[
    "ok", "missed", "unknown", "not applicable", "missing", "estimated",  # of a value or a check
    "best", "cliff", "kept", "partial", "incomplete", "active", "failed",  # of a row
    "faster", "slower", "same", "likely faster", "likely slower", "unsure", "refused",  # of a comparison
    "title", "lead", "alarm", "note", "difference", "detail", "command",  # of a sentence
]  # fmt: skip

# The signs of marked rows and points; the level to choose has the same one with and without an SLO.
MARKS: dict[Code | None, str] = {
    "best": "▸", "kept": "▸", "cliff": "▼", "missed": "▼", "unknown": "?", "failed": "✖", "partial": "○",
    "incomplete": "◇",
}  # fmt: skip


class Cell(NamedTuple):
    """The text of a cell, and what it means if it means more than its text; painters choose a style by the code."""

    text: str
    code: Code | None = None


Value = Cell | str | float | None
Row = tuple[Cell, ...]
Fields = Mapping[str, Value]
"""Values of a row by column id."""


class Column(NamedTuple, Generic[Item]):
    """A column; `value` reads its cell from the item of a row, and `number` formats it; None is not measured.

    `short` is its title on a page of limited width. `least` is the width to which its cells may be truncated; 0 if they
    are always shown in full. `keeps_end`: they are cut in the middle, as the new value of a flag is what counts.
    """

    id: str
    title: str
    value: Callable[[Item], Value] | None = None
    number: Callable[[float], str] | None = None
    right: bool = True
    least: int = 0
    short: str = ""
    keeps_end: bool = False

    def then(self, change: Callable[[Item, Value], Value]) -> Column[Item]:
        """Return the column with values that are made from its own."""
        value = self.value
        return self._replace(value=lambda item: change(item, value(item) if value else None))

    def cell(self, item: Item) -> Cell:
        return self.format(self.value(item) if self.value else None)

    def format(self, value: Value) -> Cell:
        if value is None:
            return Cell(MISSING, "missing")
        if isinstance(value, (int, float)):
            number = self.number or (str if isinstance(value, int) else significant)
            return Cell(number(value))
        return value if isinstance(value, Cell) else Cell(value)


def keyed(
    id: str, title: str, number: Callable[[float], str] | None = None, *, right: bool = True, least: int = 0
) -> Column[Fields]:
    """Return a column of rows that are fields; what a row does not have is blank."""
    return Column(id, title, lambda row: row.get(id, ""), number, right, least)


class Table(NamedTuple):
    """Rows with a cell for each column; `drop` are the ids of columns that a narrow page leaves out, first to last."""

    title: str
    columns: tuple[Column[Any], ...]
    rows: tuple[Row, ...]
    note: str = ""
    drop: tuple[str, ...] = ()

    def part(self, start: int, end: int) -> Table:
        return self._replace(rows=self.rows[start:end])

    def without(self, ids: Iterable[str]) -> Table:
        left_out = set(ids)
        kept = [at for at, column in enumerate(self.columns) if column.id not in left_out]
        return self._replace(
            columns=tuple(self.columns[at] for at in kept),
            rows=tuple(tuple(row[at] for at in kept) for row in self.rows),
        )

    def texts(self, at: int) -> Iterator[str]:
        return (row[at].text for row in self.rows)

    def without_missing(self) -> Table:
        """Leave out the columns that have no value in any row."""
        cells = zip(*self.rows, strict=True)
        return self.without(
            column.id
            for column, of in zip(self.columns, cells, strict=False)
            if all(cell.code == "missing" for cell in of)
        )


class Sentence(NamedTuple):
    text: str
    code: Code | None = None


class Facts(NamedTuple):
    """Names with their values, such as what was measured and how; those of an `answer` are written as they are.

    `head` is a line above them.
    """

    rows: tuple[tuple[str, str], ...]
    answer: bool = False
    head: str = ""


Block = Table | Sentence | Facts


def tabulate(
    title: str, items: Iterable[Item], columns: Sequence[Column[Item]], note: str = "", drop: Sequence[str] = ()
) -> Table:
    rows = tuple(tuple(column.cell(item) for column in columns) for item in items)
    # Without the functions, so that tables can be compared.
    plain = tuple(column._replace(value=None, number=None) for column in columns)
    return Table(title, plain, rows, note, tuple(drop))


class Layout(NamedTuple):
    """A table as it fits a page: titles and cells truncated to `widths`, `gap` blanks or bars between columns."""

    columns: tuple[Column[Any], ...]
    titles: tuple[str, ...]
    rows: tuple[Row, ...]
    widths: tuple[int, ...]
    gap: int
    dropped: tuple[str, ...]


def fit(table: Table, width: int | None, gaps: Sequence[int], least: Mapping[str, int] | None = None) -> Layout:
    """Lay out a table for a page: cells are truncated first, then gaps narrowed, then columns dropped.

    Each column takes its width and a gap. A table that is too wide even so keeps its columns. `least` has widths by id
    that columns have even if their cells need less, so that a table that grows keeps its columns.
    """
    clean = table._replace(
        columns=tuple(column._replace(title=sanitize(_title(column, width))) for column in table.columns),
        rows=tuple(tuple(_with_text(cell, sanitize(cell.text)) for cell in row) for row in table.rows),
    )
    present, known = [column.id for column in clean.columns], least or {}
    needed = [
        max(known.get(column.id, 2), *map(display_width, (column.title, *clean.texts(at))))
        for at, column in enumerate(clean.columns)
    ]
    drop = [name for name in clean.drop if name in present]
    for count in range(len(drop) + 1):
        shown = clean.without(drop[:count])
        full = [room for name, room in zip(present, needed, strict=True) if name not in drop[:count]]
        for gap in gaps:
            widths = _truncated(shown.columns, full, None if width is None else width - gap * len(full))
            if width is None or sum(widths) + gap * len(widths) <= width:
                break
        else:
            continue
        break
    titles = tuple(truncate(column.title, w) for column, w in zip(shown.columns, widths, strict=True))
    cuts = [truncate_middle if column.keeps_end else truncate for column in shown.columns]
    rows = tuple(
        tuple(_with_text(cell, cut(cell.text, w)) for cell, w, cut in zip(row, widths, cuts, strict=True))
        for row in shown.rows
    )
    dropped = tuple(column.title for column in clean.columns if column.id in drop[:count])
    return Layout(shown.columns, titles, rows, tuple(widths), gap, dropped)


def _with_text(cell: Cell, text: str) -> Cell:
    return cell if cell.text == text else cell._replace(text=text)


def _title(column: Column[Any], width: int | None) -> str:
    return column.title if width is None else column.short or column.title


def _truncated(columns: Sequence[Column[Any]], full: Sequence[int], room: int | None) -> list[int]:
    """Return widths that fit the room, if they can: the widest column is truncated first."""
    widths = list(full)
    while room is not None and sum(widths) > room:
        wider = [at for at, column in enumerate(columns) if column.least and widths[at] > column.least]
        if not wider:
            break
        widths[max(wider, key=lambda at: widths[at])] -= 1
    return widths
