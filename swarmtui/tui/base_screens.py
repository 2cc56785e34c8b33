"""What screens are made of: the footer with its keys, a page of scrolling lines, and the base classes of screens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.app import ComposeResult
from textual.events import Click
from textual.screen import Screen

from swarmtui.report.table import Block
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.keys import Action, KeyContext, bindings, in_footer, relabel
from swarmtui.tui.lines import Line, LineWidget, Movable, cell_width, part_text
from swarmtui.tui.table_list import TableList
from swarmtui.tui.tables import block_lines

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

# Keys that start or change something come first, followed by rows of keys such as 1–6, each row as one entry.
_FIRST_GROUPS = ("Load", "Replay", "Setup")
_KEY_ROWS = {"panel": "panels", "part": "lists"}
_ALWAYS = ("help", "leave")
# After the end, what leads on comes first.
_AFTER_END = (
    "again", "find_capacity", "compare_baseline", "sessions", "back", "panel(1)", "copy_command", "replay", "share",
    "export",
)  # fmt: skip
# From this width on, panels are beside each other.
_TWO_COLUMNS = 110


class HelpTopic(NamedTuple):
    """Holds what help explains first: names with their meaning, of the field, the list or the panel that is in use.

    `details` follow the keys of the screen.
    """

    title: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    details: tuple[tuple[str, str], ...] = ()


class KeyFooter(LineWidget):
    """Shows as many keys as fit; help and quit always."""

    actions: Sequence[Action] = ()
    _shown_for: tuple[Sequence[Action], bool] | None = None
    # Columns of the actions that are shown.
    _places: Sequence[tuple[range, Action]] = ()

    def show(self, actions: Sequence[Action], ended: bool = False) -> None:
        if (actions, ended) == self._shown_for:
            return
        self._shown_for = actions, ended
        offered = [
            action for action in actions if (action.after_end if ended else action.footer) or action.id in _ALWAYS
        ]
        first = [action for action in offered if action.group in _FIRST_GROUPS]
        others = [action for action in offered if action.group not in _FIRST_GROUPS]
        for kind, label in _KEY_ROWS.items():
            row = [action for action in actions if action.id.startswith(f"{kind}(")]
            if row:
                (first or others).append(row[0]._replace(shown=f"{row[0].shown}–{row[-1].shown}", label=label))
        self.actions = [*first, *others]
        if ended:
            self.actions.sort(key=lambda action: _AFTER_END.index(action.id) if action.id in _AFTER_END else 99)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        last = [action for action in self.actions if action.id in _ALWAYS]
        # One blank before the first entry; the two blanks after the last one may be cut.
        room = width - sum(map(_width, last)) - 1 + 2
        shown: list[Action] = []
        for action in self.actions:
            if action not in last and _width(action) <= room:
                room -= _width(action)
                shown.append(action)
        line: Line = [(" ", "")]
        places, column = [], 1
        for action in (*shown, *last):
            line += _spans(action)
            places.append((range(column, column + _width(action) - 2), action))
            column += _width(action)
        self._places = places
        return [line]

    async def on_click(self, event: Click) -> None:
        """Do what the clicked key does."""
        clicked = next((action for place, action in self._places if event.x in place), None)
        if clicked is not None and clicked.label not in _KEY_ROWS.values():
            await self.app.run_action(clicked.full_name, self.screen)


def _spans(action: Action) -> Line:
    return [(action.shown, "title"), (f" {action.label}  ", "dim")]


def _width(action: Action) -> int:
    return cell_width(action.shown) + cell_width(action.label) + 3


class CursorScreen(Screen[None]):
    """A screen whose movement keys act on `movable`, and which Esc closes; it has the keys of its `key_context`.

    Screens with an input line can filter what they show: each change of the text calls `update_panels`.
    """

    app: SwarmApp
    AUTO_FOCUS = ""
    key_context: KeyContext
    filter_text = ""

    def __init_subclass__(cls) -> None:
        if "key_context" in cls.__dict__:
            cls.BINDINGS = [*bindings(cls.key_context)]
        super().__init_subclass__()

    def movable(self) -> Movable:
        return self.query_one(TableList)

    def update_panels(self) -> None:
        """Show the current data."""

    def update_in_front(self) -> None:
        """Show the current data if no other screen or dialog is in front.

        Below a dialog, Textual repaints the whole screen for every change: 60 KB per second over SSH.
        """
        if self.is_active:
            self.update_panels()

    def actions(self) -> list[Action]:
        """Return the actions with those marked that the footer shows."""
        return in_footer(self.app.keys.actions(self.key_context), "back")

    def help_topic(self) -> HelpTopic:
        return HelpTopic()

    def on_mount(self) -> None:
        self.query_one(KeyFooter).show(self.actions())

    def ask_filter(self, label: str) -> None:
        self.query_one(InputLine).ask(
            label, self.filter_text, str, lambda text: self.set_filter(text or ""), self.set_filter
        )

    def set_filter(self, text: str) -> None:
        self.filter_text = text
        self.update_panels()

    def action_move(self, by: int) -> None:
        self.movable().move(by)

    def action_page(self, by: int) -> None:
        self.movable().move_page(by)

    def action_edge(self, last: int) -> None:
        self.movable().move_to_edge(bool(last))

    def action_back(self) -> None:
        """Clear the filter; without one, close the screen."""
        if self.filter_text:
            self.set_filter("")
        else:
            self.dismiss()

    def action_sessions(self) -> None:
        self.app.open_sessions()


class Page(Movable):
    """Scrolling lines; `top` is the first visible line, and `follow` keeps the end visible as lines are added."""

    def __init__(self, title: str, *, key: int = 0, follow: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.title, self.key = title, key or self.key
        # Beside the title, from long to short.
        self.notes: tuple[str, ...] = ("",)
        self.note_style = "dim"
        self.lines: list[Line] = []
        self._make: Callable[[int], list[Line]] | None = None
        self.top = 0
        self.follow = follow

    def show(self, lines: list[Line]) -> None:
        self.lines = lines
        self.redraw()

    def show_blocks(self, blocks: Sequence[Block]) -> None:
        self.show_made(lambda width: block_lines(blocks, width))

    def show_made(self, make: Callable[[int], list[Line]]) -> None:
        """Show the lines that `make` returns for the width of the page, also after it was resized."""
        self._make = make
        self.fit_view()
        self.redraw()

    def fit_view(self) -> None:
        self.lines = self.lines_for(self.inner_size.width)

    def lines_for(self, width: int) -> list[Line]:
        """Return the lines of a page of this width."""
        return self._make(max(20, width)) if self._make is not None else self.lines

    def scroll_to_line(self, line: int) -> None:
        last = self._last_top(self.inner_size.height)
        self.top = min(max(0, line), last)
        self.follow = self.follow and self.top == last
        self.redraw()

    def move(self, by: int) -> None:
        self.scroll_to_line(self.top + by)

    def move_to_edge(self, last: bool) -> None:
        self.scroll_to_line(len(self.lines) if last else 0)

    def _last_top(self, height: int) -> int:
        return max(0, len(self.lines) - (height - 1))

    def draw(self, width: int, height: int) -> list[Line]:
        last, visible = self._last_top(height), max(0, height - 1)
        self.top = last if self.follow else min(self.top, last)
        shown = part_text(range(self.top, min(len(self.lines), self.top + visible)), len(self.lines))
        return [
            self.heading_with(self.notes, shown, width, self.note_style),
            *self.lines[self.top : self.top + visible],
        ]


class PanelScreen(CursorScreen):
    """A screen of several panels: the key of one goes to it, and from there shows it alone.

    Some panels may share a region, where one is visible: the first, or the one whose key was pressed last. Here those
    in `shared` do, in a narrow terminal.
    """

    shared: tuple[int, ...] = ()
    # The key of the only panel that is shown; None if all are.
    only_panel: int | None = None
    # The keys of the panel that the keys act on, and of the one that was chosen for the shared region.
    _focused: int | None = None
    _chosen: int | None = None

    @property
    def panels(self) -> Sequence[LineWidget]:
        return sorted((panel for panel in self.query(LineWidget) if panel.key), key=lambda panel: panel.key)

    def sharing(self) -> Sequence[int]:
        """Return the keys of the panels that share a region, the one first that is visible if none was chosen."""
        return self.shared if self.is_narrow else ()

    @property
    def is_narrow(self) -> bool:
        return self.app.size.width < _TWO_COLUMNS

    def chosen(self) -> int | None:
        """Return the key of the panel that was chosen for the shared region, and is not the first of it."""
        return self._chosen if self._chosen in self.sharing()[1:] else None

    def choose(self, key: int) -> None:
        self._chosen = key

    def actions(self) -> list[Action]:
        return relabel(super().actions(), {"back": "all panels"} if self.only_panel is not None else {})

    def movable(self) -> Movable:
        """The panel in focus, or the first that can be moved."""
        movable = [panel for panel in self.panels if isinstance(panel, Movable)]
        return min(movable, key=lambda panel: not panel.in_focus)

    def choose_visible(self, panels: Sequence[LineWidget]) -> None:
        """Show the panels that have a region of their own, and one in the region that others share."""
        sharing = self.sharing()
        shared = self.chosen() or next(iter(sharing), None)
        for panel in panels:
            own = panel.key == shared if panel.key in sharing else not self.is_covered(panel, shared)
            panel.display = own if self.only_panel is None else panel.key == self.only_panel
        visible = [panel.key for panel in panels if panel.display and panel.key]
        focused = self._focused if self._focused in visible else self.first_focus(visible)
        for panel in panels:
            if panel.in_focus != (panel.key == focused):
                panel.in_focus = panel.key == focused
                panel.redraw()

    def is_covered(self, panel: LineWidget, shared: int | None) -> bool:
        """Whether a panel with a region of its own gives way to the one that is visible in the shared region."""
        return False

    def first_focus(self, visible: Sequence[int]) -> int | None:
        return next(iter(visible), None)

    def arrange_panels(self) -> None:
        """Show the panels that the terminal has room for, with the focus on one of them."""
        self.choose_visible(self.panels)
        self.set_class(self.only_panel is not None, "-alone")
        for box in self.query("Horizontal, Vertical"):
            if panels := box.query(LineWidget):  # an input line has none, and shows itself
                box.display = any(panel.display for panel in panels)
        for panel in self.panels:
            panel.redraw()
        for footer in self.query(KeyFooter):
            footer.show(self.actions())

    def on_resize(self) -> None:
        self.arrange_panels()

    def action_panel(self, key: int) -> None:
        """Go to a panel, also from another one that is alone; the same key again shows it alone, or all again."""
        is_here = any(panel.in_focus for panel in self.panels if panel.key == key)
        self.only_panel = key if is_here and self.only_panel is None else None
        self._go_to(key)

    def _go_to(self, key: int) -> None:
        """Move the focus to a panel, which is the visible one of its region from now on."""
        if key in self.sharing():
            self.choose(key)
        self._focused = key
        self.arrange_panels()

    def action_next_panel(self, by: int) -> None:
        """Go to the next panel that is visible; alone, show the next of all."""
        panels = [panel for panel in self.panels if panel.key and (panel.display or self.only_panel is not None)]
        at = next((number for number, panel in enumerate(panels) if panel.in_focus), -1)
        key = panels[(at + by) % len(panels)].key
        self.only_panel = None if self.only_panel is None else key
        self._go_to(key)

    def on_click(self, event: Click) -> None:
        """Go to the panel that was clicked."""
        if isinstance(event.widget, LineWidget) and event.widget.key:
            self._go_to(event.widget.key)

    def restore_panels(self) -> bool:
        """Show the others beside a panel that is alone; False if they are shown."""
        if self.only_panel is None:
            return False
        self.only_panel = None
        self.arrange_panels()
        return True

    def reset_choice(self) -> bool:
        """Show the first of the panels that share a region; False if it is shown."""
        if self.chosen() is None:
            return False
        self._focused = self._chosen = None
        self.arrange_panels()
        return True

    def action_back(self) -> None:
        """Show the others beside a panel that is alone, else clear the filter or close the screen."""
        if not self.restore_panels():
            super().action_back()


class Pager(CursorScreen):
    """Base of the screens that show one page; `update_panels` is called when the screen is mounted or resized."""

    key_context: KeyContext = "page"
    page_title: str
    follow = False

    def movable(self) -> Page:
        return self.query_one(Page)

    def compose(self) -> ComposeResult:
        yield Page(self.page_title, follow=self.follow)
        yield KeyFooter()

    def on_mount(self) -> None:
        self.update_panels()

    def on_resize(self) -> None:
        self.update_panels()
