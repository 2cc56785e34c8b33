"""The plan of a search for the capacity: its SLO, its time, and the length of its answers."""

from __future__ import annotations

import pytest

from swarmtui.client.choices import RunChoices
from swarmtui.client.plan_builder import QUICK_MAX_TOKENS, build_plan
from swarmtui.model.base import BadInput
from swarmtui.model.workload import Workload
from swarmtui.prompts.library import find_workload, parse_workload

PROMPTS = 'kind = "prompts"\nname = "mine"\n{}\n[[prompts]]\ntext = "hi"\n'


def mine(line: str) -> Workload:
    return parse_workload(PROMPTS.format(line), "mine.toml")


def test_slo_is_the_one_chosen_else_that_of_the_workload_else_the_default() -> None:
    stated = mine('slo = "ttft_p90=1s"')
    assert build_plan(stated, RunChoices(plan="capacity", slo="e2e_p90=9s")).slo == "e2e_p90=9s"
    assert build_plan(stated, RunChoices(plan="capacity")).slo == "ttft_p90=1s"
    assert build_plan(stated, RunChoices(plan="sweep")).slo == "", "a sweep judges only what was asked for"
    coding = find_workload("coding").workload
    assert build_plan(coding, RunChoices(plan="quick")).slo == "ttft_p90=2s,stream_p10=20"
    with pytest.raises(BadInput, match=r"workload: slo: unknown figure 'speed'"):
        build_plan(mine('slo = "speed=3"'), RunChoices(plan="quick"))


def test_quick_search_has_a_budget_and_short_answers_unless_the_workload_has_a_limit() -> None:
    coding = find_workload("coding").workload
    quick = build_plan(coding, RunChoices(plan="quick", budget="30s"))
    assert (quick.budget_s, quick.alpha, quick.max_tokens) == (30.0, 0.2, QUICK_MAX_TOKENS)
    assert build_plan(coding, RunChoices(plan="quick", max_tokens=500)).max_tokens == 500
    assert build_plan(mine("max_tokens = 900"), RunChoices(plan="quick")).max_tokens is None
    whole = build_plan(coding, RunChoices(plan="capacity"))
    assert (whole.budget_s, whole.alpha, whole.max_tokens) == (None, 0.01, None)
