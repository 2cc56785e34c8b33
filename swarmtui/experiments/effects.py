"""Summarise a tune: its ranking, its Pareto fronts, and the effect of each flag with all others equal."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, expm1, fsum, log, sqrt
from typing import Any, Literal

from msgspec.structs import asdict

from swarmtui.analysis.answer.facts import AnswerFacts
from swarmtui.analysis.answer.table import rows_said
from swarmtui.analysis.compare.distributions import studentized_range_quantile
from swarmtui.analysis.compare.power import Pass, PowerEffect, best_effect, power_effects
from swarmtui.analysis.compare.verdicts import ALPHA
from swarmtui.analysis.levels.stats import standard_deviation
from swarmtui.experiments.grid import StartT, first_restart, has_one_server, rank, starts_in_file_order, tune_rounds
from swarmtui.experiments.store import shown_command
from swarmtui.model.base import Stored
from swarmtui.model.tuning import POWER, Flags, Objective, Start, TuneFile, Value, configuration_key
from swarmtui.text import count_noun

MIN_STARTS = 3
_AVERAGED = (
    "out_tps", "per_stream_tps", "ttft_s", "j_per_token", "prefill_j_per_token", "decode_j_per_token", "mean_w",
    "start_s", "agents",
)  # fmt: skip


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


Standing = Literal["best", "tied", "behind", "leads so far", ""]


# The words of the screen; the codes of JSON are older. What is tied may still differ: more starts would tell.
_STANDING_WORDS: dict[Standing, str] = {"tied": "not sure yet", "behind": "slower", "leads so far": "leads so far"}


class ConfigurationResult(Start, frozen=True, kw_only=True):
    """The figures of a configuration, each the mean of its `starts`; the last of these is `session`.

    `values` has the objective of each start. A configuration whose latest start failed is broken.
    """

    starts: int
    values: tuple[float, ...] = ()


class TuneSummary(Stored, frozen=True, kw_only=True):
    """`leaderboard`: best first, each configuration once. Pareto fronts: fastest first.

    `standings` has one entry per row of the leaderboard. Configurations with at least three restarts are ranked:
    `tied` with the best, or `behind` it. Before that one `leads so far`, and nothing is said of the others.
    `chance` is how far, as a share, each would be from the best in 5 % of all tunes of equal configurations.
    `command` starts a server with the first configuration, without secrets. `power` is what each power limit does,
    and `power_sentence` says which is worth it. `one_server`: all were measured in one start, in several passes.
    With `auto`, flags are what differs from the command of the user.
    """

    objective: Objective
    leaderboard: tuple[ConfigurationResult, ...]
    standings: tuple[Standing, ...] = ()
    chance: tuple[float | None, ...] = ()
    front_ttft: tuple[ConfigurationResult, ...]
    front_energy: tuple[ConfigurationResult, ...]
    effects: tuple[Effect, ...]
    command: str = ""
    power: tuple[PowerEffect, ...] = ()
    power_sentence: str = ""
    one_server: bool = False
    auto: bool = False

    @property
    def ranked(self) -> bool:
        return "best" in self.standings


def summarise_tune(tune: TuneFile, starts: Sequence[Start]) -> TuneSummary:
    """Summarise the starts of a tune; effects are relative to the first value of a flag in its file."""
    known, first = starts_in_file_order(tune, starts), first_restart(tune)
    by_key: dict[str, list[Start]] = {}
    for start in known:
        by_key.setdefault(configuration_key(start.flags), []).append(start)
    found = [_result(each, first, tune.objective) for each in by_key.values()]
    leaderboard = rank(found, tune.objective)
    standings, chance = _standings(leaderboard, first, tune)
    power = power_effects(power_passes(known))
    facts = AnswerFacts(power_effect=best_effect(power) or power[0]) if power else AnswerFacts()
    return TuneSummary(
        objective=tune.objective,
        leaderboard=tuple(leaderboard),
        standings=tuple(standings),
        chance=tuple(chance),
        front_ttft=tuple(pareto(found, "ttft_s")),
        front_energy=tuple(pareto(found, "j_per_token")),
        effects=() if tune.auto else tuple(effects(known, tune.objective)),
        command=shown_command(tune, leaderboard[0].flags) if leaderboard and leaderboard[0].state == "done" else "",
        power=power,
        power_sentence=rows_said("power", facts)[0].text(facts) if power else "",
        one_server=has_one_server(tune),
        auto=tune.auto is not None,
    )


def power_passes(starts: Sequence[Start]) -> list[Pass]:
    """Group starts that differ in nothing but the power limit, within a round; those without energy are left out."""
    passes = _by_others([start for start in starts if start.out_tps and start.j_per_token], POWER)
    most = max(map(len, passes), default=0)
    # A pass that was interrupted says nothing yet.
    return [
        {float(row.flags[POWER]): (row.out_tps or 0.0, row.j_per_token or 0.0) for row in each.values()}
        for each in passes
        if len(each) == most
    ]


def _result(starts: Sequence[Start], first: int, objective: Objective) -> ConfigurationResult:
    """Average the restarts of a configuration; with fewer than three, also the last start before them.

    The start that chose a configuration is left out of its rank: the best of many were also the luckiest.
    """
    last = starts[-1]
    done = [start for start in starts if start.state == "done"]
    restarts = [start for start in done if start.round >= first]
    ranked = len(restarts) >= MIN_STARTS
    used = restarts if ranked else [start for start in done if start.round < first][-1:] + restarts
    if last.state == "broken" or not used:
        return ConfigurationResult(**(asdict(last) | {"starts": len(done)}))
    averages: dict[str, Any] = {name: _mean([getattr(start, name) for start in used]) for name in _AVERAGED}
    averages["agents"] = None if averages["agents"] is None else round(averages["agents"])
    values = [value for start in used if (value := getattr(start, objective))]
    return ConfigurationResult(
        flags=last.flags,
        # Those that are ranked come first, like the results of a later round.
        round=first if ranked else used[0].round,
        session=last.session,
        c=last.c,
        runs=tuple(run for start in used for run in start.runs),
        peak_memory=max((start.peak_memory for start in used if start.peak_memory is not None), default=None),
        errors=sum(start.errors or 0 for start in used),
        simulated=last.simulated,
        starts=len(used),
        values=tuple(values),
        **averages,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the geometric mean, whose logs are compared; null if a value is missing."""
    known = [value for value in values if value]
    return exp(_mean_log(known)) if len(known) == len(values) else None


