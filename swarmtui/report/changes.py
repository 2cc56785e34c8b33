"""Show what changed between two sessions as bars around zero: agents and the figures of one load, then each level."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from swarmtui.analysis.compare.levels import FIGURES, TIMES, ComparisonRow, Figure
from swarmtui.analysis.compare.sessions import Pair, headline_row
from swarmtui.analysis.compare.verdicts import EQUIVALENT, MIN_RUNS
from swarmtui.model.plan import load_title
from swarmtui.numbers import fixed, rate, seconds, short_percent
from swarmtui.report.scales import value_axis
from swarmtui.report.table import Cell, Code, Column, Table, tabulate
from swarmtui.report.verdicts import SIGNS, change_cell, row_code, verdict_words

# The cells of a bar on each side of zero: of the change of a level, and of one that is better or worse.
_BAR, _SHORT_BAR = 12, 7
# A change that is not sure is far from the others beyond this multiple of their median; a small one never is.
_FAR, _NEAR = 3.0, 0.2
# A change, or an end of its interval, that is outside the axis, below and above.
_OUTSIDE = "←→"
_DECIDED: dict[Code, str] = {"faster": "faster", "slower": "slower", "same": "the same within 2 %"}
_LIKELY: tuple[Code, ...] = ("likely faster", "likely slower")
_TOO_FEW = "Left out: levels with too few requests."
# What follows a change, in percent as well.
_HALF_WIDTH = "± %"
# From this many percent on, changes have no decimals.
_ONE_DECIMAL = 9.95
# The figures of one load, in the words of the screens.
_NAMES: dict[Figure, str] = {
    "out_tps_steady": "output tok/s", "out_tps_wall": "output tok/s", "per_stream_tps": "per agent",
    "ttft_s": "first token", "e2e_s": "whole answer",
}  # fmt: skip
# The signs of what is better or worse, with their meaning.
_MEANINGS: dict[Code, str] = {
    "faster": "better", "slower": "worse", "likely faster": "likely better", "likely slower": "likely worse",
    "same": "same", "unsure": "may be chance, by itself",
}  # fmt: skip
# The ends of an axis of changes, at least and at most: one that is larger has an arrow.
_LEAST_END, _MOST_END = 0.2, 1.0


class _Figure(NamedTuple):
    """A figure before and after; `better` is the size of its change, negative if it got worse, with its interval."""

    name: str
    before: str
    after: str
    change: Cell
    row: ComparisonRow
    better: float
    interval: tuple[float, float] | None = None


def change_tables(pair: Pair) -> list[Table]:
    """Show what got better or worse at one load, then the change of each level; none without a level."""
    return [*_better_or_worse(pair), *_level_changes(pair)]


def _better_or_worse(pair: Pair) -> list[Table]:
    """Show the figures with the same load on both sides, with bars to the right if they are better."""
    lead = headline_row(pair)
    figures = [*_load_figures(pair)] if lead else []
    if pair.refused or not figures:
        return []
    top = min(_MOST_END, value_axis([max(_LEAST_END, *(abs(figure.better) for figure in figures))], 2).high)
    signs = {figure.change.code for figure in figures}
    meanings = _meanings(pair)
    legend = "; ".join(f"{SIGNS[code]} {words}" for code, words in meanings.items() if code in signs)
    columns: list[Column[_Figure]] = [
        Column("figure", "", lambda figure: figure.name, right=False),
        Column("before", "before", lambda figure: figure.before),
        Column("now", "now", lambda figure: figure.after),
        Column("change", "change", lambda figure: figure.change),
        Column("half_width", _HALF_WIDTH, lambda figure: _half_width(figure.row)),
    ]
    axis = f"{'worse ':·<{_SHORT_BAR}}0{' better':·>{_SHORT_BAR}}"
    drawn = {one.name: Cell(bar(one.better, top, _SHORT_BAR, one.interval), one.change.code) for one in figures}
    columns.append(Column("bar", axis, lambda figure: drawn[figure.name], right=False))
    at = f" {lead.where} on both" if lead else ""
    note = f"{legend}." if legend else ""
    table = tabulate(f"Change{at}", figures, columns, note, drop=("half_width", "before", "now"))
    return [table.without_missing()]


def _load_figures(pair: Pair) -> Iterator[_Figure]:
    rows = [row for row in pair.rows if row.key == pair.headline]
    for figure, name in _NAMES.items():
        row = next((row for row in rows if row.figure == figure), None)
        if row is None or not row.before or not row.after or (name == _NAMES["out_tps_steady"] and not row.leads):
            continue
        is_time = figure in TIMES
        before, after = (
            seconds(value) if is_time else rate(value, half_width)
            for value, half_width in zip((row.before, row.after), row.half_widths, strict=True)
        )
        change = row.after / row.before - 1.0
        cell = change_cell(row, doubted=bool(pair.doubts))
        known = _known_interval(row)
        interval = (-known[1], -known[0]) if known and is_time else known
        yield _Figure(name, before, after, cell, row, -change if is_time else change, interval)


def _level_changes(pair: Pair) -> list[Table]:
    """Show the change of each level as a bar around zero with its interval; none if no level was compared."""
    every = [row for row in pair.rows if row.leads and row.change is not None]
    rows = [row for row in every if pair.tells(row)]
    if not rows:
        return []
    top = _axis_end(rows)
    changes = {row.key: change_cell(row) for row in rows}
    bars = {row.key: Cell(change_bar(row, top), changes[row.key].code) for row in rows}
    axis = f"{f'−{short_percent(top)} ':·<{_BAR}}0{f' +{short_percent(top)}':·>{_BAR}}"

    def verdict(row: ComparisonRow) -> Cell | None:
        code = row_code(row)
        return None if pair.searched and code not in _DECIDED else Cell(verdict_words(row.word, row.likely), code)

    columns: list[Column[ComparisonRow]] = [
        Column("load", load_title(pair.rows), lambda row: f"{row.offered_load:g}"),
        Column("change", "change", lambda row: changes[row.key]),
        Column("half_width", _HALF_WIDTH, _half_width),
        Column("bar", axis, lambda row: bars[row.key], right=False),
        Column("verdict", "verdict", verdict, right=False),
    ]
    is_exact = any(map(_known_interval, rows))
    few = [_TOO_FEW] if len(rows) < len(every) else []
    unsure = _meanings(pair)["unsure"]
    legend = _legend(changes.values(), bars.values(), unsure, is_exact=is_exact)
    note = " ".join([legend, *_more_runs(rows), *few])
    title = f"Change of {FIGURES[rows[0].figure]}"
    return [tabulate(title, rows, columns, note, drop=("half_width", "verdict")).without_missing()]


def _axis_end(rows: Sequence[ComparisonRow]) -> float:
    """Return where the axis of changes ends: at the largest one, unless it is not sure and far from most others.

    One noisy level, or a wide interval, would make all changes one dot: what is outside has an arrow.
    """
    sizes = [abs(row.change or 0.0) for row in rows]
    far = max(_NEAR, _FAR * median(sizes))
    largest = max(size for size, row in zip(sizes, rows, strict=True) if size <= far or row_code(row) != "unsure")
    return value_axis([max(EQUIVALENT, 1.1 * largest)], 2).high


def _meanings(pair: Pair) -> dict[Code, str]:
    """The meanings of signs; nothing is known of a change between runs in doubt, however large it is."""
    return _MEANINGS | ({"unsure": "not sure: a run is in doubt"} if pair.doubts else {})


def _legend(changes: Collection[Cell], bars: Collection[Cell], unsure: str, *, is_exact: bool) -> str:
    """Explain the signs that are used; a change that `is_exact` has half of its interval beside it."""
    used, drawn = {change.code for change in changes}, {sign for bar in bars for sign in bar.text}
    decided = ", ".join(f"{SIGNS[code]} {text}" for code, text in _DECIDED.items() if code in used)
    likely = ", ".join(f"{SIGNS[code]} {code}" for code in _LIKELY if code in used)
    outside = " ".join(sign for sign in _OUTSIDE if sign in drawn)
    brackets, exact = (["├ ┤"] if drawn & {"├", "┤"} else []), (["±"] if is_exact else [])
    signs = (
        f"{decided}, 95 % sure over all levels together" if decided else "",
        f"{likely}, with too few runs to be sure" if likely else "",
        f"{SIGNS['unsure']} {unsure}" if "unsure" in used else "",
    )
    explained = (
        f"{' '.join(ends)}: interval of the change" if (ends := [*brackets, *exact]) else "",
        f"{outside}: outside the axis" if outside else "",
    )
    return " ".join(f"{'; '.join(filter(None, part))}." for part in (signs, explained) if any(part))


def _more_runs(rows: Sequence[ComparisonRow]) -> list[str]:
    """Say how many runs the levels need that are not decided yet."""
    verdicts = [row.verdict for row in rows if row.verdict is not None]
    if any(verdict.word is None for verdict in verdicts):
        return [f"A verdict needs {MIN_RUNS} runs of each."]
    open_ = [verdict for verdict in verdicts if verdict.word == "not sure yet"]
    needed = [verdict.needed for verdict in open_ if verdict.needed and verdict.needed > min(verdict.n_a, verdict.n_b)]
    detected = short_percent(verdicts[0].detect) if verdicts else ""
    return [f"?: {max(needed)} runs of each would very likely show a difference of {detected}."] if needed else []


def change_bar(row: ComparisonRow, top: float) -> str:
    """Draw a change around zero with the interval that is known."""
    return bar(row.change or 0.0, top, _BAR, _known_interval(row))


def _half_width(row: ComparisonRow) -> str | None:
    """Return half of the interval of a change, in percent of the figure before."""
    known = _known_interval(row)
    half = 50 * (known[1] - known[0]) if known else 0.0
    return fixed(half, int(half < _ONE_DECIMAL)) if known else None


def _known_interval(row: ComparisonRow) -> tuple[float, float] | None:
    return None if row.interval is None or row.interval.is_wide else (row.interval.low, row.interval.high)


def bar(value: float, top: float, half: int, interval: tuple[float, float] | None = None) -> str:
    """Draw a value around zero: `·····│━━━├●┤·`; brackets end its interval, and what is outside has an arrow.

    `half` are the cells on each side of zero.
    """

    def place(value: float) -> int:
        return half + round(min(1.0, max(-1.0, value / top)) * half)

    cells = ["·"] * (2 * half + 1)
    at = place(value)
    cells[min(half, at) : max(half, at) + 1] = "━" * (abs(at - half) + 1)
    if interval is not None:
        low, high = map(place, interval)
        cells[low : high + 1] = "─" * (high - low + 1)
        cells[low] = "├" if interval[0] >= -top else _OUTSIDE[0]
        cells[high] = "┤" if interval[1] <= top else _OUTSIDE[1]
    cells[half] = "│"
    cells[at] = "●" if abs(value) <= top else _OUTSIDE[at > half]
    return "".join(cells)
