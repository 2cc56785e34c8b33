"""The history of a session on one time axis: each column shows the mean over its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarmtui.analysis.levels.stats import mean
from swarmtui.model.load import traits
from swarmtui.model.telemetry import HistoryPoint
from swarmtui.numbers import clock, count, rate, seconds
from swarmtui.tui.lines import Line, Panel, bar_columns, ljust, rjust, scale_top, sparkline
from swarmtui.tui.live.live_panel import LiveData, LivePanel

_LABEL = 15
# The time between two points.
_POINT_S = 0.25
# A longer time between two points is a gap.
_LONGEST_GAP_S = 1.0
_STYLES = ("first", "second", "warn", "warn", "dim")


class HistoryTrace(NamedTuple):
    """`now` is the newest value; empty after the end, when no moment is the present one."""

    label: str
    now: str
    top: float | None
    top_label: str
    values: tuple[float | None, ...]


class CMark(NamedTuple):
    """A column from which C has another value."""

    column: int
    label: str


class HistoryView(NamedTuple):
    traces: tuple[HistoryTrace, ...]
    marks: tuple[CMark, ...]
    start: str
    end: str
    empty: str


# views


def history_view(
    points: Sequence[HistoryPoint],
    t0_ns: int,
    columns: int,
    whole_session: bool,
    ended: bool = False,
    now: HistoryPoint | None = None,
) -> HistoryView:
    """Show the newest seconds, one per column; with `whole_session` everything, in all columns after the end.

    Before the end, the width is that of a round time, so that few columns change: in steps of up to a third.
    `now` has the newest values, which may be later than the last point.
    """
    if not points or columns < 4:
        return HistoryView((), (), "", "", "no history yet: it starts with the first request")
    length_s = max(1.0, (points[-1].t_ns - t0_ns) / 1e9)
    first_s = 0 if whole_session else max(0, int(length_s) - columns + 1)
    whole_s = length_s / columns if ended else max(_POINT_S, scale_top(length_s + 1.0) / columns)
    step_s = whole_s if whole_session else 1.0
    shown = min(columns, int((length_s - first_s) // step_s) + 1)
    buckets: list[list[HistoryPoint]] = [[] for _ in range(shown)]
    for point in reversed(points):
        column = int(((point.t_ns - t0_ns) / 1e9 - first_s) // step_s)
        if column < 0:
            break
        buckets[min(column, len(buckets) - 1)].append(point)
    if whole_session:
        # A short session has fewer points than columns. What is not known, as after Ctrl-Z, stays blank.
        blank = 0
        for column in range(1, len(buckets)):
            blank = 0 if buckets[column] else blank + 1
            if 0 < blank * step_s <= _LONGEST_GAP_S:
                buckets[column] = buckets[column - 1]
    newest = now or points[-1]
    traces = [
        _trace("output tok/s", buckets, lambda p: p.out_tps, rate, newest),
        _trace("TTFT", buckets, lambda p: p.ttft_s, seconds, newest),
        _trace("queue", buckets, lambda p: float(p.waiting), count, newest, least=1.0),
        _trace("in flight", buckets, lambda p: float(p.in_flight), count, newest, least=1.0),
    ]
    if any(point.server_waiting is not None for bucket in buckets for point in bucket):
        traces.insert(3, _trace("server queue", buckets, lambda p: p.server_waiting, count, newest, least=1.0))
    if ended:
        traces = [trace._replace(now="") for trace in traces]
    return HistoryView(tuple(traces), _marks(buckets), clock(first_s), clock(int(length_s)), "")


def strip_view(points: Sequence[HistoryPoint], t0_ns: int, columns: int, ended: bool) -> tuple[HistoryTrace, ...]:
    """The two traces of a small screen."""
    throughput, _, queue, *_ = history_view(points, t0_ns, columns, ended, ended).traces or (None,) * 3
    return tuple(trace for trace in (throughput, queue) if trace is not None)


def _trace(
    label: str,
    buckets: list[list[HistoryPoint]],
    read: Callable[[HistoryPoint], float | None],
    write: Callable[[float | None], str],
    newest: HistoryPoint,
    least: float = 0.0,
) -> HistoryTrace:
    """`least` is the lowest top of the scale: 1 for counts."""
    values = tuple(mean([value for point in bucket if (value := read(point)) is not None]) for bucket in buckets)
    highest = max((value for value in (*values, read(newest)) if value is not None), default=None)
    top = scale_top(max(highest or 0.0, least)) or None
    return HistoryTrace(label, write(read(newest)), top, write(top), values)


def _marks(buckets: list[list[HistoryPoint]]) -> tuple[CMark, ...]:
    """Return the columns in which C changed, and C at the left edge."""
    marks: list[CMark] = []
    before: int | None = None
    for column, bucket in enumerate(buckets):
        for point in reversed(bucket):
            if point.c != before and point.c:
                if marks and marks[-1].column == column:
                    marks.pop()
                marks.append(CMark(column, str(point.c)))
            before = point.c or before
    return tuple(marks)


# widgets


class HistoryPanel(LivePanel, Panel[HistoryView]):
    """All traces, each on a scale from 0 to the value beside it."""

    key, title, row = 2, "history", "upper"

    def update_from(self, data: LiveData) -> None:
        live, ended = data.shown, data.has_ended
        now = live.frame.point if live.frame else None
        whole_session = ended or data.only_panel == self.key
        view = history_view(live.points, data.t0_ns, self.columns, whole_session, ended, now)
        # The C of an open loop is the number of agents in reserve.
        self.show(view._replace(marks=()) if live.frame is not None and traits(live.frame.load).by_rate else view)

    @property
    def columns(self) -> int:
        return max(0, self.size.width - _LABEL)

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None or not view.traces:
            empty = view.empty if view else ""
            return [self.heading("", width), [(f" {empty}", "dim")]]
        lines = [self.heading(f"{view.start} to {view.end}", width)]
        room = height - 2
        traces = view.traces if room >= 2 * len(view.traces) else view.traces[: max(1, room // 2)]
        each, more = divmod(room, len(traces))
        for number, trace in enumerate(traces):
            style = _STYLES[view.traces.index(trace) % len(_STYLES)]
            lines += trace_lines(trace, each + (1 if number < more else 0), style)
        lines.append([(ljust(" C", _LABEL), "dim"), (_axis(view.marks, width - _LABEL), "dim")])
        return lines


class HistoryStrip(LivePanel, Panel[tuple[HistoryTrace, ...]]):
    """One line per trace, for small screens."""

    def update_from(self, data: LiveData) -> None:
        live = data.shown
        self.show(strip_view(live.points, data.t0_ns, self.columns, data.has_ended))

    @property
    def columns(self) -> int:
        return max(0, self.size.width - 2 * _LABEL)

    def draw(self, width: int, height: int) -> list[Line]:
        lines: list[Line] = []
        for trace, style in zip(self.view or (), ("first", "warn"), strict=False):
            shown = sparkline(trace.values, trace.top)
            lines.append([
                (ljust(f" {trace.label}", _LABEL), "dim"),
                (rjust(shown, width - 2 * _LABEL), style),
                (ljust(f" 0 to {trace.top_label}" if trace.top else "", _LABEL), "dim"),
            ])  # fmt: skip
        return lines


def trace_lines(trace: HistoryTrace, height: int, style: str) -> list[Line]:
    labels = [
        (ljust(f" {trace.label}", _LABEL), "dim"),
        (ljust(f" {trace.now}", _LABEL), "bold"),
        *[(" " * _LABEL, "")] * height,
    ]
    if trace.top is None:
        labels[1] = (ljust(" no value" if not trace.now else " no value yet", _LABEL), "dim")
    elif not trace.now:
        labels[1] = (ljust(f" 0 to {trace.top_label}", _LABEL), "dim")
    elif height > 2:
        labels[2] = (ljust(f" 0 to {trace.top_label}", _LABEL), "dim")
    elif height == 2:
        unit = trace.top_label.partition(" ")[2]
        both = f" {trace.now.removesuffix(f' {unit}')}/{trace.top_label}"
        # A blank remains before the bars.
        labels[1] = (ljust(both if len(both) < _LABEL else f" {trace.now}", _LABEL), "bold")
    shown = bar_columns(trace.values, trace.top, height)
    return [[labels[row], (text, style)] for row, text in enumerate(shown)]


def _axis(marks: tuple[CMark, ...], width: int) -> str:
    """Draw the values of C; a label without room is omitted."""
    axis = ["─"] * width
    free = 0
    for number, mark in enumerate(marks):
        ends = marks[number + 1].column if number + 1 < len(marks) else width
        text = f"╵{mark.label}"
        if mark.column < width:
            axis[mark.column] = "╵"
        if mark.column >= free and mark.column + len(text) <= max(ends, 0):
            axis[mark.column : mark.column + len(text)] = text
            free = mark.column + len(text) + 1
    return "".join(axis[:width])
