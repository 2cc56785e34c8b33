"""Compare two capacities for the same SLO: the ranges decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from swarmtui.analysis.quality.doubts import temper
from swarmtui.model.answer import Answer
from swarmtui.model.base import Stored

AgentsWord = Literal["more agents", "fewer agents", "same", "not sure yet"]


class AgentsChange(Stored, frozen=True, kw_only=True):
    """`more agents: 12 (10–13), before 8 (8–9)`; `detail` is the sentence without its word."""

    word: AgentsWord
    before: int
    after: int
    detail: str

    @property
    def sentence(self) -> str:
        return f"{self.word}: {self.detail}"

    def sentence_with(self, doubts: Sequence[str]) -> str:
        """Say once that it is not sure, because of doubts about the measurement or of the ranges."""
        return temper(self.detail if doubts and self.word == "not sure yet" else self.sentence, doubts)


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
    detail = f"{why}{_agents(after)}, before {_agents(before)}"
    return AgentsChange(word=word, before=before.agents, after=after.agents, detail=detail)


def _agents(answer: Answer) -> str:
    if answer.high is None:
        return f"{answer.agents} or more" if answer.low == answer.agents else f"{answer.agents} ({answer.low} or more)"
    return f"{answer.agents}" if answer.low == answer.high else f"{answer.agents} ({answer.low or 0}–{answer.high})"
