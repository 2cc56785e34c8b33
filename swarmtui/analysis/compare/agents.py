"""Compare two capacities for the same SLO. The whole rule is here:

    more or fewer agents    the ranges of both answers do not overlap, neither number is within the repeat range of the
                            other, and they are further apart than the yardstick
    same                    the numbers are equal
    not sure yet            everything else

The range of an answer is what its own requests decide. A repeat of the search minutes later can end outside of it, as
machines drift: the repeat range is a tenth wider on both sides. With a drift of 5 % between two searches of one server,
the ranges alone are apart in up to a third of the pairs, also of searches that are 99 % sure.
The yardstick is how far apart two searches of one unchanged server easily are by chance. A search that decides at 95 %
and more needs none: its range has what chance does. The ends of a quick one are 80 % sure, and those of a doubtful
measurement less, so that ranges alone differ too often. `python -m tests.bench.capacity scatter` counts how often two
equal servers are said to differ. A larger change, or one of narrower ranges, is never less sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Literal

from swarmtui.analysis.capacity.words import agents_number, range_text
from swarmtui.analysis.quality.doubts import name_doubts
from swarmtui.model.answer import Answer
from swarmtui.model.base import Stored
from swarmtui.numbers import short_percent
from swarmtui.text import count_noun

_Range = tuple[int | None, int | None]
AgentsWord = Literal["more agents", "fewer agents", "same", "not sure yet"]
AgentsReason = Literal["beyond_chance", "within_chance", "within_repeat", "overlap", "equal"]

# A search whose ends are less sure than this is compared by the yardstick, too.
_SURE = 0.95
# The yardstick: this share of the smaller number, rounded, and at least one agent. With 0.15 and the same rounding, 9 %
# of pairs of equal servers with 24 agents are said to differ, if the share falls gently and visits differ.
CHANCE = 0.16


class AgentsChange(Stored, frozen=True, kw_only=True):
    """`more agents: 8 (8–9) → 12 (10–13), 80 % sure`; `detail` has both capacities with the ranges of their answers.

    `reason` is why the word is what it is; `why` says it with both ranges and the yardstick, `brief` in few words.
    `chance` is the yardstick: the agents by which two such searches of one server differ by chance; null if both are
    surer. `confidence` is that of the less certain capacity; null if nothing is decided. `numbers` are shown where they
    stand alone. `scatter`: the numbers differ, although everything that is known is the same.
    """

    word: AgentsWord
    before: int
    after: int
    detail: str
    confidence: float | None = None
    numbers: tuple[str, str]
    reason: AgentsReason
    why: str
    brief: str
    chance: int | None = None
    scatter: bool = False

    def claim(self, *, doubted: bool) -> str:
        """`probably more agents: 8 (8–9) → 12 (10–13)`; nothing is claimed if the ranges overlap."""
        if self.scatter:
            reliable = "; neither number is reliable" if self.reason == "beyond_chance" else ""
            return f"{self.detail} agents is the scatter of the measurement or the load of the host{reliable}"
        probably = doubted and self.word != "not sure yet"
        same = "the " if probably and self.word == "same" else ""
        return f"{'probably ' if probably else ''}{same}{self.word}: {self.detail}"

    def sentence(self, doubts: Sequence[str] = ()) -> str:
        """Say what was found, then how sure it is, or why it is not."""
        sure = "" if self.confidence is None else f", {short_percent(self.confidence)} sure"
        if doubts:
            sure = f"{'; ' if self.word == 'not sure yet' else ', not sure: '}{name_doubts(doubts)}"
        start = "nothing is known to have changed, so " if self.scatter else ""
        return f"{start}{self.claim(doubted=bool(doubts))}{sure}"


def compare_agents(before: Answer | None, after: Answer | None, *, unchanged: bool = False) -> AgentsChange | None:
    """Return null unless both sessions have a capacity for the same SLO.

    `unchanged`: the server, its flags and the plan are known to be the same.
    """
    if before is None or after is None or before.agents is None or after.agents is None or before.slo != after.slo:
        return None
    chance = None if _is_sure(before) and _is_sure(after) else chance_of(before.agents, after.agents)
    order, distance = _order(before.shown_range, after.shown_range), after.agents - before.agents
    reason: AgentsReason = "within_chance"
    if not distance:
        reason = "equal"
    elif not order:
        reason = "overlap"
    elif _is_within(after.agents, repeat_range(before)) or _is_within(before.agents, repeat_range(after)):
        reason = "within_repeat"
    elif abs(distance) > (chance or 0):
        reason = "beyond_chance"
    scatter = unchanged and bool(distance)
    claims = reason == "beyond_chance" and not scatter
    word: AgentsWord = "same" if reason == "equal" else "not sure yet"
    if claims:
        word = "more agents" if order > 0 else "fewer agents"
    known = [answer.confidence for answer in (before, after) if answer.confidence is not None]
    return AgentsChange(
        word=word,
        before=before.agents,
        after=after.agents,
        detail=" → ".join(
            f"{found.agents}{range_text(found.agents or 0, *found.shown_range)}" for found in (before, after)
        ),
        confidence=min(known) if known and claims else None,
        numbers=(_number(before), _number(after)),
        reason=reason,
        why=_why(reason, before, after, chance),
        brief=_brief(reason, chance, _kind(before, after)),
        chance=chance,
        scatter=scatter,
    )


def chance_of(before: int, after: int) -> int:
    """Return the yardstick: the agents by which two quick searches of one server with such numbers may differ.

    It is rounded to the nearest number, and half of one up.
    """
    return max(1, floor(CHANCE * min(before, after) + 0.5))


def repeat_range(answer: Answer) -> _Range:
    """Return where a repeat of the search would end: a tenth more on both sides of its range, at least one agent."""
    low, high = answer.shown_range
    return (
        None if low is None else max(0, min(low - 1, 9 * low // 10)),
        None if high is None else max(high + 1, -(-11 * high // 10)),
    )


def _is_within(agents: int, ends: _Range) -> bool:
    low, high = ends
    return (low is None or low <= agents) and (high is None or agents <= high)


def _is_sure(answer: Answer) -> bool:
    return answer.quality != "doubtful" and (answer.confidence is None or answer.confidence >= _SURE)


def _order(first: _Range, second: _Range) -> int:
    """Return 1 if the second range is above the first, -1 if it is below, 0 if they overlap."""
    above = second[0] is not None and first[1] is not None and second[0] > first[1]
    below = second[1] is not None and first[0] is not None and second[1] < first[0]
    return int(above) - int(below)


def _number(answer: Answer) -> str:
    return "".join(agents_number(answer.agents or 0, is_open=answer.is_open, doubtful=False))


def _why(reason: AgentsReason, before: Answer, after: Answer, chance: int | None) -> str:
    """Say what decides, with the ranges of both sides, or the yardstick."""
    assert before.agents is not None and after.agents is not None
    ranges = f"the ranges {_ends(*before.shown_range)} and {_ends(*after.shown_range)}"
    moved = f"{before.agents} → {after.agents} is {count_noun(abs(after.agents - before.agents), 'agent', 'agents')}"
    chances = f"two {_kind(before, after)} of one server can differ by {_agents(chance)} by chance" if chance else ""
    repeats = f"({_ends(*repeat_range(before))} and {_ends(*repeat_range(after))})"
    if reason == "beyond_chance":
        return f"neither is where a repeat of the other would end {repeats}"
    if reason == "within_repeat":
        return f"a repeat of one search could end at the number of the other {repeats}, although {ranges} are apart"
    if reason == "equal":
        return f"both are {before.agents}; {chances}, so less would not show" if chances else f"{ranges} overlap"
    if reason == "overlap":
        near = chance is not None and abs(after.agents - before.agents) <= chance
        return "; ".join(filter(None, (f"{ranges} overlap", f"besides, {chances}" if near else "")))
    return f"{chances}, and {moved}: no more than that, although {ranges} are apart"


def _brief(reason: AgentsReason, chance: int | None, kind: str) -> str:
    texts = {
        "beyond_chance": "neither is where a repeat of the other would end",
        "within_repeat": "a repeat of one could end at the other",
        "overlap": "the ranges overlap",
    }
    if reason == "within_chance" and chance:
        return f"no more than the {_agents(chance)} by which two {kind} of one server can differ by chance"
    return texts.get(reason, "")


def _kind(before: Answer, after: Answer) -> str:
    quick = all((one.confidence or 1.0) < _SURE for one in (before, after))
    return "quick searches" if quick else "such searches"


def _agents(chance: int) -> str:
    """`3 agents (16 %)`; a single agent is the least difference there is."""
    return "1 agent" if chance == 1 else f"{chance} agents ({short_percent(CHANCE)})"


def _ends(low: int | None, high: int | None) -> str:
    """Return a range with both ends: `15–15`, `18–19`, `9 or more`, `at most 4`."""
    if high is None:
        return f"{low or 0} or more"
    return f"{low}–{high}" if low or not high else f"at most {high}"
