"""A list of which one is chosen; the chosen one has a sign before it, not a colour alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from textual.binding import BindingType
from textual.message import Message

from swarmtui.tui.keys import bindings
from swarmtui.tui.lines import Line, Lines, left


class Item(NamedTuple):
    """Without an id it is only to be read."""

    id: str
    text: str


class Pick(Lines):
    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("pick")]

    class Moved(Message):
        def __init__(self, pick: Pick) -> None:
            super().__init__()
            self.pick = pick

    class Taken(Message):
        def __init__(self, pick: Pick) -> None:
            super().__init__()
            self.pick = pick

    def __init__(self, items: Sequence[Item] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.items: Sequence[Item] = ()
        self.place = 0
        self.set_items(items)

    @property
    def chosen(self) -> str:
        """The id of the chosen item; empty where there is none."""
        return self.items[self.place].id if 0 <= self.place < len(self.items) else ""

    def set_items(self, items: Sequence[Item], chosen: str = "") -> None:
        self.items = tuple(items)
        self.choose(chosen)

    def choose(self, wanted: str) -> None:
        able = [place for place, item in enumerate(self.items) if item.id]
        fitting = [place for place in able if self.items[place].id == wanted]
        self.place = (fitting or able or [0])[0]
        self.redraw()

    def action_move(self, by: int) -> None:
        able = [place for place, item in enumerate(self.items) if item.id]
        if able:
            at = able.index(self.place) if self.place in able else 0
            self.place = able[min(len(able) - 1, max(0, at + by))]
            self.redraw()
            self.post_message(self.Moved(self))

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def action_edge(self, last: int) -> None:
        self.action_move(len(self.items) if last else -len(self.items))

    def action_take(self) -> None:
        self.post_message(self.Taken(self))

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        first = max(0, min(self.place - height // 2, len(self.items) - height))
        lines: list[Line] = []
        for place, item in enumerate(self.items[first : first + height], first):
            here = place == self.place and bool(item.id)
            more = (place == first > 0) or (place == first + height - 1 < len(self.items) - 1)
            # Seen also without colours: which list the keys move in.
            strong = "chosen" if self.has_focus else "bold"
            text = left(item.text, max(1, width - 3))
            lines.append(
                [
                    (" › " if here else " … " if more else "   ", "cursor" if here else "dim"),
                    (text, strong if here else "" if item.id else "dim"),
                ]
            )
        return lines
