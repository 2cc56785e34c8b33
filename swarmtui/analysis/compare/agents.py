"""Compare two capacities for the same SLO: the ranges decide, unless a measurement is in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from swarmtui.analysis.capacity.words import agents_number, range_text
from swarmtui.analysis.quality.doubts import name_doubts
from swarmtui.model.answer import Answer
from swarmtui.model.base import Stored
from swarmtui.numbers import short_percent

_Range = tuple[int | None, int | None]
AgentsWord = Literal["more agents", "fewer agents", "same", "not sure yet"]

# The ends of a range that are less sure than this differ by a visited level between searches of the same server.
_SURE = 0.95


class AgentsChange(Stored, frozen=True, kw_only=True):
    """`more agents: 8 (8–9) → 12 (10–13), 80 % sure`; `detail` has both capacities with the ranges of their answers.

    `word` is what the ranges say: wider ones if their ends are not sure. `confidence` is that of the less certain
    capacity; null if they decide nothing. `numbers` are shown where they stand alone. `overlap`: the ranges of the
    answers do; `apart`: even the wider ones do not. `scatter`: the numbers differ, although everything that is known
    is the same.
    """

    word: AgentsWord
    before: int
    after: int
    detail: str
    confidence: float | None = None
    numbers: tuple[str, str]
    overlap: bool = False
    apart: bool = False
    scatter: bool = False

    def claim(self, *, doubted: bool) -> str:
        """`probably more agents: 8 (8–9) → 12 (10–13)`; nothing is claimed if the ranges overlap."""
        if self.scatter:
            reliable = "; neither number is reliable" if self.apart else ""
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


def compare_agents(
    before: Answer | None,
    after: Answer | None,
    kept_before: Sequence[int] = (),
    kept_after: Sequence[int] = (),
    *,
    unchanged: bool = False,
) -> AgentsChange | None:
    """Return null unless both sessions have a capacity for the same SLO; `kept` are the visited levels that keep it.

    `unchanged`: the server, its flags and the plan are known to be the same.
    """
    if before is None or after is None or before.agents is None or after.agents is None or before.slo != after.slo:
        return None
    order = _order(_compared_range(before, kept_before), _compared_range(after, kept_after))
    scatter = unchanged and before.agents != after.agents
    word: AgentsWord = "not sure yet"
    if order and not scatter:
        word = "more agents" if order > 0 else "fewer agents"
    elif after.agents == before.agents:
        word = "same"
    known = [answer.confidence for answer in (before, after) if answer.confidence is not None]
    return AgentsChange(
        word=word,
        before=before.agents,
        after=after.agents,
        detail=" → ".join(
            f"{found.agents}{range_text(found.agents or 0, *found.shown_range)}" for found in (before, after)
        ),
        confidence=min(known) if known and order and not scatter else None,
        numbers=(_number(before), _number(after)),
        overlap=not _order(before.shown_range, after.shown_range),
        apart=bool(order),
        scatter=scatter,
    )


def _order(first: _Range, second: _Range) -> int:
    """Return 1 if the second range is above the first, -1 if it is below, 0 if they overlap."""
    above = second[0] is not None and first[1] is not None and second[0] > first[1]
    below = second[1] is not None and first[0] is not None and second[1] < first[0]
    return int(above) - int(below)


def _number(answer: Answer) -> str:
    return "".join(agents_number(answer.agents or 0, is_open=answer.is_open, doubtful=False))


def _compared_range(answer: Answer, kept: Sequence[int]) -> _Range:
    """Return the range of a capacity for a comparison: a visited level wider on each side if its ends are not sure.

    It goes from the next lower level that was kept to the first one that was missed. A quick search, or one of a
    doubtful measurement, that is repeated often ends on the other side of one of these levels.
    """
    low, high = answer.low, answer.high
    sure = answer.quality != "doubtful" and (answer.confidence is None or answer.confidence >= _SURE)
    if sure or answer.agents is None:
        return low, high
    if low:
        low = min(low, max((c for c in kept if c < answer.agents), default=low))
    if high is not None and answer.missed_c is not None:
        high = max(high, answer.missed_c)
    return low, high
