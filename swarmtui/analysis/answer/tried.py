"""The rows of the table that say what a change of the slots has shown, instead of advice that it contradicts.

With a forecast that was `tried`, the first that holds replaces that advice; without one, they say what is left to do.
"""

from __future__ import annotations

from swarmtui.analysis.answer.facts import AnswerFacts
from swarmtui.analysis.answer.rows import AnswerRow, agents
from swarmtui.analysis.answer.slots_change import SlotsChange
from swarmtui.analysis.answer.steps import forecast_agents, writes_clause
from swarmtui.numbers import rate
from swarmtui.text import count_noun


def _slots(facts: AnswerFacts) -> SlotsChange:
    assert facts.slots_change is not None
    return facts.slots_change


def _finding(change: SlotsChange) -> str:
    return f"{change.now} slots gave no more output than {change.was} ({change.output})"


def _is_back(facts: AnswerFacts) -> bool:
    return _slots(facts).now < _slots(facts).was and _slots(facts).fewer_are_worse


def _back(facts: AnswerFacts) -> str:
    """Advise the slots of the run before, with what they gave and cost."""
    change = _slots(facts)
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
    return f"go back to {slots}: {'it' if change.setting else 'they'} had {' and '.join(had)}{cost}"


def _is_shared(facts: AnswerFacts) -> bool:
    change = _slots(facts)
    return change.now > change.was and (change.agents[1] or 0) > (change.agents[0] or 0)


def _shared(facts: AnswerFacts) -> str:
    """Say what more slots bring and cost, if the total is known not to grow."""
    found = facts.tried
    assert found is not None
    known = found.agents_high is not None
    cost = ""
    if found.shared_tps is not None and found.each_tps is not None:
        cost = writes_clause(found.shared_tps, found.each_tps)
    said = f"{forecast_agents(found)}{cost} (prediction)" if known else f"more agents start at once{cost}"
    return f"{found.setting}: {said}, as {_finding(_slots(facts))}"


def _no_more(facts: AnswerFacts) -> str:
    """Say that more slots did not help: more of them were tried, or fewer are no worse."""
    change = _slots(facts)
    fewer, more = sorted((change.was, change.now))
    numbers = change.agents if change.now > change.was else change.agents[::-1]
    known = "" if None in numbers else f" ({numbers[0]} → {numbers[1]})"
    if change.no_more_output:
        return f"{_finding(change)}{f' and no more agents{known}' if known else ''}: more slots do not help"
    had = f"{count_noun(more, 'slot')} had no more {'agents' if known else 'output'} than {fewer}{known}"
    return f"{had}: more slots do not help so far"


def _total(facts: AnswerFacts) -> str:
    at = _slots(facts).after.at_capacity
    return rate(at.out_tps) if at else ""


TRIED = (
    AnswerRow("learned", "slots_back", ("slots_change", "tried"), _is_back, _back, lambda f: _slots(f).setting),
    AnswerRow("learned", "slots_shared", ("slots_change", "tried"), _is_shared, _shared),
    AnswerRow("learned", "slots_tried", ("slots_change", "tried"), lambda f: True, _no_more),
    AnswerRow("learned", "throughput", ("slots_change",), lambda f: f.tried is None and _slots(f).no_more_output,
        lambda f: "a smaller model, or weights of fewer bits: the server gives about "
        f"{_total(f)} tok/s in total"),
)  # fmt: skip
