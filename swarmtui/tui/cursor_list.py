"""Lists with a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from textual.binding import BindingType
from textual.events import Click
from textual.message import Message

from swarmtui.tui.keys import bindings
from swarmtui.tui.lines import Line, Movable, ljust

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


class PickItem(NamedTuple):
    """An item without an id cannot be picked."""

    id: str
    text: str


class PickList(CursorList[PickItem]):
    """A focusable list that skips items without an id; a sign marks the picked item, not a colour alone."""

    can_focus = True
    other_lines = 1
    lines_above = 0
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("pick")]

    class Moved(Message):
        def __init__(self, pick: PickList) -> None:
            super().__init__()
            self.pick = pick

    class Confirmed(Message):
        def __init__(self, pick: PickList) -> None:
            super().__init__()
            self.pick = pick

    def __init__(self, items: Sequence[PickItem] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.set_items(items)

    @property
    def picked(self) -> str:
        """The id of the item under the cursor; empty if there is none."""
        return self.selected.id if self.selected else ""

    def set_items(self, items: Sequence[PickItem], picked: str = "") -> None:
        self.rows = tuple(items)
        self.pick(picked)

    def pick(self, id: str) -> None:
        """Move the cursor to this item, or to the first that can be picked."""
        enabled = self._enabled()
        matching = [position for position in enabled if self.rows[position].id == id]
        self.move_to((matching or enabled or [0])[0])

    def move(self, by: int) -> None:
        enabled = self._enabled()
        if enabled:
            at = enabled.index(self.cursor) if self.cursor in enabled else 0
            self.choose(enabled[min(len(enabled) - 1, max(0, at + by))])

    def choose(self, position: int) -> None:
        super().choose(position)
        self.post_message(self.Moved(self))

    def _can_take(self, position: int) -> bool:
        return bool(self.rows[position].id)

    def _enabled(self) -> list[int]:
        return [position for position, item in enumerate(self.rows) if item.id]

    def action_move(self, by: int) -> None:
        self.move(by)

    def action_page(self, by: int) -> None:
        self.move_page(by)

    def action_edge(self, last: int) -> None:
        self.move_to_edge(bool(last))

    def action_take(self) -> None:
        self.post_message(self.Confirmed(self))

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        lines: list[Line] = []
        visible = self.visible_rows(height)
        for position, item in visible:
            here = position == self.cursor and bool(item.id)
            more_above = position == visible[0][0] > 0
            more_below = position == visible[-1][0] < len(self.rows) - 1
            # Reverse video shows without colours which list has the focus.
            style = "selected" if self.has_focus else "bold"
            lines.append(
                [
                    (" › " if here else " … " if more_above or more_below else "   ", "cursor" if here else "dim"),
                    (ljust(item.text, max(1, width - 3)), style if here else "" if item.id else "dim"),
                ]
            )
        return lines
