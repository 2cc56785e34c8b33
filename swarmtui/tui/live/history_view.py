"""The past on one time axis: a column is a stretch of time, and stands for its mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarmtui.model.telemetry import Point
from swarmtui.tui.numbers import clock, rate, seconds, whole

_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)


class Trace(NamedTuple):
    label: str
    now: str
    top: float | None
    top_label: str
    values: tuple[float | None, ...]


class Mark(NamedTuple):
    column: int
    label: str


class HistoryView(NamedTuple):
    traces: tuple[Trace, ...]
    marks: tuple[Mark, ...]
    start: str
    end: str
    empty: str


def history_view(points: Sequence[Point], t0_ns: int, columns: int, whole_session: bool) -> HistoryView:
    """The newest columns of a second each, or with `whole_session` everything, in wider ones."""
    if not points or columns < 4:
        return HistoryView((), (), "", "", "nothing yet: the history begins with the first request")
    last_s = int((points[-1].t_ns - t0_ns) / 1e9)
    step = _step(last_s, columns) if whole_session else 1
    last = last_s // step
    first = max(0, last - columns + 1)
    buckets: list[list[Point]] = [[] for _ in range(last - first + 1)]
    for point in reversed(points):
        place = int((point.t_ns - t0_ns) / 1e9) // step - first
        if place < 0:
            break
        buckets[place].append(point)
    newest = points[-1]
    traces = [
        _trace("output tok/s", buckets, lambda p: p.out_tps, rate, newest),
        _trace("TTFT", buckets, lambda p: p.ttft_s, seconds, newest),
        _trace("queue", buckets, lambda p: float(p.waiting), whole, newest, least=1.0),
        _trace("in flight", buckets, lambda p: float(p.in_flight), whole, newest, least=1.0),
    ]
    if any(point.server_waiting is not None for bucket in buckets for point in bucket):
        traces.insert(3, _trace("server queue", buckets, lambda p: p.server_waiting, whole, newest, least=1.0))
    return HistoryView(tuple(traces), _marks(buckets), clock(first * step), clock(last_s), "")


def strip_view(points: Sequence[Point], t0_ns: int, columns: int) -> tuple[Trace, ...]:
    """The two that fit where there is no room for all."""
    view = history_view(points, t0_ns, columns, whole_session=False)
    return tuple(trace for trace in view.traces if trace.label in ("output tok/s", "queue"))


def _step(length_s: int, columns: int) -> int:
    needed = length_s / columns
    return next((step for step in _STEPS_S if step >= needed), int(needed) + 1)


def _trace(
    label: str,
    buckets: list[list[Point]],
    read: Callable[[Point], float | None],
    words: Callable[[float | None], str],
    newest: Point,
    least: float = 0.0,
) -> Trace:
    """`least` is the lowest top of the scale: what is counted has no half."""
    values = tuple(_mean([value for point in bucket if (value := read(point)) is not None]) for bucket in buckets)
    highest = max((value for value in values if value is not None), default=None)
    top = _round_up(max(highest or 0.0, least)) if highest or least else None
    return Trace(label, words(read(newest)), top, words(top), values)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _round_up(value: float) -> float:
    """To a number that people read at a glance, and that does not change with every value."""
    scale = 10.0 ** (len(f"{value:.0f}") - 1) if value >= 1 else 0.1
    while scale > value:
        scale /= 10
    return next(step * scale for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * scale >= value)


def _marks(buckets: list[list[Point]]) -> tuple[Mark, ...]:
    """Where C became another, and what it was at the left edge."""
    marks: list[Mark] = []
    before: int | None = None
    for column, bucket in enumerate(buckets):
        for point in reversed(bucket):
            if point.c != before and point.c:
                if marks and marks[-1].column == column:
                    marks.pop()
                marks.append(Mark(column, str(point.c)))
            before = point.c or before
    return tuple(marks)
