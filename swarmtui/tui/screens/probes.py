"""The history of probes: one target at a time, as a chart and as a list."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from swarmtui.model.schema import BadInput
from swarmtui.tui.keys import Where, bindings, shown
from swarmtui.tui.screens.pager import Page
from swarmtui.tui.views.probes import probes_view, targets
from swarmtui.tui.widgets.footer import KeyLine
from swarmtui.tui.widgets.probes import ProbeChart
from swarmtui.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from swarmtui.analysis.history import History
    from swarmtui.tui.app import SwarmApp

_LOOK_S = 30.0


class ProbesScreen(Screen[None]):
    """Read again now and then: a timer may be probing meanwhile."""

    where: Where = "probes"
    app: SwarmApp
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("probes")]

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._found: dict[str, History] = {}
        self._words = ""
        self._chosen = 0

    def compose(self) -> ComposeResult:
        yield ProbeChart()
        yield Page("newest first")
        yield Prompt()
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(KeyLine).show(shown(self.app.keys.actions(self.where), "back"))
        self._look()
        self.set_interval(_LOOK_S, self._look)

    def _look(self) -> None:
        self.run_worker(self._read(), exclusive=True, exit_on_error=False)

    async def _read(self) -> None:
        try:
            self._found = await asyncio.to_thread(_histories, self._root)
        except BadInput as problem:
            self.app.say(str(problem))
        self.paint()

    def paint(self) -> None:
        view = probes_view(self._found, self._words, self._chosen)
        self.query_one(ProbeChart).show(view, self._words)
        self.query_one(Page).show(list(view.rows))

    def action_target(self, by: int) -> None:
        count = len(targets(self._found, self._words))
        if count:
            self._chosen = (self._chosen + by) % count
            self.paint()

    def action_narrow_probes(self) -> None:
        def typed(words: str) -> None:
            self._words, self._chosen = words, 0
            self.paint()

        self.query_one(Prompt).ask("probes of", self._words, str, lambda words: typed(words or ""), typed)

    def action_move(self, by: int) -> None:
        page = self.query_one(Page)
        page.move(page.top + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.query_one(Page).size.height - 2))

    def action_edge(self, last: int) -> None:
        page = self.query_one(Page)
        page.move(len(page.lines) if last else 0)

    def action_back(self) -> None:
        if self._words:
            self._words = ""
            self.paint()
        else:
            self.dismiss()


def _histories(root: Path) -> dict[str, History]:
    from swarmtui.analysis.history import history
    from swarmtui.sessions.probes import probes_by_target

    return {target: history(probes) for target, probes in probes_by_target(root).items()}
