"""Find the earlier sessions of a configuration: they show how much sessions differ, and count as searches with it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from swarmtui.analysis.answer.facts import AnswerFacts
from swarmtui.analysis.answer.table import rows_said
from swarmtui.analysis.compare.agents import pool_searches
from swarmtui.analysis.compare.differences import is_same_configuration, known_flags
from swarmtui.analysis.compare.pool import pool_levels
from swarmtui.analysis.compare.sides import counted_doubts
from swarmtui.model.answer import Answer, PooledSentence
from swarmtui.model.session import Summary


def find_repeats(a: Summary, b: Summary, history: Sequence[Summary]) -> tuple[Summary, ...]:
    """Return `a` and the earlier sessions of its configuration, none of them with more runs than `a` and `b`.

    Those after both do not count: a verdict stays what it was when they had ended.
    """
    runs, newest = min(a.session.plan.load.runs, b.session.plan.load.runs), max(a.session.id, b.session.id)
    others = (
        other
        for other in history
        if other.session.id not in (a.session.id, b.session.id)
        and other.session.id < newest
        and other.session.plan.load.runs <= runs
        and is_same_configuration(a, other)
    )
    return (a, *others)


def find_searches(one: Summary, other: Summary, history: Sequence[Summary]) -> list[Summary]:
    """Return a session, then those of the same configuration that count with it, the newest first.

    One that something slowed down counts, too, see `compare_agents`. The levels of a sweep are no search, whatever they
    say about the SLO. Flags that are not known may have changed.
    """
    if known_flags(one) is None:
        return [one]
    repeats = sorted(find_repeats(one, other, history)[1:], key=lambda found: found.session.id, reverse=True)
    goal = one.session.plan.goal
    return [one, *(x for x in repeats if x.session.plan.goal == goal and not counted_doubts(x))]


def find_answers(one: Summary, other: Summary, history: Sequence[Summary]) -> list[Answer | None]:
    """Return the answers of a session and of those that count with it, the newest first."""
    return [found.answer for found in find_searches(one, other, history)]


def pool_sides(a: Summary, b: Summary, history: Sequence[Summary]) -> tuple[Summary, Summary]:
    """Return two sessions with the levels of all searches of their configurations, so that figures fit the numbers.

    Sessions that are no searches, or of one configuration, stay as they are.
    """
    if is_same_configuration(a, b):
        return a, b
    return _pool_side(a, b, history), _pool_side(b, a, history)


def _pool_side(one: Summary, other: Summary, history: Sequence[Summary]) -> Summary:
    """Pool the searches that the number of a side is the mean of: what slowed the others down is in their levels."""
    answer, searches = one.answer, find_searches(one, other, history) if one.session.plan.goal == "capacity" else [one]
    known = [found for found in searches if found.answer and answer and found.answer.slo == answer.slo]
    counted = [found for found in known if found.answer and not found.answer.disturbed] or known
    pooled = pool_searches([found.answer for found in searches])
    if len(counted) < 2 or answer is None or pooled is None:
        return one
    levels = pool_levels([found.levels for found in counted])
    kept = max((level.c for level in levels if level.c <= pooled.agents), default=0)
    missed = min((level.c for level in levels if level.c > pooled.agents), default=None)
    marked = msgspec.structs.replace(answer, agents=kept, missed_c=missed)
    return msgspec.structs.replace(one, levels=levels, answer=marked)


def pool_earlier_searches(summary: Summary, history: Sequence[Summary]) -> PooledSentence | None:
    """Say what a search and the earlier ones of its configuration give together; null if alone, or not counted."""
    if summary.session.plan.goal != "capacity" or counted_doubts(summary):
        return None
    pooled = pool_searches(find_answers(summary, summary, history))
    if pooled is None:
        return None
    facts = AnswerFacts(searches=pooled)
    said = rows_said("searches", facts)
    if not said:
        return None
    return PooledSentence(
        code=said[0].code, sentence=said[0].text(facts), agents=pooled.agents, low=pooled.low, high=pooled.high,
        searches=len(pooled.numbers),
    )  # fmt: skip
