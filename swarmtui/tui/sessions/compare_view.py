"""Sessions side by side: their curves over each other, the table of differences, and the stages of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from swarmtui.text import plain, signed
from swarmtui.tui.lines import Line, left, right, wrapped
from swarmtui.tui.numbers import NOTHING, rate, seconds

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Beside, Comparison, Pair, Row, Stage
    from swarmtui.model.session import Level, Summary

Shown = Literal["output tok/s", "TTFT, s", "tok/s a stream"]

CURVES: dict[Shown, Callable[[Level], float | None]] = {
    "output tok/s": lambda level: level.lead_tps,
    "TTFT, s": lambda level: level.ttft_s.p50 if level.ttft_s.p50 is not None else level.ttft_s.mean,
    "tok/s a stream": lambda level: level.per_stream_tps.mean,
}
_FIGURES = {"out_tps_steady": "tok/s steady", "out_tps_wall": "tok/s wall", "per_stream_tps": "tok/s a stream"}
_WORDS = {"faster": "good", "slower": "bad"}


class Overlaid(NamedTuple):
    """One curve: `at` are levels, `values` what was measured there."""

    name: str
    at: tuple[float, ...]
    values: tuple[float, ...]


class OverlayView(NamedTuple):
    """`varied` is what the levels are: C, or a rate."""

    shown: Shown
    curves: tuple[Overlaid, ...]
    varied: str
    empty: str


def overlay_view(summaries: Sequence[Summary], names: dict[str, str], shown: Shown) -> OverlayView:
    of = CURVES[shown]
    curves = []
    for summary in summaries:
        points = [(level.at, value) for level in summary.levels if (value := of(level)) is not None]
        name = plain(summary.session.label) or names.get(summary.session.id, summary.session.id)
        curves.append(Overlaid(name, tuple(at for at, _ in points), tuple(value for _, value in points)))
    empty = "" if any(curve.at for curve in curves) else f"no session has a figure for {shown}"
    rates = any(level.rate is not None for summary in summaries for level in summary.levels)
    return OverlayView(shown, tuple(curves), "requests/s" if rates else "C", empty)


def comparison_lines(found: Comparison, names: dict[str, str], width: int) -> list[Line]:
    """Each against the first: what changed, what it did, and how sure that is; then all in a row."""
    lines: list[Line] = []
    for pair in found.pairs:
        lines += [*_pair(pair, names, width), []]
    if len(found.stages) > 2:
        lines += _stages(found.stages, width)
    return lines


def _pair(pair: Pair, names: dict[str, str], width: int) -> list[Line]:
    lines: list[Line] = [[(f" {names.get(pair.a, pair.a)}  →  {names.get(pair.b, pair.b)}", "title")]]
    lines += _told(pair.sentence, "", "bold", width)
    for why in pair.refused:
        lines += _told(why, "✖ ", "bad", width)
    for note in pair.notes:
        lines += _told(note, "▲ ", "warn", width)
    for difference in (*pair.flags, *pair.differences):
        lines += _told(str(difference), "  ", "second", width)
    varied = "rate" if any(row.rate is not None for row in pair.rows) else "C"
    titles = f"  {varied:>4}  {'figure':<15}{'before':>8}{'after':>8}{'change':>9}{'95 %':>20}  verdict"
    if pair.rows:
        lines += [[(titles, "dim")], *map(_row, pair.rows)]
    if pair.machine:
        lines += [[(f"  {varied:>4}  {'machine':<24}{'before':>9}{'after':>9}", "dim")], *map(_beside, pair.machine)]
    for row in pair.rows:
        if row.figure == "out_tps_steady" and row.verdict is not None:
            lines += _told(f"{row.name}: {row.verdict.sentence}", "  ", "dim", width)
    for only, name in ((pair.only_a, pair.a), (pair.only_b, pair.b)):
        if only:
            lines.append([(f"   only in {names.get(name, name)}: {','.join(f'{at:g}' for at in only)}", "dim")])
    return lines


def _told(text: str, sign: str, style: str, width: int) -> list[Line]:
    return [[(f" {sign}{part}", style)] for part in wrapped(plain(text), width - 2 - len(sign))]


def _row(row: Row) -> Line:
    words = seconds if row.figure == "ttft_s" else rate
    verdict = row.verdict
    interval = verdict.interval if verdict else None
    change = NOTHING if verdict is None or verdict.change is None else signed(verdict.change)
    sure = NOTHING if interval is None else f"{signed(interval.low)} … {signed(interval.high)}"
    said = "refused" if verdict is None else verdict.word
    return [
        (f"  {row.at:>4g}  {_FIGURES.get(row.figure, 'TTFT'):<15}{words(row.before):>8}{words(row.after):>8}", ""),
        (f"{change:>9}{sure:>20}  ", ""),
        (said, _WORDS.get(said, "dim")),
    ]


def _beside(beside: Beside) -> Line:
    at = beside.c if beside.rate is None else beside.rate
    name = f"{beside.figure}, {beside.unit}"
    return [(f"  {at:>4g}  {name:<24}{_amount(beside.before):>9}{_amount(beside.after):>9}", "")]


def _stages(stages: Sequence[Stage], width: int) -> list[Line]:
    """One change a row, as far as people changed one thing at a time."""
    lines: list[Line] = [[(" All in the order in which they were made; ▸ is the best of its model", "title")]]
    room = max(12, width - 50)
    lines.append([(f"   {left('session', room)}{'C=1':>9}{'best':>9}{'at':>6}{'TPOT ms':>9}{'TTFT':>9}", "dim")])
    for stage in stages:
        tpot = None if stage.tpot_s is None else 1e3 * stage.tpot_s
        numbers = f"{rate(stage.out_tps_alone):>9}{rate(stage.best_out_tps):>9}{stage.best_at or NOTHING:>6}"
        lines.append(
            [
                (" ▸ " if stage.best_of_model else "   ", "good"),
                (left(plain(f"{stage.label or stage.id} · {stage.model}"), room), ""),
                (f"{numbers}{_amount(tpot):>9}{right(seconds(stage.ttft_s), 9)}", ""),
            ]
        )
        if stage.changes:
            lines += _told("; ".join(stage.changes), "    ", "second", width)
    return lines


def _amount(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3g}"
