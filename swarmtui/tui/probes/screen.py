"""The probe history: each probe of one target, the smoothed rate with its limits, and whether it has drifted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from textual.app import ComposeResult

from swarmtui.analysis.compare.probe_history import ProbeHistory
from swarmtui.model.base import BadInput
from swarmtui.numbers import local_time, short
from swarmtui.report.probes import probe_sentences, probe_table
from swarmtui.report.table import Sentence, Table
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import KeyFooter, Page, Pager
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.lines import Line, heading, wrapped_note
from swarmtui.tui.plot import Axis, PlotPanel, PlotTrace
from swarmtui.tui.tables import block_lines, table_lines
from swarmtui.tui.textual_patches import run_in_background

_EMPTY = "no probes yet: start the plan “probe”, or `swarmtui probe --every 1h`"
_TICKS = 5
_MARGIN = 0.1
_RELOAD_S = 30.0


class ProbesView(NamedTuple):
    """One target: at the drifted probes the smoothed rate was outside its limits."""

    note: str
    target: str = ""
    traces: tuple[PlotTrace, ...] = ()
    bottom: float = 0.0
    top: float = 1.0
    ticks: tuple[tuple[float, str], ...] = ()
    facts: tuple[Sentence, ...] = ()
    table: Table | None = None
    empty: str = ""


# views


def matching_targets(histories: Mapping[str, ProbeHistory], filter_text: str) -> list[str]:
    """Return the targets (endpoint, model and workload) that contain every word of the filter."""
    words = filter_text.lower().split()
    return [target for target in histories if all(word in target.lower() for word in words)]


def probes_view(histories: Mapping[str, ProbeHistory], filter_text: str, selected: int) -> ProbesView:
    targets = matching_targets(histories, filter_text)
    filtered = f"/{filter_text}" if filter_text else ""
    if not targets:
        return ProbesView(filtered, empty=f"no probe matches “{filter_text}”" if histories else _EMPTY)
    number = min(selected, len(targets) - 1)
    note = " · ".join(part for part in (filtered, f"{number + 1} of {len(targets)}") if part)
    target, history = targets[number], histories[targets[number]]
    if not history.probes:
        return ProbesView(note, empty=sanitize(f"{target}: no probe measured a rate"))
    return _target_view(note, target, history)


def _target_view(note: str, target: str, history: ProbeHistory) -> ProbesView:
    xs = [probe.at.timestamp() for probe in history.probes]
    ys = [probe.tps or 0.0 for probe in history.probes]
    states = [(x, state) for x, state in zip(xs, history.drift, strict=True) if state is not None]
    drifted = [state is not None and state.drifted for state in history.drift]
    values = [*ys, *(value for _, state in states for value in (state.smoothed, state.low, state.high))]
    margin = _MARGIN * (max(values) - min(values)) or 1.0
    points = list(zip(xs, ys, drifted, strict=True))
    traces = (
        PlotTrace(tuple((x, state.low) for x, state in states), "dim", "·"),
        PlotTrace(tuple((x, state.high) for x, state in states), "dim", "·"),
        PlotTrace(tuple((x, state.smoothed) for x, state in states), "second"),
        PlotTrace(tuple((x, y) for x, y, is_drifted in points if not is_drifted), "first", "●", joined=False),
        PlotTrace(tuple((x, y) for x, y, is_drifted in points if is_drifted), "bad", "✖", joined=False),
    )
    table = probe_table(history).without(("bar",))
    return ProbesView(
        note,
        target=sanitize(target),
        traces=tuple(trace for trace in traces if trace.points),
        bottom=max(0.0, min(values) - margin),
        top=max(values) + margin,
        ticks=_ticks(xs),
        facts=tuple(probe_sentences(history)),
        table=table._replace(rows=table.rows[::-1]),
    )


def _ticks(xs: Sequence[float]) -> tuple[tuple[float, str], ...]:
    """Label the time axis with days, or with hours for a short history."""
    first, last = xs[0], xs[-1]
    form = "%d %b" if last - first > 3 * 86_400 else "%d %b %H:%M" if last - first > 86_400 else "%H:%M"
    times = [first + (last - first) * part / (_TICKS - 1) for part in range(_TICKS)] if last > first else [first]
    return tuple((time, local_time(time, form)) for time in times)


# widgets


class ProbePanel(PlotPanel[ProbesView]):
    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        lines = [heading("", "probes", view.note if view else "", width)]
        if view is None or view.empty or self.plotext is None:
            return [*lines, *wrapped_note(view.empty or "drawing …" if view else "loading …", width)]
        facts = block_lines(view.facts, max(20, width))
        legend: Line = [
            (" ● probe, tok/s", "first"), ("  ✖ drifted", "bad"), ("  ── smoothed", "second"),
            ("  ·· drift limits", "dim"),
        ]  # fmt: skip
        room = height - 3 - len(facts)
        chart = self._chart(view, width, room) if room >= 6 and width >= 24 else []
        return [*lines, [(f" {view.target}", "bold")], *facts, legend, *chart]

    def _chart(self, view: ProbesView, width: int, height: int) -> list[Line]:
        values = [view.bottom + (view.top - view.bottom) * part / 3 for part in range(4)]
        labels = [short(value, 4) for value in values]
        if len(set(labels)) < len(labels):
            labels = [f"{value:.1f}" for value in values]
        axis = Axis("left", view.bottom, view.top, list(zip(values, labels, strict=True)))
        return self.plot(width, height, view.traces, [axis], view.ticks)


class ProbesScreen(Pager):
    """Reloads regularly: `swarmtui probe --every` may add probes."""

    key_context = "probes"

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._histories: dict[str, ProbeHistory] = {}
        self._selected = 0

    def compose(self) -> ComposeResult:
        yield ProbePanel()
        yield Page("newest first")
        yield InputLine()
        yield KeyFooter()

    def on_mount(self) -> None:
        self._reload()
        self.set_interval(_RELOAD_S, self._reload)

    def _reload(self) -> None:
        run_in_background(self, self._read, group="read")

    async def _read(self) -> None:
        try:
            self._histories = await asyncio.to_thread(_histories, self._root)
        except BadInput as problem:
            self.app.toast(str(problem))
        self.update_in_front()

    def update_panels(self) -> None:
        view = probes_view(self._histories, self.filter_text, self._selected)
        self.query_one(ProbePanel).show(view)
        page = self.query_one(Page)
        page.show(table_lines(view.table, max(40, self.app.size.width)) if view.table else [])

    def action_target(self, by: int) -> None:
        count = len(matching_targets(self._histories, self.filter_text))
        if count:
            self._selected = (self._selected + by) % count
            self.update_panels()

    def set_filter(self, text: str) -> None:
        self._selected = 0
        super().set_filter(text)

    def action_filter(self) -> None:
        self.ask_filter("filter probes:")


def _histories(root: Path) -> dict[str, ProbeHistory]:
    from swarmtui.analysis.compare.probe_history import probe_history
    from swarmtui.sessions.probes import probes_by_target

    return {target: probe_history(probes) for target, probes in probes_by_target(root).items()}
