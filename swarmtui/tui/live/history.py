"""The history of a session on one time axis: each column shows the mean over its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor
from typing import NamedTuple

from swarmtui.analysis.levels.stats import mean
from swarmtui.model.load import traits
from swarmtui.model.telemetry import HistoryPoint
from swarmtui.numbers import clock, count, rate, seconds
from swarmtui.tui.lines import Line, Panel, bar_columns, ljust, scale_top
from swarmtui.tui.live.live_panel import LiveData, LivePanel

_LABEL = 15
# The time that the sparklines of the numbers show, and the history at most before it scrolls.
_RECENT_S = 60.0
# A longer time between two points is a gap.
_LONGEST_GAP_S = 1.0
# A part of a column, by which a point at its edge is in it despite the rounding.
_ROUNDING = 1e-9
_STYLES = ("throughput", "latency", "queue", "queue", "dim")


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


class TimeColumns(NamedTuple):
    """The points of each column, and the seconds since the start at both ends; it scrolls after the first minute."""

    buckets: list[list[HistoryPoint]]
    first_s: float
    end_s: float
    has_scrolled: bool = False


# views


def history_view(
    points: Sequence[HistoryPoint],
    t0_ns: int,
    columns: int,
    whole_session: bool,
    ended: bool = False,
    now: HistoryPoint | None = None,
) -> HistoryView:
    """Show the last minute or, with `whole_session`, everything; `now` may be later than the last point."""
    if not points or columns < 4:
        why = (
            "no history is saved with the levels: r replays the session"
            if ended
            else "it starts with the first request"
        )
        return HistoryView((), (), "", "", why)
    buckets, first_s, end_s, _ = recent_columns(points, t0_ns, columns, whole_session)
    newest = now or points[-1]
    traces = [
        _trace("output tok/s", buckets, lambda p: p.out_tps, rate, newest),
        _trace("TTFT", buckets, lambda p: p.ttft_s, seconds, newest),
        _trace("waiting", buckets, lambda p: float(p.waiting), count, newest, least=1.0),
        _trace("in flight", buckets, lambda p: float(p.in_flight), count, newest, least=1.0),
    ]
    if any(point.server_waiting is not None for bucket in buckets for point in bucket):
        traces.insert(3, _trace("queued", buckets, lambda p: p.server_waiting, count, newest, least=1.0))
    if ended:
        traces = [trace._replace(now="") for trace in traces]
    return HistoryView(tuple(traces), _marks(buckets), clock(int(first_s)), clock(int(end_s)), "")


def recent_columns(points: Sequence[HistoryPoint], t0_ns: int, columns: int, whole_session: bool) -> TimeColumns:
    """Divide the time so far among all columns; after a minute they show the last one, unless all is wanted."""
    if not points:
        return TimeColumns([], 0.0, 0.0)
    start_ns = max(t0_ns, points[0].t_ns)
    newest_s = (points[-1].t_ns - start_ns) / 1e9
    end_s = float(max(1, ceil(newest_s)))
    recent_s = max(_RECENT_S, columns)
    length_s = end_s if whole_session else min(end_s, recent_s)
    step_s = length_s / columns
    has_scrolled = not whole_session and length_s == recent_s
    if has_scrolled:
        # Whole steps: otherwise all columns would change every second.
        end_s = (floor(newest_s / step_s + _ROUNDING) + 1) * step_s
    buckets = _columns(points, start_ns, end_s - length_s, step_s, columns)
    # With columns of less than a second, the last one may begin after the newest point.
    buckets[-1] = buckets[-1] or buckets[-2:][0]
    begun_s = (start_ns - t0_ns) / 1e9
    return TimeColumns(buckets, begun_s + end_s - length_s, (points[-1].t_ns - t0_ns) / 1e9, has_scrolled)


def _columns(
    points: Sequence[HistoryPoint], t0_ns: int, first_s: float, step_s: float, columns: int
) -> list[list[HistoryPoint]]:
    """Return the points of each column; one without points repeats the one before, unless that is long ago."""
    buckets: list[list[HistoryPoint]] = [[] for _ in range(columns)]
    for point in reversed(points):
        column = floor(((point.t_ns - t0_ns) / 1e9 - first_s) / step_s + _ROUNDING)
        if column < 0:
            break
        buckets[min(column, columns - 1)].append(point)
    blank = 0
    for column in range(1, columns):
        blank = 0 if buckets[column] else blank + 1
        # What is not known, as after Ctrl-Z, stays blank.
        if 0 < blank * step_s <= _LONGEST_GAP_S:
            buckets[column] = buckets[column - 1]
    return buckets


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

    key, title, place = 5, "history", "history"

    def update_from(self, data: LiveData) -> None:
        live, ended = data.shown, data.has_ended
        now = live.frame.point if live.frame else None
        whole_session = ended or data.only_panel == self.key
        view = history_view(live.points, data.t0_ns, self.columns, whole_session, ended, now)
        # The C of an open loop is the number of agents in reserve.
        self.show(view._replace(marks=()) if live.frame is not None and traits(live.frame.load).by_rate else view)

    @property
    def columns(self) -> int:
        return max(0, self.inner_size.width - _LABEL)

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
