"""The publication checklist of one session: each condition with its value and its limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swarmtui.model.base import BadInput
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import Page, Pager
from swarmtui.tui.lines import Line, ljust, wrap
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.model.findings import Check
    from swarmtui.model.session import Summary

_SIGNS = {
    "ok": ("✓ ok", "good"),
    "not ok": ("✖ not ok", "bad"),
    "unknown": ("? unknown", "warn"),
    "not applicable": ("– n/a", "dim"),
}
_STATE, _NAME = 11, 22


def check_lines(checks: Sequence[Check], sentence: str, width: int) -> list[Line]:
    lines: list[Line] = [[(f" {text}", "bold")] for text in wrap(sanitize(sentence), width - 2)]
    lines.append([])
    room = max(20, width - _STATE - _NAME - 3)
    for check in checks:
        sign, style = _SIGNS[check.state]
        first, *more = wrap(sanitize(f"{check.value}  (limit: {check.limit})"), room)
        lines.append([(f" {ljust(sign, _STATE)}", style), (ljust(check.name, _NAME), "bold"), (first, "")])
        lines += [[(" " * (_STATE + _NAME + 1), ""), (text, "")] for text in more]
        lines += [[(" " * (_STATE + _NAME + 1), ""), (text, "dim")] for text in wrap(sanitize(check.sentence), room)]
    return lines


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

        checks = self._summary.checks
        page.show(check_lines(checks, checklist_sentence(checks), max(40, self.app.size.width)))


def _summary(root: Path, session_id: str) -> Summary:
    from swarmtui.sessions.store import load_session, summarise

    return summarise(load_session(root, session_id))
