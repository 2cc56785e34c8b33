"""The publication checklist of one session: each condition with its value and its limit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from swarmtui.model.base import BadInput
from swarmtui.report.table import Sentence
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import Page, Pager
from swarmtui.tui.tables import block_lines
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.model.session import Summary


class ChecklistScreen(Pager):
    """Reads the journal as it is now, also while the session runs."""

    page_title = "publication checklist"

    def __init__(self, root: Path, session_id: str) -> None:
        super().__init__()
        self._root, self._session_id = root, session_id
        self._summary: Summary | None = None
        self._problem = "loading …"

    def on_mount(self) -> None:
        run_in_background(self, self._read, group="read")

    async def _read(self) -> None:
        try:
            self._summary = await asyncio.to_thread(_summary, self._root, self._session_id)
        except BadInput as problem:
            self._problem = sanitize(str(problem))
        self.update_panels()

    def update_panels(self) -> None:
        page = self.query_one(Page)
        page.note = self._session_id
        if self._summary is None:
            page.show([[(f" {self._problem}", "dim")]])
            return
        from swarmtui.analysis.quality.checklist import checklist_sentence
        from swarmtui.report.session import check_sentences

        checks = self._summary.checks
        blocks = (Sentence(checklist_sentence(checks), "lead"), *check_sentences(checks))
        page.show(block_lines(blocks, max(40, self.app.size.width)))


def _summary(root: Path, session_id: str) -> Summary:
    from swarmtui.sessions.store import read_session

    return read_session(root, session_id)
