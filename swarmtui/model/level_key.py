"""What identifies a level: a number of streams, or the request rate of an open loop."""

from __future__ import annotations

from swarmtui.model.schema import Stored

LevelKey = tuple[int, float | None]


def offered_load(key: LevelKey) -> float:
    """Return C, or the rate of an open loop."""
    c, rate = key
    return c if rate is None else rate


def level_name(key: LevelKey) -> str:
    c, rate = key
    return f"C={c}" if rate is None else f"{rate:g}/s"


class PerLevel(Stored, frozen=True, kw_only=True):
    """Base of structs that belong to one level."""

    c: int
    rate: float | None = None

    @property
    def key(self) -> LevelKey:
        """Identifies the level within its session, and finds the same level in another one."""
        return self.c, self.rate

    @property
    def offered_load(self) -> float:
        return offered_load(self.key)

    @property
    def name(self) -> str:
        return level_name(self.key)
