"""Digits of three lines, for figures that are read at a distance."""

from __future__ import annotations

_DIGITS = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"), "1": (" ┓ ", " ┃ ", "╺┻╸"), "2": ("╺━┓", "┏━┛", "┗━╸"), "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"), "5": ("┏━╸", "┗━┓", "╺━┛"), "6": ("┏━╸", "┣━┓", "┗━┛"), "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"), "9": ("┏━┓", "┗━┫", "╺━┛"), "–": ("   ", "╺━╸", "   "),
    "→": ("     ", " ╺━▸ ", "     "),
}  # fmt: skip


def tall(value: str) -> list[str]:
    """Draw a number with its unit; punctuation and the unit are on the last line."""
    number, _, unit = value.partition(" ")
    glyphs = [_DIGITS.get(char, (" ", " ", char)) for char in number]
    return ["".join(glyph[row] for glyph in glyphs) + (f" {unit}" if row == 2 else "") for row in range(3)]
