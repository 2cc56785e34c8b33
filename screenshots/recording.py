"""Draw screens of the app one after the other as an animated SVG: no script, and each distinct line is stored once."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorType
from rich.segment import Segment
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from textual.strip import Strip

CELL, LINE, SIZE = 8.4, 17, 14
MARGIN = 10
FONTS = "'DejaVu Sans Mono',Menlo,Consolas,monospace"
FOREGROUND, BACKGROUND = "#d0d0d0", "#121212"


class Shot(NamedTuple):
    """One screen and for how long it is shown."""

    lines: Sequence[Strip]
    seconds: float


class Recording:
    """Collects the lines and colours that the frames refer to."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        self._classes: dict[str, int] = {}

    def svg(self, shots: Sequence[Shot]) -> str:
        """Place the frames side by side, and move from one to the next."""
        columns = max(strip.cell_length for shot in shots for strip in shot.lines)
        width, height = round(columns * CELL + 2 * MARGIN), max(len(shot.lines) for shot in shots) * LINE + 2 * MARGIN
        frames = "\n".join(self._frame(shot, number * width) for number, shot in enumerate(shots))
        total = sum(shot.seconds for shot in shots)
        at, steps = 0.0, []
        for number, shot in enumerate(shots):
            steps.append(f"{100 * at / total:.2f}%{{transform:translateX({-number * width}px)}}")
            at += shot.seconds
        lines = "".join(f'<g id="l{number}">{line}</g>' for line, number in self._lines.items())
        classes = "".join(f".c{number}{{{rule}}}" for rule, number in self._classes.items())
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n'
            f"<style>text{{font:{SIZE}px {FONTS};fill:{FOREGROUND}}}"
            f".film{{animation:play {total:.1f}s steps(1,end) infinite}}"
            f"@keyframes play{{{''.join(steps)}}}{classes}</style>\n"
            f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>\n<defs>{lines}</defs>\n'
            f'<g class="film">\n{frames}\n</g>\n</svg>\n'
        )

    def _frame(self, shot: Shot, x: float) -> str:
        places = []
        for row, strip in enumerate(shot.lines):
            line = self._line(strip)
            if line:
                number = self._lines.setdefault(line, len(self._lines))
                places.append(f'<use href="#l{number}" x="{x + MARGIN:g}" y="{row * LINE + MARGIN}"/>')
        return f"<g>{''.join(places)}</g>"

    def _line(self, strip: Strip) -> str:
        parts, column = [], 0
        for segment in strip:
            width = cell_len(segment.text)
            parts.append(self._run(segment, column, width))
            column += width
        return "".join(parts)

    def _run(self, segment: Segment, column: int, width: int) -> str:
        """Draw a run of text in one style, without blanks."""
        style, text = segment.style, segment.text
        front, back = FOREGROUND, BACKGROUND
        if style is not None:
            front, back = _hex(style.color, front), _hex(style.bgcolor, back)
            front, back = (back, front) if style.reverse else (front, back)
        parts = []
        if back != BACKGROUND:
            parts.append(f'<rect x="{column * CELL:g}" width="{width * CELL:g}" height="{LINE}" fill="{back}"/>')
        rules = ";".join(
            rule
            for rule, applies in (
                (f"fill:{front}", front != FOREGROUND),
                ("font-weight:bold", style is not None and style.bold),
            )
            if applies
        )
        name = f' class="c{self._classes.setdefault(rules, len(self._classes))}"' if rules else ""
        # Words that are far apart are placed by themselves: not every program keeps blanks.
        for found in re.finditer(r"\S+(?: \S+)*", text):
            shown, x = found.group(), (column + cell_len(text[: found.start()])) * CELL
            size = cell_len(shown)
            length = f' textLength="{size * CELL:g}"' if size > 1 else ""
            parts.append(f'<text x="{x:g}" y="{SIZE}"{name}{length}>{html.escape(shown, quote=False)}</text>')
        return "".join(parts)


def _hex(colour: object, default: str) -> str:
    from rich.color import Color

    if not isinstance(colour, Color) or colour.type is ColorType.DEFAULT:
        return default
    red, green, blue = colour.get_truecolor(DEFAULT_TERMINAL_THEME)
    return f"#{red:02x}{green:02x}{blue:02x}"
