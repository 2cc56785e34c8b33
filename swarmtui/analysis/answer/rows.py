"""A row of the table of sentences, and the conditions that several rows share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from swarmtui.analysis.answer.facts import AnswerFacts
from swarmtui.analysis.capacity.cliff import MIN_GAIN, QUEUED
from swarmtui.analysis.limits.slo import WAITS
from swarmtui.model.answer import SlotsForecast
from swarmtui.numbers import rate
from swarmtui.text import count_noun

Question = Literal["headline", "missed", "limit", "next", "learned", "change", "surer", "power"]

# A server with a slot free for a tenth of the time may still be full on average.
_TAKEN = 0.9


class AnswerRow(NamedTuple):
    question: Question
    code: str
    needs: tuple[str, ...]
    holds: Callable[[AnswerFacts], bool]
    text: Callable[[AnswerFacts], str]
    command: Callable[[AnswerFacts], str] = lambda facts: ""
    evidence: Callable[[AnswerFacts], str] = lambda facts: ""
    forecast: Callable[[AnswerFacts], SlotsForecast | None] = lambda facts: None

    def is_said(self, facts: AnswerFacts) -> bool:
        return all(getattr(facts, name) is not None for name in self.needs) and self.holds(facts)


def agents(number: int) -> str:
    return count_noun(number, "agent")


def flat_words(facts: AnswerFacts) -> str:
    """`926 tok/s with 2 agents, 989 with 4 or more`: with all slots it is the mean of the levels that take them."""
    assert facts.flat is not None
    fewer, before, more, after = facts.flat
    above = " or more" if more == facts.slots else ""
    return f"{rate(before)} tok/s with {agents(fewer)}, {rate(after)} with {more}{above}"


def errors_missed(facts: AnswerFacts) -> bool:
    missed = facts.missed
    return missed is not None and bool(facts.failed) and 2 * (facts.failed or 0) >= missed.n - missed.good > 0


def empty_missed(facts: AnswerFacts) -> bool:
    """Whether most requests that missed the SLO had an answer without text: no first token came, early or late."""
    missed = facts.missed
    return missed is not None and bool(facts.empty) and 2 * (facts.empty or 0) >= missed.n - missed.good > 0


def waits(facts: AnswerFacts) -> bool:
    """Whether what ended was a wait: the cliff, or a condition on a time that a queue makes longer."""
    if facts.missed is None:
        return facts.gain is not None
    if empty_missed(facts):
        return False
    return not facts.missed.figure or facts.missed.figure in WAITS


def slots_taken(facts: AnswerFacts) -> bool:
    if facts.slots is None or facts.c is None or not waits(facts) or facts.c <= facts.slots:
        return False
    if facts.gain is not None and facts.gain >= MIN_GAIN and (facts.c_before or 0) >= facts.slots:
        return False  # more than the slots bring more output
    idle = facts.running is not None and facts.running < _TAKEN * facts.slots
    return not idle and (facts.queued is None or facts.queued > QUEUED)
