"""Use what a change has shown: advise nothing that did not help, or may not have."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from typing import NamedTuple

import msgspec

from swarmtui.analysis.answer.facts import AnswerFacts
from swarmtui.analysis.answer.rows import agents
from swarmtui.analysis.answer.steps import forecast_agents, writes_clause
from swarmtui.analysis.answer.table import rows_said
from swarmtui.analysis.capacity.cliff import MIN_GAIN
from swarmtui.analysis.compare.change import LeftOutFlag, ServerChange
from swarmtui.analysis.compare.differences import changed_settings, flag_differences, options_text, server_differences
from swarmtui.analysis.quality.doubts import find_disturbances, find_doubts
from swarmtui.model.answer import Answer, NextStep, SlotsForecast
from swarmtui.model.session import Summary
from swarmtui.numbers import rate
from swarmtui.text import count_noun

# Steps that measure again, or say what slots did: what decides about a change says it.
_AGAIN = ("quiet_host", "measure_again", "unsure_search", "longer_search", "slots_tried", "slots_back")
# What servers report differently because their slots changed.
_FOLLOWS = ("slots", "context")


class SlotsChange(NamedTuple):
    """A server with `was`, then `now` slots in total, and the answers of both sessions.

    `agents` are the numbers of both. `setting` is the flag that gave it the slots before; empty if that is not known.
    """

    was: int
    now: int
    before: Answer
    after: Answer
    agents: tuple[int | None, int | None]
    setting: str = ""

    @property
    def fewer_are_worse(self) -> bool:
        """Whether fewer slots have fewer agents; without a number of them, less output."""
        was, now = self.agents
        if was is not None and now is not None:
            return now < was
        first, second = self.before.at_capacity, self.after.at_capacity
        if not first or not second or first.out_tps is None or second.out_tps is None:
            return False
        return second.out_tps < first.out_tps * (1.0 - hypot(first.half_width or 0.0, second.half_width or 0.0))

    @property
    def no_more_output(self) -> bool:
        """Whether more slots did not raise the tok/s in total, at the capacity or the best level."""
        first, second = self.before.at_capacity, self.after.at_capacity
        if self.now < self.was or not first or not second or not first.out_tps or second.out_tps is None:
            return False
        width = hypot(first.half_width or 0.0, second.half_width or 0.0)
        return second.out_tps / first.out_tps - 1.0 <= max(MIN_GAIN, width)

    @property
    def no_more_agents(self) -> bool:
        """Whether more slots have no more agents."""
        was, now = self.agents
        return self.now > self.was and was is not None and now is not None and now <= was

    @property
    def output(self) -> str:
        first, second = self.before.at_capacity, self.after.at_capacity
        assert first is not None and second is not None
        if first.c == second.c:
            return f"{rate(first.out_tps)} → {rate(second.out_tps)} tok/s"
        return f"{rate(first.out_tps)} tok/s with {agents(first.c)}, {rate(second.out_tps)} with {second.c}"


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
        elif change.now < change.was:
            steps.append(_back(change) if change.fewer_are_worse else _no_more(change))
        elif (change.agents[1] or 0) > (change.agents[0] or 0):
            steps.append(msgspec.structs.replace(step, sentence=_shared(change, found)))
        else:
            steps.append(_no_more(change))
    if any(step.code == "slots_tried" for step in steps) and change.no_more_output and len(steps) == 1:
        total = rate(change.after.at_capacity.out_tps) if change.after.at_capacity else ""
        said = f"a smaller model, or weights of fewer bits: the server gives hardly more than {total} tok/s in total"
        steps.append(NextStep(code="throughput", sentence=said))
    return tuple(steps)


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
    row = said[0]
    first = NextStep(code=row.code, sentence=row.text(facts), command=row.command(facts))
    others = (step for step in steps if step.forecast is None and step.code not in _AGAIN)
    return (first, *others)


def _finding(change: SlotsChange) -> str:
    return f"{change.now} slots gave no more output than {change.was} ({change.output})"


def _no_more(change: SlotsChange) -> NextStep:
    """Say that more slots did not help: more of them were tried, or fewer are no worse."""
    fewer, more = sorted((change.was, change.now))
    numbers = change.agents if change.now > change.was else change.agents[::-1]
    known = "" if None in numbers else f" ({numbers[0]} → {numbers[1]})"
    if change.no_more_output:
        said = f"{_finding(change)}{f' and no more agents{known}' if known else ''}: more slots do not help"
    else:
        had = f"{count_noun(more, 'slot')} had no more {'agents' if known else 'output'} than {fewer}{known}"
        said = f"{had}: more slots do not help so far"
    return NextStep(code="slots_tried", sentence=said)


def _back(change: SlotsChange) -> NextStep:
    """Advise the slots of the run before, with what they gave and cost."""
    at, now = change.before.at_capacity, change.after.at_capacity
    had = [agents(change.agents[0])] if change.agents[0] is not None else []
    had += [f"{rate(at.out_tps, at.half_width)} tok/s in total"] if at and at.out_tps is not None else []
    cost = ""
    if at and at.per_stream_tps is not None:
        instead = ""
        if now and now.per_stream_tps is not None:
            instead = f", instead of {rate(now.per_stream_tps, now.half_width)}"
        each = f"{rate(at.per_stream_tps, at.half_width)} tok/s each while it writes"
        cost = f", {each}{instead}"
    slots = change.setting or count_noun(change.was, "slot")
    said = f"go back to {slots}: {'it' if change.setting else 'they'} had {' and '.join(had)}{cost}"
    return NextStep(code="slots_back", sentence=said, command=change.setting)


def _shared(change: SlotsChange, found: SlotsForecast) -> str:
    """Say what more slots bring and cost, if the total is known not to grow."""
    known = found.agents_high is not None
    cost = ""
    if found.shared_tps is not None and found.each_tps is not None:
        cost = writes_clause(found.shared_tps, found.each_tps)
    said = f"{forecast_agents(found)}{cost} (prediction)" if known else f"more agents start at once{cost}"
    return f"{found.setting}: {said}, as {_finding(change)}"
