"""Points of a Pareto chart: what one user gets against what one GPU gives, by level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from swarmtui.model.session import Level, Summary

ParetoUnit = Literal["tok/s", "jobs/h"]
PARETO_UNITS: tuple[ParetoUnit, ...] = ("tok/s", "jobs/h")


class ParetoPoint(NamedTuple):
    """A level: `x` is per user, `y` per GPU, or of the whole server if its GPUs are not known."""

    x: float
    y: float
    c: int


def pareto_points(summary: Summary, unit: ParetoUnit, *, per_gpu: bool) -> tuple[ParetoPoint, ...]:
    """Return the points of a session in the order of C; an open loop has none, as its rate is not a number of users."""
    gpus = len(summary.gpus) if per_gpu else 1
    points = []
    for level in sorted(summary.levels, key=lambda level: level.c):
        user, server = _rates(level, unit)
        if level.rate is None and user and server:
            points.append(ParetoPoint(user, server / gpus, level.c))
    return tuple(points)


def _rates(level: Level, unit: ParetoUnit) -> tuple[float | None, float | None]:
    if unit == "tok/s":
        return level.per_stream_tps.mean, level.headline_tps
    replay = level.replay
    return (replay.jobs_per_h_user, replay.jobs_per_h) if replay is not None else (None, None)


def gpus_known(summaries: Sequence[Summary]) -> bool:
    """Whether figures per GPU can be compared: all sessions must know the GPUs of their server."""
    return all(summary.gpus for summary in summaries)
