"""A panel that shows charts one above the other."""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.report.chart import Chart
from swarmtui.report.dot_chart import SMALLEST, paint_charts
from swarmtui.tui.lines import Line, Panel, longest_fit, wrapped_note


class ChartView(NamedTuple):
    """Charts over the same x axis, or why there are none; `notes` are versions of a remark from long to short."""

    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()
    empty: str = ""


class ChartPanel(Panel[ChartView]):
    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view or ChartView()
        note = longest_fit(view.notes, width - len(self.title) - 12)
        lines = [self.heading(note, width)]
        if not view.charts or width < SMALLEST[0] or height - 1 < SMALLEST[1]:
            return [*lines, *wrapped_note(view.empty or "no room for the curve", width)]
        return [*lines, *paint_charts(view.charts, width, height - 1)]
