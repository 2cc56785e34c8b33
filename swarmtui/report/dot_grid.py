"""A grid of braille dots in a terminal: lines, texts over them, and tinted cells."""

from __future__ import annotations

from collections.abc import Iterator

Span = tuple[str, str]
Line = list[Span]
Dot = tuple[int, int]

ACROSS, UP = 2, 4
_BLANK = 0x2800
# The bit of each dot: by its column, from the lowest row up.
_BITS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))


class DotGrid:
    """Columns count from the left; rows of cells and of dots count from the bottom.

    A cell shows what was drawn there last, of that style only: lines that cross stay apart. A tinted cell has that
    background: its style is "STYLE on HUE", or "on HUE" if it is empty.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._dots: dict[Dot, tuple[int, str]] = {}
        self._texts: dict[Dot, Span] = {}
        self._tints: dict[Dot, str] = {}

    def dot(self, x: int, y: int, style: str) -> None:
        """Draw a dot; one outside of the grid is left out."""
        if 0 <= x < self.width * ACROSS and 0 <= y < self.height * UP:
            cell = (x // ACROSS, y // UP)
            before, drawn = self._dots.get(cell, (0, style))
            self._dots[cell] = (_BITS[x % ACROSS][y % UP] | (before if drawn == style else 0), style)

    def line(self, start: Dot, end: Dot, style: str, *, drawn: int = 1, of: int = 1) -> None:
        """Draw a line: of `of` dots the first `drawn` ones, so that it is dotted or dashed."""
        for number, (x, y) in enumerate(_between(start, end)):
            if number % of < drawn:
                self.dot(x, y, style)

    def tint_below(self, start: Dot, end: Dot, until: int, hue: str) -> None:
        """Tint the cells below a line, to the nearest edge, in the columns of cells before `until`."""
        lowest: dict[int, int] = {}
        for x, y in _between(start, end):
            column = x // ACROSS
            lowest[column] = min((y + UP // 2) // UP, lowest.get(column, self.height))
        for column, top in lowest.items():
            self._tints |= {(column, row): hue for row in range(top) if column < until}

    def put(self, column: int, row: int, text: str, style: str) -> None:
        """Write text over the dots, one cell for each character; what is outside of the grid is left out."""
        for at, char in enumerate(text, column):
            if 0 <= at < self.width and 0 <= row < self.height:
                self._texts[at, row] = (char, style)

    def is_free(self, column: int, row: int, width: int = 1, *, over: str | None = None) -> bool:
        """Whether these cells are in the grid and have neither text nor dots, other than those of the style `over`."""
        cells = [(at, row) for at in range(column, column + width)]
        inside = column >= 0 and column + width <= self.width and 0 <= row < self.height
        drawn = (cell for cell in cells if cell in self._dots and self._dots[cell][1] != over)
        return inside and not any(drawn) and not any(cell in self._texts for cell in cells)

    def has_text(self, column: int, row: int, text: str, style: str) -> bool:
        return self._texts.get((column, row)) == (text, style)

    def may_have_text(self, column: int, row: int) -> bool:
        """Whether a cell is in the grid and has no text, though it may have dots."""
        return 0 <= column < self.width and 0 <= row < self.height and (column, row) not in self._texts

    def lines(self) -> list[Line]:
        """Return the lines from the top, with cells of one style as one span."""
        rows = [[(" ", "")] * self.width for _ in range(self.height)]
        for (column, row), (mask, style) in self._dots.items():
            rows[row][column] = (chr(_BLANK + mask), style)
        for (column, row), span in self._texts.items():
            rows[row][column] = span
        tints = [[self._tints.get((column, row), "") for column in range(self.width)] for row in range(self.height)]
        return [_joined(row, hues) for row, hues in zip(reversed(rows), reversed(tints), strict=True)]


def _joined(cells: list[Span], tints: list[str]) -> Line:
    """Join cells of one style on one tint; blanks have any style."""
    line: Line = []
    texts: list[str] = []
    style = tint = ""
    for (text, wanted), wanted_tint in zip(cells, tints, strict=True):
        if wanted_tint != tint or (wanted != style and text != " "):
            if texts:
                line.append(("".join(texts), _on(style, tint)))
                texts = []
            style, tint = wanted, wanted_tint
        texts.append(text)
    return [*line, ("".join(texts), _on(style, tint))]


def _on(style: str, tint: str) -> str:
    return f"{style} on {tint}".strip() if tint else style


def _between(start: Dot, end: Dot) -> Iterator[Dot]:
    """Yield the dots of a straight line, both ends included (Bresenham)."""
    (x, y), (last_x, last_y) = start, end
    across, up = abs(last_x - x), -abs(last_y - y)
    right, rise = (1 if x < last_x else -1), (1 if y < last_y else -1)
    error = across + up
    while True:
        yield x, y
        if (x, y) == (last_x, last_y):
            return
        twice = 2 * error
        if twice >= up:
            error += up
            x += right
        if twice <= across:
            error += across
            y += rise
