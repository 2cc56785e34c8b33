"""Answer three questions about a session: how many agents, why no more, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from swarmtui.analysis.answer.facts import AnswerFacts, capacity_facts, find_facts
from swarmtui.analysis.answer.light import add_hardware
from swarmtui.analysis.answer.table import agents, rows_said
from swarmtui.analysis.limits.slo import Slo
from swarmtui.model.answer import Answer, AnswerPoint, AnswerSentence, NextStep
from swarmtui.model.findings import Capacity
from swarmtui.model.session import Level, Summary
from swarmtui.model.telemetry import QualityLine, ServerState


def answer(summary: Summary, slo: Slo | None, slo_text: str, counters: Mapping[int, ServerState]) -> Answer:
    """Return the answer of a session whose other figures are known; `counters` are those of the servers by level."""
    facts = add_hardware(find_facts(summary, slo, counters), summary)
    at = facts.agents if slo is not None else facts.best_c
    return Answer(
        headline=_headline(facts),
        agents=facts.agents,
        low=facts.low,
        high=facts.high,
        missed_c=facts.c if facts.agents is not None else None,
        slo=slo_text if facts.agents is not None else "",
        confidence=facts.sure if facts.agents is not None else None,
        best_c=facts.best_c,
        one_agent=_point(summary.levels, 1),
        at_capacity=_point(summary.levels, at),
        limit=_limit(facts),
        next=next_steps(facts),
        quality=_quality(summary.quality),
        doubts=", ".join(facts.doubts),
    )


def capacity_headline(found: Capacity, slo: Slo) -> str:
    """Say the result of a search before the session has ended; how sure it is depends on the quality, judged then."""
    return _headline(msgspec.structs.replace(capacity_facts(found, slo), sure=None)).sentence


def _headline(facts: AnswerFacts) -> AnswerSentence:
    row = rows_said("headline", facts)[0]
    return AnswerSentence(code=row.code, sentence=row.text(facts))


def _limit(facts: AnswerFacts) -> AnswerSentence:
    """`at 20 agents the first token took 2.4 s (p90): all 16 slots are taken`"""
    row = rows_said("limit", facts)[0]
    missed = rows_said("missed", facts)
    if not missed:
        return AnswerSentence(code=row.code, sentence=row.text(facts))
    said = f"at {agents(facts.c or 0)} {missed[0].text(facts)}: {row.text(facts)}"
    return AnswerSentence(code=row.code, sentence=said)


def next_steps(facts: AnswerFacts) -> tuple[NextStep, ...]:
    return tuple(
        NextStep(code=row.code, sentence=row.text(facts), command=row.command(facts), evidence=row.evidence(facts))
        for row in rows_said("next", facts)
    )


def _point(levels: Sequence[Level], c: int | None) -> AnswerPoint | None:
    level = next((level for level in levels if level.c == c and level.rate is None and level.ok), None)
    if level is None:
        return None
    return AnswerPoint(
        c=level.c,
        ttft_s=level.ttft_s.median,
        ttft_p90_s=level.ttft_s.p90,
        per_stream_tps=level.per_stream_tps.mean,
        out_tps=level.headline_tps,
    )


def _quality(lines: Sequence[QualityLine]) -> Literal["ok", "note", "doubtful"]:
    states = {line.state for line in lines}
    return "doubtful" if states & {"doubtful", "wrong"} else "note" if "note" in states else "ok"
