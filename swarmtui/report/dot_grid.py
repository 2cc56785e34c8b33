"""A grid of braille dots with text on it: each cell of a terminal has 2 × 4 dots, and one style.

grid = DotGrid(20, 4)
grid.line((0, 0), (39, 15), "throughput")
grid.put(10, 2, "●", "good")
grid.lines()
"""

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

    A cell shows what was drawn there last, of that style only: lines that cross stay apart.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._dots: dict[Dot, tuple[int, str]] = {}
        self._texts: dict[Dot, Span] = {}

    def dot(self, x: int, y: int, style: str) -> None:
        """Draw a dot; one outside of the grid is left out."""
        if 0 <= x < self.width * ACROSS and 0 <= y < self.height * UP:
            cell = (x // ACROSS, y // UP)
            before, drawn = self._dots.get(cell, (0, style))
            self._dots[cell] = (_BITS[x % ACROSS][y % UP] | (before if drawn == style else 0), style)

    def line(self, start: Dot, end: Dot, style: str, *, every: int = 1) -> None:
        """Draw a line; it is dotted if only `every` second, third … dot is drawn."""
        for number, (x, y) in enumerate(_between(start, end)):
            if number % every == 0:
                self.dot(x, y, style)

    def band(self, start: tuple[int, int, int], end: tuple[int, int, int], style: str) -> None:
        """Shade the area between two edges, given by x, the lowest and the highest y at both ends."""
        (left, low, high), (right, last_low, last_high) = start, end
        for x in range(left, right + 1):
            share = (x - left) / ((right - left) or 1)
            bottom, top = round(low + share * (last_low - low)), round(high + share * (last_high - high))
            for y in range(bottom, top + 1):
                if (x + y) % 2 == 0:
                    self.dot(x, y, style)

    def put(self, column: int, row: int, text: str, style: str) -> None:
        """Write text over the dots, one cell for each character; what is outside of the grid is left out."""
        for at, char in enumerate(text, column):
            if 0 <= at < self.width and 0 <= row < self.height:
                self._texts[at, row] = (char, style)

    def is_free(self, column: int, row: int, width: int = 1) -> bool:
        """Whether these cells are in the grid and have neither text nor dots."""
        cells = [(at, row) for at in range(column, column + width)]
        inside = column >= 0 and column + width <= self.width and 0 <= row < self.height
        return inside and not any(cell in self._dots or cell in self._texts for cell in cells)

    def lines(self) -> list[Line]:
        """Return the lines from the top, with cells of one style as one span."""
        rows = [[(" ", "")] * self.width for _ in range(self.height)]
        for (column, row), (mask, style) in self._dots.items():
            rows[row][column] = (chr(_BLANK + mask), style)
        for (column, row), span in self._texts.items():
            rows[row][column] = span
        return [_joined(row) for row in reversed(rows)]


def _joined(cells: list[Span]) -> Line:
    """Join cells of one style; blanks have any."""
    line: Line = []
    texts: list[str] = []
    style = ""
    for text, wanted in cells:
        if wanted != style and text != " ":
            if texts:
                line.append(("".join(texts), style))
                texts = []
            style = wanted
        texts.append(text)
    return [*line, ("".join(texts), style)]


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
