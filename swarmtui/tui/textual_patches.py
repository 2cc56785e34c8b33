"""Change how Textual paints, exits and starts workers; every private Textual name that the app uses is in this file."""

from __future__ import annotations

import gc
import select
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, TypeVar, cast

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.control import Control
from rich.segment import Segment
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.containers import Horizontal
from textual.dom import DOMNode
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key
from textual.filter import LineFilter, NoColor
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import Input

Result = TypeVar("Result")

_NO_COLOUR = NoColor()
_RELEASE_MEMORY_S = 15.0
# A complete paint after this time is written again: other programs may have written to the terminal.
_SAME_PAINT_S = 0.5


def run_in_background(node: DOMNode, work: Callable[[], Coroutine[Any, Any, None]], *, group: str = "") -> None:
    """Run a coroutine function as a worker of a widget; one of a `group` replaces the one before.

    A coroutine, which Textual accepts too, would never be awaited if the app closes before the worker starts.
    """
    node.run_worker(cast(Any, work), group=group or "default", exclusive=bool(group), exit_on_error=False)


def forget_painted_regions(widget: Widget) -> None:
    """Empty the set to which Textual adds each region; only `Widget.render_line`, if not overridden, does so."""
    widget._dirty_regions.clear()


def _size_updated_once(
    widget: Widget, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
) -> bool:
    """Request no second layout for the new size, after which Textual would paint the widget once more."""
    return Widget._size_updated(widget, size, virtual_size, container_size, layout=False)


class LaidOutOnce(Widget):
    _size_updated = _size_updated_once


class Row(Horizontal):
    """Widgets side by side, laid out once."""

    _size_updated = _size_updated_once


class Terminal(LinuxDriver):
    def _enable_mouse_support(self) -> None:
        """Report clicks and the wheel, but not movements, which would be sent over SSH all the time."""
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")
            self.flush()

    def _enable_mouse_pixels(self) -> None:
        """Keep positions in cells."""

    @property
    def output_pending(self) -> bool:
        """Whether output is still queued: painting more would only delay the response to keys."""
        thread = self._writer_thread
        return thread is not None and thread._queue.qsize() > 0

    @property
    def closed(self) -> bool:
        """Whether the other end was closed; a process that ignores SIGHUP, such as under nohup, gets no signal."""
        poll = select.poll()
        poll.register(self.fileno, 0)
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


