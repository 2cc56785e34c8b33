"""Compare two capacities for the same SLO: the ranges decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from swarmtui.analysis.quality.doubts import temper
from swarmtui.model.answer import Answer
from swarmtui.model.base import Stored
from swarmtui.numbers import short_percent

AgentsWord = Literal["more agents", "fewer agents", "same", "not sure yet"]


class AgentsChange(Stored, frozen=True, kw_only=True):
    """`more agents: 8 (8–9) → 12 (10–13), 80 % sure`; `detail` is the sentence without its word.

    `confidence` is that of the less certain capacity; null if the ranges decide nothing.
    """

    word: AgentsWord
    before: int
    after: int
    detail: str
    confidence: float | None = None

    @property
    def sentence(self) -> str:
        sure = "" if self.confidence is None else f", {short_percent(self.confidence)} sure"
        return f"{self.word}: {self.detail}{sure}"

    def sentence_with(self, doubts: Sequence[str]) -> str:
        """Say once that it is not sure, because of doubts about the measurement or of the ranges."""
        if not doubts:
            return self.sentence
        return temper(self.detail if self.word == "not sure yet" else f"{self.word}: {self.detail}", doubts)


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
    why = "the ranges overlap: " if word == "not sure yet" else ""
    detail = f"{why}{_agents(before)} → {_agents(after)}"
    known = [answer.confidence for answer in (before, after) if answer.confidence is not None]
    confidence = min(known) if known and (above or below) else None
    return AgentsChange(word=word, before=before.agents, after=after.agents, detail=detail, confidence=confidence)


def _agents(answer: Answer) -> str:
    if answer.high is None:
        return f"{answer.agents} or more" if answer.low == answer.agents else f"{answer.agents} ({answer.low} or more)"
    return f"{answer.agents}" if answer.low == answer.high else f"{answer.agents} ({answer.low or 0}–{answer.high})"
