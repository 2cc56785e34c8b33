"""Bring the verdicts of a search for the capacity to what an SLO says about levels; what proves nothing stays open."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec

from swarmtui.model.findings import Goodput, SearchState


def searched_goodput(found: Sequence[Goodput], search: SearchState | None) -> tuple[Goodput, ...]:
    """Return what an SLO says about levels, with the verdicts of the search for the capacity that visited them."""
    states = {float(level.c): level.state for level in search.levels} if search and search.goal == "capacity" else {}
    verdicts = {"kept": True, "missed": False, "dip": False, "unsure": None}
    return tuple(
        msgspec.structs.replace(level, kept=verdicts[states[level.c]])
        if level.rate is None and level.c in states
        else level
        for level in found
    )


def leave_missed_open(
    found: Sequence[Goodput], search: SearchState | None, high: int | None = None
) -> tuple[tuple[Goodput, ...], SearchState | None]:
    """Return the verdicts of a session in which something made the server look slower: what is missed proves nothing.

    Levels above `high` were missed by far, which nothing but the server explains. A search for the cliff has no SLO.
    """
    limit = inf if high is None else high
    goodput = tuple(
        msgspec.structs.replace(one, kept=None) if one.kept is False and one.c <= limit else one for one in found
    )
    if search is None or search.goal != "capacity":
        return goodput, search
    levels = tuple(
        msgspec.structs.replace(level, state="unsure")
        if level.state in ("missed", "dip") and level.c <= limit
        else level
        for level in search.levels
    )
    return goodput, msgspec.structs.replace(search, levels=levels)
