"""What the cells of a tune say together: the front nobody beats, and what each flag did with all else equal."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum, log

from swarmtui.experiments.grid import key_of, ranked
from swarmtui.model.schema import Stored
from swarmtui.model.tuning import CellRow, Flags, Objective, Value


class Effect(Stored, frozen=True, kw_only=True):
    """A flag at `value` against `base`, in pairs of cells that differ in nothing else.

    `change` is the geometric mean of the pairs' ratios, less one; null without a pair.
    """

    flag: str
    base: Value
    value: Value
    pairs: int
    change: float | None = None
    low: float | None = None
    high: float | None = None


class Result(Stored, frozen=True, kw_only=True):
    """`leaderboard`: best first, each cell once. The fronts are those that nobody beats, fastest first."""

    objective: Objective
    leaderboard: tuple[CellRow, ...]
    front_ttft: tuple[CellRow, ...]
    front_energy: tuple[CellRow, ...]
    effects: tuple[Effect, ...]


def result(rows: Sequence[CellRow], objective: Objective) -> Result:
    """`rows` in the order of the file, so that a flag is held against the first of its values."""
    last = latest(rows)
    return Result(
        objective=objective,
        leaderboard=tuple(ranked(last, objective)),
        front_ttft=tuple(pareto(last, "ttft_s")),
        front_energy=tuple(pareto(last, "j_per_token")),
        effects=tuple(effects(rows, objective)),
    )


def latest(rows: Sequence[CellRow]) -> list[CellRow]:
    """Each cell once, as its last round had it."""
    found: dict[str, CellRow] = {}
    for row in sorted(rows, key=lambda row: row.round):
        found[key_of(row.flags)] = row
    return list(found.values())


def pareto(rows: Sequence[CellRow], cost: Objective) -> list[CellRow]:
    """The cells that no other beats in tok/s without costing more; fastest first."""
    known = [row for row in rows if row.state == "done" and row.out_tps is not None and getattr(row, cost) is not None]
    known.sort(key=lambda row: (-(row.out_tps or 0.0), getattr(row, cost)))
    front: list[CellRow] = []
    for row in known:
        if not front or getattr(row, cost) < getattr(front[-1], cost):
            front.append(row)
    return front


def effects(rows: Sequence[CellRow], objective: Objective = "out_tps") -> list[Effect]:
    """Of all flags that have more than one value, against the value that was seen first; only within one round."""
    found = []
    names = list(dict.fromkeys(name for row in rows for name in row.flags))
    for name in names:
        values = list(dict.fromkeys(_marked(row.flags[name]) for row in rows if name in row.flags))
        for value in values[1:]:
            found.append(_effect(rows, name, values[0][1], value[1], objective))
    return found


def _effect(rows: Sequence[CellRow], name: str, base: Value, value: Value, objective: Objective) -> Effect:
    logs = []
    sides: dict[tuple[int, str], dict[tuple[str, Value], float]] = {}
    for row in rows:
        measured: float | None = getattr(row, objective)
        if row.state == "done" and measured and name in row.flags:
            rest: Flags = {key: kept for key, kept in row.flags.items() if key != name}
            sides.setdefault((row.round, key_of(rest)), {})[_marked(row.flags[name])] = measured
    for side in sides.values():
        before, after = side.get(_marked(base)), side.get(_marked(value))
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


def _marked(value: Value) -> tuple[str, Value]:
    """`true` and 1 are two values."""
    return type(value).__name__, value
