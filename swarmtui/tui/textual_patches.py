"""Change how Textual paints, exits and starts workers; every private Textual name that the app uses is in this file."""

from __future__ import annotations

import gc
import os
import select
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.text import Text
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.dom import DOMNode
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key
from textual.filter import LineFilter, NoColor
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import Input

from swarmtui.tui.cell_text import ClusterText
from swarmtui.tui.terminal_cells import Cell, TerminalCells, cells_of

Result = TypeVar("Result")

_NO_COLOUR = NoColor()
_RELEASE_MEMORY_S = 15.0


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


class ClusterInput(Input):
    """Shows and measures its value by clusters: their cells are not the sum of those of their characters."""

    @property
    def _value(self) -> Text:
        return ClusterText(self.value)

    def _position_to_cell(self, position: int) -> int:
        return ClusterText(self.value[:position]).cell_len

    def _cell_offset_to_index(self, offset: int) -> int:
        ends = (self._position_to_cell(at + 1) for at in range(len(self.value)))
        return next((at for at, end in enumerate(ends) if end > offset), len(self.value))


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

    def suspend(self) -> bool:
        """Give the terminal back to the shell, and stop until the shell continues us in the foreground.

        Return whether we were stopped: without a shell that could continue us, nothing stops us. Textual stops its own
        process even then, and not the program that started it, such as `uv run`, for which the shell waits.
        """
        continued: list[int] = []
        with self.no_automatic_restart():
            self.suspend_application_mode()
            on_continue = signal.signal(signal.SIGCONT, lambda number, _: continued.append(number))
            on_stop = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
            os.kill(0, signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTSTP)
            while continued and os.tcgetpgrp(self.fileno) != os.getpgrp():  # continued in the background
                signal.raise_signal(signal.SIGSTOP)
            signal.signal(signal.SIGTSTP, on_stop)
            signal.signal(signal.SIGCONT, on_continue)
            self.resume_application_mode()
        return bool(continued)

    def _sigtstp_application(self, *_: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: the app has ended
            self._loop.call_soon_threadsafe(cast(PatchedApp[Any], self._app).action_suspend)

    def _sigcont_application(self, *_: Any) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._restart)

    def _restart(self) -> None:
        """Set the terminal up again after a SIGSTOP, which came without notice."""
        app = cast(PatchedApp[Any], self._app)
        if app.is_running:
            self.suspend_application_mode()
            self.resume_application_mode()
            app.resumed()

    def stop_application_mode(self) -> None:
        """Clear our screen before leaving it: tmux shows parts of it in the shell if the window was resized."""
        self.write("\x1b[2J")
        super().stop_application_mode()

    @property
    def closed(self) -> bool:
        """Whether the other end was closed; a process that ignores SIGHUP, such as under nohup, gets no signal."""
        poll = select.poll()
        poll.register(self.fileno, 0)
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


class FullUpdate(LayoutUpdate):
    """All lines of the screen."""

    def __init__(self, update: LayoutUpdate, shown: TerminalCells) -> None:
        super().__init__(update.strips, update.region)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        system = console._color_system or ColorSystem.TRUECOLOR
        lines = ([cell for strip in strips for cell in cells_of(strip, system)] for strips in self.strips)
        return self._shown.paint(self.region.size, ((y, 0, cells) for y, cells in enumerate(lines)))


class PartialUpdate(ChopsUpdate):
    """The widgets, or parts of them, in which something changed."""

    def __init__(self, update: ChopsUpdate, shown: TerminalCells) -> None:
        super().__init__(update.chops, update.spans, update.chop_ends)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        size = Size(max(ends[-1] for ends in self.chop_ends), len(self.chops))
        return self._shown.paint(size, self._parts(console._color_system or ColorSystem.TRUECOLOR))

    def _parts(self, system: ColorSystem) -> Iterator[tuple[int, int, list[Cell]]]:
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is not None and x < x2 and end > x1:
                    yield y, x, cells_of(strip, system)


class PatchedApp(App[Result]):
    """An app that styles and paints its first screen once, and keeps tracebacks off the terminal."""

    # Selecting with the mouse needs reports of movements; the terminal selects with Shift held.
    ALLOW_SELECT = False

    def __init__(self, themes: Sequence[Theme], theme: str) -> None:
        super().__init__(driver_class=Terminal)
        self.crash: Exception | None = None
        self._terminal_cells = TerminalCells()
        for own in themes:
            self.register_theme(own)
        self.theme = theme if theme in self.available_themes else themes[0].name
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
        """Skip what styles twice: the first restyle of the first screen, and widgets that are not mounted yet."""
        if node is self._styled_screen:
            self._styled_screen = None
        elif node.is_attached:
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
            renderable = PartialUpdate(renderable, self._terminal_cells)
        elif type(renderable) is LayoutUpdate:
            renderable = FullUpdate(renderable, self._terminal_cells)
        super()._display(screen, renderable)

    def _check_resize(self) -> None:
        """Write the whole screen again even if the size is as before: the terminal may have removed cells."""
        super()._check_resize()
        if self._resize_event is None:  # there is a screen, and it was told
            self.action_redraw()

    def action_redraw(self) -> None:
        """Write the whole screen again: another program may have written to the terminal."""
        self._terminal_cells.forget()
        self.screen.refresh()

    def action_suspend(self) -> None:
        """Stop the app until the shell continues it (fg); a run has its own process and continues."""
        if isinstance(self._driver, Terminal):
            stopped = self._driver.suspend()
            self.resumed()
            if not stopped:
                self.notify("there is no shell to return to")

    def resumed(self) -> None:
        """Show the present state after the process was stopped."""
        self.action_redraw()

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
