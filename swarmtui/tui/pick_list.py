"""A list of which one item is picked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.segment import Segment
from textual.binding import BindingType
from textual.events import Click
from textual.strip import Strip
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from swarmtui.tui.keys import bindings
from swarmtui.tui.lines import cell_width, ljust, shorten

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

_SIGN = 3
# A word or two of a description say nothing.
_LEAST_ABOUT = 24


class PickItem(NamedTuple):
    """An item of a list; one without an id cannot be picked. What it is `about` stands in a column of its own."""

    id: str
    text: str
    about: str = ""


class PickList(OptionList, inherit_bindings=False):
    """Posts OptionHighlighted when the user picks another item, and OptionSelected when it is confirmed.

    A sign marks the picked item, not a colour alone.
    """

    app: SwarmApp
    DEFAULT_CSS = """
    PickList {
        width: 1fr; height: 1fr; padding: 0; border: none; background: transparent; scrollbar-size: 0 0;
        text-wrap: nowrap; text-overflow: ellipsis;
        &:focus { border: none; background-tint: transparent; }
        & > .option-list--option { padding-left: 3; }
        & > .option-list--option-disabled { color: $text-muted; }
        & > .option-list--option-highlighted { color: $foreground; background: transparent; text-style: none; }
        &:focus > .option-list--option-highlighted { color: $foreground; background: transparent; text-style: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("pick")]

    def __init__(self, items: Iterable[PickItem] = (), **kwargs: Any) -> None:
        super().__init__(markup=False, **kwargs)
        # Not as the ids of options, which must differ: these may be names from a server.
        self._items: tuple[PickItem, ...] = ()
        self._width = 0
        self.set_items(items)

    @property
    def picked(self) -> str:
        """The id of the picked item; empty if there is none."""
        return "" if self.highlighted is None else self._items[self.highlighted].id

    def set_items(self, items: Iterable[PickItem], picked: str = "") -> None:
        if (self._items, self._width) != (wanted := tuple(items), self.size.width):
            self._items, self._width = wanted, self.size.width
            width = self._width - _SIGN if self._width else 999
            with self.prevent(self.OptionHighlighted):
                lines = zip(wanted, item_lines(wanted, width), strict=True)
                self.set_options(Option(line, disabled=not item.id) for item, line in lines)
        self.pick(picked)

    def pick(self, id: str) -> None:
        """Pick this item, or the first that can be picked."""
        enabled = [position for position, item in enumerate(self._items) if item.id]
        with self.prevent(self.OptionHighlighted):
            self.highlighted = next((at for at in enabled if self._items[at].id == id), next(iter(enabled), None))

    def render_line(self, y: int) -> Strip:
        """Add the sign; reverse video, which Textual does not apply to options, shows which list has the focus."""
        strip, line, styles = super().render_line(y), self.scroll_offset.y + y, self.app.line_styles
        hidden = (y == 0 < line) or (y == self.size.height - 1 and line < self.option_count - 1)
        sign, style, text_style = " … " if hidden else "   ", styles["dim"], styles[""]
        if line == self.highlighted:
            sign, style, text_style = " › ", styles["cursor"], styles["selected" if self.has_focus else "bold"]
        text = strip.crop(_SIGN).apply_style(text_style)
        return Strip.join([Strip([Segment(sign, self.rich_style + style)]), text])

    def on_resize(self) -> None:
        """Show the first items again if there is room for them, and as much of their texts."""
        self.set_items(self._items, self.picked)
        self.scroll_home(animate=False, immediate=True)
        self.scroll_to_highlight()

    def on_click(self, event: Click) -> None:
        """Confirm with a double click; Textual confirms with the first."""
        clicked = event.style.meta.get("option")
        if event.chain == 1:
            event.prevent_default()
            if clicked is not None and self._items[clicked].id:
                self.highlighted = clicked

    def action_move(self, by: int) -> None:
        (self.action_cursor_down if by > 0 else self.action_cursor_up)()

    def action_page(self, by: int) -> None:
        move: Callable[[], None] = self.action_page_down if by > 0 else self.action_page_up
        move()

    def action_edge(self, last: int) -> None:
        (self.action_last if last else self.action_first)()

    def action_take(self) -> None:
        self.action_select()


def item_lines(items: Sequence[PickItem], width: int) -> list[str]:
    """Return a line for each item, as wide as the list or less; without room for what items are about, their texts."""
    names = max((cell_width(item.text) for item in items if item.about), default=0)
    longest = max((cell_width(item.about) for item in items), default=0)
    has_room = width - names - 2 >= min(_LEAST_ABOUT, longest)
    whole = [f"{ljust(item.text, names)}  {item.about}" if item.about and has_room else item.text for item in items]
    return [shorten(line, width) for line in whole]
