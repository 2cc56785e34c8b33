"""Compare two capacities for the same SLO: the ranges decide, unless a measurement is in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from swarmtui.analysis.capacity.words import range_text
from swarmtui.analysis.quality.doubts import name_doubts
from swarmtui.model.answer import Answer
from swarmtui.model.base import Stored
from swarmtui.numbers import short_percent

AgentsWord = Literal["more agents", "fewer agents", "same", "not sure yet"]

# The ends of a range that are less sure than this differ by a visited level between searches of the same server.
_SURE = 0.95


class AgentsChange(Stored, frozen=True, kw_only=True):
    """`more agents: 8 (8–9) → 12 (10–13), 80 % sure`; `detail` has both capacities with the ranges that are compared.

    `word` is what the ranges say. `confidence` is that of the less certain capacity; null if they decide nothing.
    `quick`: one of the searches was.
    """

    word: AgentsWord
    before: int
    after: int
    detail: str
    confidence: float | None = None
    quick: bool = False

    def claim(self, *, doubted: bool) -> str:
        """`probably more agents: 8 (8–9) → 12 (10–13)`; nothing is claimed if the ranges overlap."""
        probably = doubted and self.word != "not sure yet"
        same = "the " if probably and self.word == "same" else ""
        return f"{'probably ' if probably else ''}{same}{self.word}: {self.detail}"

    def sentence(self, doubts: Sequence[str] = ()) -> str:
        """Say what was found, then how sure it is, or why it is not."""
        sure = "" if self.confidence is None else f", {short_percent(self.confidence)} sure"
        if doubts:
            sure = f"{'; ' if self.word == 'not sure yet' else ', not sure: '}{name_doubts(doubts)}"
        return f"{self.claim(doubted=bool(doubts))}{sure}"


def compare_agents(
    before: Answer | None, after: Answer | None, kept_before: Sequence[int] = (), kept_after: Sequence[int] = ()
) -> AgentsChange | None:
    """Return null unless both sessions have a capacity for the same SLO; `kept` are the visited levels that keep it."""
    if before is None or after is None or before.agents is None or after.agents is None or before.slo != after.slo:
        return None
    first, second = _compared_range(before, kept_before), _compared_range(after, kept_after)
    above = second[0] is not None and first[1] is not None and second[0] > first[1]
    below = second[1] is not None and first[0] is not None and second[1] < first[0]
    word: AgentsWord = "not sure yet"
    if above or below:
        word = "more agents" if above else "fewer agents"
    elif after.agents == before.agents:
        word = "same"
    known = [answer.confidence for answer in (before, after) if answer.confidence is not None]
    return AgentsChange(
        word=word,
        before=before.agents,
        after=after.agents,
        detail=" → ".join(
            f"{number}{range_text(number, *ends)}" for number, ends in ((before.agents, first), (after.agents, second))
        ),
        confidence=min(known) if known and (above or below) else None,
        quick=any(sure < _SURE for sure in known),
    )


def _compared_range(answer: Answer, kept: Sequence[int]) -> tuple[int | None, int | None]:
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
