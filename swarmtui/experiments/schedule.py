"""In which order A and B are run, so that a machine that grows warm favours neither."""

from __future__ import annotations

from random import Random
from typing import Literal

Side = Literal["A", "B"]


def sides(count: int, seed: int) -> list[Side]:
    """ABBA or BAAB, by a toss for each four: an even drift takes as much from one side as from the other."""
    chance = Random(seed)
    made: list[Side] = []
    while len(made) < count:
        made += ["A", "B", "B", "A"] if chance.random() < 0.5 else ["B", "A", "A", "B"]
    return made[:count]
