"""Pool several sessions of one configuration, each as one replicate: verdicts then include the spread between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum, sqrt
from typing import Any

import msgspec

from swarmtui.analysis.compare.differences import comparison_refusals
from swarmtui.analysis.compare.distributions import t_quantile
from swarmtui.analysis.levels.stats import count_known, largest_known, mean, median, sum_known
from swarmtui.model.base import BadInput
from swarmtui.model.plan import LevelKey, offered_load
from swarmtui.model.session import Level, RateSummary, RunFigures, Spread, Summary
from swarmtui.model.telemetry import TtftSplit

# The figures of a level that are counted, and those that are means over its time, or over its requests.
_COUNTED = ("runs", "n", "ok", "errors", "unfinished", "cap_hits", "degenerate", "empty", "miscounted")
_TOKENS = ("tokens_in", "tokens_out", "cached_tokens")
_BY_WALL = ("out_tps_wall", "prompt_tps", "total_tps", "c_achieved", "c_held", "queued")
_BY_REQUEST = (
    "straggler", "contention", "rate_speedup", "wall_speedup", "token_ratio", "pass_rate", "coalesced_chunks",
    "first_coalesced",
)  # fmt: skip
_TIMES = ("ttft_s", "ttfo_s", "tpot_s", "icl_s", "e2e_s", "job_s")
# Figures of one session that have no mean.
_NOT_POOLED = ("energy", "host", "waterfall", "kv", "speculation", "serial", "canaries", "replay", "first_error_s")
# The degrees of freedom from which on it counts for the half-width how much searches differ.
_LEAST_SPREAD = 2


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
    return msgspec.structs.replace(
        first,
        session=msgspec.structs.replace(first.session, id=names),
        pooled_sessions=len(summaries),
        levels=tuple(_level([levels[key] for levels in by_key]) for key in shared),
        checks=(),
        scaling=None,
    )


def is_pooled(summary: Summary) -> bool:
    return summary.pooled_sessions > 0


def pool_levels(sessions: Iterable[Sequence[Level]]) -> tuple[Level, ...]:
    """Return the levels of several searches of one server, each with the means of all its visits."""
    found: dict[LevelKey, list[Level]] = {}
    for levels in sessions:
        for level in levels:
            found.setdefault(level.key, []).append(level)
    scatter = _scatter(found.values())
    return tuple(_mean_level(found[key], scatter) for key in sorted(found, key=offered_load))


def _scatter(visits: Iterable[Sequence[Level]]) -> float:
    """Return how far the steady rate of one visit is from the mean of its level, as a share, with 95 % confidence.

    It is taken from all levels together; 0 with too few of them.
    """
    known = [[level.out_tps_steady for level in levels if level.out_tps_steady] for levels in visits]
    several = [(fsum(rates) / len(rates), rates) for rates in known if len(rates) > 1]
    df = sum(len(rates) - 1 for _, rates in several)
    if df < _LEAST_SPREAD:
        return 0.0
    squares = fsum((rate / middle - 1.0) ** 2 for middle, rates in several for rate in rates)
    return t_quantile(0.975, df) * sqrt(squares / df)


def _mean_level(levels: Sequence[Level], scatter: float) -> Level:
    """Weigh rates by their time, and other figures by their requests; a median is the mean of the medians."""
    if len(levels) == 1:
        return levels[0]
    walls, counts = [level.wall_s for level in levels], [level.ok for level in levels]
    runs = [run for level in levels for run in level.by_run]
    judged = [level.shown_ttft_s for level in levels] if any(level.judged_ttft_s for level in levels) else []
    figures: dict[str, Any] = {name: sum(getattr(level, name) for level in levels) for name in _COUNTED}
    figures |= {name: count_known(getattr(level, name) for level in levels) for name in _TOKENS}
    figures |= {name: _weighted([getattr(level, name) for level in levels], walls) for name in _BY_WALL}
    figures |= {name: _weighted([getattr(level, name) for level in levels], counts) for name in _BY_REQUEST}
    figures |= {name: _mean_spread([getattr(level, name) for level in levels]) for name in _TIMES}
    figures |= dict.fromkeys(_NOT_POOLED)
    return msgspec.structs.replace(
        levels[0],
        **figures,
        complete=any(level.complete for level in levels),
        wall_s=sum_known(walls),
        steady_s=sum_known(level.steady_s for level in levels),
        streaming=max((level.streaming for level in levels if level.streaming is not None), default=None),
        out_tps_steady=_weighted([level.out_tps_steady for level in levels], [level.steady_s for level in levels]),
        out_tps_steady_hw=_mean_half_width(levels, scatter),
        per_stream_tps=_mean_rate(levels, [level.per_stream_tps.mean for level in levels]),
        per_stream_tps_clean=_mean_rate(levels, [level.per_stream_tps_clean.mean for level in levels]),
        judged_ttft_s=_mean_spread(judged) if judged else None,
        longest_stall_s=largest_known(level.longest_stall_s for level in levels),
        silences=tuple(silence for level in levels for silence in level.silences),
        flags=tuple(flag for flag in levels[0].flags if all(flag in level.flags for level in levels)),
        by_run=tuple(msgspec.structs.replace(run, run=number) for number, run in enumerate(runs, start=1)),
        ttft_split=_mean_split([level.ttft_split for level in levels], counts),
        verdicts={},
        replicas=(),
    )


def _weighted(values: Sequence[float | None], weights: Sequence[float | None]) -> float | None:
    """Return the mean of the known values; null if there is none, or no weight."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None and weight]
    return fsum(value * weight for value, weight in known) / fsum(weight for _, weight in known) if known else None


