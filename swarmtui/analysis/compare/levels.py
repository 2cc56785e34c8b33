"""Compare each figure of each level that two sessions have, and judge a level by the throughput that leads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log1p
from typing import Literal

import msgspec

from swarmtui.analysis.compare.correlation import assumed_correlation, correlation, positions, variance_factor
from swarmtui.analysis.compare.pool import is_pooled
from swarmtui.analysis.compare.verdicts import (
    ALPHA,
    Evidence,
    Interval,
    Kind,
    Verdict,
    VerdictWord,
    compare_replicates,
    holm_alphas,
    likely_by_interval,
    likely_change,
    with_session_spread,
)
from swarmtui.model.plan import LevelKey, PerLevel
from swarmtui.model.session import Level, Summary
from swarmtui.numbers import rate

Figure = Literal["out_tps_steady", "out_tps_wall", "per_stream_tps", "ttft_s", "e2e_s"]
# The levels that both sessions have, before and after.
BothLevels = Mapping[LevelKey, tuple[Level, Level]]

FIGURES: dict[Figure, str] = {
    "out_tps_steady": "output tok/s, steady",
    "out_tps_wall": "output tok/s, wall",
    "per_stream_tps": "tok/s per agent",
    "ttft_s": "TTFT",
    "e2e_s": "whole answer",
}
TIMES: tuple[Figure, ...] = ("ttft_s", "e2e_s")
_KINDS: dict[Figure, Kind] = {"ttft_s": "first_token", "e2e_s": "time"}
# A change of a level needs this many requests of each side to be called likely, more than one visit of a quick search
# has: the same server was 26 % faster at one visit, and 7 % at another; a small one with few agents 35 % slower.
_LIKELY_REQUESTS = 30
# With fewer, a rate or a time of a whole answer has to change by a factor of 1.6, and a time to first token by four.
_LIKELY_OF_FEW, _LIKELY_FIRST_OF_FEW = 0.6, 3.0
_OUTPUT: tuple[Figure, ...] = ("out_tps_steady", "out_tps_wall")


class ComparisonRow(PerLevel, frozen=True, kw_only=True):
    """One figure of one level in two sessions; `change` and `interval` are null if ratios are refused.

    `leads` marks the throughput by which this load is judged: only its row has a verdict, one per level. `half_width`
    is that of the less exact of both steady rates, as a share, and `half_widths` are both; null for times. `likely`:
    it has no verdict, but repeats of one server do not differ by as much; null if it may be chance.
    """

    figure: Figure
    before: float | None
    after: float | None
    change: float | None = None
    interval: Interval | None = None
    verdict: Verdict | None = None
    leads: bool = False
    half_width: float | None = None
    half_widths: tuple[float | None, float | None] = (None, None)
    likely: Literal["faster", "slower"] | None = None

    @property
    def word(self) -> VerdictWord | None:
        """The word of the verdict; null without one, and with too few runs for one."""
        return self.verdict.word if self.verdict else None

    @property
    def rates(self) -> str:
        """`286 → 359 tok/s`, each with the digits that its half-width leaves."""
        before, after = (rate(*of) for of in zip((self.before, self.after), self.half_widths, strict=True))
        return f"{before} → {after} tok/s"


def level_evidence(
    a: Summary, b: Summary, both: BothLevels, repeats: Sequence[Summary]
) -> dict[tuple[LevelKey, Figure], Evidence]:
    """Compare each figure of each level; how much runs correlate is estimated from all levels of both sides."""
    pooled = is_pooled(a)
    same_requests = not pooled and a.session.plan.seed == b.session.plan.seed
    earlier = [{level.key: level for level in summary.levels} for summary in repeats]
    found = {}
    for figure in FIGURES:
        sides = [_runs_in_time(figure, summary) for summary in (a, b)]
        estimate = correlation([list(side.values()) for side in sides])
        fewest = min((len(side[key][1]) for side in sides for key in both), default=0)
        rho = 0.0 if pooled else assumed_correlation(len(both), fewest, estimate)
        for key, levels in both.items():
            before, after = _values(figure, *levels)
            (at_a, x), (at_b, y) = (side[key] for side in sides)
            known = [_value(figure, of[key]) for of in earlier if key in of]
            evidence = compare_replicates(
                x,
                y,
                change=after / before - 1.0 if before and after else None,
                unit="sessions" if pooled else "runs",
                same_requests=same_requests,
                factors=(variance_factor(at_a, rho), variance_factor(at_b, rho)),
                correlation=estimate if rho == estimate else 0.0,
            )
            found[key, figure] = with_session_spread(
                evidence, [value for value in known if value is not None], _half_width(figure, *levels)
            )
    return found


def _runs_in_time(figure: Figure, summary: Summary) -> dict[LevelKey, tuple[list[int], list[float]]]:
    """Return the runs of each level that have the figure: when they took place, and their values."""
    levels, rotates = summary.levels, summary.session.plan.load.rotates
    found = {}
    for number, level in enumerate(levels):
        known = [(run.run, value) for run in level.by_run if (value := getattr(run, figure, None)) is not None]
        at = positions(number, len(levels), [run for run, _ in known], rotates)
        found[level.key] = at, [value for _, value in known]
    return found


def level_rows(
    both: BothLevels,
    evidence: Mapping[tuple[LevelKey, Figure], Evidence],
    judge: Callable[..., Verdict],
    *,
    searched: bool,
    doubted: bool,
) -> tuple[ComparisonRow, ...]:
    """Compare each figure of each level, and judge it by its leading one; all that can be judged are one family.

    Levels with few requests say nothing about a small change, nor does the output at a `searched` one without a
    half-width.
    """
    every = [_row(figure, *levels, evidence.get((key, figure))) for key, levels in both.items() for figure in FIGURES]
    rows = [row for row in every if row.before is not None or row.after is not None]
    leading = {row.key: found for row in rows if row.leads and (found := evidence.get((row.key, row.figure)))}
    p_values = {key: found.estimate.p for key, found in leading.items() if found.estimate and found.decides}
    alphas = dict(zip(p_values, holm_alphas(list(p_values.values())), strict=True))
    judged = {key: judge(found, alpha=alphas.get(key, ALPHA)) for key, found in leading.items()}
    few = {key for key, levels in both.items() if any(level.n < _LIKELY_REQUESTS for level in levels)}
    rough = {row.key for row in rows if searched and row.leads and None in row.half_widths}
    return tuple(
        _judged(
            row,
            judged[row.key],
            doubted=doubted or (row.key in rough and row.figure in _OUTPUT),
            few=row.key in few,
        )
        if row.key in judged
        else row
        for row in rows
    )


def _judged(row: ComparisonRow, verdict: Verdict, *, doubted: bool, few: bool) -> ComparisonRow:
    """Add the verdict on its level to the leading row; of others, say what is likely.

    That is a change whose interval leaves out zero and, with too few runs for one, a large change.
    """
    kind = _KINDS.get(row.figure, "rate")
    if row.leads:
        row = msgspec.structs.replace(row, verdict=verdict, interval=verdict.interval)
    elif row.interval is not None and not doubted:
        return msgspec.structs.replace(row, likely=likely_by_interval(row.interval, kind))
    if doubted or row.interval is not None or verdict.word not in (None, "not sure yet"):
        return row
    least = _LIKELY_FIRST_OF_FEW if row.figure == "ttft_s" else _LIKELY_OF_FEW
    if few and abs(log1p(row.change or 0.0)) < log1p(least):
        return row
    return msgspec.structs.replace(row, likely=likely_change(row.change, row.half_width, kind))


def _row(figure: Figure, a: Level, b: Level, evidence: Evidence | None) -> ComparisonRow:
    leads: Figure = "out_tps_steady" if a.headline_is_steady and b.headline_is_steady else "out_tps_wall"
    before, after = _values(figure, a, b)
    return ComparisonRow(
        c=a.c,
        rate=a.rate,
        figure=figure,
        before=before,
        after=after,
        change=evidence.change if evidence else None,
        interval=evidence.estimate.interval() if evidence and evidence.estimate else None,
        leads=figure == leads,
        half_width=_half_width(figure, a, b),
        half_widths=(_width(a), _width(b)) if figure not in TIMES else (None, None),
    )


def _width(level: Level) -> float | None:
    return None if level.has_weak_output else level.half_width


def _half_width(figure: Figure, a: Level, b: Level) -> float | None:
    """Return that of the less exact level, as a share of its rate; null for times."""
    return None if figure in TIMES else max(filter(None, (a.half_width, b.half_width)), default=None)


def _values(figure: Figure, a: Level, b: Level) -> tuple[float | None, float | None]:
    """Return the figure of both levels: the median of TTFT if both have one, otherwise both means."""
    if figure != "ttft_s" or (a.shown_ttft_s.median is not None and b.shown_ttft_s.median is not None):
        return _value(figure, a), _value(figure, b)
    medians = a.ttft_s.median, b.ttft_s.median
    return medians if None not in medians else (a.ttft_s.mean, b.ttft_s.mean)


def _value(figure: Figure, level: Level) -> float | None:
    if figure == "per_stream_tps":
        return level.per_stream_tps.mean
    if figure == "ttft_s":
        return level.shown_ttft_s.median
    if figure == "e2e_s":
        return level.e2e_s.median
    value: float | None = getattr(level, figure)
    return value
