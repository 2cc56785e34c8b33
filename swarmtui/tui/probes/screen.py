"""The history of probes: one target at a time, as a chart and as a list."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from swarmtui.model.schema import BadInput
from swarmtui.tui.footer import KeyLine
from swarmtui.tui.input_line import Prompt
from swarmtui.tui.keys import Where, bindings
from swarmtui.tui.pager import Page, Pager
from swarmtui.tui.probes.chart import ProbeChart
from swarmtui.tui.probes.view import probes_view, targets

if TYPE_CHECKING:
    from swarmtui.analysis.compare.probe_history import History

_LOOK_S = 30.0


class ProbesScreen(Pager):
    """Read again now and then: a timer may be probing meanwhile."""

    where: Where = "probes"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("probes")]

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._found: dict[str, History] = {}
        self._words = ""
        self._chosen = 0

    def page(self) -> Page:
        return Page("newest first")

    def compose(self) -> ComposeResult:
        yield ProbeChart()
        yield self.page()
        yield Prompt()
        yield KeyLine()

    def on_mount(self) -> None:
        super().on_mount()
        self._look()
        self.set_interval(_LOOK_S, self._look)

    def _look(self) -> None:
        self.run_worker(self._read(), exclusive=True, exit_on_error=False)

    async def _read(self) -> None:
        try:
            self._found = await asyncio.to_thread(_histories, self._root)
        except BadInput as problem:
            self.app.say(str(problem))
        self.fill()

    def fill(self) -> None:
        view = probes_view(self._found, self._words, self._chosen)
        self.query_one(ProbeChart).show(view, self._words)
        self.query_one(Page).show(list(view.rows))

    def action_target(self, by: int) -> None:
        count = len(targets(self._found, self._words))
        if count:
            self._chosen = (self._chosen + by) % count
            self.fill()

    def action_narrow_probes(self) -> None:
        def typed(words: str) -> None:
            self._words, self._chosen = words, 0
            self.fill()

        self.query_one(Prompt).ask("probes of", self._words, str, lambda words: typed(words or ""), typed)

    def action_back(self) -> None:
        if self._words:
            self._words = ""
            self.fill()
        else:
            self.dismiss()


def _histories(root: Path) -> dict[str, History]:
    from swarmtui.analysis.compare.probe_history import history
    from swarmtui.sessions.probes import probes_by_target

    return {target: history(probes) for target, probes in probes_by_target(root).items()}
