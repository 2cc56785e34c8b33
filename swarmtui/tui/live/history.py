"""The past, drawn from nought up, with the top of each scale beside it."""

from __future__ import annotations

from swarmtui.tui.lines import Line, Lines, heading, left, right
from swarmtui.tui.live.history_view import HistoryView, Mark, Trace
from swarmtui.tui.numbers import columns, spark

LABEL = 15
_STYLES = ("first", "second", "warn", "warn", "dim")


class History(Lines):
    view: HistoryView | None = None

    @property
    def columns(self) -> int:
        return max(0, self.size.width - LABEL)

    def show(self, view: HistoryView) -> None:
        self.view = view
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None or not view.traces:
            empty = view.empty if view else ""
            return [heading("2", "history", "", width), [(f" {empty}", "dim")]]
        lines = [heading("2", "history", f"{view.start} to {view.end}", width)]
        room = height - 2
        traces = view.traces if room >= 2 * len(view.traces) else view.traces[: max(1, room // 2)]
        each, more = divmod(room, len(traces))
        for number, trace in enumerate(traces):
            style = _STYLES[view.traces.index(trace) % len(_STYLES)]
            lines += _trace(trace, each + (1 if number < more else 0), style)
        lines.append([(left(" C", LABEL), "dim"), (_axis(view.marks, width - LABEL), "dim")])
        return lines


class Strip(Lines):
    """The same in one line for each trace, where there is no room for more."""

    traces: tuple[Trace, ...] = ()

    @property
    def columns(self) -> int:
        return max(0, self.size.width - 2 * LABEL)

    def show(self, traces: tuple[Trace, ...]) -> None:
        self.traces = traces
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        lines: list[Line] = []
        for trace, style in zip(self.traces, ("first", "warn"), strict=False):
            shown = spark(trace.values, trace.top)
            lines.append([
                (left(f" {trace.label}", LABEL), "dim"),
                (right(shown, width - 2 * LABEL), style),
                (left(f" max {trace.top_label}", LABEL), "dim"),
            ])  # fmt: skip
        return lines


def _trace(trace: Trace, height: int, style: str) -> list[Line]:
    labels = [
        (left(f" {trace.label}", LABEL), "dim"),
        (left(f" {trace.now}", LABEL), "bold"),
        *[(" " * LABEL, "")] * height,
    ]
    if height > 2:
        labels[2] = (left(f" 0 to {trace.top_label}", LABEL), "dim")
    elif height == 2:
        labels[0] = (left(f" {trace.label}", LABEL), "dim")
        labels[1] = (left(f" {trace.now}/{trace.top_label}", LABEL), "bold")
    shown = columns(trace.values, trace.top, height)
    return [[labels[row], (text, style)] for row, text in enumerate(shown)]


def _axis(marks: tuple[Mark, ...], width: int) -> str:
    """Where C changed; a label that has no room gives way to the next."""
    axis = ["─"] * width
    free = 0
    for place, mark in enumerate(marks):
        ends = marks[place + 1].column if place + 1 < len(marks) else width
        text = f"╵{mark.label}"
        if mark.column < width:
            axis[mark.column] = "╵"
        if mark.column >= free and mark.column + len(text) <= max(ends, 0):
            axis[mark.column : mark.column + len(text)] = text
            free = mark.column + len(text) + 1
    return "".join(axis[:width])
