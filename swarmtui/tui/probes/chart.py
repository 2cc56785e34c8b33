"""The history of probes as a chart over time."""

from __future__ import annotations

from swarmtui.tui.lines import Line, heading
from swarmtui.tui.plot import Axis, Plot, Trace
from swarmtui.tui.probes.view import ProbesView, fact_lines


class ProbeChart(Plot):
    view: ProbesView | None = None
    filter = ""

    def show(self, view: ProbesView, words: str) -> None:
        self.view, self.filter = view, words
        if not view.empty:
            self.load()
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        beside = " · ".join(
            part for part in (f"/{self.filter}" if self.filter else "", view.place if view else "") if part
        )
        lines = [heading("", "probes", beside, width)]
        if view is None or view.empty or self.plotext is None:
            return [*lines, [(f" {view.empty or 'drawing …' if view else 'looking …'}", "dim")]]
        facts = fact_lines(view, width - 1)
        legend: Line = [
            (" ● probe, tok/s", "first"), ("  ✖ outside", "bad"), ("  ── rolling median", "second"),
            ("  ·· one in twenty falls outside", "dim"),
        ]  # fmt: skip
        room = height - 3 - len(facts)
        drawn = self._chart(view, width, room) if room >= 6 and width >= 24 else []
        return [*lines, [(f" {view.target}", "bold")], *facts, legend, *drawn]

    def _chart(self, view: ProbesView, width: int, height: int) -> list[Line]:
        traces = [
            Trace(*view.low, "dim", "·"),
            Trace(*view.high, "dim", "·"),
            Trace(*view.median, "second"),
            Trace(*view.inside, "first", "●", joined=False),
            Trace(*view.outside, "bad", "✖", joined=False),
        ]
        places = [view.bottom + (view.top - view.bottom) * part / 3 for part in range(4)]
        labels = [f"{place:.4g}" for place in places]
        if len(set(labels)) < len(labels):
            labels = [f"{place:.1f}" for place in places]
        axis = Axis("left", view.bottom, view.top, list(zip(places, labels, strict=True)))
        return self.plotted(width, height, [trace for trace in traces if trace.xs], [axis], view.ticks)
