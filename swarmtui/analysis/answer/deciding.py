"""The rows of the table that say what to do about a change between two capacities: the first that holds."""

from __future__ import annotations

from swarmtui.analysis.answer.facts import AnswerFacts
from swarmtui.analysis.answer.rows import AnswerRow
from swarmtui.analysis.compare.change import EachAgent, ServerChange


def _change(facts: AnswerFacts) -> ServerChange:
    assert facts.change is not None
    return facts.change


def _is_open(facts: AnswerFacts) -> bool:
    """Whether nothing is decided about a change, and there is something to decide."""
    found = _change(facts)
    return not (found.decided or found.same or found.no_limit)


def _repeat(found: ServerChange, run: str) -> str:
    """`repeat the later run when the host is quiet (about 60 s)`"""
    quiet = " when the host is quiet" if found.busy else ""
    takes = f" (about {found.search_s:.0f} s)" if found.search_s is not None else ""
    return f"repeat {run}{quiet}{takes}"


def _restarts(facts: AnswerFacts) -> bool:
    """Whether the server of the earlier run comes back by a restart with known flags; an embedded one by its name."""
    return bool(_change(facts).before) and not _change(facts).embedded


def _repeat_earlier(facts: AnswerFacts) -> str:
    found = _change(facts)
    return _repeat(found, f"the earlier run with {found.before}" if found.before else "the earlier run")


def _longer_searches(facts: AnswerFacts) -> str:
    found = _change(facts)
    then = f"of this server, then of one with {found.before}," if found.before else "of each"
    return f"a surer search {then} may tell them apart (some minutes each)"


def _no_difference(facts: AnswerFacts) -> bool:
    return _change(facts).same or _is_open(facts)


def _each(facts: AnswerFacts, word: EachAgent) -> bool:
    """Whether each agent is faster, or slower, since a change without a known difference in agents."""
    return _no_difference(facts) and _change(facts).each == word


def _faster_before(facts: AnswerFacts) -> str:
    found = _change(facts)
    if not found.before:
        return "take the change back: each agent was faster without it, and no more agents show with it"
    return f"go back to {found.before}: each agent is faster with it, and {found.after} does not show more agents"


def _faster_now(facts: AnswerFacts) -> str:
    keep = _change(facts).after or "the change"
    return f"keep {keep}: each agent is faster with it, and no fewer agents show"


def _either(facts: AnswerFacts) -> str:
    """Leave the choice to the user: neither is known to be better."""
    found = _change(facts)
    choice = f"keep {found.after} or go back to {found.before}" if found.before else "keep the change or take it back"
    return f"{choice}: no difference in agents shows"


DECIDING = (
    AnswerRow("change", "repeat_run", ("change",), lambda f: _change(f).repeat_after,
        lambda f: _repeat(_change(f), "the later run"), lambda f: _change(f).command),
    AnswerRow("change", "repeat_earlier", ("change",), lambda f: _change(f).repeat_before and _restarts(f),
        _repeat_earlier, lambda f: _change(f).before),
    AnswerRow("change", "repeat_older", ("change",), lambda f: _change(f).repeat_before and not _restarts(f),
        _repeat_earlier, lambda f: _change(f).older_command),
    AnswerRow("change", "go_back", ("change",), lambda f: _change(f).worse and bool(_change(f).before),
        lambda f: f"go back to {_change(f).before}: it had {_change(f).had[0]} agents instead of {_change(f).had[1]}",
        lambda f: _change(f).before),
    AnswerRow("change", "faster_before", ("change",), lambda f: _each(f, "slower"), _faster_before,
        lambda f: _change(f).before),
    AnswerRow("change", "faster_now", ("change",), lambda f: _each(f, "faster"), _faster_now),
    AnswerRow("change", "longer_searches", ("change",), lambda f: _is_open(f) and _change(f).apart > 1
        and bool(_change(f).longer_command), _longer_searches, lambda f: _change(f).longer_command),
    AnswerRow("change", "no_difference", ("change",), _no_difference, _either),
)  # fmt: skip
