"""Digits of three lines, for figures that are read at a distance."""

from __future__ import annotations

_DIGITS = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"), "1": (" ┓ ", " ┃ ", "╺┻╸"), "2": ("╺━┓", "┏━┛", "┗━╸"), "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"), "5": ("┏━╸", "┗━┓", "╺━┛"), "6": ("┏━╸", "┣━┓", "┗━┛"), "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"), "9": ("┏━┓", "┗━┫", "╺━┛"), "–": ("   ", "╺━╸", "   "),
    "→": ("     ", " ╺━▸ ", "     "),
}  # fmt: skip


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
