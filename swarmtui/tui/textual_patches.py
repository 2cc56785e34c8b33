"""The app as a picture: its themes and sizes, and how Textual is kept from painting anything twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from rich.console import RenderableType
from textual._compositor import ChopsUpdate
from textual.app import App
from textual.dom import DOMNode
from textual.events import Resize
from textual.filter import LineFilter, NoColor
from textual.geometry import Region
from textual.screen import Screen
from textual.theme import Theme

from swarmtui.tui.lines import Lines
from swarmtui.tui.terminal import Narrow, Terminal
from swarmtui.tui.themes import CYCLE, SWARM, inks
from swarmtui.tui.too_small import TooSmall, is_too_small

Result = TypeVar("Result")

_COLOURLESS = NoColor()
_FORGET_S = 60.0


def _forget_regions() -> None:
    """Each of the many places where cells change is remembered by Textual, and over hours that is megabytes."""
    for remembered in (Region.intersection, Region.translate, Region.overlaps):
        remembered.cache_clear()


class Picture(App[Result]):
    """Knows nothing of runs; whoever has some says in `first_screen` what is seen first."""

    CSS_PATH = "app.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-normal"), (170, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall"), (54, "-high")]

    def __init__(self, theme: str) -> None:
        super().__init__(driver_class=Terminal)
        self.register_theme(SWARM)
        self.theme = theme if theme in self.available_themes else SWARM.name
        self.inks = inks(self.current_theme)
        self._fresh: Screen[Any] | None = None
        self._painted_with = self.get_css_variables()
        self.stylesheet.set_variables(self._painted_with)

    def first_screen(self) -> Screen[Any]:
        raise NotImplementedError

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._take_inks)
        self.set_interval(_FORGET_S, _forget_regions)

    def action_next_theme(self) -> None:
        place = CYCLE.index(self.theme) + 1 if self.theme in CYCLE else 0
        self.theme = CYCLE[place % len(CYCLE)]

    def _take_inks(self, theme: Theme) -> None:
        self.inks = inks(theme)
        for screen in self.screen_stack:
            for lines in screen.query(Lines):
                lines.refresh()

    # what Textual would do twice

    def refresh_css(self, animate: bool = True) -> None:
        """Textual asks for it once more for the theme it starts with: all was parsed for that one already."""
        if self._painted_with != (variables := self.get_css_variables()):
            self._painted_with = variables
            super().refresh_css(animate)

    def get_default_screen(self) -> Screen[Any]:
        """The first screen is the one to be seen: no empty one is laid out before it."""
        self._fresh = self._fitted(self.first_screen())
        return self._fresh

    def update_styles(self, node: DOMNode, animate: bool = True) -> None:
        """Of a screen that was styled as it was mounted, once: Textual styles it again when it is shown."""
        if node is self._fresh:
            self._fresh = None
        else:
            super().update_styles(node, animate)

    def push_screen(self, screen: Any, *given: Any, **more: Any) -> Any:
        return super().push_screen(self._fitted(screen), *given, **more)

    def _fitted(self, screen: Screen[Any]) -> Screen[Any]:
        """With the classes of its size from the start: Textual adds them behind the first picture, and paints anew."""
        width, height = self.size
        for length, classes in ((width, self.HORIZONTAL_BREAKPOINTS), (height, self.VERTICAL_BREAKPOINTS)):
            screen.add_class(max((at, name) for at, name in classes if at <= length)[1], update=False)
        return screen

    # the terminal

    def on_resize(self, event: Resize) -> None:
        small = is_too_small(event.size)
        if small and not isinstance(self.screen, TooSmall):
            self.push_screen(TooSmall())
        elif not small and isinstance(self.screen, TooSmall):
            self.pop_screen()

    @property
    def behind(self) -> bool:
        return isinstance(self._driver, Terminal) and self._driver.behind

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if type(renderable) is ChopsUpdate:
            renderable = Narrow(renderable.chops, renderable.spans, renderable.chop_ends)
        super()._display(screen, renderable)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """NO_COLOR means none, not grey; bold and dim stay."""
        return [_COLOURLESS] if self.no_color else super().get_line_filters()
