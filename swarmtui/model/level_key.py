"""Where a level stands among the others: at a number of streams, or at the rate of an open loop."""

from __future__ import annotations

from swarmtui.model.schema import Stored

LevelKey = tuple[int, float | None]


def offered_load(place: LevelKey) -> float:
    """What differs from level to level."""
    c, rate = place
    return c if rate is None else rate


def level_name(place: LevelKey) -> str:
    c, rate = place
    return f"C={c}" if rate is None else f"{rate:g}/s"


class PerLevel(Stored, frozen=True, kw_only=True):
    """Something of one level."""

    c: int
    rate: float | None = None

    @property
    def offered_load(self) -> float:
        """What differs from level to level: C, or the rate of an open loop."""
        return offered_load((self.c, self.rate))

    @property
    def name(self) -> str:
        return level_name((self.c, self.rate))
