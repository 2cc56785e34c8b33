"""A heat map of many streams: one cell per agent, the brighter the slower it is than the median."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swarmtui.model.client_protocol import StreamRate
from swarmtui.model.worker_protocol import StreamRow
from swarmtui.numbers import rate
from swarmtui.report.colours import shade
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
# Columns and lines of a cell, the largest first; the second line has the tok/s.
_SIZES = ((5, 2), (3, 1), (2, 1), (1, 1))


class HeatCell(NamedTuple):
    agent: int
    sign: str
    style: str
    tps: str


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
        return HeatCell(row.agent, STATE_SIGNS.get(row.state, "?"), STATE_STYLES.get(row.state, "dim"), "")
    share = tps / middle
    sign = next((sign for below, sign in _CLASSES if share < below), _USUAL)
    # From the usual speed, dark, to a stop, bright: one ramp, on which a slow stream stands out.
    return HeatCell(row.agent, sign, shade("latency", 1.1 - share), rate(tps))


def map_layout(total: int, width: int, height: int) -> MapLayout:
    """Return the largest cells with which all streams fit; if none do, the smallest."""
    layouts = [MapLayout(_per_line((width - _LABEL) // columns), columns, lines) for columns, lines in _SIZES]
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
    for number in range(first, min(-(-len(cells) // per_line), first + max(1, height // each))):
        start = number * per_line
        row = cells[start : start + per_line]
        label = f"{row[0].agent:>{_LABEL - 1}} " if labelled else " " * _LABEL
        signs: Line = [(label, "dim")]
        figures: Line = [(" " * _LABEL, "dim")]
        for at, cell in enumerate(row, start):
            sign = ljust(cell.sign * wide if cell.tps else cell.sign, wide)
            _append(signs, sign, cell.style, gap, selected=at == cursor)
            _append(figures, ljust(cell.tps, wide), "dim", gap, selected=at == cursor)
        lines += [signs, figures][:each]
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
