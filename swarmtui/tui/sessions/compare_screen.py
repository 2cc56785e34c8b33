"""The screen that compares sessions: their curves in one plot, and a table of differences from the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from textual.app import ComposeResult

from swarmtui.analysis.capacity.pareto import PARETO_UNITS, ParetoUnit, gpus_known, pareto_points
from swarmtui.model.plan import load_title
from swarmtui.numbers import MISSING, rate, seconds, signed_percent, significant
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import KeyFooter, Page, Pager
from swarmtui.tui.keys import Action, in_footer
from swarmtui.tui.lines import Line, heading, ljust, rjust, wrap
from swarmtui.tui.live.curve import level_points
from swarmtui.tui.plot import PlotPanel, PlotTrace, Point, logarithmic, zero_based_axis

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Comparison, ComparisonRow, LeaderboardRow, MachineRow, Pair
    from swarmtui.model.session import Level, Summary

LevelFigure = Literal["output tok/s", "TTFT, s", "stream tok/s"]
PlottedFigure = LevelFigure | ParetoUnit

_LEVEL_FIGURES: dict[LevelFigure, Callable[[Level], float | None]] = {
    "output tok/s": lambda level: level.headline_tps,
    "TTFT, s": lambda level: level.ttft_s.median,
    "stream tok/s": lambda level: level.per_stream_tps.mean,
}
_FIGURE_NAMES = {"out_tps_steady": "tok/s steady", "out_tps_wall": "tok/s wall", "per_stream_tps": "tok/s stream"}
_VERDICT_STYLES = {"faster": "good", "slower": "bad"}
_MARKERS = "●◆▲■○✚"
_STYLES = ("first", "second", "bad", "dim")


class SessionCurve(NamedTuple):
    """The plotted figure of one session, by C or request rate."""

    name: str
    points: tuple[Point, ...]


class OverlayView(NamedTuple):
    """`x_axis` is C, requests/s, or measured: then the points of a curve are in the order of C."""

    y_axis: str
    curves: tuple[SessionCurve, ...]
    x_axis: str
    empty: str
    measured_x: bool = False


# views


def overlay_view(summaries: Sequence[Summary], names: dict[str, str], figure: PlottedFigure) -> OverlayView:
    if figure == "tok/s" or figure == "jobs/h":
        return _pareto_view(summaries, names, figure)
    curves = []
    for summary in summaries:
        name = names.get(summary.session.id, summary.session.id)
        curves.append(SessionCurve(name, level_points(summary.levels, _LEVEL_FIGURES[figure])))
    empty = "" if any(curve.points for curve in curves) else f"no session has {figure}"
    has_rates = any(level.rate is not None for summary in summaries for level in summary.levels)
    return OverlayView(figure, tuple(curves), "requests/s" if has_rates else "C", empty)


def _pareto_view(summaries: Sequence[Summary], names: dict[str, str], unit: ParetoUnit) -> OverlayView:
    per_gpu = gpus_known(summaries)
    curves = [
        SessionCurve(
            names.get(summary.session.id, summary.session.id),
            tuple((point.x, point.y) for point in pareto_points(summary, unit, per_gpu=per_gpu)),
        )
        for summary in summaries
    ]
    empty = "" if any(curve.points for curve in curves) else f"no session has {unit} per user"
    y_axis = f"{unit} per {'GPU' if per_gpu else 'server'}"
    return OverlayView(y_axis, tuple(curves), f"{unit} per user", empty, measured_x=True)


def plotted_figures(summaries: Sequence[Summary]) -> list[PlottedFigure]:
    """Return what the curves can show: jobs only if recorded sessions were replayed."""
    jobs = any(level.replay and level.replay.jobs_per_h for summary in summaries for level in summary.levels)
    return [*_LEVEL_FIGURES, *(unit for unit in PARETO_UNITS if jobs or unit != "jobs/h")]


def comparison_lines(found: Comparison, names: dict[str, str], width: int) -> list[Line]:
    """Compare each session with the baseline, then list all sessions."""
    lines: list[Line] = []
    for pair in found.pairs:
        lines += [*_pair(pair, names, width), []]
    if len(found.leaderboard) > 2:
        lines += _leaderboard(found.leaderboard, width)
    return lines


def _pair(pair: Pair, names: dict[str, str], width: int) -> list[Line]:
    from swarmtui.analysis.compare.sessions import headline_row

    before, after = names.get(pair.a, pair.a), names.get(pair.b, pair.b)
    lines: list[Line] = [[(f" {before}  →  {after}", "title")]]
    if pair.a not in before or pair.b not in after:
        lines.append([(f" {pair.a}  →  {pair.b}", "dim")])
    lines += _wrapped(pair.sentence, "", "bold", width)
    for refusal in pair.refused:
        lines += _wrapped(str(refusal), "✖ ", "bad", width)
    for note in pair.notes:
        lines += _wrapped(str(note), "▲ ", "warn", width)
    for difference in (*pair.flags, *pair.differences):
        lines += _wrapped(str(difference), "  ", "second", width)
    load = load_title(pair.rows)
    titles = f"  {load:>4}  {'figure':<15}{'before':>8}{'after':>8}{'change':>9}{'interval':>20}  verdict"
    if pair.rows:
        lines += [[(titles, "dim")], *(_figure_row(row, bool(pair.refused)) for row in pair.rows)]
    if pair.machine:
        lines += [[(f"  {load:>4}  {'machine':<29}{'before':>9}{'after':>9}", "dim")], *map(_machine_row, pair.machine)]
    headline = headline_row(pair)
    for row in pair.rows:
        if row is not headline and row.verdict is not None:
            lines += _wrapped(f"{row.name}: {row.verdict.sentence}", "  ", "dim", width)
    for only, name in ((pair.only_a_names, pair.a), (pair.only_b_names, pair.b)):
        if only:
            lines.append([(f"   only in {names.get(name, name)}: {', '.join(only)}", "dim")])
    return lines


def _wrapped(text: str, sign: str, style: str, width: int) -> list[Line]:
    parts = wrap(sanitize(text), width - 2 - len(sign))
    return [[(f" {' ' * len(sign) if at else sign}{part}", style)] for at, part in enumerate(parts)]


def _figure_row(row: ComparisonRow, refused: bool) -> Line:
    number = seconds if row.figure == "ttft_s" else rate
    interval = row.interval
    confidence = MISSING if interval is None else f"{signed_percent(interval.low)} … {signed_percent(interval.high)}"
    word = "refused" if refused else row.verdict.word if row.verdict else ""
    name = _FIGURE_NAMES.get(row.figure, "TTFT")
    return [
        (f"  {row.offered_load:>4g}  {name:<15}{number(row.before):>8}{number(row.after):>8}", ""),
        (f"{signed_percent(row.change):>9}{confidence:>20}  ", ""),
        (word, _VERDICT_STYLES.get(word, "dim")),
    ]


def _machine_row(row: MachineRow) -> Line:
    name = f"{row.figure}, {row.unit}"
    numbers = f"{significant(row.before, 3):>9}{significant(row.after, 3):>9}"
    return [(f"  {row.offered_load:>4g}  {name:<29}{numbers}", "")]


def _leaderboard(rows: Sequence[LeaderboardRow], width: int) -> list[Line]:
    """List all sessions with the changes from one to the next."""
    lines: list[Line] = [[(" All sessions, oldest first; ▸ is the best of its model", "title")]]
    room = max(12, width - 50)
    lines.append([(f"   {ljust('session', room)}{'C=1':>9}{'best':>9}{'at':>6}{'TPOT ms':>9}{'TTFT':>9}", "dim")])
    for row in rows:
        tpot = None if row.tpot_s is None else 1e3 * row.tpot_s
        numbers = f"{rate(row.out_tps_alone):>9}{rate(row.best_out_tps):>9}{row.best_at or MISSING:>6}"
        lines.append(
            [
                (" ▸ " if row.best_of_model else "   ", "good"),
                (ljust(sanitize(f"{row.label or row.id} · {row.model}"), room), ""),
                (f"{numbers}{significant(tpot, 3):>9}{rjust(seconds(row.ttft_s), 9)}", ""),
            ]
        )
        if row.changes:
            lines += _wrapped("; ".join(row.changes), "    ", "second", width)
    return lines


# widgets


class OverlayPanel(PlotPanel[OverlayView]):
    """The curves of several sessions, each with its own marker."""

    title = "compare"

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        lines = [heading("", self.title, f"{view.y_axis} by {view.x_axis}" if view else "", width)]
        if view is None or view.empty or self.plotext is None:
            return [*lines, [(f" {(view.empty or 'drawing …') if view else ''}", "dim")]]
        shown = [
            (curve, _MARKERS[number % len(_MARKERS)], _STYLES[number % len(_STYLES)])
            for number, curve in enumerate(view.curves)
            if curve.points
        ]
        lines.append(_legend(shown, width))
        if height < 7 or width < 24:
            return lines
        points = [point for curve, _, _ in shown for point in curve.points]
        axis = zero_based_axis("left", points, height - 2)
        if view.measured_x:
            traces = [PlotTrace(curve.points, style, marker) for curve, marker, style in shown]
            ticks = list(zero_based_axis("left", [(y, x) for x, y in points]).ticks)
        else:
            traces = [PlotTrace(logarithmic(curve.points), style, marker) for curve, marker, style in shown]
            ticks = [(log2(load), f"{load:g}") for load in sorted({load for load, _ in points})]
        return [*lines, *self.plot(width, height - 2, traces, [axis], ticks)]


def _legend(shown: list[tuple[SessionCurve, str, str]], width: int) -> Line:
    room = max(8, width // len(shown) - 1)
    return [(ljust(f" {marker} {curve.name}", room), style) for curve, marker, style in shown]


class CompareScreen(Pager):
    key_context = "compare"

    def __init__(
        self, root: Path, summaries: Sequence[Summary], names: dict[str, str], history: Sequence[Summary] = ()
    ) -> None:
        super().__init__()
        self._root = root
        self._summaries, self._names, self._history = list(summaries), names, history
        self._baseline = 0
        self._figure = 0

    def compose(self) -> ComposeResult:
        yield OverlayPanel()
        yield Page("differences")
        yield KeyFooter()

    def actions(self) -> list[Action]:
        return in_footer(super().actions(), "export")

    def update_panels(self) -> None:
        from swarmtui.analysis.compare.sessions import compare

        first = self._summaries[self._baseline]
        ordered = [first, *(summary for summary in self._summaries if summary is not first)]
        figure = plotted_figures(self._summaries)[self._figure]
        self.query_one(OverlayPanel).show(overlay_view(ordered, self._names, figure))
        page = self.query_one(Page)
        page.note = f"baseline: {self._names.get(first.session.id, first.session.id)}"
        found = compare(self._summaries, self._baseline, history=self._history)
        page.show(comparison_lines(found, self._names, max(40, self.app.size.width)))

    def action_next_baseline(self) -> None:
        self._baseline = (self._baseline + 1) % len(self._summaries)
        self.query_one(Page).scroll_to_line(0)
        self.update_panels()

    def action_export(self) -> None:
        self.app.open_screen("export", self._root, [summary.session.id for summary in self._summaries])

    def action_next_figure(self) -> None:
        self._figure = (self._figure + 1) % len(plotted_figures(self._summaries))
        self.update_panels()
