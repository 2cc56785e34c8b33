"""Compare two capacities for the same SLO. The whole rule is here:

    more or fewer agents    the numbers are further apart than repeats of both searches may end, or the same levels are
                            further from their limits, or closer to them, than repeats
    same                    the numbers are equal, both have an upper end, and the same levels show no difference
    not sure yet            everything else

The number of an answer is the low end of its range, unless too few requests decide: a repeat of the search minutes
later ends beside the number or in the lowest third of its range, not anywhere in it. Machines drift: it may end a tenth
beside that and, after a search that decides below 95 %, by a share of the smaller number. How often two equal servers
are said to differ is counted by `python -m tests.bench.capacity scatter`. A larger change is never less sure.

A disturbance only makes a server look slower: what was kept then is kept, and any number more is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import Literal, NamedTuple

from swarmtui.analysis.capacity.words import agents_number, range_text
from swarmtui.analysis.compare.rooms import RoomChange
from swarmtui.analysis.quality.doubts import add_doubts
from swarmtui.model.answer import Answer
from swarmtui.model.base import Stored
from swarmtui.numbers import short_percent
from swarmtui.text import count_noun

AgentsWord = Literal["more agents", "fewer agents", "same", "not sure yet"]
AgentsReason = Literal["beyond_repeats", "same_levels", "within_repeats", "open_range", "equal", "no_limit"]

# A search whose ends are less sure than this may end further away.
SURE = 0.95
# What a repeat drifts beside the range, as a share of its ends, and at least one agent.
_DRIFT = 0.1
# What searches that are less sure differ by: this share of the smaller number, rounded, and at least one agent. With
# 0.15, 9 % of pairs of equal servers with 24 agents are said to differ, if the share falls gently and visits differ.
_LESS_SURE = 0.16
# A search whose number is the low end of its range may end in this part of it next time: the wider, the less is known.
_OPEN = 1 / 3


class AgentsChange(Stored, frozen=True, kw_only=True):
    """`more agents: 8 → 12, 80 % sure`; `detail` has the ranges of both unless they are known to differ.

    `numbers` are shown where they stand alone. `reason` is why the word is what it is, `no_limit` if neither side has
    an upper end, `open_range` if one has none and may have the number of the other, `same_levels` if only the levels of
    both searches tell; `why` says it in a sentence.
    `repeats` are the agents by which repeats of both may differ; null if a range without an end decides. `confidence`
    is that of the less certain search; null if nothing is decided. `scatter`: the numbers differ, although everything
    that is known is the same. `overlap`: the ranges have a number in common.
    """

    word: AgentsWord
    before: int
    after: int
    detail: str
    confidence: float | None = None
    overlap: bool = False
    numbers: tuple[str, str]
    reason: AgentsReason
    why: str
    repeats: int | None = None
    scatter: bool = False

    @property
    def is_likely(self) -> bool:
        """Whether the change is no more than likely: the numbers alone do not show it, or their ranges overlap."""
        return self.word in ("more agents", "fewer agents") and (self.reason == "same_levels" or self.overlap)

    def claim(self, *, doubted: bool) -> str:
        """`more agents: 8 → 12`; nothing is claimed of doubtful runs, or if nothing is known to have changed."""
        if self.scatter:
            reliable = "; neither number is reliable" if self.reason == "beyond_repeats" else ""
            return f"not sure yet: {self.detail}{reliable}"
        likely = "likely " if self.is_likely else ""
        return f"{'not sure yet' if doubted else f'{likely}{self.word}'}: {self.detail}"

    def headline(self, *, doubted: bool) -> str:
        """Say what was found, and how sure it is unless the doubts are said beside it."""
        sure = (
            "" if self.confidence is None or self.is_likely or doubted else f", {short_percent(self.confidence)} sure"
        )
        return f"{self.claim(doubted=doubted)}{sure}"

    def sentence(self, doubts: Sequence[str] = ()) -> str:
        """Say what was found, then how sure it is, or why it is not."""
        return add_doubts(self.headline(doubted=bool(doubts)), doubts)


class _Side(NamedTuple):
    """A capacity with the ends between which repeats leave it open; an end may be unknown."""

    answer: Answer
    agents: int
    low: int | None
    high: float | None

    @property
    def is_sure(self) -> bool:
        confidence = self.answer.confidence
        return self.answer.quality != "doubtful" and (confidence is None or confidence >= SURE)

    @property
    def repeats_below(self) -> int:
        """How far below the number a repeat may end."""
        if self.low is None:
            return self.agents
        return self.agents - max(0, floor(round(min(self.low - 1, self.low - _DRIFT * self.low), 6)))

    @property
    def repeats_above(self) -> int:
        if self.high is None:
            return self.agents
        return ceil(round(max(self.high + 1, self.high + _DRIFT * self.high), 6)) - self.agents

    def text(self, *, ranges: bool) -> str:
        """`22 (22–23)`, or `8 or more`"""
        if self.is_undecided:
            return f"not known{f' (most likely {self.agents})' if self.agents else ''}"
        if not ranges:
            return f"{self.agents}{' or more' if self.answer.is_open else ''}"
        return f"{self.agents}{range_text(self.agents, self.answer.low, self.answer.high)}"

    @property
    def is_undecided(self) -> bool:
        """Whether no level is shown to keep the SLO, and none to miss it."""
        return not self.answer.low and self.answer.high is None

    @property
    def range(self) -> str:
        """A range with both ends: `15–17`, `15`, `9 or more`, `at most 4`"""
        low, high = self.answer.low, self.answer.high
        if high is None:
            return f"{low} or more"
        if low == high:
            return f"{low}"
        return f"{low}–{high}" if low else f"at most {high}"


def compare_agents(
    before: Answer | None, after: Answer | None, *, unchanged: bool = False, rooms: RoomChange | None = None
) -> AgentsChange | None:
    """Return null unless both have a capacity for the same SLO.

    `unchanged`: the server, its flags and the plan are known to be the same. `rooms` is how much further from their
    limits the levels of both searches are.
    """
    a, b = _side(before), _side(after)
    if a is None or b is None or a.answer.slo != b.answer.slo:
        return None
    distance, repeats, apart = abs(b.agents - a.agents), _repeats(a, b), _apart(a, b)
    reason: AgentsReason = "beyond_repeats" if distance > repeats and apart else "within_repeats"
    if a.high is None and b.high is None:
        reason = "no_limit"
    elif not distance and a.high is not None and b.high is not None:
        reason = "equal"
    elif (a.high is None or b.high is None) and not apart:
        reason = "open_range"
    scatter = unchanged and bool(distance)
    if reason in ("within_repeats", "open_range", "equal") and not unchanged and _rooms_tell(a, b, rooms):
        reason = "same_levels"
    claims = reason in ("beyond_repeats", "same_levels") and bool(distance) and not scatter
    least, most = sorted((a, b), key=lambda side: side.agents)
    overlap = least.answer.high is None or least.answer.high >= (most.answer.low or most.agents)
    moved: AgentsWord = "more agents" if b.agents > a.agents else "fewer agents"
    known = [side.answer.confidence for side in (a, b) if side.answer.confidence is not None]
    between = "{} before, {} now" if reason == "no_limit" else "{} → {}"
    return AgentsChange(
        word="same" if reason == "equal" else moved if claims else "not sure yet",
        before=a.agents,
        after=b.agents,
        detail=between.format(*(side.text(ranges=not claims or reason == "same_levels" or overlap) for side in (a, b))),
        overlap=overlap,
        confidence=min(known) if known and claims else None,
        numbers=(_number(a), _number(b)),
        reason=reason,
        why=_why(reason, a, b, repeats, rooms),
        repeats=None if reason in ("open_range", "no_limit") else repeats,
        scatter=scatter,
    )


def _side(found: Answer | None) -> _Side | None:
    """A repeat may end anywhere in the range, or in a part of it if the number is its low end."""
    if found is None or found.agents is None:
        return None
    low, high = found.low, found.high
    top = high if high is None or low != found.agents else low + _OPEN * (high - low)
    return _Side(found, found.agents, low, top)


def _rooms_tell(a: _Side, b: _Side, rooms: RoomChange | None) -> bool:
    """Whether the same levels show a change that numbers do not contradict; not if something slowed one side down."""
    if rooms is None or not rooms.is_sure or a.answer.disturbed or b.answer.disturbed:
        return False
    return (b.agents - a.agents) * rooms.change >= 0.0


def _repeats(a: _Side, b: _Side) -> int:
    """Return the agents by which repeats of these searches may differ."""
    least, most = sorted((a, b), key=lambda side: side.agents)
    unsure = 0 if a.is_sure and b.is_sure else max(1, floor(_LESS_SURE * least.agents + 0.5))
    return max(unsure, least.repeats_above, most.repeats_below)


def _apart(a: _Side, b: _Side) -> bool:
    """Whether no number is within both ranges."""
    return any(low.high is not None and high.low is not None and low.high < high.low for low, high in ((a, b), (b, a)))


def _number(side: _Side) -> str:
    return "".join(agents_number(side.agents, is_open=side.answer.is_open, doubtful=side.is_undecided))


def _why(reason: AgentsReason, a: _Side, b: _Side, repeats: int, rooms: RoomChange | None) -> str:
    """Say what decides: the ranges of both sides, or how far apart they are and where repeats may end."""
    if reason == "same_levels" and rooms is not None:
        return rooms.words()
    if reason == "no_limit":
        until = "until the host is quiet" if a.answer.disturbed and b.answer.disturbed else "is possible"
        return f"neither search found an upper limit: no comparison {until}"
    if reason == "open_range" and (a.is_undecided or b.is_undecided):
        return f"no level was decided {f'before; {b.range} now' if a.is_undecided else f'now; {a.range} before'}"
    if reason == "open_range":
        return f"no upper limit was found {'before' if a.high is None else 'now'}: {a.range} before, {b.range} now"
    chance = f"two searches of the same server may differ by {repeats}"
    if reason == "equal":
        return chance
    apart = f"{count_noun(abs(b.agents - a.agents), 'agent')} apart"
    return f"{'' if reason == 'beyond_repeats' else 'only '}{apart}; {chance}"
