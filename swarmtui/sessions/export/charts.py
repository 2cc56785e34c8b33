"""Charts as PNG or SVG files with matplotlib, which is the extra `charts` and loaded only here."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from math import ceil, pi
from typing import Any, Literal

from swarmtui.model.schema import BadInput
from swarmtui.sessions.export.curves import Source, charts, title_of
from swarmtui.sessions.export.structs import Chart, Marks
from swarmtui.text import sanitize

_COLOURS = ("#1f6fb2", "#c8610a", "#5b6670", "#0a8f84", "#8a5bb5", "#a23b5c")
_MARKS = ("o", "s", "^", "D", "v", "x")
_STYLES = ("-", "--", ":", "-.", (0, (1, 3)), (0, (6, 2)))
_LOG_FROM = 30.0


def picture(sources: Sequence[Source], form: Literal["png", "svg"], name: str | None = None) -> bytes:
    """All charts on one sheet, or those that are named: `gpu` is all that begin so. The same bytes each time."""
    wanted = charts(sources)
    if name is not None:
        known = ", ".join(chart.name for chart in wanted) or "none"
        wanted = tuple(chart for chart in wanted if chart.name == name or chart.name.startswith(f"{name}_"))
        if not wanted:
            raise BadInput(f"this session has no such chart; it has {known}", key=f"--chart {name}")
    if not wanted:
        raise BadInput("nothing was measured, so there is nothing to draw", key=sources[0].summary.session.id)
    return _draw(wanted, form, _headline(sources))


def _headline(sources: Sequence[Source]) -> str:
    """A picture travels alone, so it says itself what it is of."""
    workloads = sorted({source.summary.session.workload for source in sources})
    ids = [source.summary.session.id for source in sources]
    return f"{title_of(sources)}\n{', '.join(workloads)} · {', '.join(ids)}"


def _draw(wanted: Sequence[Chart], form: Literal["png", "svg"], headline: str) -> bytes:
    try:
        matplotlib: Any = import_module("matplotlib")
        figures: Any = import_module("matplotlib.figure")
    except ImportError:
        raise BadInput(
            "charts need matplotlib (pip install matplotlib); the HTML report has charts without it",
            key=f"--format {form}",
        ) from None
    columns = min(2, len(wanted))
    rows = ceil(len(wanted) / columns)
    settings = {"svg.hashsalt": "swarmtui", "svg.fonttype": "none", "font.size": 10, "text.parse_math": False}
    out = io.BytesIO()
    with matplotlib.rc_context(settings):
        figure = figures.Figure(figsize=(6.4 * columns, 4.2 * rows), layout="constrained")
        figure.suptitle("\n".join(sanitize(line) for line in headline.split("\n")), fontsize=12)
        for place, chart in enumerate(wanted, start=1):
            polar = "polar" if chart.kind == "radar" else None
            _panel(figure.add_subplot(rows, columns, place, projection=polar), chart)
        metadata = {"Date": None, "Creator": "swarmtui"} if form == "svg" else {"Software": "swarmtui"}
        figure.savefig(out, format=form, dpi=150, metadata=metadata)
    return out.getvalue()


def _panel(axes: Any, chart: Chart) -> None:
    axes.set_title(sanitize(chart.title), fontsize=11)
    if chart.kind == "radar":
        _radar(axes, chart)
    elif chart.kind == "bars":
        series = chart.series[0]
        bars = axes.bar([x for x, _ in series.points], [y for _, y in series.points], color=_COLOURS[0], width=0.6)
        axes.bar_label(bars, fmt="%.3g")
        axes.set_xticks(range(len(chart.labels)), [sanitize(label) for label in chart.labels], rotation=15)
    else:
        _lines(axes, chart)
    if chart.kind != "radar":
        axes.set_xlabel(chart.x)
        axes.set_ylabel(chart.y)
        axes.grid(True, axis="y", alpha=0.3)
    if len(chart.series) > 1:
        beside = {"loc": "upper left", "bbox_to_anchor": (1.15, 1.05)} if chart.kind == "radar" else {}
        axes.legend(fontsize=9, **beside)


def _lines(axes: Any, chart: Chart) -> None:
    levels = sorted({x for series in chart.series for x, _ in series.points})
    by_level = chart.kind == "levels"
    for k, series in enumerate(chart.series):
        xs = [float(levels.index(x)) if by_level else x for x, _ in series.points]
        ys = [y for _, y in series.points]
        mark = _MARKS[k % 6] if by_level else None
        axes.plot(xs, ys, color=_COLOURS[k % 6], linestyle=_STYLES[k % 6], marker=mark, label=sanitize(series.name))
    values = [y for series in chart.series for _, y in series.points]
    if min(values) > 0 and max(values) / min(values) > _LOG_FROM:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    elif min(values) >= 0:
        axes.set_ylim(0, 1.1 * max(values) or 1.0)
    if chart.marks:
        _moments(axes, chart.marks)
    if by_level:
        axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])


def _moments(axes: Any, marks: Marks) -> None:
    """A label that has no room before the next mark gives way to it."""
    start, end = axes.get_xlim()
    for (at, label), (following, _) in pairwise((*marks, (end, ""))):
        axes.axvline(at, color=_COLOURS[2], linestyle=":", linewidth=0.8)
        if following - at >= 0.013 * (len(label) + 1) * (end - start):
            axes.text(at, 0.995, f" {label}", transform=axes.get_xaxis_transform(), va="top", fontsize=8)


def _radar(axes: Any, chart: Chart) -> None:
    angles = [2 * pi * k / len(chart.labels) for k in range(len(chart.labels))]
    for k, series in enumerate(chart.series):
        shares = [share for _, share in series.points]
        axes.plot(
            [*angles, angles[0]], [*shares, shares[0]],
            color=_COLOURS[k % 6], linestyle=_STYLES[k % 6], marker=_MARKS[k % 6], label=sanitize(series.name),
        )  # fmt: skip
    axes.set_theta_offset(pi / 2)
    axes.set_xticks(angles, chart.labels)
    axes.tick_params(axis="x", pad=20)
    axes.set_ylim(0, 1)
