"""A screen of lines to be read: moved through by keys, left with Esc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from swarmtui.tui.footer import KeyLine
from swarmtui.tui.keys import Where, bindings, shown
from swarmtui.tui.lines import Line, Lines, heading

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp
    from swarmtui.tui.keys import Action


class Page(Lines):
    """`top` is the first line in sight; with `follow` it stays at the end as lines are added."""

    def __init__(self, title: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.title = title
        self.beside = ""
        self.lines: list[Line] = []
        self.top = 0
        self.follow = False

    def show(self, lines: list[Line]) -> None:
        self.lines = lines
        self.redraw()

    def move(self, to: int) -> None:
        last = max(0, len(self.lines) - (self.size.height - 1))
        self.top = min(max(0, to), last)
        self.follow = self.follow and self.top == last
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        last = max(0, len(self.lines) - (height - 1))
        self.top = last if self.follow else min(self.top, last)
        more = f"{self.top + 1}–{min(len(self.lines), self.top + height - 1)} of {len(self.lines)}" if last else ""
        beside = " · ".join(part for part in (self.beside, more) if part)
        return [heading("", self.title, beside, width), *self.lines[self.top : self.top + height - 1]]


class Pager(Screen[None]):
    """Subclasses put a Page into it."""

    app: SwarmApp
    AUTO_FOCUS = ""
    where: Where = "page"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("page")]

    def page(self) -> Page:
        raise NotImplementedError

    def fill(self) -> None:
        """Called when it is first shown, and whenever the room for it changes."""

    def actions(self) -> list[Action]:
        return shown(self.app.keys.actions(self.where), "back")

    def compose(self) -> ComposeResult:
        yield self.page()
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(KeyLine).show(self.actions())
        self.fill()

    def on_resize(self) -> None:
        self.fill()

    def action_back(self) -> None:
        self.dismiss()

    def action_move(self, by: int) -> None:
        page = self.query_one(Page)
        page.move(page.top + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.query_one(Page).size.height - 2))

    def action_edge(self, last: int) -> None:
        page = self.query_one(Page)
        page.move(len(page.lines) if last else 0)
