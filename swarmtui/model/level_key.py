"""Where a level stands among the others: at a number of streams, or at the rate of an open loop."""

from __future__ import annotations

from swarmtui.model.schema import Stored

Place = tuple[int, float | None]


def place_at(place: Place) -> float:
    """What differs from level to level."""
    c, rate = place
    return c if rate is None else rate


def place_name(place: Place) -> str:
    c, rate = place
    return f"C={c}" if rate is None else f"{rate:g}/s"


class Placed(Stored, frozen=True, kw_only=True):
    """Something of one level."""

    c: int
    rate: float | None = None

    @property
    def at(self) -> float:
        """What differs from level to level: C, or the rate of an open loop."""
        return place_at((self.c, self.rate))

    @property
    def name(self) -> str:
        return place_name((self.c, self.rate))
