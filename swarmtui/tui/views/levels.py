"""The levels that are done: as a table, and as a curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swarmtui.analysis.scaling import scaling
from swarmtui.model.findings import Scaling
from swarmtui.model.session import Level, Spread
from swarmtui.text import plain
from swarmtui.tui.views.numbers import percent, rate, seconds, times


class LevelLine(NamedTuple):
    """`mark` is ▸ for the best throughput, ▼ for the level past the cliff."""

    mark: str
    cells: tuple[str, ...]
    best: bool
    partial: bool


class LevelsView(NamedTuple):
    titles: tuple[str, ...]
    lines: tuple[LevelLine, ...]
    flags: tuple[str, ...]
    empty: str


class Curve(NamedTuple):
    """Parallel lists; a level without a figure is not in it."""

    c: tuple[int, ...]
    values: tuple[float, ...]


class CurveView(NamedTuple):
    tps: Curve
    ttft: Curve
    ghost: Curve
    ghost_name: str
    best: int | None
    cliff: int | None
    words: str
    empty: str


TITLES = ("C", "steady", "stream", "TTFT", "lost", "gain", "n", "err", "wall", "real C")


def levels_view(levels: Sequence[Level]) -> LevelsView:
    best, cliff = _best(levels), scaling(levels).cliff
    lines = tuple(
        LevelLine(
            mark="▸" if level.c == best else "▼" if cliff and level.c == cliff.c else " ",
            cells=_cells(level),
            best=level.c == best,
            partial=not level.complete,
        )
        for level in levels
    )
    flags = tuple(f"C={level.c}: {flag}" for level in levels for flag in level.flags)
    return LevelsView(
        TITLES,
        lines,
        flags,
        "no level is done yet: 4·C requests at one C make one, when C changes; s starts a sweep, f looks for the cliff",
    )


def curve_view(levels: Sequence[Level], ghost: Sequence[Level], ghost_name: str) -> CurveView:
    tps = _curve(levels)
    found = scaling(levels)
    best, cliff = _best(levels), found.cliff.c if found.cliff else None
    empty = "" if len(tps.c) > 1 else "a curve needs two levels; s starts a sweep"
    ttft = [(level.c, value) for level in levels if (value := _ttft(level.ttft_s)) is not None]
    return CurveView(
        tps,
        Curve(tuple(c for c, _ in ttft), tuple(value for _, value in ttft)),
        _curve(ghost),
        plain(ghost_name),
        best,
        cliff,
        _words(best, found),
        empty,
    )


def _words(best: int | None, found: Scaling) -> str:
    words = [
        "" if best is None else f"▸ best {best}",
        "" if found.sweet_spot in (None, best) else f"sweet spot {found.sweet_spot}",
        "" if found.cliff is None else f"▼ cliff {found.cliff.c}",
    ]
    return "  ".join(word for word in words if word)


def _cells(level: Level) -> tuple[str, ...]:
    about = "~" if level.token_source in ("chunks", "mixed") else ""

    def tokens(value: float | None) -> str:
        return rate(value) if value is None else about + rate(value)

    return (
        str(level.c),
        tokens(level.out_tps_steady),
        tokens(level.per_stream_tps.mean),
        seconds(_ttft(level.ttft_s)),
        percent(level.contention),
        times(level.rate_speedup),
        str(level.n),
        str(level.errors),
        tokens(level.out_tps_wall),
        rate(level.c_achieved),
    )


def _ttft(spread: Spread) -> float | None:
    return spread.p50 if spread.p50 is not None else spread.mean


def _curve(levels: Sequence[Level]) -> Curve:
    known = [(level.c, value) for level in levels if (value := _tps(level)) is not None]
    return Curve(tuple(c for c, _ in known), tuple(value for _, value in known))


def _tps(level: Level) -> float | None:
    return level.out_tps_steady if level.out_tps_steady is not None else level.out_tps_wall


def _best(levels: Sequence[Level]) -> int | None:
    """The best throughput; None where there is nothing to choose from."""
    rated = [(value, level.c) for level in levels if (value := _tps(level)) is not None]
    return max(rated)[1] if len(rated) > 1 else None