def _mean_log(values: Sequence[float]) -> float:
    return fsum(map(log, values)) / len(values)


def _standings(
    leaderboard: Sequence[ConfigurationResult], first: int, tune: TuneFile
) -> tuple[list[Standing], list[float | None]]:
    """Compare with the best by Games and Howell's procedure: Tukey's range, with the spread of the two compared.

    The errors of all comparisons together are 5 %.
    """
    rivals = [row for row in leaderboard if _is_rival(row, first)]
    standings: list[Standing] = [""] * len(leaderboard)
    chance: list[float | None] = [None] * len(leaderboard)
    if len(rivals) < 2 or leaderboard[0] is not rivals[0]:
        if sum(row.state == "done" for row in leaderboard) > 1:
            standings[0] = "leads so far"
        return standings, chance
    best, family = rivals[0], max(len(rivals), tune_rounds(tune)[-1].configurations)
    for index, row in enumerate(leaderboard):
        if row is best:
            standings[index] = "best"
        elif _is_rival(row, first):
            by_chance = games_howell_range(best.values, row.values, family)
            apart = abs(_mean_log(row.values) - _mean_log(best.values))
            standings[index], chance[index] = "behind" if apart > by_chance else "tied", expm1(by_chance)
    return standings, chance


def _is_rival(row: ConfigurationResult, first: int) -> bool:
    return row.state == "done" and row.round == first and len(row.values) >= MIN_STARTS


