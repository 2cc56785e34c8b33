"""The cells that the terminal shows: only those that differ are written, with no more escape codes than they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip

from swarmtui.tui.cell_text import CONTINUED, Cluster, cluster_of

# The codes that switch attributes on, by their name in Rich, and off.
_ON = {"bold": "1", "dim": "2", "italic": "3", "underline": "4", "blink": "5", "reverse": "7", "strike": "9"}
_OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
# Attributes that are visible on a blank.
_ON_BLANKS = {"4", "7", "9"}
# Changes closer than this are written as one: moving the cursor costs about as many bytes.
_MERGE_WITHIN = 5

_CLEAR = "\x1b[0m"


class Pen(NamedTuple):
    """A style as the codes of SGR sequences; `colour` and `background` are empty for those of the terminal.

    Only what is visible of a blank counts: `colour` is None if it may be any.
    """

    attributes: tuple[str, ...]
    colour: str | None
    background: str


# A character with those that combine with it, and its style. The second cell of a wide character is empty.
Cell = tuple[str, Pen]


class TerminalCells:
    """Knows what the terminal shows, which is nothing after `forget`."""

    def __init__(self) -> None:
        self._size = Size(0, 0)
        self._lines: list[list[Cell | None]] = []

    def forget(self) -> None:
        """Write all cells again, for example because another program has used the terminal."""
        self._size = Size(0, 0)

    def paint(self, size: Size, parts: Iterable[tuple[int, int, list[Cell]]]) -> str:
        """Return what to write so that the terminal shows these cells, from a column of a line each."""
        if size != self._size:
            self._size = size
            self._lines = [[None] * size.width for _ in range(size.height)]
        written: list[str] = []
        pen: Pen | None = None
        for y, x, cells in parts:
            end = x + len(cells)
            before = self._lines[y][x:end]
            if before == cells:
                continue
            self._lines[y][x:end] = cells
            for number, (start, stop) in enumerate(changed_ranges(before, cells)):
                column = x + start + 1
                written.append(f"\x1b[{column}G" if number else f"\x1b[{y + 1};{column}H")
                for at, (text, wanted) in enumerate(cells[start:stop], column):
                    if wanted != pen:
                        before_pen, pen = pen, _visible(pen, wanted)
                        written.append(_change(before_pen, pen))
                    cluster = cluster_of(text)
                    written.append(text if cluster is None else _placed(cluster, at))
        return "".join([*written, _CLEAR] if written else [])


def _placed(cluster: Cluster, column: int) -> str:
    """Clear the cells of a cluster, write it, and go to the cell after them, wherever the terminal thinks it is."""
    return f"{' ' * cluster.cells}\x1b[{column}G{cluster.text}\x1b[{column + cluster.cells}G"


def changed_ranges(old: Sequence[Cell | None], new: Sequence[Cell]) -> list[tuple[int, int]]:
    """Return the ranges of cells that differ."""
    ranges: list[tuple[int, int]] = []
    for column, (was, now) in enumerate(zip(old, new, strict=True)):
        if was != now:
            if ranges and column - ranges[-1][1] < _MERGE_WITHIN:
                ranges[-1] = (ranges[-1][0], column + 1)
            else:
                ranges.append((column, column + 1))
    return ranges


def _visible(pen: Pen | None, wanted: Pen) -> Pen:
    """Keep what is not visible of a blank as it is."""
    if wanted.colour is not None:
        return wanted
    if pen is None or not _ON_BLANKS.isdisjoint(pen.attributes):
        return wanted._replace(colour="")
    return pen._replace(background=wanted.background)


def _change(pen: Pen | None, wanted: Pen) -> str:
    """Return the sequence that changes the style of what is written next."""
    if pen is None:
        codes = [*wanted.attributes, wanted.colour or "", wanted.background]
        return f"\x1b[{';'.join(code for code in codes if code)}m" if any(codes) else ""
    codes = sorted({_OFF[code] for code in pen.attributes if code not in wanted.attributes})
    codes += [code for code in wanted.attributes if code not in pen.attributes or _OFF[code] in codes]
    if wanted.colour != pen.colour:
        codes.append(wanted.colour or "39")
    if wanted.background != pen.background:
        codes.append(wanted.background or "49")
    return f"\x1b[{';'.join(codes)}m" if codes else ""


@lru_cache(maxsize=4096)
def _pens(style: Style | None, system: ColorSystem) -> tuple[Pen, Pen]:
    """Return the pens of a style for characters and for blanks."""
    if style is None:
        return Pen((), "", ""), Pen((), None, "")
    attributes = tuple(code for name, code in _ON.items() if getattr(style, name))
    colour, background = (
        ";".join(found.downgrade(system).get_ansi_codes(foreground=foreground)) if found else ""
        for found, foreground in ((style.color, True), (style.bgcolor, False))
    )
    pen = Pen(attributes, colour, background)
    return pen, pen if not _ON_BLANKS.isdisjoint(attributes) else Pen((), None, background)


# Characters that are known to occupy one cell.
_narrow: set[str] = set()
_MAX_KNOWN = 10_000


def cells_of(strip: Strip, system: ColorSystem) -> list[Cell]:
    """Split text into cells; a combining character belongs to the first cell of the character before it.

    Textual may count the cells of a sequence of emoji differently; there are as many as it counts.
    """
    cells: list[Cell] = []
    has_clusters = False
    for text, style, _ in strip:
        pen, blank = _pens(style, system)
        if text.isascii() or _narrow.issuperset(text):
            cells += [(char, blank if char == " " else pen) for char in text]
            continue
        for char in text:
            size = cell_len(char)
            if size:
                cells += [(char, blank if char == " " else pen), *([("", pen)] * (size - 1))]
                if char == CONTINUED or cluster_of(char) is not None:
                    has_clusters = True
                elif size == 1 and len(_narrow) < _MAX_KNOWN:
                    _narrow.add(char)
            elif cells:
                first = -1 if cells[-1][0] else -2
                cells[first] = (cells[first][0] + char, pen)
    cells += [(" ", Pen((), None, ""))] * (strip.cell_length - len(cells))
    return _whole_clusters(cells[: strip.cell_length]) if has_clusters else cells[: strip.cell_length]


def _whole_clusters(cells: list[Cell]) -> list[Cell]:
    """Leave out the clusters of which a part was cut off: they would cover cells beside them."""
    whole: list[Cell] = []
    while len(whole) < len(cells):
        text, pen = cells[len(whole)]
        cluster = cluster_of(text)
        if cluster is None:
            whole.append((" " if text == CONTINUED else text, pen))
            continue
        further = [part for part, _ in cells[len(whole) + 1 : len(whole) + cluster.cells]]
        is_whole = further == [CONTINUED] * (cluster.cells - 1)
        whole += [(text, pen), *([("", pen)] * len(further))] if is_whole else [(" ", pen)]
    return whole