def _mean_rate(levels: Sequence[Level], rates: Sequence[float | None]) -> RateSummary:
    """Return tokens / time, as in a single level."""
    known = [(level.tokens_out, rate) for level, rate in zip(levels, rates, strict=True) if level.tokens_out and rate]
    return RateSummary(mean=sum(n for n, _ in known) / fsum(n / rate for n, rate in known) if known else None)


def _mean_spread(found: Sequence[Spread]) -> Spread:
    known = [one for one in found if one.n]
    counts = [one.n for one in known]
    medians, means = [one.median for one in known], [one.mean for one in known]
    return Spread(
        n=sum(counts),
        mean=_weighted(means, counts) if None not in means else None,
        p50=_weighted(medians, counts) if None not in medians else None,
        min=min((one.min for one in known if one.min is not None), default=None),
    )


def _mean_half_width(levels: Sequence[Level], scatter: float) -> float | None:
    """Return the half-width of the mean steady rate, by those of all visits and by how much visits differ."""
    known = [
        (level.out_tps_steady, level.out_tps_steady_hw, level.steady_s)
        for level in levels
        if level.out_tps_steady and level.out_tps_steady_hw is not None and level.steady_s
    ]
    if len(known) < len(levels):
        return None
    total = fsum(seconds for *_, seconds in known)
    within = sqrt(fsum((width * seconds / total) ** 2 for _, width, seconds in known))
    return max(within, scatter / sqrt(len(known)) * fsum(rate * seconds for rate, _, seconds in known) / total)


def _mean_split(splits: Sequence[TtftSplit | None], counts: Sequence[int]) -> TtftSplit | None:
    known = [split for split in splits if split is not None]
    if len(known) < len(splits):
        return None
    parts = {
        name: _weighted([getattr(split, name) for split in known], counts)
        for name in ("queue_s", "prefill_s", "rest_s")
    }
    ttft_s = _weighted([split.ttft_s for split in known], counts)
    estimated = any(split.estimated for split in known)
    return None if ttft_s is None else TtftSplit(ttft_s=ttft_s, estimated=estimated, **parts)


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
