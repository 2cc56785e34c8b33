"""Where the parts of a live screen stand: a function of the terminal's size, and of whether the run has ended.

Each part has a region of its own if the terminal has room for it. The others share one region, which shows one of them
at a time: the one whose key was pressed last.
"""

from __future__ import annotations

from collections.abc import Iterator
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
# The share of the height that the agents and the result have: less is enough beside a history, and the curve gets the
# rest.
_AGENTS, _AGENTS_BESIDE = 0.26, 0.2
# The rows that the result has if other regions keep their least height; in a single column, sentences have more lines.
_RESULT, _RESULT_BELOW = 13, 14
# The numbers of a single column, without a frame.
_STRIP = 3
# The least height of a region with its frame, of levels and curve with a result, and of the upper ones of two columns.
_LEAST, _LEVELS, _CURVE, _UPPER = 5, 6, 8, 12
# What a single column shows below the curve from a height on, in shares of it; the curve has the rest.
_BELOW: tuple[tuple[int, dict[Place, float]], ...] = (
    (36, {"agents": 0.25, "levels": 0.25, "machine": 0.18}),
    (22, {"agents": 0.28, "levels": 0.28}),
    (13, {"levels": 0.4}),
)


class LiveLayout(NamedTuple):
    """The regions of a terminal of this size: they fill it, and none overlaps another."""

    size: Size
    regions: tuple[tuple[Place, Region], ...]

    def region(self, place: Place) -> Region | None:
        return next((region for name, region in self.regions if name == place), None)

    @property
    def shared(self) -> Place:
        """The place that parts without a region of their own share with its first owner."""
        return "agents" if self.region("agents") is not None else "curve"

    def place_of(self, place: Place) -> Place:
        return place if self.region(place) is not None else self.shared

    @property
    def result(self) -> Region | None:
        """The place of the result: in a single column it covers the numbers, which it repeats."""
        shared, numbers = self.region(self.shared), self.region("numbers")
        if shared is None or numbers is None or not self.covers_numbers:
            return shared
        return numbers.union(shared)

    @property
    def covers_numbers(self) -> bool:
        """Whether the numbers are a strip above the region that panels share."""
        shared, numbers = self.region(self.shared), self.region("numbers")
        return shared is not None and numbers is not None and numbers.bottom == shared.y and numbers.x == shared.x

    @property
    def body(self) -> Region:
        """All between header and footer, for a part that is shown alone."""
        return Region(0, _HEADER, self.size.width, max(0, self.size.height - _HEADER - _FOOTER))


@lru_cache(maxsize=16)
def live_layout(width: int, height: int, ended: bool = False) -> LiveLayout:
    """Return the regions for a terminal of this size; after the end, the result has more rows than the agents had."""
    body = max(0, height - _HEADER - _FOOTER)
    make = _two_columns if width >= _TWO_COLUMNS and body >= _UPPER + _LEAST else _one_column
    regions: list[tuple[Place, Region]] = [("header", Region(0, 0, width, min(height, _HEADER)))]
    regions += make(width, body, ended)
    if height > _HEADER:
        regions.append(("footer", Region(0, height - _FOOTER, width, _FOOTER)))
    return LiveLayout(Size(width, height), tuple(regions))


def _one_column(width: int, body: int, ended: bool) -> Iterator[tuple[Place, Region]]:
    """The numbers as a strip, the curve, and below it what has room."""
    strip = min(body, _STRIP)
    rest = body - strip
    shares = next((shares for least, shares in _BELOW if rest >= least), {})
    heights = {place: max(_LEAST, round(rest * share)) for place, share in shares.items()}
    if ended and heights.keys() == {"levels"}:
        heights["levels"] = min(heights["levels"], max(_LEVELS, body - _RESULT_BELOW))
    elif ended and "agents" in heights:
        others = sum(heights.values()) - heights["agents"]
        heights["agents"] = max(heights["agents"], min(_RESULT_BELOW, rest - others - _CURVE))
    curve: dict[Place, int] = {"numbers": strip, "curve": rest - sum(heights.values())}
    y = _HEADER
    for place, height in (curve | heights).items():
        yield place, Region(0, y, width, height)
        y += height


def _two_columns(width: int, body: int, ended: bool) -> Iterator[tuple[Place, Region]]:
    """The curve beside numbers and machine; below them agents, if they have room, and levels."""
    right = max(_LEAST_RIGHT, round(width * _RIGHT_SHARE))
    left = width - right
    with_agents = body >= 2 * _UPPER
    lower = max(_LEAST, body // 4)
    beside = width >= _WIDE and body + _HEADER + _FOOTER >= _HIGH
    # The agents' region is not larger than that of the curve.
    most = (body - lower) * left // (width + left)
    share = _AGENTS_BESIDE if beside else _AGENTS
    agents = max(_LEAST, min(most, round(body * share))) if with_agents else 0
    if ended and with_agents:
        agents = max(agents, min(_RESULT, body - lower - _UPPER))
    upper = body - lower - agents
    numbers = round(upper * 0.55)
    y = _HEADER
    yield "curve", Region(0, y, left, upper)
    yield "numbers", Region(left, y, right, numbers)
    yield "machine", Region(left, y + numbers, right, upper - numbers)
    y += upper
    if with_agents:
        yield "agents", Region(0, y, left if beside else width, agents)
    if beside:
        yield "history", Region(left, y, right, agents)
    y += agents
    yield "levels", Region(0, y, left if beside else width, lower)
    if beside:
        yield "quality", Region(left, y, right, lower)


class RegionLayout(Layout):
    """Puts each visible part of a live screen into its region; `alone`: all between header and footer is for one."""

    name = "regions"
    alone = False
    ended = False

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        # The footer is docked, and not in `size`.
        layout = live_layout(*parent.size, self.ended)
        placed = []
        for child in children:
            place: Place = getattr(child, "place", "shared")
            region = layout.result if place == "result" else layout.region(layout.place_of(place))
            if self.alone and place != "header":
                region = layout.body
            if region is not None:
                placed.append(WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, child))
        return placed
