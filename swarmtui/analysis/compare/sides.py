"""Say which of two compared sessions something is about: the earlier or the later run."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.compare.pool import is_pooled
from swarmtui.analysis.quality.doubts import (
    disturbed_runs,
    find_biases,
    find_chances,
    find_disturbances,
    find_doubts,
    judge_host,
    name_doubts,
)
from swarmtui.model.findings import Finding, Findings
from swarmtui.model.plan import LevelKey
from swarmtui.model.session import Summary
from swarmtui.numbers import local_time


def take_turns(a: Summary, b: Summary) -> bool:
    """Return whether these are the runs of both sides of one A/B test."""
    of_a, of_b = a.session.series, b.session.series
    return of_a is not None and of_b is not None and of_a.kind == of_b.kind == "ab" and of_a.name == of_b.name


def side_doubts(a: Summary, b: Summary) -> tuple[str, ...]:
    """Return why either measurement may be wrong: `the host was busy in the earlier run`

    Which programs made it busy, the result of each says. What runs in turn even out is no doubt.
    """
    if is_pooled(a) and take_turns(a, b):
        of_cache = any(side.session.plan.agent_header for side in (a, b))
        of_a, of_b = (find_biases(side.quality, of_cache=of_cache) for side in (a, b))
    else:
        of_a, of_b = doubts_of(a, named=False), doubts_of(b, named=False)
    both = [doubt for doubt in of_a if doubt in of_b]
    earlier = min(a.session.id, b.session.id)
    groups = [(both, "both runs")]
    groups += [
        (
            [doubt for doubt in found if doubt not in both],
            f"the {'earlier' if summary.session.id == earlier else 'later'} run",
        )
        for summary, found in ((a, of_a), (b, of_b))
    ]
    return tuple(f"{name_doubts(doubts)} in {where}" for doubts, where in groups if doubts)


def turn_notes(a: Summary, b: Summary) -> Findings:
    """Note what disturbed some runs of an A/B test."""
    slowed = (found for side in (a, b) for found in find_chances(side.quality))
    text = disturbed_runs(tuple(dict.fromkeys(slowed))) if is_pooled(a) and take_turns(a, b) else ""
    return (Finding(code="disturbed_runs", text=text),) if text else ()


def level_doubts(a: Summary, b: Summary, key: LevelKey) -> tuple[str, ...]:
    """Return what made a level look slower, by the run: `the host was busy at C=8 of the later run`

    A number of agents is not touched where that level was kept, but figures of the level are.
    """
    earlier = min(a.session.id, b.session.id)
    return tuple(
        f"{name_doubts(doubts)} at {level.name} of the {'earlier' if side.session.id == earlier else 'later'} run"
        for side in (a, b)
        for level in side.levels
        if level.key == key and not find_disturbances(side.quality)
        if (doubts := find_doubts(judge_host(level.host), named=False))
    )


def doubts_of(summary: Summary, *, named: bool = True) -> tuple[str, ...]:
    """Return the doubts about a measurement; a search that did not end by itself has not found its number."""
    ended = summary.state in ("done", "running") or summary.session.plan.goal not in ("capacity", "cliff")
    stopped = () if ended else ("the search was stopped before its end",)
    return (*stopped, *find_doubts(summary.quality, named=named))


def since_text(a: Summary, b: Summary) -> str:
    """Return the time of the baseline, `a`; empty if it is the later one, or its time is not known."""
    return local_time(a.session.created, _time_form(a, b)) if a.session.id < b.session.id else ""


def left_out(a: Summary, b: Summary, history: Sequence[Summary]) -> str:
    """Name the last session between both that is in doubt, and so was no baseline: `the run of 12:10 is left out: …`

    A baseline that is in doubt itself was not chosen for its quality.
    """
    if find_doubts(a.quality):
        return ""
    between = [
        one
        for one in history
        if a.session.id < one.session.id < b.session.id
        and one.session.plan.goal == b.session.plan.goal
        and find_doubts(one.quality)
    ]
    if not between:
        return ""
    last = max(between, key=lambda one: one.session.id)
    at = local_time(last.session.created, _time_form(a, b))
    return f"the run of {at} is left out: {name_doubts(find_doubts(last.quality))}"


def _time_form(a: Summary, b: Summary) -> str:
    days = {local_time(one.session.created, "%Y-%m-%d") for one in (a, b)}
    return "%H:%M" if len(days) == 1 else "%m-%d %H:%M"
