"""Digits of three lines, for figures that are read at a distance."""

from __future__ import annotations

_DIGITS = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"), "1": (" ┓ ", " ┃ ", "╺┻╸"), "2": ("╺━┓", "┏━┛", "┗━╸"), "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"), "5": ("┏━╸", "┗━┓", "╺━┛"), "6": ("┏━╸", "┣━┓", "┗━┛"), "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"), "9": ("┏━┓", "┗━┫", "╺━┛"), "–": ("   ", "╺━╸", "   "),
    "→": ("     ", " ╺━▸ ", "     "),
}  # fmt: skip


def tall(value: str) -> list[str]:
    """Draw a number with its unit; punctuation and the unit are on the last line, a longer unit on the last two."""
    number, _, unit = value.partition(" ")
    glyphs = [_DIGITS.get(char, (" ", " ", char)) for char in number]
    above, _, below = unit.rpartition("\n")
    beside = ("", f" {above}" if above else "", f" {below}")
    return ["".join(glyph[row] for glyph in glyphs) + beside[row] for row in range(3)]
