"""Two capacities are compared by their ranges, in one sentence."""

from __future__ import annotations

import msgspec
import pytest

from swarmtui.analysis.compare.agents import compare_agents
from swarmtui.analysis.compare.verdicts import Interval, interval_text
from swarmtui.experiments.baseline import compare_with_baseline, effect_sentence
from swarmtui.model.answer import Answer, AnswerSentence
from swarmtui.model.telemetry import QualityLine
from swarmtui.report.text import paint
from swarmtui.report.tuning import log_blocks
from tests.analysis.level_builders import level, summary

SAID = AnswerSentence(code="capacity", sentence="12 agents")


def answered(agents: int, low: int, high: int | None, slo: str = "ttft_p90=2s") -> Answer:
    return Answer(headline=SAID, limit=SAID, agents=agents, low=low, high=high, slo=slo, confidence=0.8)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((12, 3, 15), (0, 0, 0), "fewer agents: 12 (3–15) → 0, 80 % sure"),
        ((8, 8, 9), (12, 10, 13), "more agents: 8 (8–9) → 12 (10–13), 80 % sure"),
        ((8, 8, 9), (30, 29, None), "more agents: 8 (8–9) → 30 (29 or more), 80 % sure"),
        ((18, 17, 19), (18, 18, 18), "same: 18 (17–19) → 18"),
        ((18, 17, 19), (20, 19, 21), "not sure yet: the ranges overlap: 18 (17–19) → 20 (19–21)"),
    ],
)
def test_the_ranges_decide(before: tuple[int, int, int], after: tuple[int, int, int | None], said: str) -> None:
    found = compare_agents(answered(*before), answered(*after))
    assert found is not None and found.sentence == said


def test_not_sure_is_said_once() -> None:
    found = compare_agents(answered(18, 17, 19), answered(20, 19, 21))
    said = "not sure: the host was busy; the ranges overlap: 18 (17–19) → 20 (19–21)"
    assert found is not None and found.sentence_with(["the host was busy"]) == said


def test_other_slos_and_sessions_without_one_are_not_compared() -> None:
    assert compare_agents(answered(8, 8, 9, "ttft_p90=1s"), answered(8, 8, 9)) is None
    assert compare_agents(None, answered(8, 8, 9)) is None


def test_the_effect_of_a_flag_is_one_verdict_with_its_doubts_once() -> None:
    busy = QualityLine(code="host_pressure", name="host", value="90 %", state="doubtful", sentence="")
    before, after = (
        msgspec.structs.replace(
            summary([level(1, tps=20), level(4, tps=40)], id, server_flags=flags), answer=answer, quality=(busy,)
        )
        for id, flags, answer in (
            ("20261115-014455-3f9a", "--parallel 2", answered(12, 3, 15)),
            ("20261115-020000-aaaa", "--parallel 4", answered(0, 0, 0)),
        )
    )
    found = compare_with_baseline(before, after)
    said = "not sure: the host was busy; fewer agents: 12 (3–15) → 0; --parallel 2 → 4"
    assert effect_sentence(found) == said and found.verdict == "fewer agents"
    row = paint(log_blocks([found]))
    assert "12 → 0 agents" in row and "fewer agents" in row


def test_an_interval_that_tells_nothing_is_not_shown() -> None:
    assert interval_text(Interval(middle=0.0, low=-0.997, high=449.85), " … ") == "not known"
    assert interval_text(Interval(middle=0.15, low=0.1, high=0.2), " … ") == "+10.0 % … +20.0 %"
