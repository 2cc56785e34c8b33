"""Paint lines of styled text: a widget is a list of lines, and only those that changed are painted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import floor, log10
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.events import MouseScrollDown, MouseScrollUp
from textual.geometry import Region, Size
from textual.strip import Strip

from swarmtui.report.colours import Hue, shade
from swarmtui.text import words
from swarmtui.tui.cell_text import with_stand_ins
from swarmtui.tui.textual_patches import LaidOutOnce, forget_painted_regions

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

View = TypeVar("View")

# Text, and the name of a style in themes.py.
Span = tuple[str, str]
Line = list[Span]

_BLOCKS = " ▁▂▃▄▅▆▇█"
# Digits of three lines, for figures that are read at a distance.
_DIGITS = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"), "1": (" ┓ ", " ┃ ", "╺┻╸"), "2": ("╺━┓", "┏━┛", "┗━╸"), "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"), "5": ("┏━╸", "┗━┓", "╺━┛"), "6": ("┏━╸", "┣━┓", "┗━┛"), "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"), "9": ("┏━┓", "┗━┫", "╺━┛"), "–": ("   ", "╺━╸", "   "),
    "→": ("     ", " ╺━▸ ", "     "),
}  # fmt: skip
# The first digits of the round numbers at which scales end.
_ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


class LineWidget(LaidOutOnce):
    """Base of all panels; a subclass returns its lines from `draw`.

    One with a title has a frame: its first line is the heading, which becomes the upper edge. `key` is the number of
    the key that goes to it; a frame that is `in_focus` is brighter and heavier.
    """

    app: SwarmApp
    key: int = 0
    title: str = ""
    in_focus = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._shown: list[Line] = []
        self._shown_size = Size(0, 0)
        self._rendering = False

    @property
    def framed(self) -> bool:
        return bool(self.title)

    @property
    def inner_size(self) -> Size:
        """The size that `draw` gets: with a frame its lines have the heading, but not the edges."""
        width, height = self.size
        return Size(max(0, width - 2), max(0, height - 1)) if self.framed else self.size

    def draw(self, width: int, height: int) -> list[Line]:
        raise NotImplementedError

    def heading(self, note: str, width: int, style: str = "dim") -> Line:
        return heading(str(self.key or ""), self.title, note, width, style)

    def heading_with(self, notes: Sequence[str], end: str, width: int, style: str = "dim") -> Line:
        """Return the heading with a note, of versions from long to short, and its `end`, which is never cut."""
        room = width - cell_width(self.title) - 12 - (len(end) + 3 if end else 0)
        note = shorten(longest_fit(notes, room), max(1, room))
        return self.heading(" · ".join(part for part in (note, end) if part), width, style)

    def cut_line(self, lines: int) -> Line:
        """Say that this many lines have no room."""
        return [(f" … {lines} more", "dim")]

    def fit_view(self) -> None:
        """Show a view for the present size, where the view depends on it."""

    def redraw(self) -> None:
        """Draw the lines again and request a repaint of those that differ."""
        size = self.size
        if not size or not self.is_attached or self._rendering:
            return
        before, resized = self._shown, self._shown_size != size
        self._make_lines(size)
        if resized:
            self.refresh()
            return
        regions = [
            Region(0, y, size.width, 1)
            for y, (old, new) in enumerate(zip(before, self._shown, strict=True))
            if old != new
        ]
        if regions:
            forget_painted_regions(self)
            self.refresh(*regions)

    def _make_lines(self, size: Size) -> None:
        os.sched_yield()
        self._shown_size = size
        width, height = self.inner_size
        drawn = self.draw(width, height)
        if len(drawn) > height > 1:
            drawn = [*drawn[: height - 1], self.cut_line(len(drawn) - height + 1)]
        lines = [fit_line(line, width) for line in drawn[:height]]
        lines += [[(" " * width, "")]] * (height - len(lines))
        self._shown = with_frame(lines, width, self.in_focus) if self.framed else lines

    def render_line(self, y: int) -> Strip:
        # On a host with few cores the server and the workers share this core: let them run between lines.
        os.sched_yield()
        size, base = self.size, self.visual_style.rich_style
        if self._shown_size != size:
            # Textual renders before it sends the resize event: update now rather than paint twice.
            self._rendering = True
            self.fit_view()
            self._rendering = False
            self._make_lines(size)
        if y >= len(self._shown):
            return Strip.blank(size.width, base)
        styles = self.app.line_styles
        segments = [Segment(text, base + styles[name] if name else base) for text, name in self._shown[y]]
        return Strip(segments).adjust_cell_length(size.width, base)

    def on_resize(self) -> None:
        self.fit_view()
        self.redraw()

    def on_show(self) -> None:
        self.on_resize()


class Movable(LineWidget):
    """A list or a page that the movement keys and the mouse wheel move."""

    @property
    def wheel_lines(self) -> int:
        """The lines that one step of the mouse wheel moves."""
        return 3

    def move(self, by: int) -> None:
        raise NotImplementedError

    def move_page(self, by: int) -> None:
        self.move(by * max(1, self.inner_size.height - 2))

    def move_to_edge(self, last: bool) -> None:
        raise NotImplementedError

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self.move(self.wheel_lines)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self.move(-self.wheel_lines)


class Panel(LineWidget, Generic[View]):
    """A widget that shows one immutable view, and draws again only if the view differs."""

    view: View | None = None
    _made_from: tuple[object, ...] | None = None

    def show_made(self, make: Callable[..., View], *data: object) -> None:
        """Show `make(*data)`; it is not made again from the same data, which most frames repeat."""
        if data != self._made_from:
            self._made_from = data
            self.show(make(*data))

    def show(self, view: View) -> None:
        if view != self.view:
            self.view = view
            self.redraw()


# painting


def fit_line(line: Iterable[Span], width: int) -> Line:
    """Cut or pad a line to exactly `width` cells."""
    fit: Line = []
    left = width
    for raw, style in line:
        text = with_stand_ins(raw)
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


# layout


def cell_width(text: str) -> int:
    return cell_len(with_stand_ins(text))


def ljust(text: str, width: int) -> str:
    """Left-align in `width` cells; longer text is cut and ends in `…`."""
    text = with_stand_ins(text)
    used = cell_len(text)
    if used <= width:
        return text + " " * (width - used)
    return set_cell_size(text, width - 1) + "…" if width > 0 else ""


def rjust(text: str, width: int) -> str:
    """Right-align in `width` cells; longer text is cut and ends in `…`."""
    text = with_stand_ins(text)
    used = cell_len(text)
    return " " * (width - used) + text if used <= width else ljust(text, width)


def longest_fit(texts: Sequence[str], width: int) -> str:
    """Return the first of several versions, ordered from long to short, that fits; otherwise the last."""
    return next((text for text in texts if cell_width(text) <= width), texts[-1] if texts else "")


def shorten(text: str, width: int) -> str:
    """Cut a text that is too wide after a whole word, with an ellipsis; for texts of which a key shows the rest."""
    if cell_width(text) <= width:
        return text
    ends = accumulate(words(text)[:-1], "{} {}".format)
    cut = [part for part in (end.rstrip(" ,;:·") for end in ends) if part and cell_width(part) < width]
    return ljust(text, width) if not cut else cut[-1] + (" …" if cell_width(cut[-1]) + 2 <= width else "…")


def part_text(shown: range, total: int) -> str:
    """Say which of several lines are shown, with the keys that show the others; empty if all are."""
    return f"↑↓ {shown.start + 1}–{shown.stop} of {total}" if len(shown) < total else ""


def first_lines(lines: Sequence[str], height: int, width: int) -> list[str]:
    """Return as many lines of a text as fit; the last one ends with an ellipsis if there are more."""
    if len(lines) <= height:
        return list(lines)
    return [*lines[: height - 1], shorten(f"{lines[height - 1]} {lines[height]}", width)] if height > 0 else []


def heading(key: str, title: str, note: str, width: int, style: str = "dim") -> Line:
    """Return the upper edge of a panel with its key, its title and a note of this style at the right."""
    shown = f"[{key}] " if key else ""
    title = with_stand_ins(title)
    room = width - len(shown) - cell_len(title) - 8
    note = ljust(note, room).rstrip() if room > 3 else ""
    tail = f" {note} ─" if note else ""
    rule = "─" * max(0, width - 3 - len(shown) - cell_len(title) - cell_len(tail))
    end: Line = [(f" {note} ", style), ("─", "frame")] if note else []
    return [("─ ", "frame"), (shown, "title"), (f"{title} ", "bold"), (rule, "frame"), *end]


def with_frame(lines: Sequence[Line], width: int, in_focus: bool) -> list[Line]:
    """Put a frame around lines of this width; the first one is its upper edge. In focus it is bright and heavy."""
    style, edges = ("focus", "┏┓┃┗┛━") if in_focus else ("frame", "╭╮│╰╯─")
    if not lines:
        return []
    top = [(text.replace("─", edges[5]), style) if name == "frame" else (text, name) for text, name in lines[0]]
    return [
        [(edges[0], style), *top, (edges[1], style)],
        *([(edges[2], style), *line, (edges[2], style)] for line in lines[1:]),
        [(edges[3] + edges[5] * width + edges[4], style)],
    ]


def wrap(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width` cells, between words where possible."""
    lines, line, used = [], "", 0
    for word in words(with_stand_ins(text)):
        for part in _split_word(word, width):
            size = cell_len(part)
            if line and used + 1 + size > width:
                lines.append(line)
                line, used = part, size
            else:
                line, used = (f"{line} {part}", used + 1 + size) if line else (part, size)
    return [*lines, line]


