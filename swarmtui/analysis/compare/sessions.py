"""Sessions side by side: each against the first, level by level, with a verdict from runs and never from requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from swarmtui.analysis.capacity.scaling import headline_level
from swarmtui.analysis.compare.differences import (
    Difference,
    comparison_refusals,
    flag_differences,
    server_differences,
    session_differences,
)
from swarmtui.analysis.compare.pool import is_pooled
from swarmtui.analysis.compare.verdicts import Verdict, verdict
from swarmtui.model.level_key import PerLevel, level_name
from swarmtui.model.schema import Stored
from swarmtui.model.session import Level, Summary
from swarmtui.numbers import signed_percent

Figure = Literal["out_tps_steady", "out_tps_wall", "per_stream_tps", "ttft_s"]

FIGURES: dict[Figure, tuple[str, Literal["higher", "lower"]]] = {
    "out_tps_steady": ("output tok/s, steady", "higher"),
    "out_tps_wall": ("output tok/s, wall", "higher"),
    "per_stream_tps": ("tok/s a stream", "higher"),
    "ttft_s": ("TTFT", "lower"),
}


class ComparisonRow(PerLevel, frozen=True, kw_only=True):
    """One figure of one level in two sessions. `verdict` is null where ratios are refused.

    `leads`: it is the throughput that such a load is judged by.
    """

    figure: Figure
    before: float | None
    after: float | None
    verdict: Verdict | None
    leads: bool = False


class MachineRow(PerLevel, frozen=True, kw_only=True):
    """A figure of a level that has no runs of its own, so that nothing is judged: energy, memory, parts of TTFT."""

    figure: str
    unit: str
    before: float | None
    after: float | None


class Pair(Stored, frozen=True, kw_only=True):
    """`b` against `a`. `only_a` and `only_b` are levels (C, or rates) that the other does not have."""

    a: str
    b: str
    refused: tuple[str, ...]
    notes: tuple[str, ...]
    flags: tuple[Difference, ...]
    differences: tuple[Difference, ...]
    rows: tuple[ComparisonRow, ...]
    machine: tuple[MachineRow, ...]
    only_a: tuple[float, ...]
    only_b: tuple[float, ...]
    sentence: str


class LeaderboardRow(Stored, frozen=True, kw_only=True):
    """A row of the leaderboard: what changed since the row before, and what it came to."""

    id: str
    label: str
    model: str
    out_tps_alone: float | None
    best_out_tps: float | None
    best_c: int | None
    best_rate: float | None
    tpot_s: float | None
    ttft_s: float | None
    changes: tuple[str, ...]
    best_of_model: bool

    @property
    def best_at(self) -> str:
        """The place of the best level; empty where there is none."""
        return "" if self.best_c is None else level_name((self.best_c, self.best_rate))


class Comparison(Stored, frozen=True, kw_only=True):
    sessions: tuple[str, ...]
    pairs: tuple[Pair, ...]
    stages: tuple[LeaderboardRow, ...]


def compare(summaries: Sequence[Summary], baseline: int = 0) -> Comparison:
    """One is the baseline of all others; the stages stand in the order given."""
    first = summaries[baseline]
    others = [summary for place, summary in enumerate(summaries) if place != baseline]
    return Comparison(
        sessions=tuple(summary.session.id for summary in summaries),
        pairs=tuple(compare_pair(first, other) for other in others),
        stages=leaderboard(summaries),
    )


def compare_pair(a: Summary, b: Summary) -> Pair:
    refused = comparison_refusals(a, b)
    if is_pooled(a) != is_pooled(b):
        refused += ("the replicates of one are runs, those of the other are sessions",)
    unit = "sessions" if is_pooled(a) else "runs"
    before, after = {level.key: level for level in a.levels}, {level.key: level for level in b.levels}
    both = [key for key in before if key in after]
    every = [_row(name, before[key], after[key], unit, bool(refused)) for key in both for name in FIGURES]
    rows = tuple(row for row in every if row.before is not None or row.after is not None)
    return Pair(
        a=a.session.id,
        b=b.session.id,
        refused=refused,
        notes=_notes(a, b),
        flags=flag_differences(a, b),
        differences=(*session_differences(a.session, b.session), *server_differences(a, b)),
        rows=rows,
        machine=tuple(beside for key in both for beside in _machine(before[key], after[key])),
        only_a=tuple(level.offered_load for key, level in before.items() if key not in after),
        only_b=tuple(level.offered_load for key, level in after.items() if key not in before),
        sentence=_sentence(rows, refused, [before[key] for key in both], unit),
    )


_MACHINE: tuple[tuple[str, str, Callable[[Level], float | None]], ...] = (
    ("energy a token", "J", lambda level: level.energy.j_per_token if level.energy else None),
    ("GPU power", "W", lambda level: level.energy.mean_w if level.energy else None),
    ("GPU memory", "GB", lambda level: _giga(level.energy.peak_memory) if level.energy else None),
    ("TTFT: queue", "s", lambda level: level.ttft_split.queue_s if level.ttft_split else None),
    ("TTFT: prefill", "s", lambda level: level.ttft_split.prefill_s if level.ttft_split else None),
    ("TTFT: rest", "s", lambda level: level.ttft_split.rest_s if level.ttft_split else None),
)


def _giga(count: int | None) -> float | None:
    return None if count is None else count / 1e9


def _machine(a: Level, b: Level) -> list[MachineRow]:
    made = []
    for name, unit, of in _MACHINE:
        before, after = of(a), of(b)
        if before is not None or after is not None:
            guessed = _guessed(name, a if before is not None else None, b if after is not None else None)
            made.append(MachineRow(c=a.c, rate=a.rate, figure=name + guessed, unit=unit, before=before, after=after))
    return made


def _guessed(name: str, a: Level | None, b: Level | None) -> str:
    """Whose parts of TTFT are estimates from C=1, because the server did not tell them."""
    if not name.startswith("TTFT"):
        return ""
    sides = [side for side, level in (("A", a), ("B", b)) if level and level.ttft_split and level.ttft_split.estimated]
    return " est." if len(sides) == 2 else f" est. {sides[0]}" if sides else ""


def leaderboard(summaries: Sequence[Summary]) -> tuple[LeaderboardRow, ...]:
    """S1's stages: each row with what changed since the row before it."""
    best: dict[str, float] = {}
    for summary in summaries:
        model, rate = _model(summary), _best(summary)[0]
        if rate is not None:
            best[model] = max(rate, best.get(model, 0.0))
    stages = []
    for place, summary in enumerate(summaries):
        rate, at = _best(summary)
        alone = next((level for level in summary.levels if level.c == 1), None)
        stages.append(
            LeaderboardRow(
                id=summary.session.id,
                label=summary.session.label,
                model=_model(summary),
                out_tps_alone=alone.headline_tps if alone else None,
                best_out_tps=rate,
                best_c=at.c if at else None,
                best_rate=at.rate if at else None,
                tpot_s=at.tpot_s.mean if at else None,
                ttft_s=(at.ttft_s.p50 or at.ttft_s.mean) if at else None,
                changes=_changes(summaries[place - 1], summary) if place else (),
                best_of_model=rate is not None and rate == best[_model(summary)],
            )
        )
    return tuple(stages)


