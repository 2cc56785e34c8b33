"""Summarise a tune: its ranking, its Pareto fronts, and the effect of each flag with all others equal."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, expm1, fsum, log, sqrt
from typing import Literal

from swarmtui.analysis.compare.distributions import studentized_range_quantile
from swarmtui.analysis.compare.verdicts import ALPHA
from swarmtui.analysis.levels.stats import standard_deviation
from swarmtui.experiments.grid import configuration_key, latest, rank
from swarmtui.model.base import Stored
from swarmtui.model.tuning import Flags, Objective, Start, Value
from swarmtui.numbers import percent
from swarmtui.text import count_noun


class Effect(Stored, frozen=True, kw_only=True):
    """The effect of changing a flag from `base` to `value`, over pairs of configurations that differ in nothing else.

    `before` and `after` are the geometric means of the objective, `change` is that from one to the other: the
    geometric mean of the ratios minus one. All are null if there is no such pair.
    """

    flag: str
    base: Value
    value: Value
    pairs: int
    before: float | None = None
    after: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None


Standing = Literal["best", "tied", "behind", ""]


class TuneSummary(Stored, frozen=True, kw_only=True):
    """`leaderboard`: best first, each configuration once. Pareto fronts: fastest first.

    `standings` has one entry per row of the leaderboard: `tied` with the best, or `behind` it; empty if nothing can be
    ranked. `tied_within` is how much slower than the best, as a share, the slowest of equal configurations is by chance
    (Tukey's range, 5 %); null if nothing can be ranked, for the reason in `unranked`.
    """

    objective: Objective
    leaderboard: tuple[Start, ...]
    standings: tuple[Standing, ...] = ()
    tied_within: float | None = None
    unranked: Literal["", "objective", "runs"] = ""
    front_ttft: tuple[Start, ...]
    front_energy: tuple[Start, ...]
    effects: tuple[Effect, ...]


def summarise_rows(rows: Sequence[Start], objective: Objective) -> TuneSummary:
    """Summarise `rows`, in the order of the file: effects are relative to the first value of a flag."""
    last = latest(rows)
    leaderboard = rank(last, objective)
    rivals = [row.runs for row in leaderboard if _is_rival(row, leaderboard[0])]
    range_of_logs = tukey_range(rivals) if objective == "out_tps" else None
    return TuneSummary(
        objective=objective,
        leaderboard=tuple(leaderboard),
        standings=tuple(_standing(row, leaderboard[0], range_of_logs) for row in leaderboard),
        tied_within=None if range_of_logs is None else -expm1(-range_of_logs),
        unranked="objective" if objective != "out_tps" else "runs" if range_of_logs is None else "",
        front_ttft=tuple(pareto(last, "ttft_s")),
        front_energy=tuple(pareto(last, "j_per_token")),
        effects=tuple(effects(rows, objective)),
    )


def ranking_sentence(found: TuneSummary) -> str:
    """Say how reliable the ranking is: which lead is more than chance, or why nothing can be ranked."""
    if found.unranked == "objective":
        return "One value per configuration: nothing can be ranked. Use `swarmtui ab` to compare two."
    if found.tied_within is None:
        return "One run per configuration: nothing can be ranked. Set runs = 4 in [plan]."
    tied = found.standings.count("tied")
    head = f"{count_noun(tied, 'other is', 'others are')} tied with the best: its lead may be chance" if tied else ""
    rule = f"Behind: slower by more than {percent(found.tied_within, 1)} (Tukey's range, 5 %)"
    starts = "Each was started once; `swarmtui ab` repeats the start"
    return ". ".join(part for part in (head, rule, starts) if part) + "."


def tukey_range(samples: Sequence[Sequence[float]]) -> float | None:
    """Return how far apart the means of logs of equal configurations are: more in 5 % of all cases.

    None for fewer than two configurations. Each needs at least two runs.
    """
    if len(samples) < 2:
        return None
    df = sum(len(runs) - 1 for runs in samples)
    squares = fsum((len(runs) - 1) * standard_deviation([log(run) for run in runs]) ** 2 for runs in samples)
    fewest = min(map(len, samples))
    return studentized_range_quantile(1 - ALPHA, len(samples), df) * sqrt(squares / df / fewest)


def _is_rival(row: Start, best: Start) -> bool:
    """Whether a configuration is the best, or can be compared with it."""
    return row.state == "done" and row.round == best.round and len(row.runs) > 1 < len(best.runs)


def _standing(row: Start, best: Start, range_of_logs: float | None) -> Standing:
    if range_of_logs is None or not _is_rival(row, best):
        return ""
    if row is best:
        return "best"
    change = change_from(best, row)
    return "behind" if change is not None and change < expm1(-range_of_logs) else "tied"


def change_from(best: Start, row: Start) -> float | None:
    """Return the change of the tok/s that are shown; it decides whether a configuration is behind."""
    return row.out_tps / best.out_tps - 1.0 if row.out_tps is not None and best.out_tps else None


def pareto(rows: Sequence[Start], cost: Objective) -> list[Start]:
    """The configurations that no other exceeds in tok/s at the same or a lower cost; fastest first."""
    known = [row for row in rows if row.state == "done" and row.out_tps is not None and getattr(row, cost) is not None]
    known.sort(key=lambda row: (-(row.out_tps or 0.0), getattr(row, cost)))
    front: list[Start] = []
    for row in known:
        if not front or getattr(row, cost) < getattr(front[-1], cost):
            front.append(row)
    return front


def effects(rows: Sequence[Start], objective: Objective = "out_tps") -> list[Effect]:
    """The effect of every flag with several values, relative to its first; only within a round."""
    found = []
    names = list(dict.fromkeys(name for row in rows for name in row.flags))
    for name in names:
        values = list(dict.fromkeys(_typed(row.flags[name]) for row in rows if name in row.flags))
        found += [_effect(rows, name, values[0][1], value, objective) for _, value in values[1:]]
    return found


def _effect(rows: Sequence[Start], name: str, base: Value, value: Value, objective: Objective) -> Effect:
    found: list[tuple[float, float]] = []
    groups: dict[tuple[int, str], dict[tuple[str, Value], float]] = {}
    for row in rows:
        measured: float | None = getattr(row, objective)
        if row.state == "done" and measured and name in row.flags:
            others: Flags = {key: other for key, other in row.flags.items() if key != name}
            groups.setdefault((row.round, configuration_key(others)), {})[_typed(row.flags[name])] = measured
    for group in groups.values():
        one, other = group.get(_typed(base)), group.get(_typed(value))
        if one and other:
            found.append((one, other))
    if not found:
        return Effect(flag=name, base=base, value=value, pairs=0)
    before, after = (exp(fsum(map(log, side)) / len(side)) for side in zip(*found, strict=True))
    changes = [other / one - 1.0 for one, other in found]
    return Effect(
        flag=name,
        base=base,
        value=value,
        pairs=len(found),
        before=before,
        after=after,
        change=after / before - 1.0,
        low=min(changes),
        high=max(changes),
    )


def _typed(value: Value) -> tuple[str, Value]:
    """A value with its type: `true` and 1 are different values."""
    return type(value).__name__, value
