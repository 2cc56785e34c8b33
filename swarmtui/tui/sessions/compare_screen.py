"""The screen that compares sessions: their curves in one plot, and a table of differences from the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from textual.app import ComposeResult

from swarmtui.tui.base_screens import KeyFooter, Page, Pager
from swarmtui.tui.keys import Action, in_footer
from swarmtui.tui.lines import Line, heading, ljust
from swarmtui.tui.plot import PlotPanel, PlotTrace, logarithmic, zero_based_axis
from swarmtui.tui.tables import block_lines

if TYPE_CHECKING:
    from swarmtui.model.session import Summary
    from swarmtui.report.charts import Chart

_MARKERS = "●◆▲■○✚"
_STYLES = ("first", "second", "bad", "dim")


class OverlayView(NamedTuple):
    """A chart, or why there is none."""

    chart: Chart | None
    empty: str = ""


class OverlayPanel(PlotPanel[OverlayView]):
    """The curves of several sessions, each with its own marker."""

    title = "compare"

    def draw(self, width: int, height: int) -> list[Line]:
        chart = self.view.chart if self.view else None
        lines = [heading("", self.title, f"{chart.y} by {chart.x}" if chart else "", width)]
        if chart is None or self.plotext is None:
            return [*lines, [(f" {self.view.empty or 'drawing …'}" if self.view else "", "dim")]]
        shown = [
            (series, _MARKERS[number % len(_MARKERS)], _STYLES[number % len(_STYLES)])
            for number, series in enumerate(chart.series)
        ]
        room = max(8, width // len(shown) - 1)
        lines.append([(ljust(f" {marker} {series.name}", room), style) for series, marker, style in shown])
        if height < 7 or width < 24:
            return lines
        points = [point for series, _, _ in shown for point in series.points]
        axis = zero_based_axis("left", points, height - 2)
        if chart.kind == "xy":
            traces = [PlotTrace(series.points, style, marker) for series, marker, style in shown]
            ticks = list(zero_based_axis("left", [(y, x) for x, y in points]).ticks)
        else:
            traces = [PlotTrace(logarithmic(series.points), style, marker) for series, marker, style in shown]
            ticks = [(log2(load), f"{load:g}") for load in sorted({load for load, _ in points})]
        return [*lines, *self.plot(width, height - 2, traces, [axis], ticks)]


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
        from swarmtui.report.comparison import comparison_blocks

        charts = self._charts()
        chart = charts[self._figure % len(charts)] if charts else None
        self.query_one(OverlayPanel).show(OverlayView(chart, "" if chart else "no session has a level"))
        page = self.query_one(Page)
        first = self._summaries[self._baseline].session.id
        page.note = f"baseline: {self._names.get(first, first)}"
        found = compare(self._summaries, self._baseline, history=self._history)
        page.show(block_lines(comparison_blocks(found, self._names), max(40, self.app.size.width)))

    def _charts(self) -> list[Chart]:
        """Return the charts that have a curve per session, the baseline first."""
        from swarmtui.report.charts import SessionData, comparison_charts

        first = self._summaries[self._baseline]
        ordered = [first, *(summary for summary in self._summaries if summary is not first)]
        names = (self._names.get(summary.session.id, summary.session.id) for summary in ordered)
        return comparison_charts([SessionData(name, summary) for name, summary in zip(names, ordered, strict=True)])

    def action_next_baseline(self) -> None:
        self._baseline = (self._baseline + 1) % len(self._summaries)
        self.query_one(Page).scroll_to_line(0)
        self.update_panels()

    def action_export(self) -> None:
        self.app.open_screen("export", self._root, [summary.session.id for summary in self._summaries])

    def action_next_figure(self) -> None:
        self._figure += 1
        self.update_panels()
