"""What a tune found: the changes that help, with the verdict of the A/B test; what did not matter, and what is open.

A knob "did not matter" only with the range of its effect: the spread between starts of the same configuration, over all
that were started more than once, says how large a gain one start would have missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, expm1, fsum, inf, isfinite, log, sqrt
from statistics import median
from typing import Literal

from swarmtui.analysis.compare.distributions import t_quantile
from swarmtui.analysis.compare.sequential import Decision
from swarmtui.analysis.quality.doubts import disturbed_runs, temper
from swarmtui.analysis.tuning.figures import error_line, mean_value, objective_value, score
from swarmtui.analysis.tuning.space import SearchSpace
from swarmtui.analysis.tuning.steps import TuneProgress
from swarmtui.model.base import Stored, Versioned
from swarmtui.model.tuning import POWER, Flags, Objective, Start, Value, configuration_key, format_flags
from swarmtui.numbers import significant
from swarmtui.text import count_noun

OutcomeCode = Literal[
    "running", "confirmed", "same", "slower", "not_sure", "not_tested", "no_gain", "no_baseline", "unreliable"
]

_CONFIDENCE = 0.95
_UNITS: dict[Objective, str] = {
    "out_tps": "tok/s", "ttft_s": "s to the first token", "j_per_token": "J/token", "agents": "agents",
}  # fmt: skip


class KnobChange(Stored, frozen=True, kw_only=True):
    """One flag of the best configuration; `before` is null if the server chose by itself."""

    knob: str
    before: Value | None
    after: Value

    def __str__(self) -> str:
        if self.knob == POWER:
            return format_flags({POWER: self.after})
        shown = "" if self.before is None else f"{_shown(self.before)} → "
        return f"{self.knob} {shown}{_shown(self.after)}"


class KnobEffect(Stored, frozen=True, kw_only=True):
    """A value of a knob that was tried, beside `base`, all else equal; `gain` is that of the objective, as a share.

    `low` and `high` are its 95 % interval by the spread between starts; null if no configuration was started twice.
    """

    knob: str
    base: Value | None
    value: Value
    gain: float
    low: float | None
    high: float | None
    starts: int


_WHY_OPEN = {
    "direction": "values nearer to the best did not gain",
    "budget": "the budget ended before its turn",
    "promise": "others promised more, by all starts",
}


class NotTried(Stored, frozen=True, kw_only=True):
    """A knob, or a configuration, that was never started, and why."""

    what: str
    code: str
    reason: str


class FailedStart(Stored, frozen=True, kw_only=True):
    """A configuration that failed, with the line of its log that says why."""

    flags: Flags
    reason: str
    line: str
    log: tuple[str, ...] = ()


class FrontPoint(Stored, frozen=True, kw_only=True):
    """A configuration that no other exceeds in the objective at the same or a lower energy."""

    flags: Flags
    value: float
    j_per_token: float


class RecipeFlag(Stored, frozen=True, kw_only=True):
    """A flag of a recipe beside that of the command; null if the server chooses by itself."""

    knob: str
    yours: Value | None
    recipe: Value


class TuneOutcome(Versioned, frozen=True, kw_only=True):
    """The result of an automatic tune. `before` and `after` are the figures of both sides of the A/B test.

    Without one they are those of the starts that rank, or of the screening. `low` and `high` are the range of `after`
    over its starts, `doubts` is why they are uncertain, and `note` names what disturbed the A/B test. `session` is the
    last session of the best configuration, a baseline for later runs. `front` is that of the objective and J/token.
    `recipe_gain` is what the flags of the recipe gained in its screening.
    """

    code: OutcomeCode
    sentence: str
    objective: Objective
    flags: Flags = {}
    changes: tuple[KnobChange, ...] = ()
    before: float | None = None
    after: float | None = None
    low: float | None = None
    high: float | None = None
    decision: Decision | None = None
    command: str = ""
    given: str = ""
    session: str = ""
    doubts: tuple[str, ...] = ()
    note: str = ""
    effects: tuple[KnobEffect, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    failed: tuple[FailedStart, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    recipe: tuple[RecipeFlag, ...] = ()
    recipe_gain: float | None = None
    starts: int = 0
    configurations: int = 0
    size: int = 0
    spent_s: float = 0.0
    budget_s: float = 0.0


def tune_outcome(
    space: SearchSpace,
    progress: TuneProgress,
    starts: Sequence[Start],
    objective: Objective,
    *,
    budget_s: float,
    command: str,
    given: str,
    recipe: Flags | None = None,
) -> TuneOutcome:
    """Summarise a tune; `command` starts its best configuration, `given` is that of the user."""
    suggested = space.pinned(space.normalised(recipe or {}))
    flags = progress.winner if progress.winner is not None else progress.leader or {}
    changes = tuple(
        KnobChange(knob=name, before=space.baseline.get(name), after=value) for name, value in flags.items()
    )
    before, after = _sides(starts, flags)
    values = [value for start in after if (value := objective_value(start, objective)) is not None]
    first, shown = _typical(before, objective), _typical(after, objective)
    code = _code(progress, flags)
    sessions = [start.session for start in after if start.session]
    doubts = tuple(dict.fromkeys(doubt for start in (*before, *after) for doubt in start.doubts))
    chances = tuple(dict.fromkeys(found for start in (*before, *after) for found in start.disturbances))
    # Runs of an A/B test even them out.
    note, uncertain = (disturbed_runs(chances), doubts) if progress.decision else ("", (*doubts, *chances))
    return TuneOutcome(
        code=code,
        sentence=temper(_sentence(code, changes, first, shown, values, progress, starts, objective), uncertain),
        doubts=uncertain,
        note=note,
        objective=objective,
        flags=flags,
        changes=changes,
        before=first,
        after=shown,
        low=min(values, default=None),
        high=max(values, default=None),
        decision=progress.decision,
        command=command,
        given=given,
        session=sessions[-1] if sessions else "",
        effects=tuple(_effects(space, progress, starts, objective)),
        not_tried=tuple(_not_tried(space, progress, starts)),
        failed=tuple(
            FailedStart(flags=start.flags, reason=start.reason, line=error_line(start), log=start.log)
            for start in starts
            if start.state == "broken"
        ),
        front=tuple(_front(starts, objective)),
        recipe=tuple(
            RecipeFlag(knob=name, yours=space.baseline.get(name), recipe=value)
            for name, value in (recipe or {}).items()
        ),
        recipe_gain=_gain(starts, suggested, objective) if suggested else None,
        starts=len(starts),
        configurations=len({configuration_key(start.flags) for start in starts}),
        size=space.size,
        spent_s=progress.spent_s,
        budget_s=budget_s,
    )


def _typical(starts: Sequence[Start], objective: Objective) -> float | None:
    """Return the mean of what starts measured, of agents the median; null without any."""
    known = [value for start in starts if (value := objective_value(start, objective)) is not None]
    return median(known) if known and objective == "agents" else mean_value(starts, objective)


def _code(progress: TuneProgress, flags: Flags) -> OutcomeCode:
    if progress.ask is not None:
        return "running"
    if progress.ended == "no_baseline" or progress.ended == "unreliable":
        return progress.ended
    if not flags:
        return "no_gain"
    if progress.decision is None:
        return "not_tested"
    words: dict[str | None, OutcomeCode] = {"faster": "confirmed", "same": "same", "slower": "slower"}
    return words.get(progress.decision.word, "not_sure")


def _sides(starts: Sequence[Start], flags: Flags) -> tuple[list[Start], list[Start]]:
    """Return the starts of the command and of the best configuration: of the A/B test, else what is there of both."""
    confirm = [start for start in starts if start.step == "confirm" and start.state == "done"]
    after = [start for start in confirm if start.side == "B" and start.flags == flags]
    before = [start for start in confirm if start.side == "A"]
    if after and before:
        return before, after
    done = [start for start in starts if start.state == "done"]
    mine = [start for start in done if start.flags == flags]
    ranked = [start for start in mine if start.step == "restart"]
    return [start for start in done if not start.flags], ranked or mine


def _sentence(
    code: OutcomeCode,
    changes: Sequence[KnobChange],
    before: float | None,
    after: float | None,
    values: Sequence[float],
    progress: TuneProgress,
    starts: Sequence[Start],
    objective: Objective,
) -> str:
    what, unit = ", ".join(map(str, changes)), _UNITS[objective]
    spread = f" ({_figure(min(values))}–{_figure(max(values))})" if values and min(values) < max(values) else ""
    figures = f"{_figure(before)} → {_figure(after)} {unit}{spread}"
    sides = f"{progress.decision.n} v {progress.decision.n} starts" if progress.decision else ""
    first = starts[0] if starts else None
    base = [start for start in starts if not start.flags and start.agents is not None]
    if code == "no_baseline" and first is not None and first.state == "done":
        return f"nothing to optimise: {unit} could not be measured"
    match code:
        case "running":
            return (
                f"{what}: {figures} so far, not confirmed" if changes else "nothing is better than the command so far"
            )
        case "confirmed":
            return f"{what}: {figures}, confirmed by ab ({sides})"
        case "same":
            return f"{what}: {figures}: the same as the command, by ab ({sides}); keep the command"
        case "slower":
            return f"{what} looked better, but is not, by ab ({sides}): {figures}; keep the command"
        case "not_sure":
            return f"{what}: {figures}, not sure yet after {sides} of ab"
        case "not_tested":
            minutes = ceil(progress.confirm_s / 60)
            return (
                f"{what}: {figures}, not confirmed: the budget ended before the A/B test, which takes about {minutes} "
                "min; the same command with a larger --budget continues"
            )
        case "no_gain" if progress.ended == "budget" and not progress.tried:
            return f"{_figure(before)} {unit} with the command; the budget ended before a change of it was measured"
        case "no_gain" if objective == "agents" and base and all(start.agents_high is None for start in base):
            known = f"{_figure(before)} {unit} or more" if before else f"how many {unit} there are is not known"
            return (
                f"{known} with the command: no search was long enough to find its limit, and "
                "no change that was tried shows more; give a larger --budget"
            )
        case "no_gain":
            return f"the command is best: {_figure(before)} {unit}, and no change that was tried gains 2 %"
        case "unreliable":
            return f"{what}: {figures}, but starts failed again and again during the A/B test; keep the command"
        case "no_baseline":
            return f"the command itself failed: {error_line(first) if first else 'it was not started'}"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:g}" if value == int(value) and value < 1000 else significant(value, 4)


def shown_name(knob: str) -> str:
    return "power limit" if knob == POWER else knob


def _shown(value: Value) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _effects(
    space: SearchSpace, progress: TuneProgress, starts: Sequence[Start], objective: Objective
) -> Iterable[KnobEffect]:
    """Return the effect of each value that was tried in the screening, the largest gain of a knob first."""
    screened: dict[str, list[Start]] = {}
    later: dict[str, list[Start]] = {}
    for start in starts:
        if objective_value(start, objective) is not None:
            group = screened if start.step == "screen" else later
            group.setdefault(configuration_key(start.flags), []).append(start)
    spread, df = _spread((*screened.values(), *later.values()), objective)
    found: dict[tuple[str, str], KnobEffect] = {}
    for tried in progress.tried:
        before, after = (screened.get(configuration_key(flags), []) for flags in (tried.before, tried.after))
        base, value = (space.value(flags, tried.knob) for flags in (tried.before, tried.after))
        if not before or not after or value is None or value == space.baseline.get(tried.knob):
            continue
        gain = score(after, objective) - score(before, objective)
        # Capacities that do not differ at all say nothing about how much they might.
        error = spread * sqrt(1 / len(before) + 1 / len(after)) if df and spread else None
        wide = None if error is None else error * t_quantile((1 + _CONFIDENCE) / 2, df)
        found[tried.knob, str(value)] = KnobEffect(
            knob=tried.knob, base=base, value=value, gain=expm1(gain),
            low=None if wide is None else expm1(gain - wide), high=None if wide is None else expm1(gain + wide),
            starts=len(before) + len(after),
        )  # fmt: skip
    return sorted(found.values(), key=lambda effect: (effect.knob, -effect.gain))


def _gain(starts: Sequence[Start], flags: Flags, objective: Objective) -> float | None:
    """Return the gain of a configuration in the screening; null if it was not measured."""
    screened = [start for start in starts if start.step == "screen"]
    before, after = ([start for start in screened if start.flags == each] for each in ({}, flags))
    gain = score(after, objective) - score(before, objective) if before and after else inf
    return expm1(gain) if isfinite(gain) else None


def _front(starts: Sequence[Start], objective: Objective) -> Iterable[FrontPoint]:
    """Return the front of the objective and J/token, the best of the objective first."""
    if objective == "j_per_token":
        return
    groups: dict[str, list[Start]] = {}
    for start in starts:
        if objective_value(start, objective) is not None and start.j_per_token:
            groups.setdefault(configuration_key(start.flags), []).append(start)
    lowest = inf
    for group in sorted(groups.values(), key=lambda group: -score(group, objective)):
        value, energy = mean_value(group, objective), mean_value(group, "j_per_token")
        if value is not None and energy is not None and energy < lowest:
            lowest = energy
            yield FrontPoint(flags=group[0].flags, value=value, j_per_token=energy)


def _spread(groups: Iterable[Sequence[Start]], objective: Objective) -> tuple[float, int]:
    """Return the standard deviation of logs between starts of a configuration, and its degrees of freedom."""
    squares, df = 0.0, 0
    for group in groups:
        logs = [log(value) for start in group if (value := objective_value(start, objective)) is not None]
        if len(logs) > 1:
            mean = fsum(logs) / len(logs)
            squares += fsum((each - mean) ** 2 for each in logs)
            df += len(logs) - 1
    return (sqrt(squares / df) if df else 0.0), df


def _not_tried(space: SearchSpace, progress: TuneProgress, starts: Sequence[Start]) -> Iterable[NotTried]:
    for left in space.left_out:
        yield NotTried(what=left.knob, code=left.code, reason=left.reason)
    refused: dict[tuple[str, str, str], list[Value]] = {}
    used = {(name, value) for start in starts if start.state == "done" for name, value in start.flags.items()}
    for skipped in progress.skipped:
        key = (skipped.knob, skipped.refusal.code, skipped.refusal.reason)
        if (skipped.knob, skipped.value) not in used and skipped.value not in refused.setdefault(key, []):
            refused[key].append(skipped.value)
    for (knob_name, code, reason), values in refused.items():
        if values:
            yield NotTried(what=f"{shown_name(knob_name)} {', '.join(map(_shown, values))}", code=code, reason=reason)
    started = {name for start in starts for name in start.flags} | {knob for knob, _, _ in refused}
    for knob in space.knobs:
        if knob.name in space.pins:
            yield NotTried(what=shown_name(knob.name), code="pinned", reason=f"pinned to {space.pins[knob.name]}")
        elif knob.name not in started and progress.ask is None:
            broken = progress.ended == "no_baseline"
            reason = "there is nothing to compare it with" if broken else _WHY_OPEN["budget"]
            yield NotTried(what=shown_name(knob.name), code="no_baseline" if broken else "budget", reason=reason)
        elif progress.ask is None:
            best = space.value(progress.winner or progress.leader or {}, knob.name)
            open_values: dict[str, list[Value]] = {}
            had = {space.value(start.flags, knob.name) for start in starts}
            ruled_out = {each.value for each in progress.skipped if each.knob == knob.name}
            later = "budget" if knob.name in progress.out_of_time else "promise"
            for value in space.ladder(knob):
                if value not in had | ruled_out:
                    # Without a gain of a value between it and the best, it was not tried.
                    nearer = knob.ordered and any(_is_between(each, value, best) for each in had)
                    open_values.setdefault("direction" if nearer else later, []).append(value)
            for code, values in open_values.items():
                text = ", ".join(_shown(value) for value in values)
                yield NotTried(what=f"{shown_name(knob.name)} {text}", code=code, reason=_WHY_OPEN[code])


def _is_between(each: Value | None, value: Value, best: Value | None) -> bool:
    """Whether a number is nearer to the best; if the server chose that by itself, any other is."""
    if each is None or isinstance(each, str) or isinstance(value, str) or isinstance(best, str):
        return False
    return best is None or min(value, best) < each < max(value, best)


def starts_sentence(outcome: TuneOutcome) -> str:
    """`17 starts of 9 configurations, of 168 possible, in 12.3 of 45 min`; a recipe may have others than the knobs."""
    possible = f", of {outcome.size:,} possible" if outcome.configurations <= outcome.size else ""
    return (
        f"{count_noun(outcome.starts, 'start')} of {count_noun(outcome.configurations, 'configuration')}{possible}, "
        f"in {outcome.spent_s / 60:.1f} of {outcome.budget_s / 60:g} min"
    )
