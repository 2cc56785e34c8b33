"""Compare how far the levels that two searches share are from their limits: by which factor times changed.

A level has the same load in both, so that this tells equal servers apart sooner than the numbers of agents, which are
the levels that each search happened to visit. Visits of one server differ, and so do its minutes, which all levels of a
search share.
"""

from __future__ import annotations

from math import log1p, sqrt
from statistics import fmean
from typing import NamedTuple

from swarmtui.analysis.capacity.margins import LEAST_ROOM, MOST_ROOM, usual_spread
from swarmtui.analysis.capacity.words import room_share
from swarmtui.analysis.compare.distributions import t_quantile
from swarmtui.model.findings import SearchState
from swarmtui.text import count_noun

# What minutes add to the difference of two searches, as a share of what visits differ by.
_MINUTES = 0.5
# Equal servers are further apart in less than this share of the pairs.
_ALPHA = 0.05


class RoomChange(NamedTuple):
    """By how much the logarithm of what is left to the limits rose on average, with the same `levels` on both sides.

    `before` and `after` are the rooms of these levels. Repeats of one server seldom differ by more than `repeats`.
    """

    levels: tuple[int, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    change: float
    repeats: float

    @property
    def is_sure(self) -> bool:
        return abs(self.change) > self.repeats

    def words(self) -> str:
        """`23 % → ≥50 % to spare with 9 agents, 3 % → 24 % with 11; together, repeats seldom differ by as much`

        Levels that both missed say less, and are left out beside others.
        """
        known = list(zip(self.levels, self.before, self.after, strict=True))
        said = [one for one in known if max(one[1:]) > 0.0] or known
        (c, was, now), *others = ((c, room_share(before), room_share(after)) for c, before, after in said)
        beside = "".join(f", {before} → {after} with {c}" for c, before, after in others)
        first = f"{was} → {now} to spare with {count_noun(c, 'agent')}"
        return f"{first}{beside}; {'together, ' if others else ''}repeats seldom differ by as much"


def room_change(before: SearchState | None, after: SearchState | None) -> RoomChange | None:
    """Return null without a common level that tells: one that is far from its limits in both says nothing."""
    if before is None or after is None:
        return None
    rooms = [_rooms(search) for search in (before, after)]
    a, b = ({c: -log1p(-room) for c, room in of.items()} for of in rooms)
    found = {c: b[c] - a[c] for c in sorted(a.keys() & b.keys()) if not (_is_far(a[c]) and _is_far(b[c]))}
    if not found:
        return None
    spread, df = usual_spread([before.spread, after.spread])
    error = spread * sqrt(2.0 * (1.0 / len(found) + _MINUTES**2))
    old, new = (tuple(of[c] for c in found) for of in rooms)
    return RoomChange(tuple(found), old, new, fmean(found.values()), t_quantile(1.0 - _ALPHA / 2.0, df) * error)


def _rooms(search: SearchState) -> dict[int, float]:
    levels = search.levels if search.goal == "capacity" else ()
    return {one.c: one.room for one in levels if one.room is not None and one.state != "dip"}


def _is_far(margin: float) -> bool:
    """Whether a level is so far from its limits that it is not known how far."""
    return not -log1p(-LEAST_ROOM) < margin < -log1p(-MOST_ROOM)
