"""The steps of a tune: what its planner asks for, and what it knows."""

from __future__ import annotations

from typing import Literal, NamedTuple

from swarmtui.analysis.compare.sequential import Decision
from swarmtui.analysis.tuning.space import Crash, Refusal
from swarmtui.model.tuning import Flags, Objective, Side, TuneStep, Value

WhyCode = Literal["baseline", "added", "knob", "again", "restart", "confirm"]


class SearchRules(NamedTuple):
    """What the search optimises and how much it may take: `budget_s` of the time of starts, `share` of the requests
    that a start has while configurations are screened, and how many are restarted, how often."""

    objective: Objective
    budget_s: float
    share: float = 0.5
    finalists: int = 3
    restarts: int = 1
    max_runs: int = 16
    seed: int = 0


class Ask(NamedTuple):
    """The next start: its configuration and step, what it is for, and the tok/s that the hardware allows."""

    flags: Flags
    step: TuneStep
    code: WhyCode
    why: str
    side: Side | None = None
    ceiling: float | None = None


class Skipped(NamedTuple):
    """A configuration that was ruled out without a start: that with this value of a knob."""

    knob: str
    value: Value
    flags: Flags
    refusal: Refusal


class Tried(NamedTuple):
    """The configurations of one knob that were compared: all else equal, with the values of the knob."""

    knob: str
    before: Flags
    after: Flags


class TuneProgress(NamedTuple):
    """What the search knows. `ask` is null at its end. `leader` is the best so far, null while nothing works.

    `out_of_time` are the knobs of which a value had no start because the budget ended. `ended`: why the search is over;
    `budget` if its time was. `decision` is the verdict of the A/B test, which takes at least `confirm_s`.
    """

    ask: Ask | None
    leader: Flags | None
    winner: Flags | None
    decision: Decision | None
    crashes: tuple[Crash, ...]
    skipped: tuple[Skipped, ...]
    tried: tuple[Tried, ...]
    finalists: tuple[Flags, ...]
    out_of_time: frozenset[str]
    ended: Literal["", "done", "budget", "no_baseline", "unreliable"]
    spent_s: float
    confirm_s: float
