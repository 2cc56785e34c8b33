"""Pool several sessions of one configuration, each as one replicate: verdicts then include the spread between them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from swarmtui.analysis.compare.differences import comparison_refusals
from swarmtui.analysis.levels.stats import mean, median
from swarmtui.model.base import BadInput
from swarmtui.model.session import Level, RateSummary, RunFigures, Spread, Summary
from swarmtui.model.telemetry import QualityLine


def pool(summaries: Sequence[Summary]) -> Summary:
    """Return one summary with the levels that all sessions have; sessions must be comparable."""
    first = summaries[0]
    names = " + ".join(summary.session.id for summary in summaries)
    for other in summaries[1:]:
        refused = comparison_refusals(first, other)
        if refused:
            raise BadInput(f"cannot be pooled: {'; '.join(map(str, refused))}", key=names)
    by_key = [{level.key: level for level in summary.levels} for summary in summaries]
    shared = [key for key in by_key[0] if all(key in levels for levels in by_key)]
    series = list(dict.fromkeys(summary.session.series for summary in summaries))
    return msgspec.structs.replace(
        first,
        session=msgspec.structs.replace(first.session, id=names, series=series[0] if len(series) == 1 else None),
        quality=_quality(summaries),
        pooled_sessions=len(summaries),
        levels=tuple(_level([levels[key] for levels in by_key]) for key in shared),
        checks=(),
        scaling=None,
    )


def _quality(summaries: Sequence[Summary]) -> tuple[QualityLine, ...]:
    """Return each line once, that of a doubtful session if there is one."""
    lines: dict[str, QualityLine] = {}
    for line in (line for summary in summaries for line in summary.quality):
        if line.code not in lines or (line.state == "doubtful" and lines[line.code].state != "doubtful"):
            lines[line.code] = line
    return tuple(lines.values())


def is_pooled(summary: Summary) -> bool:
    return summary.pooled_sessions > 0


def _level(levels: Sequence[Level]) -> Level:
    """Average the figures of the sessions; each counts the same, however long it was."""
    runs = tuple(_replicate(number, level) for number, level in enumerate(levels, start=1))
    ttft = [run.ttft_s for run in runs if run.ttft_s is not None]
    return msgspec.structs.replace(
        levels[0],
        runs=len(runs),
        n=sum(level.n for level in levels),
        ok=sum(level.ok for level in levels),
        errors=sum(level.errors for level in levels),
        complete=all(level.complete for level in levels),
        out_tps_steady=_mean([run.out_tps_steady for run in runs]),
        out_tps_wall=_mean([run.out_tps_wall for run in runs]),
        per_stream_tps=RateSummary(mean=_mean([run.per_stream_tps for run in runs])),
        ttft_s=Spread(n=sum(level.ttft_s.n for level in levels), mean=mean(ttft), p50=median(ttft)),
        by_run=runs,
    )


def _replicate(number: int, level: Level) -> RunFigures:
    return RunFigures(
        run=number,
        n=level.n,
        ok=level.ok,
        errors=level.errors,
        wall_s=level.wall_s,
        steady_s=level.steady_s,
        c_achieved=level.c_achieved,
        tokens_out=level.tokens_out or 0,
        out_tps_wall=level.out_tps_wall,
        out_tps_steady=level.out_tps_steady,
        per_stream_tps=level.per_stream_tps.mean,
        ttft_s=level.ttft_s.median,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; null if a value is missing."""
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None
