"""Describe the length of a run: a number of requests, a multiple of C, or a share."""

from __future__ import annotations

import re

from swarmtui.model.base import BadInput, Stored

# A closed loop has this many requests per stream if their number was not chosen, more with few streams, whose lengths
# hardly average out unless they are equal, and with many: their longest answers last for several cycles of the others
# (`python -m tests.bench.load_shape`). A median needs five.
_FEW_CYCLES, _MORE_CYCLES, _FEW_STREAMS, _MANY_STREAMS = 2, 3, 4, 16
_LEAST_REQUESTS = 5


class Requests(Stored, frozen=True, kw_only=True):
    """The number of requests of a run: a fixed number, or a multiple of C (`4C`)."""

    count: int = 4
    per_stream: bool = True

    def at(self, c: int, *, equal: bool = False) -> int:
        """Return the number at a level; `equal`: all answers have the same length."""
        return self.count * c if self.per_stream else self.count

    def __str__(self) -> str:
        return f"{self.count}C" if self.per_stream else str(self.count)

    @property
    def text(self) -> str:
        """`1 request`, `4C requests`"""
        return "1 request" if str(self) == "1" else f"{self} requests"


class DefaultRequests(Requests, frozen=True, kw_only=True):
    """As many requests as a steady rate needs, by level: whole cycles, and enough for a median."""

    count: int = _FEW_CYCLES

    def at(self, c: int, *, equal: bool = False) -> int:
        cycles = _MORE_CYCLES if c >= _MANY_STREAMS or (c <= _FEW_STREAMS and not equal) else self.count
        return c * max(cycles, -(-_LEAST_REQUESTS // c))

    def __str__(self) -> str:
        return f"{self.count}C–{_MORE_CYCLES}C"


def parse_requests(text: str) -> Requests:
    match = re.fullmatch(r"\s*(\d+)\s*([cC]?)\s*", text)
    if not match or int(match.group(1)) < 1:
        raise BadInput(f"{text!r} is neither a number nor a multiple of C like 4C", key="requests")
    return Requests(count=int(match.group(1)), per_stream=bool(match.group(2)))


def parse_percentage(text: str, limits: tuple[float, float], key: str) -> float:
    """Parse a share within limits, which are in per cent: `2%`."""
    match, (low, high) = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text), limits
    if not match or not low <= float(match.group(1)) <= high:
        raise BadInput(f"{text!r} is not a share from {low:g}% to {high:g}%, such as 2%", key=key)
    return float(match.group(1)) / 100
