"""The rows of the table that say what to do about a change between two capacities: the first that holds."""

from __future__ import annotations

from swarmtui.analysis.answer.facts import AnswerFacts
from swarmtui.analysis.answer.rows import AnswerRow
from swarmtui.analysis.compare.change import ServerChange
from swarmtui.numbers import seconds


def _change(facts: AnswerFacts) -> ServerChange:
    assert facts.change is not None
    return facts.change


def _is_open(facts: AnswerFacts) -> bool:
    """Whether nothing is decided about a change, and there is something to decide."""
    found = _change(facts)
    return not (found.decided or found.same or found.no_limit)


def _may_be_surer(facts: AnswerFacts) -> bool:
    """Whether a surer search may decide what quick ones left open; runs in doubt are repeated first."""
    found = _change(facts)
    quick = bool(found.longer_command) and found.search_s is not None
    return quick and _is_open(facts) and not (found.repeat_before or found.repeat_after)


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


def _better_side(facts: AnswerFacts) -> str:
    """Name the side with the shorter answers: `--parallel 2, as a whole answer takes 1.37 s instead of 1.90 s`"""
    found = _change(facts)
    assert found.answers_s is not None
    before, after = found.answers_s
    side = (found.before or "the server as it was") if before < after else (found.after or "the change")
    return f"{side}, as a whole answer takes {seconds(min(before, after))} instead of {seconds(max(before, after))}"


def _is_faster_before(facts: AnswerFacts) -> bool:
    before, after = _change(facts).answers_s or (0.0, 0.0)
    return before < after


def _costs_context(facts: AnswerFacts) -> bool:
    """Whether a change has as many agents, whose requests have less context, and nothing is known to be better."""
    found = _change(facts)
    return found.same and found.context is not None and found.answers_s is None and bool(found.before)


def _keep_context(facts: AnswerFacts) -> str:
    found = _change(facts)
    assert found.context is not None
    before, now = found.context
    return f"go back to {found.before}: as many agents, with {before:,} tokens of context each instead of {now:,}"


def _either(facts: AnswerFacts) -> str:
    """Leave the choice to the user: neither is known to be better."""
    found = _change(facts)
    choice = f"keep {found.after} or go back to {found.before}" if found.before else "keep the change or take it back"
    return f"{choice}: no difference in agents shows"


def _adds_flag(facts: AnswerFacts) -> bool:
    """Whether the server is kept, so that a flag which was left out has to be added before anything else."""
    found = facts.change
    if found is None:
        return True
    return not (found.worse or _costs_context(facts) or (_no_difference(facts) and _is_faster_before(facts)))


def _left_out_text(facts: AnswerFacts) -> str:
    assert facts.left_out is not None
    before, now = facts.left_out.context
    again = f"{before:,} tokens of context each again, not {now:,}"
    return f"add the advised {facts.left_out.flag} for {again} (for longer prompts, not for more agents)"


DECIDING = (
    AnswerRow("change", "left_out_flag", ("left_out",), _adds_flag, _left_out_text,
        lambda f: f.left_out.flag if f.left_out else ""),
    AnswerRow("surer", "surer_each", ("left_out", "change"), lambda f: _adds_flag(f) and _may_be_surer(f),
        lambda _: "a surer search of each setting decides (some minutes each)", lambda f: _change(f).longer_command),
    AnswerRow("change", "repeat_run", ("change",), lambda f: _change(f).repeat_after,
        lambda f: _repeat(_change(f), "the later run"), lambda f: _change(f).command),
    AnswerRow("change", "repeat_earlier", ("change",), lambda f: _change(f).repeat_before and _restarts(f),
        _repeat_earlier, lambda f: _change(f).before),
    AnswerRow("change", "repeat_older", ("change",), lambda f: _change(f).repeat_before and not _restarts(f),
        _repeat_earlier, lambda f: _change(f).older_command),
    AnswerRow("change", "go_back", ("change",), lambda f: _change(f).worse and bool(_change(f).before),
        lambda f: f"go back to {_change(f).before}: it had {_change(f).had[0]} agents instead of {_change(f).had[1]}",
        lambda f: _change(f).before),
    AnswerRow("change", "keep_context", ("change",), _costs_context, _keep_context, lambda f: _change(f).before),
    AnswerRow("change", "meanwhile", ("change",), lambda f: _is_open(f) and _change(f).answers_s is not None
        and bool(_change(f).longer_command),
        lambda f: f"a surer search of each setting decides (some minutes each); until then use {_better_side(f)}",
        lambda f: _change(f).longer_command),
    AnswerRow("change", "faster_before", ("change",), lambda f: _no_difference(f) and _is_faster_before(f),
        lambda f: f"go back to {_better_side(f)}: no difference in agents shows", lambda f: _change(f).before),
    AnswerRow("change", "faster_now", ("change",), lambda f: _no_difference(f) and _change(f).answers_s is not None,
        lambda f: f"keep {_better_side(f)}: no difference in agents shows"),
    AnswerRow("change", "longer_searches", ("change",), lambda f: _is_open(f) and not _change(f).alike
        and bool(_change(f).longer_command), _longer_searches, lambda f: _change(f).longer_command),
    AnswerRow("change", "no_difference", ("change",), _no_difference, _either),
)  # fmt: skip
