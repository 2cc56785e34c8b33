"""The numbers to be seen from across the room."""

from __future__ import annotations

from swarmtui.tui.lines import Line, Lines, left
from swarmtui.tui.live.header_view import Figure

_TALL = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"), "1": (" ┓ ", " ┃ ", "╺┻╸"), "2": ("╺━┓", "┏━┛", "┗━╸"), "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"), "5": ("┏━╸", "┗━┓", "╺━┛"), "6": ("┏━╸", "┣━┓", "┗━┛"), "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"), "9": ("┏━┓", "┗━┫", "╺━┛"), "–": ("   ", "╺━╸", "   "),
}  # fmt: skip

Tile = tuple[Figure, int]


class Figures(Lines):
    """Tiles side by side, as many as there is room for: the name, the number, and what stands beside it."""

    figures: tuple[Figure, ...] = ()

    def show(self, figures: tuple[Figure, ...]) -> None:
        if figures != self.figures:
            self.figures = figures
            self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        tiles = _tiles(self.figures, width - 1)
        if not tiles:
            return []
        labels: Line = [(" ", "")]
        beside: Line = [(" ", "")]
        for figure, tile in tiles:
            labels.append((left(figure.label, tile), "dim"))
            beside.append((left(figure.beside, tile - 1) + " ", "dim"))
        return [labels, *_numbers(tiles, height), beside]


def _tiles(figures: tuple[Figure, ...], width: int) -> list[Tile]:
    """As many as there is room for, and how wide each is."""
    shown: list[Figure] = []
    for figure in figures:
        if sum(before.room for before in shown) + figure.room > width:
            break
        shown.append(figure)
    more = (width - sum(figure.room for figure in shown)) // max(1, len(shown))
    return [(figure, figure.room + more) for figure in shown]


def _numbers(tiles: list[Tile], height: int) -> list[Line]:
    """Three lines high where there is room for it."""
    if height < 5:
        return [[(" ", ""), *((left(figure.value, tile), figure.mood or "bold") for figure, tile in tiles)]]
    lines: list[Line] = [[(" ", "")] for _ in range(3)]
    for figure, tile in tiles:
        for line, text in zip(lines, _tall(figure.value), strict=True):
            line.append((left(text, tile), figure.mood or "bold"))
    return lines


def _tall(value: str) -> list[str]:
    """A number in digits of three lines; its signs and its unit stand at their feet."""
    number, _, unit = value.partition(" ")
    glyphs = [_TALL.get(char, (" ", " ", char)) for char in number]
    return ["".join(glyph[row] for glyph in glyphs) + (f" {unit}" if row == 2 else "") for row in range(3)]