class PaintedLines:
    """The lines of the last complete paint of the terminal, without those that were changed since."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self._size = Size(0, 0)
        self._at_s = 0.0

    def replace(self, lines: dict[int, str], size: Size) -> dict[int, str]:
        """Return the lines to write: all of them unless the same paint was just done."""
        before, last_s, last_size = self.lines, self._at_s, self._size
        self.lines, self._at_s, self._size = lines, monotonic(), size
        if size != last_size or self._at_s - last_s > _SAME_PAINT_S:
            return lines
        return {y: line for y, line in lines.items() if before.get(y) != line}


class FullUpdate(LayoutUpdate):
    """Write the whole screen once; Textual paints a screen twice when it is opened, and below a dialog that closes."""

    def __init__(self, update: LayoutUpdate, painted: PaintedLines) -> None:
        super().__init__(update.strips, update.region)
        self._painted = painted

    def render_segments(self, console: Console) -> str:
        rendered = ("".join(strip.render(console) for strip in strips) for strips in self.strips)
        lines = self._painted.replace(dict(enumerate(rendered)), self.region.size)
        return "".join(Control.move_to(0, y).segment.text + line for y, line in lines.items())


class NarrowUpdate(ChopsUpdate):
    """Write only the changed cells; Textual writes a changed line from the left edge of the widget."""

    def __init__(self, update: ChopsUpdate, painted: PaintedLines) -> None:
        super().__init__(update.chops, update.spans, update.chop_ends)
        self._painted = painted

    def render_segments(self, console: Console) -> str:
        parts: list[str] = []
        for y, x1, x2 in self.spans:
            self._painted.lines.pop(y, None)
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= x2 or end <= x1:
                    continue
                start = max(x, x1)
                parts.append(Control.move_to(start, y).segment.text)
                parts.append(_crop(strip, start - x, min(end, x2) - x).render(console))
        return "".join(parts)


def _crop(strip: Strip, start: int, end: int) -> Strip:
    """Crop to whole cells; Textual separates a combining character from the cell before it."""
    if not any(_has_combining(segment.text) for segment in strip):
        return strip.crop(start, end)
    segments: list[Segment] = []
    column, inside = 0, False
    for text, style, _ in strip:
        kept = ""
        for char in text:
            if size := cell_len(char):
                left, column = column, column + size
                inside = left >= start and column <= end
                if not inside:  # blanks for a wide character that is cut
                    kept += " " * (min(column, end) - max(left, start))
            if inside:
                kept += char
        segments.append(Segment(kept, style))
    return Strip(segments)


# Characters that are known to occupy a cell.
_with_cells: set[str] = set()
_MAX_KNOWN = 10_000


def _has_combining(text: str) -> bool:
    if text.isascii() or _with_cells.issuperset(text):
        return False
    if len(_with_cells) > _MAX_KNOWN:
        _with_cells.clear()
    for char in text:
        if not cell_len(char):
            return True
        _with_cells.add(char)
    return False


class PatchedApp(App[Result]):
    """An app that styles and paints its first screen once, and keeps tracebacks off the terminal."""

    # Selecting with the mouse needs reports of movements; the terminal selects with Shift held.
    ALLOW_SELECT = False

    def __init__(self, default_theme: Theme, theme: str) -> None:
        super().__init__(driver_class=Terminal)
        self.crash: Exception | None = None
        self._painted = PaintedLines()
        self.register_theme(default_theme)
        self.theme = theme if theme in self.available_themes else default_theme.name
        self._styled_screen: Screen[Any] | None = None
        self._styled_with = self.get_css_variables()
        self.stylesheet.set_variables(self._styled_with)

    def first_screen(self) -> Screen[Any]:
        raise NotImplementedError

    def on_mount(self) -> None:
        self.set_interval(_RELEASE_MEMORY_S, _release_memory)

    # first paint

    def refresh_css(self, animate: bool = True) -> None:
        """Skip the refresh that Textual requests for the theme it starts with: the CSS was parsed for it."""
        if self._styled_with != (variables := self.get_css_variables()):
            self._styled_with = variables
            super().refresh_css(animate)

    def get_default_screen(self) -> Screen[Any]:
        """Start with the first screen itself rather than with an empty one below it."""
        self._styled_screen = self._with_size_classes(self.first_screen())
        return self._styled_screen

    def update_styles(self, node: DOMNode, animate: bool = True) -> None:
        """Skip the first restyle of the first screen: it was styled when it was mounted."""
        if node is self._styled_screen:
            self._styled_screen = None
        else:
            super().update_styles(node, animate)

    def push_screen(self, screen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().push_screen(self._with_size_classes(screen), *args, **kwargs)

    def _with_size_classes(self, screen: Screen[Any]) -> Screen[Any]:
        """Add the breakpoint classes before the first paint; Textual adds them after it and paints again."""
        width, height = self.size
        for length, classes in ((width, self.HORIZONTAL_BREAKPOINTS), (height, self.VERTICAL_BREAKPOINTS)):
            screen.add_class(max((at, name) for at, name in classes or () if at <= length)[1], update=False)
        return screen

    # the terminal

    @property
    def output_pending(self) -> bool:
        return isinstance(self._driver, Terminal) and self._driver.output_pending

    @property
    def terminal_closed(self) -> bool:
        return isinstance(self._driver, Terminal) and self._driver.closed

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if type(renderable) is ChopsUpdate:
            renderable = NarrowUpdate(renderable, self._painted)
        elif type(renderable) is LayoutUpdate:
            renderable = FullUpdate(renderable, self._painted)
        super()._display(screen, renderable)

    def on_key(self, event: Key) -> None:
        """Pass on text typed at once after the key that opened a field: Textual has sent it to the screen below.

        Fields stop the text that they get, so that it does not arrive here.
        """
        if isinstance(self.focused, Input) and event.is_printable:
            event.prevent_default()
            self.focused.post_message(Key(event.key, event.character))

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Write no colours at all with NO_COLOR, where Textual writes greys; bold and dim remain."""
        return [_NO_COLOUR] if self.no_color else super().get_line_filters()

    # unexpected exceptions

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        """Print no traceback: the launcher reports the error and writes the traceback to a file."""
        self._exit_renderables.clear()


def _release_memory() -> None:
    """Release what is cached for every changed cell range and for every text that was cut, such as each sparkline, and
    strips of lines, which refer to themselves: megabytes within an hour. Python collects the strips late, when they
    have widened the heap.
    """
    for cached in (Region.intersection, Region.translate, Region.overlaps, Segment._split_cells):
        cached.cache_clear()
    gc.collect()
