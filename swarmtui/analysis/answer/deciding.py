"""The rows of the table that say what to do about a change between two capacities: the first that holds."""

from __future__ import annotations

from swarmtui.analysis.answer.facts import AnswerFacts
from swarmtui.analysis.answer.rows import AnswerRow
from swarmtui.analysis.compare.change import ServerChange


def _change(facts: AnswerFacts) -> ServerChange:
    assert facts.change is not None
    return facts.change


def _is_doubted(facts: AnswerFacts) -> bool:
    return _change(facts).repeat_before or _change(facts).repeat_after


def _is_open(facts: AnswerFacts) -> bool:
    """Whether nothing is decided about a change, and there is something to decide."""
    found = _change(facts)
    return not (found.decided or found.same or found.no_limit)


def _repeat_run(facts: AnswerFacts) -> str:
    found = _change(facts)
    quiet = " when the host is quiet" if found.busy else ""
    if found.repeat_before and found.repeat_after:
        then = f"the one with {found.before}" if found.before else "the earlier one"
        return f"repeat this run{quiet}, then {then}{_takes(found, 2)}"
    earlier = f"the earlier run, with {found.before}," if found.before else "the earlier run"
    return f"repeat {earlier if found.repeat_before else 'the later run'}{quiet}{_takes(found, 1)}"


def _takes(found: ServerChange, searches: int) -> str:
    """` (about 2 min)`; empty if it is not known."""
    if found.search_s is None:
        return ""
    total = searches * found.search_s
    return f" (about {f'{total:.0f} s' if total < 100 else f'{total / 60:.0f} min'})"


def _longer_searches(facts: AnswerFacts) -> str:
    found = _change(facts)
    then = f"of this server, then of one with {found.before}," if found.before else "of each"
    return f"a surer search {then} may tell them apart (some minutes each)"


def _no_difference(facts: AnswerFacts) -> bool:
    return _change(facts).same or _is_open(facts)


def _either(facts: AnswerFacts) -> str:
    """Leave the choice to the user: neither is known to be better."""
    found = _change(facts)
    choice = f"keep {found.after} or go back to {found.before}" if found.before else "keep the change or take it back"
    return f"{choice}: no difference in agents shows"


DECIDING = (
    AnswerRow("change", "repeat_run", ("change",), _is_doubted, _repeat_run, lambda f: _change(f).command),
    AnswerRow("change", "go_back", ("change",), lambda f: _change(f).worse and bool(_change(f).before),
        lambda f: f"go back to {_change(f).before}: it had {_change(f).had[0]} agents instead of {_change(f).had[1]}",
        lambda f: _change(f).before),
    AnswerRow("change", "longer_searches", ("change",), lambda f: _is_open(f) and _change(f).apart > 1
        and bool(_change(f).longer_command), _longer_searches, lambda f: _change(f).longer_command),
    AnswerRow("change", "no_difference", ("change",), _no_difference, _either),
)  # fmt: skip
