"""Search for the most agents that keep an SLO: choose the next visit to a level, by what the visits so far tell.

C doubles until a level misses the SLO, and the gap is bisected, with half of the requests that decide a level. A run
far above the border has to miss the SLO, too: otherwise it was a dip, and the search continues above it. At the end
the levels on both sides of the border are visited again: what a machine does changes over minutes. If none of them is
shown to be kept or missed, a level beside them gives the interval an end.
A quick search knows how far levels are from the limits, and visits the most agents that another minute should keep, and
the fewest that it should miss; the visits that only confirm come last, as far as its time allows them: levels whose
visits or neighbours contradict them, and one between an undecided level and the next that is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from swarmtui.analysis.capacity.cliff import middle_level
from swarmtui.analysis.capacity.judged_levels import (
    JudgedLevel,
    Visit,
    are_kept,
    best_level,
    judge,
    level_margins,
    meets_shares,
    met_least,
)
from swarmtui.analysis.capacity.margins import ANOTHER_MINUTE, FIRST_LOOK
from swarmtui.analysis.limits.shares import is_kept, least_n
from swarmtui.analysis.limits.slo import Slo
from swarmtui.model.findings import LevelState, SearchedLevel, SearchEnd, SearchState, SearchStep, VisitSpread

# The search ends when the levels on both sides of the border are this close; the second is that of a quick one.
_PRECISION, _QUICK_PRECISION = 0.05, 0.1
# A level that stays undecided is visited until it has this many times the requests that decide without a miss.
_MAX_SIZE = 2
# If the border stays undecided, levels this factor apart are visited until one is clearly kept or missed.
_STEP_BESIDE = 1.25
# A level of the search before is visited in place of one that differs by at most this factor.
_BESIDE = 1.25
# A level that is not the last has this part of the requests that decide: what is close to the border is visited again.
_SOME = 2
# The second level. From there C doubles.
_FIRST_STEP = 4
# With so few agents requests take long to gather: a level above one that failed, which may be a dip, is asked first.
_FEW_AGENTS = 8
# The answer does not rest on one failing level: one at least this factor above it has to fail as well.
_FAR_ABOVE = 1.3
# While C doubles, a level has this many requests per stream, and at least the second number; the third if it is quick.
_CLIMB_CYCLES, _CLIMB_REQUESTS, _QUICK_REQUESTS = 2, 5, 3
# A quick search multiplies C by the second number up to the slots of a server that has at least the first.
_MANY_SLOTS, _FAST_CLIMB = 16, 4
# At the end, the first and the last visit of the levels at the border are this many visits apart.
_APART = 2
MAX_VISITS = 40


class NextVisit(NamedTuple):
    """The C to visit, the least number of requests, and the step of the search that asks for it."""

    c: int
    requests: int
    step: SearchStep


def search_end(visits: Sequence[Visit], alpha: float) -> SearchEnd | None:
    """Return why a search that proposes no other visit leaves its range open; null if the range has both ends."""
    judged = judge(visits, alpha)
    best = best_level(judged)
    return "close" if best is not None and any(one.near and one.c > best.c for one in judged) else None


def search_state(
    visits: Sequence[Visit],
    following: NextVisit | None,
    alpha: float,
    end: SearchEnd | None = None,
    *,
    disturbed: bool = False,
    before: SearchState | None = None,
) -> SearchState:
    """Return what the visits tell; `end` is why the range is open although there is no `following` visit.

    A level that misses the SLO is open if its last visit was disturbed, or the whole search. `before` is what was said
    before the last visit.
    """
    judged = judge(visits, alpha)
    opened = {visit.c: disturbed or visit.disturbed for visit in visits}
    best, margins = best_level(judged), level_margins(judged)
    highest = max((one.c for one in judged if one.kept and one.sure), default=0)
    high = min((one.c for one in judged if not one.passes and not one.dip), default=None)
    at_least, withdrawn = _claimed(before, highest, high, visits[-1].c if visits else 0)
    return SearchState(
        goal="capacity",
        low=best.c if best else None,
        high=high,
        visits=len(visits),
        next_c=following.c if following else None,
        step=following.step if following else None,
        end=end,
        at_least=at_least,
        withdrawn=withdrawn,
        spread=margins.visits if margins is not None else VisitSpread(),
        levels=tuple(
            SearchedLevel(
                c=one.c,
                visits=len(one.visits),
                n=n,
                good=good,
                state=_verdict(one, highest, disturbed=opened[one.c]),
                room=margins.room(one.c) if margins is not None and not one.dip else None,
                close=one.near,
                cut=one.visits[-1].n < FIRST_LOOK,
                kept_visits=kept,
                missed_visits=missed,
                by_visit=tuple(met_least([visit]) for visit in one.visits),
            )
            for one in judged
            for good, n in [met_least(one.visits)]
            for kept, missed in [one.visits_by_verdict(alpha)]
        ),
    )


def _claimed(before: SearchState | None, highest: int, high: int | None, last_c: int) -> tuple[int | None, int | None]:
    """Return how many agents are shown to keep the SLO, and how many were said to before a visit contradicted it.

    Levels are judged together, so that a visit above the `highest` one that is kept can make it less sure: that alone
    takes nothing back, unless a level that is not higher then misses the SLO.
    """
    claimed = (before.at_least if before is not None else None) or 0
    if highest < claimed < last_c and (high is None or claimed < high):
        highest = claimed
    withdrawn = claimed if claimed > highest else (before.withdrawn if before is not None else None) or 0
    return highest or None, withdrawn if withdrawn > highest else None


def _verdict(level: JudgedLevel, highest: int, *, disturbed: bool) -> LevelState:
    """Return the verdict on a level; what keeps the SLO below the `highest` that is shown to keep it is kept, too.

    A level with few requests would otherwise be undecided again after another visit of a level beside it.
    """
    if level.dip:
        return "unsure" if disturbed else "dip"
    if level.near:
        return "unsure"
    if level.kept is None:
        return "kept" if level.c < highest and meets_shares(level.visits) else "unsure"
    return "kept" if level.kept else "unsure" if disturbed else "missed"


# The steps that confirm what is known.
CONFIRMING: tuple[SearchStep, ...] = ("check", "beside", "repeat")


def next_visit(
    visits: Sequence[Visit],
    slo: Slo,
    highest: int,
    alpha: float,
    *,
    quick: bool = False,
    slots: int | None = None,
    near: Sequence[int] = (),
) -> NextVisit | None:
    """Return the next visit, to a new level or again; None at the end of the search.

    `slots` are those that the server reports: up to them no request waits, so that a quick search climbs faster. A new
    level is the one of `near` beside it, if there is one: both searches then have it.
    """
    found = _next_visit(visits, slo, highest, alpha, quick=quick, slots=slots)
    if found is None or found.step not in ("climb", "bisect"):
        return found
    visited = {visit.c for visit in visits}
    below = max((c for c in visited if c < found.c), default=0)
    above = min((c for c in visited if c > found.c), default=highest + 1)
    beside = [c for c in near if below < c < above and max(c, found.c) <= _BESIDE * min(c, found.c)]
    if found.c in visited or not beside:
        return found
    return found._replace(c=min(beside, key=lambda c: abs(c - found.c)))


def _next_visit(
    visits: Sequence[Visit], slo: Slo, highest: int, alpha: float, *, quick: bool, slots: int | None
) -> NextVisit | None:
    if len(visits) >= MAX_VISITS:
        return None
    levels = judge(visits, alpha)
    line = [level for level in levels if not level.dip]
    passed, failed = [one for one in line if one.passes], [one for one in line if not one.passes]
    decide = max(least_n(condition.share, alpha) for condition in slo.conditions)
    low = passed[-1].c if passed else 0
    some = decide if quick else -(-decide // _SOME)
    if not failed:
        if low < highest:
            step = _FIRST_STEP if low == 1 and not quick else 2 * low
            if quick and slots is not None and _MANY_SLOTS <= slots > low:
                step = min(_FAST_CLIMB * low, slots)
            following = min(max(step, 1), highest)
            least = _QUICK_REQUESTS if quick else _CLIMB_REQUESTS
            return NextVisit(following, max(_CLIMB_CYCLES * following, least), "climb")
        return _decide(passed[-1:], decide) or _beside(line, decide, highest) or _repeat(visits, passed[-1:], some)
    first = failed[0]
    if first.kept is None and not first.near and first.n < some:
        return NextVisit(first.c, some, "decide")
    if quick:
        return _next_quick(visits, levels, first, decide, highest, alpha)
    border = [*passed[-1:], first]
    middle = middle_level(low, first.c, _PRECISION)
    check = _check(line, first, 2 * first.c, decide, highest, alpha)
    if check is not None and (middle is None or first.c <= _FEW_AGENTS):
        return check
    if middle is not None:
        return NextVisit(middle, some, "bisect")
    # Without a level that is kept, as many requests would be needed at another one.
    most = some if any(level.kept for level in line) else decide
    return _repeat(visits, border, some) or _finish(border, slo, most, alpha) or _beside(line, decide, highest)


def _next_quick(
    visits: Sequence[Visit], levels: Sequence[JudgedLevel], first: JudgedLevel, decide: int, highest: int, alpha: float
) -> NextVisit | None:
    """Visit the most agents that another minute should keep, by how far the levels are from the limits."""
    line = [level for level in levels if not level.dip]
    sure = [level for level in line if level.sure]
    low = sure[-1].c if sure else 0
    aims = _aims(levels, line, low, first.c)
    # Levels close to a limit are not told apart by more of them.
    near = [level for level in line if low < level.c <= first.c and level.near]
    middle = None if near else middle_level(low, first.c, _QUICK_PRECISION)
    if aims or middle is not None:
        return NextVisit(aims[0] if aims else middle or 0, decide, "bisect")
    border = [*sure[-1:], first]
    # A level that does not fit those above it is visited again as well: the answer may be below it.
    dips = [level for level in levels if level.dip and level.c * _FAR_ABOVE >= low]
    # The time may end: what is kept by one visit alone is the answer if it is not visited again.
    once = [level for level in sure[-1:] if len(level.visits) == 1]
    return (
        _decide(border, decide)
        or _check(line, first, ceil(_FAR_ABOVE * first.c), decide, highest, alpha)
        or _repeat(visits, once, decide)
        or _beside(line, decide, highest)
        or _narrow(line, first, decide)
        or _repeat(visits, [*dips, *border], decide)
        or _settle(border, decide, alpha)
        or _repeat(visits, near, decide)
    )


def _aims(levels: Sequence[JudgedLevel], line: Sequence[JudgedLevel], low: int, failed: int) -> list[int]:
    """Return the levels that should be kept and missed in another minute, if those that were visited are not close."""
    margins = level_margins(levels)
    if margins is None:
        return []
    kept, may_be_kept = margins.range(ANOTHER_MINUTE)
    missed = min((level.c for level in line if level.c > low and level.kept is False), default=0)
    aims = []
    if min(kept, failed - 1) > (1.0 + _QUICK_PRECISION) * low:
        aims.append(min(kept, failed - 1))
    if missed > (1.0 + _QUICK_PRECISION) * (may_be_kept + 1):
        aims.append(may_be_kept + 1)
    return [c for c in aims if all(level.c != c for level in line)]


def _check(
    line: Sequence[JudgedLevel], first: JudgedLevel, far: int, decide: int, highest: int, alpha: float
) -> NextVisit | None:
    """Visit a level `far` above the first that failed, until it is clear that it fails as well."""
    above = [level for level in line if level.c >= min(_FAR_ABOVE * first.c, highest)]
    if first.c < highest and not any(level.c > first.c for level in above):
        return NextVisit(min(far, highest), decide, "check")
    doubtful = [level for level in above if are_kept(level.visits, alpha) is None and meets_shares(level.visits)]
    return _decide(doubtful[-1:], decide, "check") if doubtful else None


def _finish(border: Sequence[JudgedLevel], slo: Slo, most: int, alpha: float) -> NextVisit | None:
    """Visit a level at the border again if a few good requests more would show that it keeps the SLO."""
    for level in border:
        if level.kept is None and level.passes and len(level.visits) <= _MAX_SIZE:
            needed = max(_needed(level, number, alpha) for number in range(len(slo.conditions)))
            if 0 < needed <= most:
                return NextVisit(level.c, needed, "decide")
    return None


def _needed(level: JudgedLevel, number: int, alpha: float) -> int:
    """Return how many good requests more show that a level keeps a condition; 0 if it does."""
    share = level.visits[0].slo.conditions[number].share
    counts = [visit.counts[number] for visit in level.visits]
    good, n = (sum(column) for column in zip(*counts, strict=True))
    most = 2 * least_n(share, alpha)
    return next((more for more in range(most) if is_kept(good + more, n + more, share, alpha)), most)


def _decide(levels: Sequence[JudgedLevel], decide: int, step: SearchStep = "decide") -> NextVisit | None:
    """Visit an undecided level again, until it has had enough requests."""
    undecided = [one for one in levels if one.kept is None and not one.near]
    sizes = {one.c: sum(min(visit.n, decide) for visit in one.visits) for one in undecided}
    few = [c for c, size in sizes.items() if size < _MAX_SIZE * decide]
    return NextVisit(min(few, key=lambda c: sizes[c]), decide, step) if few else None


def _beside(line: Sequence[JudgedLevel], decide: int, highest: int) -> NextVisit | None:
    """Visit a level that gives the interval an end, if the levels at the border stay undecided."""
    if not any(level.kept and level.sure for level in line):
        lowest = min((level.c for level in line if level.n >= decide or level.kept is False), default=1)
        below = min(lowest - 1, int(lowest / _STEP_BESIDE))
        if below >= 1:
            return NextVisit(below, decide, "beside")
    failed = [level for level in line if not level.passes]
    if failed and not any(level.kept is False for level in failed):
        top = failed[-1].c
        above = min(max(top + 1, round(_STEP_BESIDE * top)), highest)
        if above > top:
            return NextVisit(above, decide, "beside")
    return None


def _settle(border: Sequence[JudgedLevel], decide: int, alpha: float) -> NextVisit | None:
    """Visit a level at the border once more if it kept the SLO at one visit and missed it at another."""
    differ = [one.c for one in border if all(one.visits_by_verdict(alpha)) and len(one.visits) <= _MAX_SIZE]
    return NextVisit(differ[0], decide, "decide") if differ else None


def _narrow(line: Sequence[JudgedLevel], first: JudgedLevel, decide: int) -> NextVisit | None:
    """Visit a level between an undecided one at the border and the lowest that is missed: the range ends there."""
    above = [level for level in line if level.c >= first.c]
    missed = next((number for number, level in enumerate(above) if level.kept is False), 0)
    if not missed:
        return None
    middle = middle_level(above[missed - 1].c, above[missed].c, _QUICK_PRECISION)
    return None if middle is None else NextVisit(middle, decide, "beside")


def _repeat(visits: Sequence[Visit], border: Sequence[JudgedLevel], decide: int) -> NextVisit | None:
    """Visit the levels at the border once more, after other visits, the one that was visited longest ago first."""
    order = [visit.c for visit in visits]
    last = {c: at for at, c in enumerate(order)}
    once = [level.c for level in border if last[level.c] - order.index(level.c) < _APART]
    return NextVisit(min(once, key=lambda c: last[c]), decide, "repeat") if once else None
