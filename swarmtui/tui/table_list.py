"""A table of which one row is under the cursor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from textual.events import Click
from textual.message import Message

from swarmtui.report.table import Layout, Table, fit
from swarmtui.tui.lines import Line, Movable, wrapped_note
from swarmtui.tui.tables import row_line, titles_line

# The heading and the titles of the columns.
_ABOVE = 2
# The rows that are laid out together, and those before and after them, which may be visible at the same time.
_PART, _AROUND = 200, 100


class TableList(Movable):
    """Draws the rows around the cursor, which stays on its row when the table changes; posts `Moved`.

    Textual's DataTable needs 0.8 s for 3,000 rows, at every letter of a filter.
    """

    class Moved(Message):
        pass

    def __init__(
        self, title: str, *, key: int = 0, empty: str = "loading …", with_cursor: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.title, self.key, self.empty_text, self.with_cursor = title, key, empty, with_cursor
        self.note = ""
        self.marked: set[str] = set()
        self.ids: Sequence[str] = ()
        self.cursor = 0
        self._first = 0
        self._part: Callable[[int, int], Table] = Table("", (), ()).part
        # Width and first row of the part that is laid out, and its layout.
        self._laid_out: tuple[int, int, Layout] | None = None

    def show(self, part: Callable[[int, int], Table], ids: Sequence[str], note: str = "", empty: str = "") -> None:
        """Show a table whose rows have these ids; `empty` says why it has none.

        `part` returns the rows between two positions: there may be thousands, of which a few are visible.
        """
        selected = self.selected
        self.note, self.empty_text = note, empty or self.empty_text
        self._part, self.ids, self._laid_out = part, ids, None
        self.move_to(self.ids.index(selected) if selected in self.ids else self.cursor)

    @property
    def selected(self) -> str:
        """The id of the row under the cursor; empty if there is none."""
        return self.ids[self.cursor] if self.ids else ""

    def move_to(self, position: int) -> None:
        self.cursor = min(max(0, position), max(0, len(self.ids) - 1))
        self.redraw()
        self.post_message(self.Moved())

    def move(self, by: int) -> None:
        self.move_to(self.cursor + by)

    def move_to_edge(self, last: bool) -> None:
        self.move_to(len(self.ids) if last else 0)

    def on_click(self, event: Click) -> None:
        """Move the cursor to the clicked row; a double click is Enter."""
        position = self._first + event.y - _ABOVE
        if event.y >= _ABOVE and position < len(self.ids):
            event.stop()
            if event.chain == 1:
                self.move_to(position)
            elif position == self.cursor:
                self.app.simulate_key("enter")

    def draw(self, width: int, height: int) -> list[Line]:
        if not self.ids:
            return [self.heading("", width), *wrapped_note(self.empty_text, width)]
        rows = max(1, height - _ABOVE)
        self._first = max(0, min(self.cursor - rows // 2, len(self.ids) - rows))
        start, layout = self._lay_out(width)
        shown = layout.rows[self._first - start : self._first - start + rows]
        count = str(len(self.ids))
        if len(shown) < len(self.ids):
            count = f"{self._first + 1}–{self._first + len(shown)} of {count}"
        head = self.heading_with((self.note,), count, width)
        lines = [[(" ", ""), *titles_line(layout)]]
        for position, row in enumerate(shown, self._first):
            here = self.with_cursor and position == self.cursor
            mark = "*" if self.ids[position] in self.marked else " "
            # In place of the first blank of the gap before the first column.
            (first, style), *others = row_line(row, layout, "bold" if here else "")
            lines.append([(f"{'›' if here else ' '}{mark}", "cursor"), (first[1:], style), *others])
        return [head, *lines]

    def _lay_out(self, width: int) -> tuple[int, Layout]:
        """Return the first row and the layout of the part of the table around the cursor."""
        start = max(0, self.cursor // _PART * _PART - _AROUND)
        if self._laid_out is None or self._laid_out[:2] != (width, start):
            # A cell is before the table, for the cursor, and one between it and the frame.
            part = self._part(start, start + _PART + 2 * _AROUND)
            self._laid_out = width, start, fit(part, width - 2, gaps=(2, 1))
        return self._laid_out[1:]
