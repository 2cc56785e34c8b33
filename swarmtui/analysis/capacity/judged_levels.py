"""Judge the levels that a search for the capacity has visited.

A level is kept or missed by the bounds of Clopper and Pearson. More agents do not keep an SLO better, so that the
requests of several levels are counted together where that decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import NamedTuple

from swarmtui.analysis.capacity.margins import FIRST_LOOK, Margins, fit_margins
from swarmtui.analysis.levels.runs import in_flight_span
from swarmtui.analysis.levels.stats import falling_means, ratio
from swarmtui.analysis.limits.shares import all_kept, dispersion, is_kept, least_n
from swarmtui.analysis.limits.slo import Slo, SloTally
from swarmtui.model.record import Record

# Levels that are counted together, at most.
_NEIGHBOURS = 4
# A visit counts as this many times the requests that decide without a miss, at most: its requests are alike, and others
# have other prompts and another machine.
_VISIT_SIZE = 1.5


class Visit:
    """One run at a level: the requests that met the SLO, and the mean context of an agent.

    `disturbed`: something slowed the server down when the run ended, so that to miss the SLO proves nothing.
    """

    def __init__(self, c: int, slo: Slo, records: Iterable[Record] = ()) -> None:
        self.c = c
        self.slo = SloTally(slo)
        self.disturbed = False
        self._context = self._seconds = 0.0
        for record in sorted(records, key=lambda record: record.left_ns):
            self.add(record)

    def add(self, record: Record) -> None:
        self.slo.add(record)
        span = in_flight_span(record) if record.phase == "level" else None
        if record.ok and record.tokens_in is not None and record.tokens_out is not None and span is not None:
            seconds = (span[1] - span[0]) / 1e9
            self._context += seconds * (record.tokens_in + record.tokens_out)
            self._seconds += seconds

    @property
    def context_tokens(self) -> float | None:
        return ratio(self._context, self._seconds)


class JudgedLevel(NamedTuple):
    """A level by all its visits: `passes` by the share of good requests, `kept` (or missed) by the bounds.

    `dip`: it is missed, although a level above it keeps the SLO. `near`: it is so close to a limit that it may keep
    the SLO in one minute and miss it in another.
    """

    c: int
    visits: tuple[SloTally, ...]
    passes: bool
    kept: bool | None
    dip: bool = False
    near: bool = False

    @property
    def sure(self) -> bool:
        """Whether it passes, in another minute, too."""
        return self.passes and not self.near

    @property
    def n(self) -> int:
        return sum(visit.n for visit in self.visits)

    def visits_by_verdict(self, alpha: float) -> tuple[int, int]:
        """Return how many visits kept the SLO, and how many missed it, each by itself."""
        verdicts = [visit_kept(visit, alpha) for visit in self.visits]
        return verdicts.count(True), verdicts.count(False)


def judge(visits: Sequence[Visit], alpha: float) -> list[JudgedLevel]:
    """Judge the visited levels in order of C; `alpha` is the error of one bound."""
    ordered = sorted((visit for visit in visits if visit.slo.n), key=lambda visit: visit.c)
    levels = [(c, tuple(visit.slo for visit in of)) for c, of in groupby(ordered, lambda visit: visit.c)]
    alone = [are_kept(of, alpha) for _, of in levels]
    shown = highest = max((at for at, kept in enumerate(alone) if kept), default=-1)
    line, decided = list[int](), list(alone)
    while True:
        # What was missed below a level that is kept is a dip, and says nothing about others.
        line = [at for at, kept in enumerate(alone) if kept is not False or at > highest]
        tallies = [levels[at][1] for at in line]
        for number, at in enumerate(line):
            decided[at] = _decided(tallies, number, alpha)
        kept_at = max((at for at in line if decided[at]), default=-1)
        if kept_at <= highest:
            break
        highest = kept_at
    passing, judged, below = dict(zip(line, _falling(tallies), strict=True)), list[JudgedLevel](), False
    for at, (c, of) in enumerate(levels):
        if at not in passing:
            judged.append(JudgedLevel(c, of, False, False, dip=True))
            continue
        kept = decided[at]
        if at <= shown:
            kept = None if any(visit_kept(visit, alpha) is False for visit in of) else True
        # Above a level that is missed none passes, whatever both are together.
        below = below or kept is False
        judged.append(JudgedLevel(c, of, at <= highest or (not below and passing[at]), kept))
    margins = level_margins(judged)
    return [one._replace(near=_is_near(one, margins)) for one in judged]


def _is_near(level: JudgedLevel, margins: Margins | None) -> bool:
    """Return whether a level is close to a limit; one that only levels above it show to be kept is as close as they."""
    if margins is None or level.dip:
        return False
    return margins.is_near(level.c, alone=not (level.kept and level.n < FIRST_LOOK))


def level_margins(levels: Sequence[JudgedLevel]) -> Margins | None:
    """Return how far the levels are from the limits; a dip says nothing about others."""
    return fit_margins([(one.c, visit) for one in levels if not one.dip for visit in one.visits])


def _falling(levels: Sequence[Sequence[SloTally]]) -> list[bool]:
    """Return which levels keep all conditions by shares that never rise from one level to the next (isotonic)."""
    passing = [True] * len(levels)
    for number, condition in enumerate(levels[0][0].slo.conditions if levels else ()):
        counts = [[visit.counts[number] for visit in of] for of in levels]
        shares = falling_means([(sum(good for good, _ in of), sum(n for _, n in of)) for of in counts])
        passing = [passes and share >= condition.share for passes, share in zip(passing, shares, strict=True)]
    return passing


def _decided(levels: Sequence[Sequence[SloTally]], at: int, alpha: float) -> bool | None:
    """Return whether a level is shown to keep the SLO, with levels above it, or to miss it, with levels below it."""
    alone = {visit_kept(visit, alpha) for visit in levels[at]}
    above = (levels[at:end] for end in range(at + 1, min(at + _NEIGHBOURS, len(levels)) + 1))
    if False not in alone and any(are_kept([*chain(*some)], alpha) for some in above):
        return True
    below = (levels[start : at + 1] for start in range(at, max(at - _NEIGHBOURS, -1), -1))
    return False if True not in alone and any(are_kept([*chain(*some)], alpha) is False for some in below) else None


def are_kept(visits: Sequence[SloTally], alpha: float) -> bool | None:
    """Decide by the requests of all visits, fewer where the visits differ; visits that agree decide by themselves."""
    alone = {visit_kept(visit, alpha) for visit in visits}
    if len(alone) == 1 and None not in alone:
        return alone.pop()
    if {True, False} <= alone:
        return None
    states = []
    for number, condition in enumerate(visits[0].slo.conditions):
        alike = dispersion([visit.counts[number] for visit in visits])
        counted = [_counted(*visit.counts[number], condition.share, alpha) for visit in visits]
        good, n = (sum(column) / alike for column in zip(*counted, strict=True))
        states.append(is_kept(good, n, condition.share, alpha))
    return all_kept(states)


def visit_kept(visit: SloTally, alpha: float) -> bool | None:
    """Return whether the requests of one visit so far show that the SLO is kept, or missed: then it can end."""
    counted = zip(visit.counts, visit.slo.conditions, strict=True)
    return all_kept([is_kept(*_counted(*counts, of.share, alpha), of.share, alpha) for counts, of in counted])


def _counted(good: int, n: int, share: float, alpha: float) -> tuple[float, float]:
    """Return the good requests and all of a visit, as many as they count."""
    alike = max(1.0, n / (_VISIT_SIZE * least_n(share, alpha))) if share < 1.0 else 1.0
    return good / alike, n / alike


def best_level(levels: Sequence[JudgedLevel]) -> JudgedLevel | None:
    """Return the highest level that passes in another minute, too; if there is none, the lowest that passes.

    One that was cut short after a few requests is taken only if levels above it show that it is kept, or if there is no
    other.
    """
    sure = [one for one in levels if one.sure]
    looked = [one for one in sure if one.n >= FIRST_LOOK or one.kept] or sure
    return looked[-1] if looked else next((one for one in levels if one.passes), None)


def met_least(visits: Sequence[SloTally]) -> tuple[int, int]:
    """Return the requests that met the condition that was met least often, and all that met it or did not."""
    of_visits = zip(*(visit.counts for visit in visits), strict=True)
    counts = [(sum(good for good, _ in of), sum(n for _, n in of)) for of in of_visits]
    return min(counts, key=lambda of: of[0] / of[1] if of[1] else 1.0)


def meets_shares(visits: Sequence[SloTally]) -> bool:
    """Return whether the shares of all conditions are kept, sure or not."""
    return _falling([visits])[0]
