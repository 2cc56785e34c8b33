"""Where a level stands among the others: at a number of streams, or at the rate of an open loop."""

from __future__ import annotations

Place = tuple[int, float | None]


def place_at(place: Place) -> float:
    """What differs from level to level."""
    c, rate = place
    return c if rate is None else rate


def place_name(place: Place) -> str:
    c, rate = place
    return f"C={c}" if rate is None else f"{rate:g}/s"
