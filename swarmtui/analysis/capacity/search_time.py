"""Estimate how long a search for the capacity still takes: play it to its end, with the pace of the visits so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2

from swarmtui.analysis.capacity.judged_levels import Visit, judge
from swarmtui.analysis.capacity.slo_search import MAX_VISITS, NextVisit, next_visit
from swarmtui.analysis.limits.slo import Slo

# A visit that misses the SLO ends after about this many requests, if none like it was measured.
_MISSED_REQUESTS = 8


def search_seconds(
    visits: Sequence[Visit],
    seconds: Sequence[float],
    following: NextVisit | None,
    slo: Slo,
    highest: int,
    alpha: float,
    planned: Callable[[int], int] = lambda c: 0,
) -> float | None:
    """Return the seconds of the visits that remain; None while no level has missed the SLO.

    `seconds` are those of the visits so far. A new level between two others is taken to keep the SLO, and one that was
    visited to be as it was: other outcomes need about as many visits. `planned` are the requests that a visit of a
    level has at least. A quick search has a deadline instead: its visits end when their requests decide.
    """
    missed = {level.c for level in judge(visits, alpha) if not level.passes}
    if not missed:
        return None
    # One request per agent comes before those that are measured.
    request_s = {visit.c: time / (visit.slo.n + visit.c) for visit, time in zip(visits, seconds, strict=True) if time}
    if not request_s:
        return None
    imagined, left = list(visits), 0.0
    while following is not None and len(imagined) < MAX_VISITS:
        c = following.c
        keeps = c < min(missed)
        ended = [visit.slo.n for visit in visits if visit.c == c and c in missed]
        requests = max(following.requests, planned(c)) if keeps else max(ended, default=_MISSED_REQUESTS)
        left += (requests + c) * request_s[min(request_s, key=lambda known: abs(log2(known / c)))]
        visit = Visit(c, slo)
        visit.slo.add_counts(c, [(requests if keeps else 0, requests)] * len(slo.conditions))
        imagined.append(visit)
        following = next_visit(imagined, slo, highest, alpha)
    return left
