"""The numbers to be seen from across the room."""

from __future__ import annotations

from swarmtui.tui.paint import Line, Lines, left
from swarmtui.tui.views.head import Figure

_LEAST = 11

_TALL = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"), "1": (" ┓ ", " ┃ ", "╺┻╸"), "2": ("╺━┓", "┏━┛", "┗━╸"), "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"), "5": ("┏━╸", "┗━┓", "╺━┛"), "6": ("┏━╸", "┣━┓", "┗━┛"), "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"), "9": ("┏━┓", "┗━┫", "╺━┛"), "–": ("   ", "╺━╸", "   "),
}  # fmt: skip


class Figures(Lines):
    """Tiles side by side, as many as there is room for: the name, the number, and what stands beside it."""

    figures: tuple[Figure, ...] = ()

    def show(self, figures: tuple[Figure, ...]) -> None:
        if figures != self.figures:
            self.figures = figures
            self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        count = min(len(self.figures), max(1, (width - 1) // _LEAST))
        if not count:
            return []
        tile = (width - 1) // count
        shown = self.figures[:count]
        labels: Line = [(" ", "")]
        beside: Line = [(" ", "")]
        for figure in shown:
            labels.append((left(figure.label, tile), "dim"))
            beside.append((left(figure.beside, tile - 1) + " ", "dim"))
        return [labels, *self._numbers(shown, tile, height), beside]

    def _numbers(self, shown: tuple[Figure, ...], tile: int, height: int) -> list[Line]:
        """Three lines high where there is room for it."""
        if height < 5:
            return [[(" ", ""), *((left(figure.value, tile), figure.mood or "bold") for figure in shown)]]
        lines: list[Line] = [[(" ", "")] for _ in range(3)]
        for figure in shown:
            for line, text in zip(lines, _tall(figure.value), strict=True):
                line.append((left(text, tile), figure.mood or "bold"))
        return lines


def _tall(value: str) -> list[str]:
    """A number in digits of three lines; its signs and its unit stand at their feet."""
    number, _, unit = value.partition(" ")
    glyphs = [_TALL.get(char, (" ", " ", char)) for char in number]
    return ["".join(glyph[row] for glyph in glyphs) + (f" {unit}" if row == 2 else "") for row in range(3)]
