"""Use what a change has shown: advise nothing that did not help, or may not have."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from swarmtui.analysis.answer.facts import AnswerFacts
from swarmtui.analysis.answer.slots_change import SlotsChange
from swarmtui.analysis.answer.table import rows_said
from swarmtui.analysis.compare.change import LeftOutFlag, ServerChange
from swarmtui.analysis.compare.differences import changed_settings, flag_differences, options_text, server_differences
from swarmtui.analysis.quality.doubts import find_disturbances, find_doubts
from swarmtui.model.answer import NextStep
from swarmtui.model.session import Summary

# Steps that measure again, or say what slots did: what decides about a change says it.
_AGAIN = ("quiet_host", "measure_again", "unsure_search", "longer_search", "slots_tried", "slots_back")
# What servers report differently because their slots changed.
_FOLLOWS = ("slots", "context")


def find_slots_change(before: Summary, after: Summary) -> SlotsChange | None:
    """Return the change if nothing but the slots of a server is known to differ, and neither session is in doubt.

    More slots that give no more than fewer did, although something slowed these down, give no more at all.
    """
    first, second = (one.scaling.reported_slots if one.scaling else None for one in (before, after))
    if first is None or second is None or first.total == second.total or before.answer is None or after.answer is None:
        return None
    others = [found for found in server_differences(before, after) if found.code not in _FOLLOWS]
    slowed = second.total > first.total and find_doubts(before.quality) == find_disturbances(before.quality)
    doubted = after.answer.doubts or (before.answer.doubts and not slowed)
    if len(changed_settings(before, after)) > 1 or others or doubted:
        return None
    setting = options_text(flag_differences(before, after), "before")
    same = before.answer.slo == after.answer.slo
    numbers = (before.answer.agents, after.answer.agents) if same else (None, None)
    return SlotsChange(first.total, second.total, before.answer, after.answer, numbers, setting)


def learned_steps(change: SlotsChange) -> tuple[NextStep, ...]:
    """Return what to try next, by what the change has shown: advice that it contradicts is replaced by the finding."""
    steps: list[NextStep] = []
    for step in change.after.next:
        found, failed = step.forecast, change.no_more_output or change.no_more_agents
        if found is None or not (failed if change.now > change.was else found.slots >= change.was):
            steps.append(step)
            continue
        said = _said(AnswerFacts(slots_change=change, tried=found))
        # More slots are still advised, with what is known by now.
        steps += [msgspec.structs.replace(step, sentence=said.sentence) if said.code == "slots_shared" else said]
    if change.no_more_output and [step.code for step in steps] == ["slots_tried"]:
        steps.append(_said(AnswerFacts(slots_change=change)))
    return tuple(steps)


def _said(facts: AnswerFacts) -> NextStep:
    row = rows_said("learned", facts)[0]
    return NextStep(code=row.code, sentence=row.text(facts), command=row.command(facts))


def decide_first(
    found: ServerChange | None, left_out: LeftOutFlag | None, steps: Sequence[NextStep]
) -> tuple[NextStep, ...]:
    """Say first what to do about a change that is not known to help, or was not made as advised.

    Then no next flag is advised, nor more slots.
    """
    facts = AnswerFacts(change=found, left_out=left_out)
    said = rows_said("change", facts)
    if not said:
        return tuple(steps)
    # A flag does not decide what is open: what does follows it, unless it needs another flag.
    rows = [said[0], *rows_said("surer", facts)]
    if said[0].code == "left_out_flag":
        rows += [row for row in said[1:2] if row.code == "repeat_run"]
    first = (NextStep(code=row.code, sentence=row.text(facts), command=row.command(facts)) for row in rows)
    others = (step for step in steps if step.forecast is None and step.code not in _AGAIN)
    return (*first, *others)
