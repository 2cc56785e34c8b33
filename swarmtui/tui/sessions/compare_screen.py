"""Saved sessions side by side: one is held against the others, and any of them can be that one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from swarmtui.tui.footer import KeyLine
from swarmtui.tui.keys import Where, bindings, shown
from swarmtui.tui.pager import Page, Pager
from swarmtui.tui.sessions.compare_view import CURVES, comparison_lines, overlay_view
from swarmtui.tui.sessions.overlay import Overlay

if TYPE_CHECKING:
    from swarmtui.model.session import Summary
    from swarmtui.tui.keys import Action


class CompareScreen(Pager):
    where: Where = "compare"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("compare")]

    def __init__(self, summaries: Sequence[Summary], names: dict[str, str]) -> None:
        super().__init__()
        self._summaries, self._names = list(summaries), names
        self._baseline = 0
        self._figure = 0

    def page(self) -> Page:
        return Page("differences")

    def actions(self) -> list[Action]:
        return shown(self.app.keys.actions("compare"), "back")

    def compose(self) -> ComposeResult:
        yield Overlay()
        yield self.page()
        yield KeyLine()

    def fill(self) -> None:
        from swarmtui.analysis.compare.sessions import compare

        first = self._summaries[self._baseline]
        ordered = [first, *(summary for summary in self._summaries if summary is not first)]
        figure = list(CURVES)[self._figure]
        self.query_one(Overlay).show(overlay_view(ordered, self._names, figure))
        page = self.query_one(Page)
        page.beside = f"against {self._names.get(first.session.id, first.session.id)}"
        page.show(comparison_lines(compare(self._summaries, self._baseline), self._names, max(40, self.app.size.width)))

    def action_next_baseline(self) -> None:
        self._baseline = (self._baseline + 1) % len(self._summaries)
        self.query_one(Page).move(0)
        self.fill()

    def action_next_figure(self) -> None:
        self._figure = (self._figure + 1) % len(CURVES)
        self.fill()


def summaries_of(root: Path, names: Sequence[str]) -> list[Summary]:
    from swarmtui.sessions.store import load, summarise

    return [summarise(load(root, name)) for name in names]
