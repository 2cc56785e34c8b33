"""The axes of charts: where a value lies between the ends of an axis, and at which round numbers it has ticks.

axis = value_axis([0.8, 573.0], most=5)
[(axis.share(tick), short(tick)) for tick in axis.ticks]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from math import ceil, floor, log, log10
from typing import NamedTuple

# From this ratio of the largest to the smallest value on, an axis that may be logarithmic is.
_LOG_FROM = 30.0
# The first digits of steps between ticks, with how much they are avoided, as a share of the axis that stays unused.
_DIGITS = ((1.0, 0.0), (2.0, 0.0), (5.0, 0.0), (10.0, 0.0), (2.5, 0.05), (4.0, 0.1), (3.0, 0.1), (1.5, 0.2))
# Where an axis of a single step may end, and how much it is avoided where rows could have others.
_ALONE = 0.4
_ENDS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
# The share of equal steps between levels from which on their axis is linear.
_EVEN = 2 / 3
_SAME = 0.1
# Smaller values have no exponent of their own: they are drawn as 0.
_SMALLEST = 1e-300


class Axis(NamedTuple):
    """An axis from `low` to `high`, which may be logarithmic."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies: 0 at the low end, 1 at the high one."""
        if self.high == self.low:
            return 0.5
        if self.log:
            return log(value / self.low) / log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def value_axis(
    values: Sequence[float], most: int, *, may_log: bool = False, from_zero: bool = True, rows: int | None = None
) -> Axis:
    """Return an axis with at most `most` ticks, at least 2, all at round numbers; its ends enclose the values.

    It begins at 0, unless values are negative, it is logarithmic, or `from_zero` is false. An axis from 0 that is drawn
    in this number of `rows` has ticks that are the same number of rows apart; others end at ticks.
    """
    low, high = min(values, default=0.0), max(values, default=0.0)
    if max(abs(low), abs(high)) < _SMALLEST:
        low = high = 0.0
    if may_log and low > 0 and high / low > _LOG_FROM:
        return _log_axis(low, high, most)
    if from_zero and low >= 0:
        return _axis_from_zero(high or 1.0, max(2, most), rows)
    if high <= low:
        high = low + (abs(low) or 1.0) * 0.1
    return _enclosing_axis(low, high, max(2, most))


def axis_with_limit(axis: Axis, limit: float, rows: int) -> Axis:
    """Return the axis with a limit in the middle of a row below the last one; unchanged if that is impossible."""
    if axis.log or axis.low or not 0.0 < limit < axis.high:
        return axis
    ends = (limit * (rows - 1) / row for row in range(rows - 2, 0, -1))
    high = next((end for end in ends if end >= axis.high * (1 - 1e-9)), None)
    return axis if high is None else Axis(0.0, high, (0.0, limit, high))


def level_axis(levels: Collection[float]) -> Axis:
    """Return the x axis of levels, with a tick at each: linear if most of them are the same distance apart."""
    ticks = tuple(sorted(set(levels)))
    low, high = (ticks[0], ticks[-1]) if ticks else (0.0, 1.0)
    gaps = sorted(right - left for left, right in pairwise(ticks))
    usual = gaps[len(gaps) // 2] if gaps else 0.0
    even = sum(abs(gap - usual) <= _SAME * usual for gap in gaps)
    return Axis(low, high, ticks, log=low > 0 and even < _EVEN * len(gaps))


class TickLabel(NamedTuple):
    """The label of a tick that could be shown: the value, and where its middle is, in units of its width."""

    value: float
    centre: float
    width: float


def visible_ticks(labels: Sequence[TickLabel], important: Sequence[float] = (), gap: float = 1.0) -> list[TickLabel]:
    """Return those that can be shown without a collision, in their order.

    The `important` values come first, in their order, then the ends of the axis, then the roundest.
    """
    first = [*important, *((labels[0].value, labels[-1].value) if labels else ())]
    shown: list[TickLabel] = []

    def order(label: TickLabel) -> tuple[int, int]:
        return first.index(label.value) if label.value in first else len(first), -_roundness(label.value)

    for label in sorted(labels, key=order):
        if all(abs(label.centre - other.centre) >= (label.width + other.width) / 2 + gap for other in shown):
            shown.append(label)
    return sorted(shown, key=lambda label: label.centre)


def _roundness(value: float) -> int:
    """Count the numbers from 5 to 1000 that divide a value, in steps of 2 and 5."""
    return sum(value % unit == 0 for unit in (5, 10, 50, 100, 500, 1000))


def _axis_from_zero(high: float, most: int, rows: int | None) -> Axis:
    """Choose the step and the number of steps that leave little of the axis unused."""
    choices: list[float] = [*range(max(1, most // 2), most)]
    alone = 0.0
    if rows is not None:
        # A single step leaves out what is between.
        alone, least = _ALONE, max(2, most // 2)
        choices = [1, *(steps for apart in range(1, rows) if least <= (steps := (rows - 1) / apart) < most)]
    found: list[tuple[float, float, float]] = []
    for steps in choices:
        wanted = high / steps
        unit = 10.0 ** floor(log10(wanted))
        for digit, avoided in _DIGITS if steps > 1 else [(end, alone) for end in _ENDS]:
            step = digit * unit
            if step * steps >= high * (1 - 1e-9):
                found.append((step * steps / high - 1 + avoided, -steps, step))
    _, steps, step = min(found)
    ticks = tuple(float(f"{step * number:.12g}") for number in range(floor(-steps + 1e-9) + 1))
    return Axis(0.0, ticks[-1] if rows is None else -steps * step, ticks)


def _enclosing_axis(low: float, high: float, most: int) -> Axis:
    step = 10.0 ** floor(log10((high - low) / most))
    multiples = (digit * power for power in (1, 10, 100) for digit in (1, 2, 2.5, 5))
    for multiple in multiples:
        first, last = floor(low / (step * multiple) + 1e-9), ceil(high / (step * multiple) - 1e-9)
        if last - first < most:
            break
    ticks = tuple(float(f"{number * step * multiple:.12g}") for number in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def _log_axis(low: float, high: float, most: int) -> Axis:
    first, last = floor(log10(low) + 1e-9), ceil(log10(high) - 1e-9)
    every = max(1, ceil((last - first) / max(1, most - 1)))
    ticks = tuple(10.0**power for power in range(first, last + every, every))
    return Axis(ticks[0], ticks[-1], ticks, log=True)