def games_howell_range(a: Sequence[float], b: Sequence[float], k: int) -> float:
    """Return how far apart the means of logs of two of k equal configurations are: any two by more in 5 % of cases."""
    parts = [standard_deviation([log(value) for value in values]) ** 2 / len(values) for values in (a, b)]
    squares = fsum(part**2 / (len(values) - 1) for part, values in zip(parts, (a, b), strict=True))
    df = int(fsum(parts) ** 2 / squares) if squares else len(a) + len(b) - 2
    return studentized_range_quantile(1 - ALPHA, k, max(2, df)) * sqrt(fsum(parts) / 2)


def standing_text(standing: Standing, objective: Objective) -> str:
    """Say how a configuration compares with the best; empty for that itself, and for those that are not ranked."""
    if standing == "behind" and objective == "j_per_token":
        return "more energy"
    return _STANDING_WORDS.get(standing, "")


def ranking_sentence(found: TuneSummary) -> str:
    """Say what the ranking rests on, and which lead is more than chance."""
    if not found.ranked:
        needs = f"{MIN_STARTS} passes" if found.one_server else f"{MIN_STARTS} restarts of at least two configurations"
        sample = "Each pass" if found.one_server else "Each start of a server"
        return f"The first leads so far. {sample} is one sample: a ranking needs {needs}."
    ranked = [row for row, standing in zip(found.leaderboard, found.standings, strict=True) if standing]
    counts = sorted({row.starts for row in ranked})
    starts = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    tied = found.standings.count("tied")
    head = f"Not sure yet whether the first is better than {count_noun(tied, 'other')}: it may be chance"
    word = standing_text("behind", found.objective)
    unit = "passes in one start of the server" if found.one_server else "restarts of each"
    rule = f"Ranked by {starts} {unit}; {word}: by more than chance explains (95 %, all together)"
    rest = sum(row.state == "done" for row in found.leaderboard) - len(ranked)
    others = f"{count_noun(rest, 'other was', 'others were')} not restarted, and not ranked" if rest else ""
    return ". ".join(part for part in (head if tied else "", rule, others) if part) + "."


def change_from(best: Start, row: Start, objective: Objective) -> float | None:
    """Return the change of the objective, as it is shown."""
    one, other = getattr(best, objective), getattr(row, objective)
    return other / one - 1.0 if one and other else None


def pareto(rows: Sequence[StartT], cost: Objective) -> list[StartT]:
    """The configurations that no other exceeds in tok/s at the same or a lower cost; fastest first."""
    known = [row for row in rows if row.state == "done" and row.out_tps is not None and getattr(row, cost) is not None]
    known.sort(key=lambda row: (-(row.out_tps or 0.0), getattr(row, cost)))
    front: list[StartT] = []
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
    for group in _by_others([row for row in rows if getattr(row, objective)], name):
        sides = [group[side] for side in map(_typed, (base, value)) if side in group]
        if len(sides) == 2:
            found.append((getattr(sides[0], objective), getattr(sides[1], objective)))
    if not found:
        return Effect(flag=name, base=base, value=value, pairs=0)
    before, after = (exp(_mean_log(side)) for side in zip(*found, strict=True))
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


def _by_others(rows: Sequence[Start], name: str) -> list[dict[tuple[str, Value], Start]]:
    """Group finished starts of a round that differ in nothing but this flag, by its value."""
    groups: dict[tuple[int, str], dict[tuple[str, Value], Start]] = {}
    for row in rows:
        if row.state == "done" and name in row.flags:
            others: Flags = {key: other for key, other in row.flags.items() if key != name}
            groups.setdefault((row.round, configuration_key(others)), {})[_typed(row.flags[name])] = row
    return list(groups.values())


def _typed(value: Value) -> tuple[str, Value]:
    """A value with its type: `true` and 1 are different values."""
    return type(value).__name__, value
