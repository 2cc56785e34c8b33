"""Compare two capacities for the same SLO. The whole rule is here:

    more or fewer agents    the numbers are further apart than chance explains, wherever repeats of both may end
    same                    the numbers are equal, and both have an upper end
    not sure yet            everything else; *likely* more or fewer if chance seldom takes them this far apart

The number of an answer is the low end of its range, unless too few requests decide: a repeat of the search minutes
later ends beside the number or in the lowest third of its range, not anywhere in it. Machines drift: chance explains a
tenth beside that and, of searches that decide below 95 %, a share of the smaller number. How often two equal servers
are said to differ is counted by `python -m tests.bench.capacity scatter`. A larger change is never less sure.

Several searches of one configuration count as one with the mean of their numbers: what chance explains shrinks with the
root of their number. Their drift is taken to be as large within a side as between both. What is shown of them is the
mean, rounded down, and the mean of the ends of their ranges.

A disturbance only makes a server look slower: a level that was kept in any search is kept. A search that was disturbed
counts with its low end, which raises the number of the others and never lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, fsum, sqrt
from statistics import fmean
from typing import Literal, NamedTuple

from swarmtui.analysis.capacity.words import agents_number, range_text
from swarmtui.analysis.compare.distributions import t_quantile
from swarmtui.analysis.quality.doubts import name_doubts
from swarmtui.model.answer import Answer
from swarmtui.model.base import Stored
from swarmtui.numbers import short_percent
from swarmtui.text import count_noun

AgentsWord = Literal["more agents", "fewer agents", "same", "not sure yet"]
AgentsReason = Literal["beyond_chance", "within_chance", "overlap", "equal", "no_limit"]

# How sure each end of what the scatter of searches explains is, and the degrees of freedom that it takes to know that.
_SEEN_SURE, _LEAST_SEEN = 0.9, 2
# A search whose ends are less sure than this may end further away.
_SURE = 0.95
# What a repeat drifts beside the range, as a share of its ends, and at least one agent.
_DRIFT = 0.1
# What searches that are less sure differ by: this share of the smaller number, rounded, and at least one agent. With
# 0.15, 9 % of pairs of equal servers with 24 agents are said to differ, if the share falls gently and visits differ.
CHANCE = 0.16
# A search whose number is the low end of its range may end in this part of it next time: the wider, the less is known.
_OPEN = 1 / 3
# Two equal servers are further apart than this part of what chance explains in at most a fifth of the pairs.
_LIKELY = 0.75
# As many searches are listed one by one.
_SHOWN = 6
# A change that takes more searches than this of a side to be shown makes no difference that matters.
_MOST_MORE = 4
# Fewer agents than this are less than what any number of searches shows, as a repeat may end one agent away.
_LEAST_SHOWN = 2


class AgentsChange(Stored, frozen=True, kw_only=True):
    """`more agents: 8 (8–9) → 12 (10–13), 80 % sure`; `detail` has both capacities with the ranges of their answers.

    Of several searches these are means, without ranges; `before` and `after`, and `numbers`, which are shown where they
    stand alone, are rounded. `reason` is why the word is what it is, `no_limit` if neither side has an upper end; `why`
    says it with both ranges, or what chance explains. `chance` are the agents by which two such searches of one server
    differ by chance; null if the ranges overlap. `likely` is what a change within chance most likely is. `searches` are
    those of each side; `means`: none that was disturbed kept more. `confidence` is that of the less certain capacity;
    null if nothing is decided. `scatter`: the numbers differ, although everything that is known is the same. `more`
    searches of each side would show a change that is not sure yet, if their means stay as they are; null if that takes
    too many. `repeated`: a side has several, so that it is known how much they differ.
    """

    word: AgentsWord
    before: int
    after: int
    detail: str
    confidence: float | None = None
    numbers: tuple[str, str]
    reason: AgentsReason
    why: str
    chance: int | None = None
    likely: Literal["more agents", "fewer agents"] | None = None
    searches: tuple[int, int] = (1, 1)
    scatter: bool = False
    means: bool = True
    more: tuple[int, int] | None = None

    @property
    def repeated(self) -> bool:
        return sum(self.searches) > 2

    @property
    def by_searches(self) -> str:
        """`means of 2 and 3 searches`; empty if each side has one."""
        before, after = self.searches
        each = f"{before} searches each" if before == after else f"{before} and {after} searches"
        return f"{'means of' if self.means else 'by'} {each}" if self.repeated else ""

    def claim(self, *, doubted: bool) -> str:
        """`probably more agents: 8 (8–9) → 12 (10–13)`; nothing is claimed if the ranges overlap."""
        if self.scatter:
            reliable = "; neither number is reliable" if self.reason == "beyond_chance" else ""
            return f"{self.detail} agents is the scatter of the measurement or the load of the host{reliable}"
        found = ", ".join(filter(None, (self.detail, self.by_searches)))
        if self.likely and not doubted:
            return f"likely {self.likely}: {found}"
        probably = doubted and self.word != "not sure yet"
        same = "the " if probably and self.word == "same" else ""
        return f"{'probably ' if probably else ''}{same}{self.word}: {found}"

    def headline(self, *, doubted: bool) -> str:
        """Say what was found, and how sure it is unless the doubts are said beside it."""
        sure = "" if self.confidence is None or doubted else f", {short_percent(self.confidence)} sure"
        start = "nothing is known to have changed, so " if self.scatter else ""
        return f"{start}{self.claim(doubted=doubted)}{sure}"

    def sentence(self, doubts: Sequence[str] = ()) -> str:
        """Say what was found, then how sure it is, or why it is not."""
        why = f"{'; ' if self.word == 'not sure yet' else ', not sure: '}{name_doubts(doubts)}" if doubts else ""
        return f"{self.headline(doubted=bool(doubts))}{why}"


class PooledSearches(Stored, frozen=True, kw_only=True):
    """Several searches of one configuration: their `numbers`, the oldest first, what they give together, and its range.

    `high` is null if no upper end is known. `is_mean`: the agents are the mean of the numbers, and those of searches
    that were disturbed are `left_out`.
    """

    numbers: tuple[str, ...]
    agents: int
    low: int | None
    high: int | None
    is_mean: bool = True
    left_out: tuple[str, ...] = ()

    @property
    def gave(self) -> str:
        """`22, 17, 20`; of many, the last ones."""
        return f"{'…, ' if len(self.numbers) > _SHOWN else ''}{', '.join(self.numbers[-_SHOWN:])}"


class _Side(NamedTuple):
    """The searches of one configuration as one, with its number and range; an end may be unknown.

    The number is the mean of the searches, but of those that were disturbed only the low end counts: `kept` is the
    highest of these. `undisturbed` are the others. `planned` are the searches that there are to be.
    """

    answers: tuple[Answer, ...]
    undisturbed: tuple[Answer, ...]
    agents: float
    low: float | None
    high: float | None
    kept: int = 0
    planned: int = 0

    @property
    def is_sure(self) -> bool:
        return all(
            one.quality != "doubtful" and (one.confidence is None or one.confidence >= _SURE)
            for one in self.undisturbed or self.answers
        )

    @property
    def weight(self) -> int:
        """How many searches the number is the mean of."""
        return self.planned or len(self.undisturbed) or 1

    def after(self, searches: int) -> _Side:
        """Return the side with this many searches, or more if it has them: the range of the mean is narrower then."""
        if searches <= self.weight:
            return self
        factor = sqrt(self.weight / searches)
        low, high = (
            None if end is None else self.agents + factor * (end - self.agents) for end in (self.low, self.high)
        )
        return self._replace(low=low, high=high, planned=searches)

    @property
    def shown(self) -> PooledSearches:
        """Return what is shown of the searches; a single one has its own range."""
        low, high, is_mean = self.low, self.high, _is_mean(self)
        if is_mean:
            low, high = (_mean_end(ends) for ends in zip(*(one.shown_range for one in self.undisturbed), strict=True))
        counted = self.undisturbed if is_mean else self.answers
        left = () if counted is self.answers else tuple(one for one in self.answers if one not in counted)
        return PooledSearches(
            numbers=_numbers(counted), agents=floor(round(self.agents, 6)), is_mean=is_mean, left_out=_numbers(left),
            low=None if low is None else max(floor(round(low, 6)), self.kept),
            high=None if high is None else ceil(round(high, 6)),
        )  # fmt: skip

    @property
    def mean(self) -> float:
        """The number with one decimal, as it is said."""
        return floor(round(10 * self.agents + 0.5, 6)) / 10

    @property
    def is_open(self) -> bool:
        return self.high is None and (self.agents == self.kept or any(one.is_open for one in self.undisturbed))

    def ends_after(self, factor: float) -> tuple[int | None, int | None]:
        """Return where a repeat may end: a tenth, or less by the factor, and at least one agent beside the range."""
        low, high = self.low, self.high
        return (
            None if low is None else max(0, floor(round(min(low - 1, low - _DRIFT * factor * low), 6))),
            None if high is None else ceil(round(max(high + 1, high + _DRIFT * factor * high), 6)),
        )


def pool_searches(answers: Sequence[Answer | None]) -> PooledSearches | None:
    """Pool the searches of one configuration, the newest first; null if fewer than two have a number for its SLO."""
    side = _side(answers, answers[0].slo) if answers and answers[0] is not None else None
    return side.shown if side is not None and len(side.answers) > 1 else None


def compare_agents(
    before: Sequence[Answer | None], after: Sequence[Answer | None], *, unchanged: bool = False
) -> AgentsChange | None:
    """Compare the searches of two configurations; the first of each side is the one that is shown.

    Return null unless both have a capacity for the same SLO. `unchanged`: the server, its flags and the plan are known
    to be the same.
    """
    if not before or not after or before[0] is None or after[0] is None:
        return None
    a, b = _side(before, before[0].slo), _side(after, before[0].slo)
    if a is None or b is None:
        return None
    order, distance, chance = _order(a, b), abs(b.agents - a.agents), chance_between(a, b)
    reason: AgentsReason = "beyond_chance" if distance > chance else "within_chance"
    if a.high is None and b.high is None:
        reason = "no_limit"
    elif not distance and a.high is not None and b.high is not None:
        reason = "equal"
    elif not order:
        reason = "overlap"
    scatter = unchanged and bool(distance)
    moved: Literal["more agents", "fewer agents"] = "more agents" if order > 0 else "fewer agents"
    claims = reason == "beyond_chance" and not scatter
    seldom = distance > _LIKELY * chance and distance >= _LEAST_SHOWN
    likely = moved if reason == "within_chance" and not scatter and seldom else None
    known = [answer.confidence for answer in (*a.answers, *b.answers) if answer.confidence is not None]
    return AgentsChange(
        word="same" if reason == "equal" else moved if claims else "not sure yet",
        before=a.shown.agents,
        after=b.shown.agents,
        detail=("{} before, {} now" if reason == "no_limit" else "{} → {}").format(
            *(_detail(side, several=len(a.answers) + len(b.answers) > 2) for side in (a, b))
        ),
        confidence=min(known) if known and claims else None,
        numbers=(_number(a.shown.agents, is_open=a.is_open), _number(b.shown.agents, is_open=b.is_open)),
        reason=reason,
        why=_why(reason, a, b, chance, likely=likely is not None),
        chance=None if reason in ("overlap", "no_limit") else chance,
        likely=likely,
        searches=(len(a.shown.numbers), len(b.shown.numbers)),
        scatter=scatter,
        means=_is_mean(a) and _is_mean(b),
        more=_more_searches(a, b) if not claims and not scatter and distance >= _LEAST_SHOWN else None,
    )


def _more_searches(a: _Side, b: _Side) -> tuple[int, int] | None:
    """Return how many more searches of each side show that they differ, those of the side with fewer first."""
    for searches in range(min(a.weight, b.weight) + 1, min(a.weight, b.weight) + _MOST_MORE + 1):
        then = a.after(searches), b.after(searches)
        if _order(*then) and abs(b.agents - a.agents) > chance_between(*then):
            return then[0].weight - a.weight, then[1].weight - b.weight
    return None


def _side(answers: Sequence[Answer | None], slo: str) -> _Side | None:
    """Return the searches for this SLO that have a number, unless the one that is shown is none of them."""
    found = tuple(one for one in answers if one is not None and one.agents is not None and one.slo == slo)
    if not found or found[0] is not answers[0]:
        return None
    undisturbed = tuple(one for one in found if not one.disturbed) if len(found) > 1 else found
    kept = max((one.shown_range[0] or 0 for one in found if one not in undisturbed), default=0)
    if not undisturbed:
        return _Side(found, (), kept, kept, _least_end(found, kept), kept)
    agents = sum(one.agents or 0 for one in undisturbed) / len(undisturbed)
    low, high = (_end(agents, ends) for ends in zip(*map(_number_ends, undisturbed), strict=True))
    if kept > agents:
        return _Side(found, undisturbed, kept, kept, high if high is None or high >= kept else None, kept)
    return _Side(found, undisturbed, agents, low, high, kept)


def _least_end(answers: Sequence[Answer], kept: int) -> int | None:
    """Return the lowest upper end that the kept level leaves."""
    return min((high for one in answers if (high := one.shown_range[1]) is not None and high >= kept), default=None)


def _is_mean(side: _Side) -> bool:
    """Return whether the number is the mean of undisturbed searches: no disturbed one kept more."""
    return bool(side.undisturbed) and side.kept <= fmean(one.agents or 0 for one in side.undisturbed)


def _number_ends(one: Answer) -> tuple[float | None, float | None]:
    """Return between which numbers a search leaves its number open: if that is the low end, a part of its range."""
    low, high = one.shown_range
    if one.agents is None or high is None or low != one.agents:
        return low, high
    return low, low + _OPEN * (high - low)


def _mean_end(ends: Sequence[int | None]) -> float | None:
    known = [end for end in ends if end is not None]
    return fmean(known) if len(known) == len(ends) else None


def _end(agents: float, ends: Sequence[float | None]) -> float | None:
    """Return an end of the range of the mean: as far away as those of single searches, by the root of their number."""
    known = [end for end in ends if end is not None]
    return agents + (sum(known) / len(known) - agents) / sqrt(len(ends)) if len(known) == len(ends) else None


def chance_between(a: _Side, b: _Side) -> int:
    """Return the agents by which searches of one server that are like these differ by chance."""
    factor = sqrt((1 / a.weight + 1 / b.weight) / 2)
    least, most = sorted((a, b), key=lambda side: side.agents)
    high, low = least.ends_after(factor)[1], most.ends_after(factor)[0]
    beside = [least.agents if high is None else high - least.agents, most.agents if low is None else most.agents - low]
    unsure = 0 if a.is_sure and b.is_sure else max(1, floor(CHANCE * factor * least.agents + 0.5))
    return max(unsure, *map(ceil, beside), _seen_chance(a, b))


def _seen_chance(a: _Side, b: _Side) -> int:
    """Return how far the means may be apart by how much the searches of each side differ; 0 with too few."""
    groups = [[one.agents or 0 for one in side.undisturbed] for side in (a, b)]
    df, then = sum(max(0, len(found) - 1) for found in groups), a.weight + b.weight - 2
    if not df or then < _LEAST_SEEN or not all(groups):
        return 0
    squares = fsum((each - fmean(found)) ** 2 for found in groups for each in found)
    return floor(t_quantile(_SEEN_SURE, then) * sqrt(squares / df * (1 / a.weight + 1 / b.weight)))


def _order(a: _Side, b: _Side) -> int:
    """Return 1 if the second range is above the first, -1 if it is below, 0 if they overlap."""
    above = b.low is not None and a.high is not None and b.low > a.high
    below = b.high is not None and a.low is not None and b.high < a.low
    return int(above) - int(below)


def _detail(side: _Side, *, several: bool) -> str:
    """`22 (22–23)`; beside the mean of several, without the range: `20`"""
    if several:
        return f"{side.shown.agents}{' or more' if side.is_open else ''}"
    return f"{side.shown.agents}{range_text(side.shown.agents, side.shown.low, side.shown.high)}"


def _numbers(answers: Sequence[Answer]) -> tuple[str, ...]:
    return tuple(_number(one.agents or 0, is_open=one.is_open) for one in reversed(answers))


def _number(agents: int, *, is_open: bool) -> str:
    return "".join(agents_number(agents, is_open=is_open, doubtful=False))


def _why(reason: AgentsReason, a: _Side, b: _Side, chance: int, *, likely: bool) -> str:
    """Say what decides: the ranges of both sides, or how far apart they are and what chance explains."""
    several = len(a.answers) + len(b.answers) > 2
    gave = " → ".join(side.shown.gave for side in (a, b))
    means = (a.mean, b.mean)
    average = f" (on average {a.mean:g} → {b.mean:g})" if any(mean % 1 for mean in means) else ""
    searches = f"they gave {gave}{average}" if several else "one search each"
    start = f"{searches}; " if several else ""
    if reason == "no_limit":
        disturbed = any(one.disturbed for one in (*a.answers, *b.answers))
        until = "until the host is quiet" if disturbed else "is possible"
        return f"neither side found an upper limit: no comparison {until}"
    if reason == "overlap":
        open_ = next((name for name, side in (("before", a), ("now", b)) if side.high is None), "")
        without = f"{open_}, no upper limit was found: " if open_ else "the ranges "
        return f"{start}{without}{_ends(a.shown)} and {_ends(b.shown)} overlap"
    if reason == "equal":
        return f"{searches}; a change of up to {count_noun(chance, 'agent')} would not show"
    distance = round(abs(b.mean - a.mean), 1)
    apart = f"{searches}: {distance:g} {'agent' if distance == 1 else 'agents'} apart"
    if likely:
        return f"{apart}, which chance seldom does"
    return f"{apart}; chance explains {'at most' if reason == 'beyond_chance' else 'up to'} {chance}"


def _ends(found: PooledSearches) -> str:
    """Return a range with both ends: `15–15`, `18–19`, `9 or more`, `at most 4`."""
    if found.high is None:
        return f"{found.low or 0} or more"
    return f"{found.low}–{found.high}" if found.low or not found.high else f"at most {found.high}"
