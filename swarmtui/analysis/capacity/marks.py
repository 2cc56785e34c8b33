"""Decide which two levels a table, a curve and a list mark, so that none of them contradicts the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swarmtui.analysis.capacity.scaling import best_level, scaling
from swarmtui.model.answer import Answer
from swarmtui.model.findings import SearchState, Slots
from swarmtui.model.session import Level, Summary

# Fewer requests of a level, or fewer than it has agents, mark nothing while the session runs.
_FEWEST = 3


class LevelMarks(NamedTuple):
    """The load of the level to choose, and of the first one past it; null where there is none.

    With `by_slo` they are the most agents that keep the SLO and the first level that misses it, else the best level and
    the cliff. `doubted`: what missed it proves nothing, as something made the server look slower (`disturbed`), or not
    yet. `missed` is the lowest level past the best one that surely misses it. `so_far`: a search runs, and the best
    level is the highest that was shown to keep the SLO; the `withdrawn` one was, before another visit of it.
    """

    by_slo: bool
    best: float | None
    past: float | None
    doubted: bool = False
    disturbed: bool = False
    missed: float | None = None
    so_far: bool = False
    withdrawn: float | None = None


def level_marks(
    levels: Sequence[Level], slots: Slots | None = None, answer: Answer | None = None, search: SearchState | None = None
) -> LevelMarks:
    """Mark what the answer says; before there is one, what a search for the capacity has found so far.

    The levels of a sweep that runs are marked once they have enough requests to be more than chance.
    """
    if answer is not None and answer.agents is not None:
        disturbed, past = bool(answer.disturbed), answer.missed_c
        # A level that is missed by far is past the range, whatever slowed the server down.
        missed = past if past is not None and answer.high is not None and past > answer.high else None
        marks = _by_slo(answer.agents, past, missed)
        return marks._replace(doubted=disturbed and missed is None, disturbed=disturbed)
    if answer is None and search is not None and search.goal == "capacity":
        unsure = any(level.c == search.high and level.state == "unsure" for level in search.levels)
        marks = _by_slo(search.at_least, search.high, search.bound)
        return marks._replace(doubted=unsure, so_far=True, withdrawn=search.withdrawn)
    if answer is None:
        levels = [level for level in levels if level.n >= max(_FEWEST, level.c)]
    best, cliff = best_level(levels, slots), scaling(levels, slots).cliff
    return LevelMarks(False, best.offered_load if best else None, cliff.c if cliff else None)


def summary_marks(summary: Summary) -> LevelMarks:
    return level_marks(summary.levels, summary.scaling.reported_slots if summary.scaling else None, summary.answer)


def _by_slo(kept: int | None, past: int | None, missed: int | None) -> LevelMarks:
    return LevelMarks(True, kept, past, missed=missed) if kept else LevelMarks(True, None, None)
