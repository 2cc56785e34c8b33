"""Lists with a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from textual.events import Click

from swarmtui.tui.lines import Movable

Row = TypeVar("Row")


class CursorList(Movable, Generic[Row]):
    """Rows of which one is under the cursor; the part of the list around the cursor is drawn."""

    # Lines of the widget that are not rows, and how many of them are above the rows.
    other_lines = 2
    lines_above = 2

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows: Sequence[Row] = ()
        self.cursor = 0
        self._first_visible = 0

    def set_rows(self, rows: Sequence[Row], cursor: int | None = None) -> None:
        self.rows = rows
        self.move_to(self.cursor if cursor is None else cursor)

    @property
    def selected(self) -> Row | None:
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    @property
    def page_rows(self) -> int:
        return max(1, self.size.height - self.other_lines)

    def move_to(self, position: int) -> None:
        self.cursor = min(max(0, position), max(0, len(self.rows) - 1))
        self.redraw()

    def move(self, by: int) -> None:
        self.move_to(self.cursor + by)

    def move_page(self, by: int) -> None:
        self.move(by * self.page_rows)

    def move_to_edge(self, last: bool) -> None:
        self.move(len(self.rows) if last else -len(self.rows))

    def visible_rows(self, height: int) -> list[tuple[int, Row]]:
        """Return the rows that fit into `height` lines, with their positions."""
        self._first_visible = first = max(0, min(self.cursor - height // 2, len(self.rows) - height))
        return list(enumerate(self.rows[first : first + height], first))

    # mouse

    def on_click(self, event: Click) -> None:
        """Move the cursor to the clicked row; a double click is Enter."""
        position = self._first_visible + event.y - self.lines_above
        if self.lines_above <= event.y and position < len(self.rows) and self._can_take(position):
            event.stop()
            if event.chain == 1:
                self.choose(position)
            elif position == self.cursor:
                self.app.simulate_key("enter")

    def choose(self, position: int) -> None:
        self.move_to(position)

    def _can_take(self, position: int) -> bool:
        return True
