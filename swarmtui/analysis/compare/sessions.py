"""Compare sessions with a baseline, level by level; verdicts are based on runs, never on requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from swarmtui.analysis.capacity.scaling import headline_level
from swarmtui.analysis.compare.differences import (
    CLIENT_DIFFERENCES,
    Difference,
    comparison_refusals,
    flag_differences,
    server_differences,
    session_differences,
)
from swarmtui.analysis.compare.pool import is_pooled
from swarmtui.analysis.compare.verdicts import Verdict, verdict
from swarmtui.model.findings import Finding, Findings
from swarmtui.model.level_key import PerLevel, level_name
from swarmtui.model.schema import Stored
from swarmtui.model.session import Level, Summary
from swarmtui.model.telemetry import Energy, TtftSplit
from swarmtui.numbers import signed_percent

Figure = Literal["out_tps_steady", "out_tps_wall", "per_stream_tps", "ttft_s"]

FIGURES: dict[Figure, tuple[str, Literal["higher", "lower"]]] = {
    "out_tps_steady": ("output tok/s, steady", "higher"),
    "out_tps_wall": ("output tok/s, wall", "higher"),
    "per_stream_tps": ("tok/s per stream", "higher"),
    "ttft_s": ("TTFT", "lower"),
}


class ComparisonRow(PerLevel, frozen=True, kw_only=True):
    """One figure of one level in two sessions; `verdict` is null where ratios are refused.

    `leads` marks the throughput by which this load is judged.
    """

    figure: Figure
    before: float | None
    after: float | None
    verdict: Verdict | None
    leads: bool = False


class MachineRow(PerLevel, frozen=True, kw_only=True):
    """A figure without values per run, and so without a verdict: energy, memory, parts of TTFT."""

    figure: str
    unit: str
    before: float | None
    after: float | None


class Pair(Stored, frozen=True, kw_only=True):
    """`b` compared with `a`; `only_a` and `only_b` are levels (C, or rates) that the other does not have."""

    a: str
    b: str
    refused: Findings
    notes: Findings
    flags: tuple[Difference, ...]
    differences: tuple[Difference, ...]
    rows: tuple[ComparisonRow, ...]
    machine: tuple[MachineRow, ...]
    only_a: tuple[float, ...]
    only_b: tuple[float, ...]
    sentence: str


class LeaderboardRow(Stored, frozen=True, kw_only=True):
    """One session: its changes since the row before, and its best level."""

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
        """The name of the best level; empty where there is none."""
        return "" if self.best_c is None else level_name((self.best_c, self.best_rate))


class Comparison(Stored, frozen=True, kw_only=True):
    sessions: tuple[str, ...]
    pairs: tuple[Pair, ...]
    stages: tuple[LeaderboardRow, ...]


def compare(summaries: Sequence[Summary], baseline: int = 0) -> Comparison:
    """Compare all others with the baseline; the stages keep the given order."""
    first = summaries[baseline]
    others = [summary for index, summary in enumerate(summaries) if index != baseline]
    return Comparison(
        sessions=tuple(summary.session.id for summary in summaries),
        pairs=tuple(compare_pair(first, other) for other in others),
        stages=leaderboard(summaries),
    )


def compare_pair(a: Summary, b: Summary) -> Pair:
    refused = comparison_refusals(a, b)
    if is_pooled(a) != is_pooled(b):
        text = "one side has runs as replicates, the other has sessions"
        refused += (Finding(code="replicates", text=text),)
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
        machine=tuple(row for key in both for row in _machine_rows(before[key], after[key])),
        only_a=tuple(level.offered_load for key, level in before.items() if key not in after),
        only_b=tuple(level.offered_load for key, level in after.items() if key not in before),
        sentence=_sentence(rows, refused, [before[key] for key in both], unit),
    )


_ENERGY: tuple[tuple[str, str, Callable[[Energy], float | None]], ...] = (
    ("energy per token", "J", lambda energy: energy.j_per_token),
    ("GPU power", "W", lambda energy: energy.mean_w),
    ("GPU memory", "GiB", lambda energy: _gib(energy.peak_memory)),
)
_TTFT_PARTS: tuple[tuple[str, Callable[[TtftSplit], float | None]], ...] = (
    ("TTFT: queue", lambda split: split.queue_s),
    ("TTFT: prefill", lambda split: split.prefill_s),
    ("TTFT: rest", lambda split: split.rest_s),
)


def _gib(count: int | None) -> float | None:
    return None if count is None else count / (1 << 30)


def _machine_rows(a: Level, b: Level) -> list[MachineRow]:
    rows = [
        MachineRow(
            c=a.c,
            rate=a.rate,
            figure=name,
            unit=unit,
            before=value(a.energy) if a.energy else None,
            after=value(b.energy) if b.energy else None,
        )
        for name, unit, value in _ENERGY
    ]
    for name, part in _TTFT_PARTS:
        before = part(a.ttft_split) if a.ttft_split else None
        after = part(b.ttft_split) if b.ttft_split else None
        estimated = _estimated(a.ttft_split, before, b.ttft_split, after)
        rows.append(MachineRow(c=a.c, rate=a.rate, figure=name + estimated, unit="s", before=before, after=after))
    return [row for row in rows if row.before is not None or row.after is not None]


def _estimated(a: TtftSplit | None, before: float | None, b: TtftSplit | None, after: float | None) -> str:
    """Name the sides whose part is estimated from C=1, because the server does not report it."""
    values = (("A", a, before), ("B", b, after))
    sides = [side for side, split, value in values if split and value is not None and split.estimated]
    return " est." if len(sides) == 2 else f" est. {sides[0]}" if sides else ""


def leaderboard(summaries: Sequence[Summary]) -> tuple[LeaderboardRow, ...]:
    """List the sessions in order, each with its changes since the one before."""
    best: dict[str, float] = {}
    for summary in summaries:
        model, rate = _model(summary), _best(summary)[0]
        if rate is not None:
            best[model] = max(rate, best.get(model, 0.0))
    rows = []
    for index, summary in enumerate(summaries):
        rate, at = _best(summary)
        single = next((level for level in summary.levels if level.c == 1), None)
        rows.append(
            LeaderboardRow(
                id=summary.session.id,
                label=summary.session.label,
                model=_model(summary),
                out_tps_alone=single.headline_tps if single else None,
                best_out_tps=rate,
                best_c=at.c if at else None,
                best_rate=at.rate if at else None,
                tpot_s=at.tpot_s.mean if at else None,
                ttft_s=(at.ttft_s.p50 or at.ttft_s.mean) if at else None,
                changes=_changes(summaries[index - 1], summary) if index else (),
                best_of_model=rate is not None and rate == best[_model(summary)],
            )
        )
    return tuple(rows)


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


def _notes(a: Summary, b: Summary) -> Findings:
    """Return what weakens a comparison without ruling it out."""
    found: list[tuple[str, str]] = []
    if _model(a) != _model(b):
        found.append(("models", "different models: tokens of two tokenizers are not the same amount of text"))
    for summary in (a, b):
        name = summary.session.id
        if any(level.token_source in ("chunks", "mixed") for level in summary.levels):
            found.append(("token_source", f"{name}: tokens are estimates (~)"))
        if any(not level.complete for level in summary.levels):
            found.append(("incomplete", f"{name}: a level ended before all planned requests were done"))
        if any(level.errors for level in summary.levels):
            found.append(("errors", f"{name}: requests failed"))
    return tuple(Finding(code=code, text=text) for code, text in found)


def _sentence(rows: Sequence[ComparisonRow], refused: Findings, both: Sequence[Level], unit: str) -> str:
    """Describe the highest common level: `C=4: +25.6 % output tok/s, faster (4 v 4 runs, p = 0.03)`."""
    if refused:
        return f"no ratio: {'; '.join(map(str, refused))}"
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
    sessions = session_differences(before.session, after.session)
    others = [difference for difference in sessions if difference.code not in CLIENT_DIFFERENCES]
    return tuple(str(difference) for difference in (*flags, *others))


def _best(summary: Summary) -> tuple[float | None, Level | None]:
    level = headline_level(summary.levels)
    return (level.headline_tps, level) if level else (None, None)


def _model(summary: Summary) -> str:
    return ", ".join(sorted({endpoint.model for endpoint in summary.session.endpoints}))
