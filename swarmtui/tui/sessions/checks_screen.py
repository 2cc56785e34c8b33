"""Fit to publish: the checklist of one session."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from swarmtui.model.schema import BadInput
from swarmtui.text import plain
from swarmtui.tui.pager import Page, Pager
from swarmtui.tui.sessions.checks_view import check_lines

if TYPE_CHECKING:
    from swarmtui.model.session import Summary


class ChecksScreen(Pager):
    """From the journal as it is now, so that it can also be read while a session runs."""

    def __init__(self, root: Path, name: str) -> None:
        super().__init__()
        self._root, self._identity = root, name
        self._summary: Summary | None = None
        self._problem = "reading …"

    def page(self) -> Page:
        return Page("fit to publish?")

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self._read(), exclusive=True, exit_on_error=False)

    async def _read(self) -> None:
        try:
            self._summary = await asyncio.to_thread(_summary, self._root, self._identity)
        except BadInput as problem:
            self._problem = plain(str(problem))
        self.fill()

    def fill(self) -> None:
        page = self.query_one(Page)
        page.beside = self._identity
        if self._summary is None:
            page.show([[(f" {self._problem}", "dim")]])
            return
        from swarmtui.analysis.quality.checks import checks_sentence

        checks = self._summary.checks
        page.show(check_lines(checks, checks_sentence(checks), max(40, self.app.size.width)))


def _summary(root: Path, name: str) -> Summary:
    from swarmtui.sessions.store import load, summarise

    return summarise(load(root, name))
