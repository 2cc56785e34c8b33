"""Where the parts of a live screen stand: a function of the terminal's size, and after the end of the result.

Each part has a region of its own if the terminal has room for it. The others share one region, which shows one of them
at a time: the one whose key was pressed last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

Place = Literal[
    "header", "numbers", "curve", "agents", "machine", "levels", "history", "quality", "footer", "shared", "result"
]

_HEADER, _FOOTER = 3, 1
# From this width on there are two columns; the right one has the numbers and the machine.
_TWO_COLUMNS = 100
_RIGHT_SHARE, _LEAST_RIGHT = 0.38, 40
# From this size on, history and quality have regions in the right column.
_WIDE, _HIGH = 170, 48
# From this height on, this many lines are for what the columns of the levels mean, as long as no level needs them.
EXPLAINED, MEANINGS = 55, 4
# The share of the height that the agents have: less is enough beside a history, and the curve gets the rest.
_AGENTS, _AGENTS_BESIDE = 0.26, 0.2
# The numbers of a single column, without a frame.
_STRIP = 3
# The least height of a region with its frame, of the curve below a result, and of the upper ones of two columns.
_LEAST, _CURVE, _UPPER = 5, 8, 12
# The rows of two figures above two others, each with a line of bars, and of the parts of the first token.
_SMALL_NUMBERS = 7
# The share of the rows below a result that the levels leave to the curve.
_PICTURE = 0.45
# What a single column shows below the curve from a height on, in shares of it; the curve has the rest.
_BELOW: tuple[tuple[int, dict[Place, float]], ...] = (
    (36, {"agents": 0.25, "levels": 0.25, "machine": 0.18}),
    (22, {"agents": 0.28, "levels": 0.28}),
    (13, {"levels": 0.47}),
)


class EndedRows(NamedTuple):
    """The rows that the result and the table of levels need after the end, with their frames."""

    result: int
    levels: int


class LiveLayout(NamedTuple):
    """The regions of a terminal of this size: they fill it, and none overlaps another."""

    size: Size
    regions: tuple[tuple[Place, Region], ...]

    def region(self, place: Place) -> Region | None:
        return next((region for name, region in self.regions if name == place), None)

    @property
    def shared(self) -> Place:
        """The place that parts without a region of their own share with its first owner."""
        owners: tuple[Place, ...] = ("agents", "curve")
        return next((place for place in owners if self.region(place) is not None), "result")

    def place_of(self, place: Place) -> Place:
        return place if self.region(place) is not None else self.shared

    @property
    def body(self) -> Region:
        """All between header and footer, for a part that is shown alone."""
        return Region(0, _HEADER, self.size.width, max(0, self.size.height - _HEADER - _FOOTER))


@lru_cache(maxsize=16)
def live_layout(width: int, height: int, ended: EndedRows | None = None) -> LiveLayout:
    """Return the regions for a terminal of this size; after the end, the result is above all others."""
    body = max(0, height - _HEADER - _FOOTER)
    regions: list[tuple[Place, Region]] = [("header", Region(0, 0, width, min(height, _HEADER)))]
    if ended is not None:
        regions += _after_end(width, body, ended)
    else:
        regions += (_two_columns if width >= _TWO_COLUMNS and body >= _UPPER + _LEAST else _one_column)(width, body)
    if height > _HEADER:
        regions.append(("footer", Region(0, height - _FOOTER, width, _FOOTER)))
    return LiveLayout(Size(width, height), tuple(regions))


def _one_column(width: int, body: int) -> Iterator[tuple[Place, Region]]:
    """The numbers as a strip, the curve, and below it what has room."""
    strip = min(body, _STRIP)
    rest = body - strip
    shares = next((shares for least, shares in _BELOW if rest >= least), {})
    heights = {place: max(_LEAST, round(rest * share)) for place, share in shares.items()}
    curve: dict[Place, int] = {"numbers": strip, "curve": rest - sum(heights.values())}
    yield from _stacked(0, _HEADER, width, curve | heights)


def _two_columns(width: int, body: int) -> Iterator[tuple[Place, Region]]:
    """The curve beside numbers and machine; below them agents, if they have room, and levels."""
    left, right = _columns(width)
    with_agents = body >= 2 * _UPPER
    lower = max(_LEAST, body // 4)
    beside = _is_wide(width, body)
    # The agents' region is not larger than that of the curve.
    most = (body - lower) * left // (width + left)
    share = _AGENTS_BESIDE if beside else _AGENTS
    agents = max(_LEAST, min(most, round(body * share))) if with_agents else 0
    upper = body - lower - agents
    yield "curve", Region(0, _HEADER, left, upper)
    machine = round(upper * 0.45)
    numbers = upper - machine
    beside_it: dict[Place, int] = {"numbers": numbers, "machine": machine}
    if beside:
        # High bars say little more: the quality, with the most lines of all, has some of their rows.
        more = upper // 10
        beside_it |= {"numbers": numbers - more, "history": agents, "quality": lower + more}
    below: dict[Place, int] = {"agents": agents, "levels": lower} if with_agents else {"levels": lower}
    yield from _stacked(left, _HEADER, right, beside_it)
    yield from _stacked(0, _HEADER + upper, left if beside else width, below)


def _after_end(width: int, body: int, need: EndedRows) -> Iterator[tuple[Place, Region]]:
    """The result, as high as its sentences, above the curve and the levels, as far as they have room.

    The levels have the rows that they need, unless the curve would have too few.
    """
    rest = body - need.result
    if rest < _LEAST:
        yield "result", Region(0, _HEADER, width, body)
        return
    y = _HEADER + need.result
    yield "result", Region(0, _HEADER, width, need.result)
    if rest < _LEAST + _CURVE:
        yield "levels", Region(0, y, width, rest)
        return
    lower = max(_LEAST, rest // 4, min(need.levels, rest - max(_CURVE, round(rest * _PICTURE))))
    upper = rest - lower
    if width < _TWO_COLUMNS:
        yield from _stacked(0, y, width, {"curve": upper, "levels": lower})
        return
    left, right = _columns(width)
    beside = _is_wide(width, body) and upper >= 2 * _UPPER
    yield "curve", Region(0, y, left, upper)
    yield "levels", Region(0, y + upper, left if beside else width, lower)
    # They have no tall digits any more, and the machine has a row for each level.
    numbers = upper if upper < _UPPER else max(_SMALL_NUMBERS, round(upper * 0.4))
    machine = upper - numbers if not beside else round(upper * 0.3)
    column: dict[Place, int] = {"numbers": numbers, "machine": machine, "history": upper - numbers - machine}
    column |= {"quality": lower} if beside else {}
    yield from _stacked(left, y, right, {place: height for place, height in column.items() if height})


def _columns(width: int) -> tuple[int, int]:
    right = max(_LEAST_RIGHT, round(width * _RIGHT_SHARE))
    return width - right, right


def _is_wide(width: int, body: int) -> bool:
    return width >= _WIDE and body + _HEADER + _FOOTER >= _HIGH


def _stacked(x: int, y: int, width: int, heights: Mapping[Place, int]) -> Iterator[tuple[Place, Region]]:
    for place, height in heights.items():
        yield place, Region(x, y, width, height)
        y += height


class RegionLayout(Layout):
    """Puts each visible part of a live screen into its region; `alone`: all between header and footer is for one."""

    name = "regions"
    alone = False
    ended: EndedRows | None = None

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        # The footer is docked, and not in `size`.
        layout = live_layout(*parent.size, self.ended)
        placed = []
        for child in children:
            place: Place = getattr(child, "place", "shared")
            region = layout.body if self.alone and place != "header" else layout.region(layout.place_of(place))
            if region is not None:
                placed.append(WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, child))
        return placed
