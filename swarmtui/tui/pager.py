"""A screen of text lines that scroll by keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from swarmtui.tui.cursor_list import CursorScreen
from swarmtui.tui.footer import KeyFooter
from swarmtui.tui.keys import KeyContext, bindings, in_footer
from swarmtui.tui.lines import Line, LineWidget, heading

if TYPE_CHECKING:
    from swarmtui.tui.keys import Action


class Page(LineWidget):
    """Scrolling lines; `top` is the first visible line, and `follow` keeps the end visible as lines are added."""

    def __init__(self, title: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.title = title
        self.note = ""
        self.lines: list[Line] = []
        self.top = 0
        self.follow = False

    def show(self, lines: list[Line]) -> None:
        self.lines = lines
        self.redraw()

    def scroll_to_line(self, line: int) -> None:
        last = max(0, len(self.lines) - (self.size.height - 1))
        self.top = min(max(0, line), last)
        self.follow = self.follow and self.top == last
        self.redraw()

    def move(self, by: int) -> None:
        self.scroll_to_line(self.top + by)

    def move_page(self, by: int) -> None:
        self.move(by * max(1, self.size.height - 2))

    def move_to_edge(self, last: bool) -> None:
        self.scroll_to_line(len(self.lines) if last else 0)

    def draw(self, width: int, height: int) -> list[Line]:
        last = max(0, len(self.lines) - (height - 1))
        self.top = last if self.follow else min(self.top, last)
        shown = f"{self.top + 1}–{min(len(self.lines), self.top + height - 1)} of {len(self.lines)}" if last else ""
        note = " · ".join(part for part in (self.note, shown) if part)
        return [heading("", self.title, note, width), *self.lines[self.top : self.top + height - 1]]


class Pager(CursorScreen):
    """Base of the screens that show one page."""

    key_context: KeyContext = "page"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("page")]

    def page(self) -> Page:
        raise NotImplementedError

    def fill(self) -> None:
        """Fill the page; called when the screen is mounted or resized."""

    def movable(self) -> Page:
        return self.query_one(Page)

    def actions(self) -> list[Action]:
        return in_footer(self.app.keys.actions(self.key_context), "back")

    def compose(self) -> ComposeResult:
        yield self.page()
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(KeyFooter).show(self.actions())
        self.fill()

    def on_resize(self) -> None:
        self.fill()
