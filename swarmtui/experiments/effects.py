"""Summarise a tune: its ranking, its Pareto fronts, and the effect of each flag with all others equal."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum, log

from swarmtui.experiments.grid import configuration_key, rank
from swarmtui.model.schema import Stored
from swarmtui.model.tuning import Flags, Objective, TuneResult, Value


class Effect(Stored, frozen=True, kw_only=True):
    """The effect of changing a flag from `base` to `value`, over pairs of configurations that differ in nothing else.

    `change` is the geometric mean of the ratios minus one; null if there is no such pair.
    """

    flag: str
    base: Value
    value: Value
    pairs: int
    change: float | None = None
    low: float | None = None
    high: float | None = None


class TuneSummary(Stored, frozen=True, kw_only=True):
    """`leaderboard`: best first, each configuration once. Pareto fronts: fastest first."""

    objective: Objective
    leaderboard: tuple[TuneResult, ...]
    front_ttft: tuple[TuneResult, ...]
    front_energy: tuple[TuneResult, ...]
    effects: tuple[Effect, ...]


def summarise_rows(rows: Sequence[TuneResult], objective: Objective) -> TuneSummary:
    """Summarise `rows`, in the order of the file: effects are relative to the first value of a flag."""
    last = latest(rows)
    return TuneSummary(
        objective=objective,
        leaderboard=tuple(rank(last, objective)),
        front_ttft=tuple(pareto(last, "ttft_s")),
        front_energy=tuple(pareto(last, "j_per_token")),
        effects=tuple(effects(rows, objective)),
    )


def latest(rows: Sequence[TuneResult]) -> list[TuneResult]:
    """Each configuration once, with the result of its last round."""
    found: dict[str, TuneResult] = {}
    for row in sorted(rows, key=lambda row: row.round):
        found[configuration_key(row.flags)] = row
    return list(found.values())


def pareto(rows: Sequence[TuneResult], cost: Objective) -> list[TuneResult]:
    """The configurations that no other exceeds in tok/s at the same or a lower cost; fastest first."""
    known = [row for row in rows if row.state == "done" and row.out_tps is not None and getattr(row, cost) is not None]
    known.sort(key=lambda row: (-(row.out_tps or 0.0), getattr(row, cost)))
    front: list[TuneResult] = []
    for row in known:
        if not front or getattr(row, cost) < getattr(front[-1], cost):
            front.append(row)
    return front


def effects(rows: Sequence[TuneResult], objective: Objective = "out_tps") -> list[Effect]:
    """The effect of every flag with several values, relative to its first; only within a round."""
    found = []
    names = list(dict.fromkeys(name for row in rows for name in row.flags))
    for name in names:
        values = list(dict.fromkeys(_typed(row.flags[name]) for row in rows if name in row.flags))
        for value in values[1:]:
            found.append(_effect(rows, name, values[0][1], value[1], objective))
    return found


def _effect(rows: Sequence[TuneResult], name: str, base: Value, value: Value, objective: Objective) -> Effect:
    logs = []
    groups: dict[tuple[int, str], dict[tuple[str, Value], float]] = {}
    for row in rows:
        measured: float | None = getattr(row, objective)
        if row.state == "done" and measured and name in row.flags:
            others: Flags = {key: other for key, other in row.flags.items() if key != name}
            groups.setdefault((row.round, configuration_key(others)), {})[_typed(row.flags[name])] = measured
    for group in groups.values():
        before, after = group.get(_typed(base)), group.get(_typed(value))
        if before and after:
            logs.append(log(after / before))
    if not logs:
        return Effect(flag=name, base=base, value=value, pairs=0)
    return Effect(
        flag=name,
        base=base,
        value=value,
        pairs=len(logs),
        change=exp(fsum(logs) / len(logs)) - 1.0,
        low=exp(min(logs)) - 1.0,
        high=exp(max(logs)) - 1.0,
    )


def _typed(value: Value) -> tuple[str, Value]:
    """A value with its type: `true` and 1 are different values."""
    return type(value).__name__, value