def _row(figure: Figure, a: Level, b: Level, unit: str, refused: bool) -> ComparisonRow:
    better = FIGURES[figure][1]
    judged = None if refused else verdict(_replicates(figure, a), _replicates(figure, b), better=better, unit=unit)
    leads: Figure = "out_tps_steady" if a.headline_is_steady and b.headline_is_steady else "out_tps_wall"
    return ComparisonRow(
        c=a.c,
        rate=a.rate,
        figure=figure,
        before=_value(figure, a),
        after=_value(figure, b),
        verdict=judged,
        leads=figure == leads,
    )


def _replicates(figure: Figure, level: Level) -> list[float]:
    values: list[float | None] = [getattr(run, figure) for run in level.by_run]
    return [value for value in values if value is not None]


def _value(figure: Figure, level: Level | None) -> float | None:
    if level is None:
        return None
    if figure == "per_stream_tps":
        return level.per_stream_tps.mean
    if figure == "ttft_s":
        return level.ttft_s.p50 or level.ttft_s.mean
    value: float | None = getattr(level, figure)
    return value


def _notes(a: Summary, b: Summary) -> tuple[str, ...]:
    """What weakens a comparison without forbidding it."""
    found = []
    models = {_model(a), _model(b)}
    if len(models) > 1:
        found.append("different models: tokens of two tokenisers are not the same amount of text")
    for summary in (a, b):
        if any(level.token_source in ("chunks", "mixed") for level in summary.levels):
            found.append(f"{summary.session.id}: tokens are estimates (~)")
        if any(not level.complete for level in summary.levels):
            found.append(f"{summary.session.id}: a level ended before all that was planned")
        if any(level.errors for level in summary.levels):
            found.append(f"{summary.session.id}: requests failed")
    return tuple(found)


def _sentence(rows: Sequence[ComparisonRow], refused: Sequence[str], both: Sequence[Level], unit: str) -> str:
    """`C=4: +25.6 % output tok/s, faster (4 v 4 runs, p = 0.03)`, of the highest level that both have."""
    if refused:
        return f"no ratio: {'; '.join(refused)}"
    if not both:
        return "no level in common"
    top = max(both, key=lambda level: level.offered_load)
    row = next((row for row in rows if row.leads and (row.c, row.rate) == top.key), None)
    found = row.verdict if row else None
    if row is None or found is None or found.change is None:
        return f"{top.name}: undecided, not measured"
    change = f"{signed_percent(found.change)} output tok/s"
    p = "" if found.p is None else f", p = {found.p:.2g}"
    return f"{row.name}: {change}, {found.word} ({found.n_a} v {found.n_b} {unit}{p})"


def _changes(before: Summary, after: Summary) -> tuple[str, ...]:
    flags = flag_differences(before, after)
    others = [d for d in session_differences(before.session, after.session) if not d.what.startswith("client")]
    return tuple(str(difference) for difference in (*flags, *others))


def _best(summary: Summary) -> tuple[float | None, Level | None]:
    level = headline_level(summary.levels)
    return (level.headline_tps, level) if level else (None, None)


def _model(summary: Summary) -> str:
    return ", ".join(sorted({endpoint.model for endpoint in summary.session.endpoints}))
