"""Compare two capacities for the same SLO: the ranges decide, unless a measurement is in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from swarmtui.analysis.quality.doubts import name_doubts
from swarmtui.model.answer import Answer
from swarmtui.model.base import Stored
from swarmtui.numbers import short_percent

AgentsWord = Literal["more agents", "fewer agents", "same", "not sure yet"]


class AgentsChange(Stored, frozen=True, kw_only=True):
    """`more agents: 8 (8–9) → 12 (10–13), 80 % sure`; `detail` has both capacities with their ranges.

    `word` is what the ranges say. `confidence` is that of the less certain capacity; null if they decide nothing.
    """

    word: AgentsWord
    before: int
    after: int
    detail: str
    confidence: float | None = None

    def claim(self, *, doubted: bool) -> str:
        """`probably more agents: 8 (8–9) → 12 (10–13)`; only perhaps, if the ranges overlap."""
        degree = "perhaps " if self.word == "not sure yet" else "probably " if doubted else ""
        if self.after == self.before:
            return f"{degree}{'the ' if degree else ''}same: {self.detail}"
        return f"{degree}{'more' if self.after > self.before else 'fewer'} agents: {self.detail}"

    def sentence(self, doubts: Sequence[str] = ()) -> str:
        """Say what was found, then how sure it is, or why it is not."""
        overlap = ("the ranges overlap",) if self.word == "not sure yet" else ()
        if why := (*overlap, *doubts):
            sure = f", not sure{' yet' if overlap else ''}: {name_doubts(why)}"
        else:
            sure = "" if self.confidence is None else f", {short_percent(self.confidence)} sure"
        return f"{self.claim(doubted=bool(doubts))}{sure}"


def compare_agents(before: Answer | None, after: Answer | None) -> AgentsChange | None:
    """Return null unless both sessions have a capacity for the same SLO."""
    if before is None or after is None or before.agents is None or after.agents is None or before.slo != after.slo:
        return None
    above = after.low is not None and before.high is not None and after.low > before.high
    below = after.high is not None and before.low is not None and after.high < before.low
    word: AgentsWord = "not sure yet"
    if above or below:
        word = "more agents" if above else "fewer agents"
    elif after.agents == before.agents:
        word = "same"
    detail = f"{_agents(before)} → {_agents(after)}"
    known = [answer.confidence for answer in (before, after) if answer.confidence is not None]
    confidence = min(known) if known and (above or below) else None
    return AgentsChange(word=word, before=before.agents, after=after.agents, detail=detail, confidence=confidence)


def _agents(answer: Answer) -> str:
    """Always with the range, written as the headline of the answer writes it."""
    agents, low, high = answer.agents, answer.low, answer.high
    if high is None:
        return f"{agents} or more" if low in (None, 0, agents) else f"{agents} ({low} or more)"
    if low == high:
        return f"exactly {agents}"
    return f"{agents} ({low}–{high})" if low else f"{agents} (at most {high})"
