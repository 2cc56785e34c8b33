"""The levels that are done: as a table, and as a curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from swarmtui.analysis.capacity.scaling import best_level, scaling
from swarmtui.model.findings import Scaling
from swarmtui.model.session import Level, TaskFigures
from swarmtui.text import plain, signed
from swarmtui.tui.live.level_columns import columns_of, middle, task_lines
from swarmtui.tui.numbers import NOTHING, rate

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair


class LevelLine(NamedTuple):
    """`mark` is ▸ for the best throughput, ▼ for the level past the cliff; `best`: it is the row to look at."""

    mark: str
    cells: tuple[str, ...]
    best: bool
    partial: bool


class LevelsView(NamedTuple):
    """`widths` are of the columns, as many of which are shown as there is room for; so are the lines of `tasks`."""

    titles: tuple[str, ...]
    widths: tuple[int, ...]
    lines: tuple[LevelLine, ...]
    flags: tuple[str, ...]
    empty: str
    tasks: tuple[str, ...] = ()


class Curve(NamedTuple):
    """Parallel lists; a level without a figure is not in it."""

    c: tuple[float, ...]
    values: tuple[float, ...]


class CurveView(NamedTuple):
    """`words` say where one should be, in several lengths, the longest first."""

    tps: Curve
    ttft: Curve
    ghost: Curve
    ghost_name: str
    best: float | None
    cliff: int | None
    words: tuple[str, ...]
    empty: str


_STEERED_EMPTY = (
    "no level is done yet: 4·C requests at one C make one, when C changes; s starts a sweep, f looks for the cliff"
)

# Of a session that this one is held against: they stand behind the figure that they are about.
_GHOST_TITLES, _GHOST_WIDTHS, _GHOST_AT = ("before", "change"), (8, 20), 2


def levels_view(
    levels: Sequence[Level], ghost: Pair | None = None, tasks: Sequence[TaskFigures] = (), planned: bool = False
) -> LevelsView:
    """`ghost` is the session before held against this one, level by level; `planned`: levels come by themselves."""
    columns = columns_of(levels, tasks)
    best, cliff = _best(levels), scaling(levels).cliff
    lines = tuple(
        LevelLine(
            mark="▸" if level.at == best else "▼" if cliff and level.c == cliff.c else " ",
            cells=_with_ghost(tuple(column.cell(level) for column in columns), _beside(level, ghost)),
            best=level.at == best,
            partial=not level.complete,
        )
        for level in levels
    )
    flags = tuple(f"{level.name}: {flag}" for level in levels for flag in level.flags)
    titles, widths = tuple(column.title for column in columns), tuple(column.width for column in columns)
    refused = tuple(f"no ratio: {plain(why)}" for why in ghost.refused) if ghost and levels else ()
    return LevelsView(
        _with_ghost(titles, _GHOST_TITLES if ghost else ()),
        (*widths[:_GHOST_AT], *(_GHOST_WIDTHS if ghost else ()), *widths[_GHOST_AT:]),
        lines,
        (*refused, *flags),
        "no level is done yet: the first is on its way" if planned else _STEERED_EMPTY,
        task_lines(tasks),
    )


def _with_ghost(cells: tuple[str, ...], ghost: tuple[str, ...]) -> tuple[str, ...]:
    return (*cells[:_GHOST_AT], *ghost, *cells[_GHOST_AT:])


def _beside(level: Level, ghost: Pair | None) -> tuple[str, ...]:
    """The figure before, and what may be said of the difference."""
    if ghost is None:
        return ()
    rows = [row for row in ghost.rows if (row.c, row.rate) == level.key and row.figure.startswith("out_tps")]
    row = next((row for row in rows if row.after is not None and row.before is not None), None)
    if row is None:
        return (NOTHING, NOTHING)
    found = row.verdict
    if found is None or found.change is None:
        return (rate(row.before), "no ratio" if found is None else found.word)
    return (rate(row.before), f"{signed(found.change)} {found.word}")


def curve_view(levels: Sequence[Level], ghost: Sequence[Level], ghost_name: str) -> CurveView:
    tps = _curve(levels)
    found = scaling(levels)
    best, cliff = _best(levels), found.cliff.c if found.cliff else None
    empty = "" if len(tps.c) > 1 else "a curve needs two levels; s starts a sweep"
    ttft = [(level.at, value) for level in levels if (value := middle(level.ttft_s)) is not None]
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


def _words(best: float | None, found: Scaling) -> tuple[str, ...]:
    cliff = found.cliff.c if found.cliff else None
    spot = None if found.sweet_spot == best else found.sweet_spot
    lengths = (("▸ best", "sweet spot", "▼ cliff"), ("▸ best", "sweet", "▼ cliff"), ("▸", "sweet", "▼"))
    return tuple(
        " · ".join(f"{name} {at:g}" for name, at in zip(names, (best, spot, cliff), strict=True) if at is not None)
        for names in lengths
    )


def _curve(levels: Sequence[Level]) -> Curve:
    known = [(level.at, value) for level in levels if (value := level.lead_tps) is not None]
    return Curve(tuple(c for c, _ in known), tuple(value for _, value in known))


def _best(levels: Sequence[Level]) -> float | None:
    found = best_level(levels)
    return found.at if found else None