def wrapped_note(text: str, width: int) -> list[Line]:
    """Return the lines of a dim note inside a panel, such as why it is empty."""
    return [[(f" {line}", "dim")] for line in wrap(text, max(8, width - 2))]


def _split_word(word: str, width: int) -> list[str]:
    """Split a word that is wider than a line; a number first from its unit."""
    if cell_len(word) <= width:
        return [word]
    if " " in word:
        return [part for one in word.split(" ") for part in _split_word(one, width)]
    parts, part, used = [], "", 0
    for char in word:
        size = cell_len(char)
        if used + size > width:
            parts.append(part)
            part, used = "", 0
        part, used = part + char, used + size
    return [*parts, part]


# bars


def scale_top(value: float) -> float:
    """Return the round number just above a value, the top of every scale that starts at 0; 0 for 0."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** floor(log10(value))
    return next(step * unit for step in _ROUND if step * unit >= value * (1 - 1e-9))


def sparkline(values: tuple[float | None, ...], top: float | None) -> str:
    """Draw one column per value on a scale from 0 to `top`; None is blank, and any value above 0 is visible."""
    if not top:
        return " " * len(values)
    return "".join(" " if value is None else _BLOCKS[_eighths(value, top)] for value in values)


def bar_columns(values: tuple[float | None, ...], top: float | None, height: int) -> list[str]:
    """Draw a sparkline over several lines, the highest first."""
    if not top:
        return [" " * len(values)] * height
    filled = [0 if value is None else _eighths(value, top, height) for value in values]
    lines = []
    for line in reversed(range(height)):
        floor = line * 8
        lines.append("".join(_BLOCKS[min(8, max(0, eighths - floor))] for eighths in filled))
    return lines


def shaded_bars(
    values: tuple[float | None, ...], top: float | None, height: int, hue: Hue, missing: str = ""
) -> list[Line]:
    """Draw a sparkline in the ramp of a hue: by its values if it has one line, else from dark to bright upwards.

    `missing` is drawn in the lowest line where there is no value.
    """
    lines: list[Line] = []
    for row, text in enumerate(bar_columns(values, top, height)):
        if height > 1 and text and not (missing and row == height - 1):
            lines.append([(text, shade(hue, (height - row - 0.5) / height))])
            continue
        line: Line = []
        for char, value in zip(text, values, strict=True):
            share = (value or 0.0) / top if height == 1 and top else (height - row - 0.5) / height
            is_missing = missing and value is None and row == height - 1
            shown, style = (missing, "dim") if is_missing else (char, shade(hue, share))
            if line and line[-1][1] == style:
                line[-1] = (line[-1][0] + shown, style)
            else:
                line.append((shown, style))
        lines.append(line)
    return lines


def per_column(values: tuple[float | None, ...], columns: int) -> tuple[float | None, ...]:
    """Return one value per column: each of a few values several times, the latest of many."""
    if not values or len(values) >= columns:
        return values[len(values) - columns :] if values else (None,) * columns
    return tuple(values[column * len(values) // columns] for column in range(columns))


def bar(share: float | None, width: int) -> tuple[str, str]:
    """Return the filled and the empty part of a horizontal bar."""
    full = 0 if share is None else round(min(1.0, max(0.0, share)) * width)
    return "█" * full, "░" * (width - full)


def _eighths(value: float, top: float, height: int = 1) -> int:
    return min(8 * height, max(1 if value > 0 else 0, round(value / top * 8 * height)))


def tall(value: str) -> list[str]:
    """Draw a number with its unit beside the last line, punctuation on it, and a longer unit beside the last two.

    A unit that begins with a line break is below the number.
    """
    number, _, unit = value.partition(" ")
    glyphs = [_DIGITS.get(char, (" ", " ", char)) for char in number]
    lines = ["".join(glyph[row] for glyph in glyphs) for row in range(3)]
    above, below_number, below = unit.rpartition("\n")
    if below_number and not above:
        return [*lines, below.center(len(lines[0])).rstrip()]
    beside = ("", f" {above}" if above else "", f" {below}")
    return [line + text for line, text in zip(lines, beside, strict=True)]
