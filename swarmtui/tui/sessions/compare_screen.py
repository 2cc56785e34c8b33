"""The screen that compares sessions: their curves in one plot, and a table of differences from the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from swarmtui.tui.base_screens import KeyFooter, Page, Pager
from swarmtui.tui.chart_panel import ChartPanel, ChartView
from swarmtui.tui.keys import Action, in_footer
from swarmtui.tui.tables import block_lines

if TYPE_CHECKING:
    from swarmtui.model.session import Summary
    from swarmtui.report.chart import Chart


class OverlayPanel(ChartPanel):
    """The curves of several sessions."""

    title = "compare"


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

        pictures = self._pictures()
        charts = pictures[self._figure % len(pictures)] if pictures else ()
        title = charts[0].title if self._figure % max(1, len(pictures)) else ""
        self.query_one(OverlayPanel).show(ChartView(charts, (title,), "" if charts else "no session has a level"))
        page = self.query_one(Page)
        first = self._summaries[self._baseline].session.id
        page.note = f"baseline: {self._names.get(first, first)}"
        found = compare(self._summaries, self._baseline, history=self._history)
        page.show(block_lines(comparison_blocks(found, self._names), max(40, self.app.size.width)))

    def _pictures(self) -> list[tuple[Chart, ...]]:
        """Return the charts that have a curve per session, the baseline first; the main ones are one picture."""
        from swarmtui.report.charts import PICTURE, SessionData, comparison_charts

        first = self._summaries[self._baseline]
        ordered = [first, *(summary for summary in self._summaries if summary is not first)]
        names = (self._names.get(summary.session.id, summary.session.id) for summary in ordered)
        data = [SessionData(name, summary) for name, summary in zip(names, ordered, strict=True)]
        charts = comparison_charts(data)
        main = tuple(chart for chart in charts if chart.name in PICTURE)
        return [*([main] if main else []), *((chart,) for chart in charts if chart.name not in PICTURE)]

    def action_next_baseline(self) -> None:
        self._baseline = (self._baseline + 1) % len(self._summaries)
        self.query_one(Page).scroll_to_line(0)
        self.update_panels()

    def action_export(self) -> None:
        self.app.open_screen("export", self._root, [summary.session.id for summary in self._summaries])

    def action_next_figure(self) -> None:
        self._figure += 1
        self.update_panels()
