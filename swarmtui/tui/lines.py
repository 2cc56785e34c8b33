"""How lines get to the terminal: a widget is a list of lines, and only cells that changed are sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

View = TypeVar("View")

Span = tuple[str, str]
Line = list[Span]

# Two changes nearer than this are sent as one: a cursor movement with its colours costs about as much.
_NEAR = 10


class Lines(Widget):
    """Base of all panels. A subclass says in `draw` what its lines are; styles have the names of themes.py."""

    app: SwarmApp

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._shown: list[Line] = []
        self._shown_size = Size(0, 0)
        self._painting = False
        self.refill: Callable[[Lines], None] | None = None
        """Where what is shown depends on the room there is: gives this widget another view, and so draws it anew."""

    def draw(self, width: int, height: int) -> list[Line]:
        raise NotImplementedError

    def redraw(self) -> None:
        """Draws anew, and asks for a repaint of what is different."""
        if not self.size or not self.is_attached or self._painting:
            return
        before, whole = self._shown, self._shown_size != self.size
        self._make_lines()
        if whole:
            self.refresh()
            return
        regions = [
            Region(start, y, end - start, 1)
            for y, (old, new) in enumerate(zip(before, self._shown, strict=True))
            if old != new
            for start, end in changed_cells(old, new)
        ]
        if regions:
            self.refresh(*regions)

    def _make_lines(self) -> None:
        os.sched_yield()
        width, height = self._shown_size = self.size
        lines = [fitted(line, width) for line in self.draw(width, height)[:height]]
        self._shown = lines + [[(" " * width, "")]] * (height - len(lines))

    def render_line(self, y: int) -> Strip:
        # On few cores the server and the load share ours: between two lines they get their turn.
        os.sched_yield()
        width = self.size.width
        base = self.rich_style
        if self._shown_size != self.size:
            # Painted before it heard of its new size: what is painted first should be right already.
            if self.refill is not None:
                self._painting = True
                self.refill(self)
                self._painting = False
            self._make_lines()
        if y >= len(self._shown):
            return Strip.blank(width, base)
        inks = self.app.inks
        segments = [Segment(text, base + inks[name] if name else base) for text, name in self._shown[y]]
        return Strip(segments).adjust_cell_length(width, base)

    def on_resize(self) -> None:
        if self.refill is not None:
            self.refill(self)
        else:
            self.redraw()

    def on_show(self) -> None:
        self.on_resize()


class Panel(Lines, Generic[View]):
    """A panel of one view; the same view again is not drawn again."""

    view: View | None = None

    def show(self, view: View) -> None:
        if view != self.view:
            self.view = view
            self.redraw()


def fitted(line: Iterable[Span], width: int) -> Line:
    """Exactly so many cells: cut, or filled up with blanks."""
    fit: Line = []
    left = width
    for text, style in line:
        used = cell_len(text)
        if used > left:
            return [*fit, (set_cell_size(text, left), style)]
        if used:
            fit.append((text, style))
        left -= used
    if not left:
        return fit
    fit.append((" " * left, ""))
    return fit


def changed_cells(old: Line, new: Line) -> list[tuple[int, int]]:
    """Ranges of cells that differ; both lines are equally wide."""
    before, after = _cells(old), _cells(new)
    if len(before) != len(after):
        return [(0, len(after))]
    ranges: list[tuple[int, int]] = []
    for place, (was, now) in enumerate(zip(before, after, strict=True)):
        if was != now:
            if ranges and place - ranges[-1][1] < _NEAR:
                ranges[-1] = (ranges[-1][0], place + 1)
            else:
                ranges.append((place, place + 1))
    return [_whole_characters(after, *found) for found in ranges]


def _whole_characters(cells: list[Span], start: int, end: int) -> tuple[int, int]:
    """A wide character has an empty second cell: it is sent whole."""
    while start > 0 and cells[start][0] == "":
        start -= 1
    while end < len(cells) and cells[end][0] == "":
        end += 1
    return start, end


def _cells(line: Line) -> list[Span]:
    cells: list[Span] = []
    for text, style in line:
        if text.isascii():
            cells += [(char, style) for char in text]
            continue
        for char in text:
            size = cell_len(char)
            if size == 0 and cells:
                cells[-1] = (cells[-1][0] + char, cells[-1][1])
            else:
                cells += [(char, style), *([("", style)] * (size - 1))]
    return cells


def left(text: str, width: int) -> str:
    """Cut with a sign, or filled up."""
    used = cell_len(text)
    if used <= width:
        return text + " " * (width - used)
    return set_cell_size(text, width - 1) + "…" if width > 0 else ""


def right(text: str, width: int) -> str:
    used = cell_len(text)
    return " " * (width - used) + text if used <= width else left(text, width)


def longest(words: Sequence[str], width: int) -> str:
    """Of the same said in several lengths, the longest that fits; the shortest where none does."""
    return next((text for text in words if cell_len(text) <= width), words[-1] if words else "")


def heading(key: str, title: str, beside: str, width: int) -> Line:
    """The rule above a panel: its key, its name, and what is to be said of it."""
    name = f" {key} {title} " if key else f" {title} "
    room = width - cell_len(name) - 4
    beside = left(beside, room).rstrip() if room > 3 else ""
    tail = f" {beside} " if beside else ""
    rule = "─" * max(0, width - 2 - cell_len(name) - cell_len(tail))
    return [("──", "dim"), (name, "title"), (rule, "dim"), (tail, "dim")]


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most so many cells, broken at blanks where there are any."""
    lines, line = [], ""
    for word in text.split(" "):
        for part in _parts(word, width):
            if line and cell_len(line) + 1 + cell_len(part) > width:
                lines.append(line)
                line = part
            else:
                line = f"{line} {part}" if line else part
    return [*lines, line]


def _parts(word: str, width: int) -> list[str]:
    """A word that is wider than a line, cut into pieces that are not."""
    if cell_len(word) <= width:
        return [word]
    parts, part, used = [], "", 0
    for char in word:
        size = cell_len(char)
        if used + size > width:
            parts.append(part)
            part, used = "", 0
        part, used = part + char, used + size
    return [*parts, part]
