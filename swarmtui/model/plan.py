"""The plan of a session: its load, goal and limits; and the keys of its levels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from swarmtui.model.base import Stored
from swarmtui.model.load import Closed, Load

# A stage under manual control becomes a level when it has this many completions per stream.
MIN_STEERED_COMPLETIONS = 4
DEFAULT_WORKLOAD = "coding"


class Timeouts(Stored, frozen=True, kw_only=True):
    """Time limits in seconds: `first_token` and `idle` limit silence, `total` the whole request."""

    connect: float = 10.0
    first_token: float = 120.0
    idle: float = 30.0
    total: float = 600.0


PlanGoal = Literal["sweep", "manual", "cliff", "capacity"]
AgentHeader = Literal["billing", "date", "both"]
TooLong = Literal["skip", "truncate"]


class Plan(Stored, frozen=True, kw_only=True):
    """The plan of a session: a sweep over the levels of its load, or what `goal` says instead.

    That is manual control from the first level on, or a search up to `max_c`: for the cliff, or for the capacity, the
    most agents that keep the SLO. `slo` is written as on the command line. `price_per_hour` is that of the server, for
    the cost of tokens. `alpha` is the error of the bounds that decide a level of a search for the capacity, `budget_s`
    the time after which it answers with what it knows.
    `agent_header`: lines in front of the system prompt that change with every request.
    `too_long`: what happens to the requests of a trace that do not fit into the server's context; null refuses it.
    """

    goal: PlanGoal = "sweep"
    load: Load = Closed()
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int = 0
    timeouts: Timeouts = Timeouts()
    workers: int | None = None
    slo: str = ""
    agent_header: AgentHeader | None = None
    too_long: TooLong | None = None
    max_c: int = 1024
    alpha: float = 0.01
    budget_s: float | None = None
    price_per_hour: float | None = None

    @property
    def swept(self) -> tuple[float, ...]:
        """The levels of a sweep, or the rates; empty for another goal."""
        return tuple(map(float, self.load.rates or self.load.levels)) if self.goal == "sweep" else ()

    @property
    def is_quick(self) -> bool:
        """Whether it is a search that answers within a given time."""
        return self.goal == "capacity" and self.budget_s is not None

    def surer(self) -> Plan:
        """Return the same search without a limit of its time, decided at 1 %."""
        return msgspec.structs.replace(self, alpha=0.01, budget_s=None)


LevelKey = tuple[int, float | None]


def offered_load(key: LevelKey) -> float:
    """Return C, or the rate of an open loop."""
    c, rate = key
    return c if rate is None else rate


def level_name(key: LevelKey) -> str:
    c, rate = key
    return f"C={c}" if rate is None else f"{rate:g}/s"


class PerLevel(Stored, frozen=True, kw_only=True):
    """Base of structs that belong to one level."""

    c: int
    rate: float | None = None

    @property
    def key(self) -> LevelKey:
        """Identifies the level within its session, and finds the same level in another one."""
        return self.c, self.rate

    @property
    def offered_load(self) -> float:
        return offered_load(self.key)

    @property
    def name(self) -> str:
        return level_name(self.key)

    @property
    def where(self) -> str:
        """`with 4 agents`, or `at 2/s` of an open loop."""
        return f"with {self.c} agent{'' if self.c == 1 else 's'}" if self.rate is None else f"at {self.name}"


def is_open_loop(levels: Iterable[PerLevel]) -> bool:
    return any(level.rate is not None for level in levels)


def load_title(levels: Iterable[PerLevel]) -> str:
    """Return the title of the column that identifies a level."""
    return "rate" if is_open_loop(levels) else "C"
