"""A heat map of many streams: one cell per agent, the brighter the slower it is than the median."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swarmtui.model.client_protocol import StreamRate
from swarmtui.model.worker_protocol import StreamRow
from swarmtui.numbers import rate
from swarmtui.report.colours import shade
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, ljust, longest_fit

# The shares of the median below which a stream is slow, and the sign of each; slow ones are the brightest.
_CLASSES = ((0.5, "█"), (0.7, "▓"), (0.85, "▒"))
_USUAL = "░"
_LEGENDS = (
    "of the median {}: ░ usual  ▒ below 85 %  ▓ below 70 %  █ below 50 %   ◔ prefill  ◌ waiting  ✖ failed  · idle",
    "of {}: ░ usual ▒ <85 % ▓ <70 % █ <50 %  ◔ prefill ◌ waiting ✖ failed · idle",
    "░▒▓█ usual to slow  ◔ prefill ◌ waiting ✖ failed",
)
_LABEL = 6
# The signs and styles of the states of a stream, those that write first.
STATE_SIGNS = {
    "writing": "●", "thinking": "◐", "prefill": "◔", "waiting": "◌", "connecting": "…", "backing off": "✖", "idle": "·",
}  # fmt: skip
STATE_STYLES = {
    "writing": "throughput", "thinking": "energy", "prefill": "latency", "waiting": "queue", "backing off": "bad",
}  # fmt: skip
# Columns and lines of a cell in a low panel, the largest first; the second line has the tok/s.
_SIZES = ((5, 2), (3, 1), (2, 1), (1, 1))
# In a high panel a cell names its agent and ends with a blank line; four columns per line look square.
_LEAST, _MOST, _SQUARE = (10, 3), (24, 6), 4
_WITH_UNIT = 18
# What larger cells leave for the text of the selected agent.
_TEXT = 5


class HeatCell(NamedTuple):
    """An agent; `sign` and `style` are those of its speed if it has `tps`, else those of its state."""

    agent: int
    state: str
    sign: str
    style: str
    tps: str

    def lines(self, width: int, height: int) -> list[tuple[str, str]]:
        """Return a text and a style for each line."""
        if height < _LEAST[1]:
            return [(self.sign * width if self.tps else self.sign, self.style), (self.tps, "dim")][:height]
        unit = " tok/s" if width >= _WITH_UNIT else ""
        named = longest_fit((f"{self.agent}  {self.tps}{unit}", f"{self.agent}"), width)
        if self.tps:
            return [*([(self.sign * width, self.style)] * (height - 2)), (named, "dim"), ("", "")]
        doing = longest_fit((f"{self.sign} {self.state}", self.sign), width)
        return [(doing, self.style), *([("", "")] * (height - 3)), (f"{self.agent}", "dim"), ("", "")]


class MapLayout(NamedTuple):
    """The cells per line of the map, and the columns and lines of each cell."""

    per_line: int
    columns: int
    height: int

    def lines(self, total: int) -> int:
        return -(-total // self.per_line) * self.height

    def first_line(self, total: int, height: int, cursor: int) -> int:
        """The first row of cells that is shown, with the cursor in the middle if not all fit into `height` lines."""
        shown = max(1, height // self.height)
        return min(max(0, cursor // self.per_line - shown // 2), max(0, -(-total // self.per_line) - shown))

    def position_at(self, x: int, y: int, first: int, total: int) -> int | None:
        """The stream that is shown at a column and a line of the map."""
        column = (x - _LABEL) // self.columns
        position = (first + y // self.height) * self.per_line + column
        return position if 0 <= column < self.per_line and position < total else None


def heat_cells(rows: Sequence[StreamRow], rates: Mapping[int, StreamRate]) -> tuple[tuple[HeatCell, ...], float | None]:
    """Return a cell for each stream, and the median tok/s of those that write."""
    writing = {
        row.agent: known.rate
        for row in rows
        if row.state in ("writing", "thinking") and (known := rates.get(row.agent)) and known.rate is not None
    }
    middle = sorted(writing.values())[len(writing) // 2] if writing else None
    return tuple(_cell(row, writing.get(row.agent), middle) for row in rows), middle


def _cell(row: StreamRow, tps: float | None, middle: float | None) -> HeatCell:
    if tps is None or not middle:
        sign, style = STATE_SIGNS.get(row.state, "?"), STATE_STYLES.get(row.state, "dim")
        return HeatCell(row.agent, sanitize(row.state), sign, style, "")
    share = tps / middle
    sign = next((sign for below, sign in _CLASSES if share < below), _USUAL)
    # From the usual speed, dark, to a stop, bright: one ramp, on which a slow stream stands out.
    return HeatCell(row.agent, sanitize(row.state), sign, shade("latency", 1.1 - share), rate(tps))


def map_layout(total: int, width: int, height: int) -> MapLayout:
    """Return the largest cells with which all streams fit; if none do, the smallest."""
    room = width - _LABEL
    larger = [
        MapLayout(per_line, min(room // per_line, _MOST[0]), min((height - _TEXT) // -(-total // per_line), _MOST[1]))
        for per_line in range(4, room // _LEAST[0] + 1)
        if per_line == _per_line(per_line) and total
    ]
    best = max(larger, key=lambda layout: min(layout.columns, layout.height * _SQUARE), default=None)
    if best is not None and best.height >= _LEAST[1]:
        return best
    layouts = [MapLayout(_per_line(room // columns), columns, lines) for columns, lines in _SIZES]
    return next((layout for layout in layouts if layout.lines(total) <= height), layouts[-1])


def _per_line(fitting: int) -> int:
    """Round down, so that the numbers of the agents are easy to find."""
    return fitting - fitting % 10 if fitting >= 20 else max(1, fitting - fitting % 4)


def map_lines(cells: Sequence[HeatCell], layout: MapLayout, height: int, cursor: int, labelled: bool) -> list[Line]:
    """Draw the lines of the map around the cursor; `labelled`: with the number of the first agent of each."""
    per_line, columns, each = layout
    wide = max(1, columns - 1)
    gap = " " * (columns - wide)
    first = layout.first_line(len(cells), height, cursor)
    lines: list[Line] = []
    # The cursor reverses only the line with the name of a large cell: a full block that is reversed looks empty.
    marked = range(each) if each < _LEAST[1] else (each - 2,)
    for start in range(first * per_line, min(len(cells), (first + max(1, height // each)) * per_line), per_line):
        row = cells[start : start + per_line]
        label = f"{row[0].agent:>{_LABEL - 1}} " if labelled else " " * _LABEL
        drawn: list[Line] = [[(label if line == 0 else " " * _LABEL, "dim")] for line in range(each)]
        for at, cell in enumerate(row, start):
            for number, (text, style) in enumerate(cell.lines(wide, each)):
                selected = at == cursor and number in marked
                _append(drawn[number], ljust(text, wide), style, gap, selected=selected)
        lines += drawn
    return lines


def _append(line: Line, text: str, style: str, gap: str, selected: bool) -> None:
    """Add a cell to a line; cells of one style are one span."""
    if selected:
        line += [(text, "selected"), (gap, style)]
    elif line[-1][1] == style:
        line[-1] = (line[-1][0] + text + gap, style)
    else:
        line.append((text + gap, style))


def legend(median_tps: float | None, width: int) -> Line:
    figure = f"{rate(median_tps)} tok/s"
    return [(f" {longest_fit([text.format(figure) for text in _LEGENDS], width - 1)}", "dim")]
