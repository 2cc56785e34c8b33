"""Use what a change of the slots has shown: compare the prediction with it, and advise nothing that did not help."""

from __future__ import annotations

from math import hypot
from typing import NamedTuple

import msgspec

from swarmtui.analysis.answer.rows import agents
from swarmtui.analysis.answer.steps import asked_clause, context_clause, forecast_agents
from swarmtui.analysis.capacity.cliff import MIN_GAIN
from swarmtui.analysis.capacity.words import range_text
from swarmtui.analysis.compare.differences import flag_differences, server_differences
from swarmtui.model.answer import Answer, NextStep, SlotsForecast
from swarmtui.model.session import Summary
from swarmtui.numbers import rate, short
from swarmtui.text import count_noun

# What servers report differently because their slots changed.
_FOLLOWS = ("slots", "context")


class SlotsChange(NamedTuple):
    """A server with `was`, then `now` slots in total, and the answers of both sessions."""

    was: int
    now: int
    before: Answer
    after: Answer

    @property
    def no_more_output(self) -> bool:
        """Whether more slots did not raise the tok/s in total, at the capacity or the best level."""
        first, second = self.before.at_capacity, self.after.at_capacity
        if self.now < self.was or not first or not second or not first.out_tps or second.out_tps is None:
            return False
        width = hypot(first.half_width or 0.0, second.half_width or 0.0)
        return second.out_tps / first.out_tps - 1.0 <= max(MIN_GAIN, width)

    @property
    def output(self) -> str:
        first, second = self.before.at_capacity, self.after.at_capacity
        assert first is not None and second is not None
        return f"{rate(first.out_tps)} → {rate(second.out_tps)} tok/s"


def find_slots_change(before: Summary, after: Summary) -> SlotsChange | None:
    """Return the change if nothing but the slots of a server is known to differ, and neither session is in doubt."""
    first, second = (one.scaling.reported_slots if one.scaling else None for one in (before, after))
    if first is None or second is None or first.total == second.total or before.answer is None or after.answer is None:
        return None
    others = [found for found in server_differences(before, after) if found.code not in _FOLLOWS]
    if len(flag_differences(before, after)) > 1 or others or before.answer.doubts or after.answer.doubts:
        return None
    return SlotsChange(first.total, second.total, before.answer, after.answer)


def prediction_text(change: SlotsChange) -> str:
    """`slots 4 → 8: predicted 6 to 10 agents, came out 9`; empty if nothing was predicted for these slots."""
    steps = (step.forecast for step in change.before.next)
    found = next((one for one in steps if one and one.slots == change.now and one.agents_high is not None), None)
    if found is None or change.after.agents is None or change.before.slo != change.after.slo:
        return ""
    came = f"{change.after.agents}{range_text(change.after.agents, *change.after.shown_range)}"
    return f"slots {change.was} → {change.now}: predicted {forecast_agents(found)}, came out {came}"


def learned_steps(change: SlotsChange) -> tuple[NextStep, ...]:
    """Return what to try next, by what the change has shown: advice that it contradicts is replaced by the finding."""
    steps: list[NextStep] = []
    for step in change.after.next:
        found = step.forecast
        if found is None or not (change.no_more_output if change.now > change.was else found.slots >= change.was):
            steps.append(step)
        elif change.now < change.was:
            steps.append(_tried(change, "", change.was))
        elif (change.after.agents or 0) > (change.before.agents or 0):
            steps.append(msgspec.structs.replace(step, sentence=_shared(change, found)))
        else:
            steps.append(_tried(change, _finding(change), change.now))
    if any(step.code == "slots_tried" for step in steps) and change.no_more_output and len(steps) == 1:
        total = rate(change.after.at_capacity.out_tps) if change.after.at_capacity else ""
        said = f"a smaller model, or weights of fewer bits: the server gives no more than {total} tok/s in total"
        steps.append(NextStep(code="throughput", sentence=said))
    return tuple(steps)


def _finding(change: SlotsChange) -> str:
    return f"{change.now} slots gave no more output than {change.was} ({change.output})"


def _tried(change: SlotsChange, finding: str, slots: int) -> NextStep:
    """Say what is known of these slots; the other answer is about them if the server has fewer now."""
    if finding:
        numbers = [answer.agents for answer in (change.before, change.after)]
        more = f" and no more agents ({numbers[0]} → {numbers[1]})" if None not in numbers else ""
        return NextStep(code="slots_tried", sentence=f"{finding}{more}: more slots do not help")
    found, at = change.before, change.before.at_capacity
    had = [agents(found.agents)] if found.agents is not None else []
    had += [f"{rate(at.out_tps)} tok/s in total"] if at and at.out_tps is not None else []
    said = f"{count_noun(slots, 'slot', 'slots')} had {' and '.join(had)} in the run before" if had else ""
    return NextStep(code="slots_tried", sentence=said or f"{count_noun(slots, 'slot', 'slots')} were tried before")


def _shared(change: SlotsChange, found: SlotsForecast) -> str:
    """Say what more slots bring and cost, if the total is known not to grow."""
    number = forecast_agents(found) if found.agents_high is not None else "more agents start at once"
    cost = ""
    if found.shared_tps is not None and found.each_tps is not None:
        now = rate(found.each_tps)
        each = f"about {short(found.shared_tps, 2)} tok/s each while it writes{asked_clause(found.least_tps)}"
        cost = f", so they share it: {each}, instead of {now}"
    predicted = " (prediction)" if found.agents_high is not None else ""
    return f"{found.setting}: {number}; {_finding(change)}{cost}{predicted}{context_clause(found)}"
