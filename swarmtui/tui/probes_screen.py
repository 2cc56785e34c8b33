"""The probe history: each probe of one target, the smoothed rate with its limits, and whether it has drifted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from textual.app import ComposeResult

from swarmtui.analysis.compare.probe_history import ProbeHistory
from swarmtui.report.chart import Chart
from swarmtui.report.dot_chart import SMALLEST, paint_charts
from swarmtui.report.probes import probe_chart, probe_sentences, probe_table
from swarmtui.report.table import Sentence, Table
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import KeyFooter, Page, PanelScreen
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.keys import Action
from swarmtui.tui.lines import Line, Panel, wrapped_note
from swarmtui.tui.tables import block_lines
from swarmtui.tui.textual_patches import run_in_background

_EMPTY = "no probes yet: start the plan “probe”, or `swarmtui probe --every 1h`"
_RELOAD_S = 30.0


class ProbesView(NamedTuple):
    """One target, or why there is none."""

    note: str
    target: str = ""
    chart: Chart | None = None
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
    table = probe_table(history).without(("bar",))
    return ProbesView(
        note,
        target=sanitize(target),
        chart=probe_chart(history),
        facts=tuple(probe_sentences(history)),
        table=table._replace(rows=table.rows[::-1]),
    )


# widgets


class ProbePanel(Panel[ProbesView]):
    key, title = 1, "probes"

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        lines = [self.heading(view.note if view else "", width)]
        if view is None or view.chart is None:
            return [*lines, *wrapped_note(view.empty if view else "loading …", width)]
        facts = block_lines(view.facts, max(20, width))
        room = height - 2 - len(facts)
        shown = paint_charts([view.chart], width, room) if room >= SMALLEST[1] and width >= SMALLEST[0] else []
        return [*lines, [(f" {view.target}", "bold")], *facts, *shown]


class ProbesScreen(PanelScreen):
    """Reloads regularly: `swarmtui probe --every` may add probes."""

    key_context = "probes"

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._histories: dict[str, ProbeHistory] = {}
        self._selected = 0

    def compose(self) -> ComposeResult:
        yield ProbePanel()
        yield Page("all probes", key=2)
        yield InputLine()
        yield KeyFooter()

    def on_mount(self) -> None:
        self.arrange_panels()
        self._reload()
        self.set_interval(_RELOAD_S, self._reload)

    def _reload(self) -> None:
        run_in_background(self, self._read, group="read")

    async def _read(self) -> None:
        with self.app.toasting():
            self._histories = await asyncio.to_thread(_histories, self._root)
        self.update_in_front()

    def update_panels(self) -> None:
        view = probes_view(self._histories, self.filter_text, self._selected)
        self.query_one(ProbePanel).show(view)
        self.query_one(Page).notes = ("newest first",)
        self.query_one(Page).show_blocks([view.table] if view.table else [])
        self.query_one(KeyFooter).show(self.actions())

    def actions(self) -> list[Action]:
        """Leave out what needs a probe, or those of several targets."""
        several = len(matching_targets(self._histories, self.filter_text)) > 1
        unfit = (*(() if several else ("target(1)", "target(-1)")), *(() if self._histories else ("filter",)))
        return [action for action in super().actions() if action.id not in unfit]

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
