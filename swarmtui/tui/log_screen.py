"""The tuning log: each change of the server with its effect, marked as kept or reverted, with a note."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from textual import on
from textual.app import ComposeResult

from swarmtui.experiments.store import mark_change, read_log
from swarmtui.model.base import BadInput
from swarmtui.model.tuning import LoggedChange
from swarmtui.report.table import Facts
from swarmtui.report.tuning import log_table
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import KeyFooter, Page, PanelScreen
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.keys import Action
from swarmtui.tui.table_list import TableList
from swarmtui.tui.textual_patches import run_in_background

_EMPTY = "no changes yet: R after a run adds one; so do, in a shell, `swarmtui run --baseline last` and `swarmtui ab`"


def change_facts(change: LoggedChange) -> Facts:
    """The whole text of one change; its row in the list is cut."""
    sessions = f"{change.before} → {change.after}"
    return Facts((("change", change.what), ("effect", change.effect), ("note", change.note), ("sessions", sessions)))


class LogScreen(PanelScreen):
    key_context = "log"

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._changes: tuple[LoggedChange, ...] = ()
        # Why the list is empty.
        self._empty = "loading …"

    def compose(self) -> ComposeResult:
        yield TableList("tuning log", key=1)
        yield Page("change", key=2)
        yield InputLine()
        yield KeyFooter()

    def on_mount(self) -> None:
        self.arrange_panels()
        self._reload()

    def _reload(self) -> None:
        run_in_background(self, self._read, group="read")

    async def _read(self) -> None:
        self._empty = _EMPTY
        try:
            self._changes = (await asyncio.to_thread(read_log, self._root))[::-1]
        except BadInput as problem:
            self._changes, self._empty = (), sanitize(str(problem))
        self._list_changes()

    def _list_changes(self) -> None:
        ids = [str(change.number) for change in self._changes]
        table = log_table(self._changes, brief=self.is_narrow)
        self.query_one(TableList).show(table.part, ids, "newest first", self._empty)

    def on_resize(self) -> None:
        super().on_resize()
        self._list_changes()

    @property
    def _selected(self) -> LoggedChange | None:
        selected = self.query_one(TableList).selected
        return next((change for change in self._changes if str(change.number) == selected), None)

    @on(TableList.Moved)
    def update_panels(self) -> None:
        """Show the whole text of the change under the cursor."""
        page, selected = self.query_one(Page), self._selected
        page.title = f"change {selected.number}" if selected else "change"
        page.show_blocks([change_facts(selected)] if selected else [])
        self.query_one(KeyFooter).show(self.actions())

    def actions(self) -> list[Action]:
        """Leave out what needs a change."""
        unfit = () if self._selected else ("kept", "reverted", "note")
        return [action for action in super().actions() if action.id not in unfit]

    def _mark(self, kept: Literal["kept", "reverted"] | None, note: str | None = None) -> None:
        if (selected := self._selected) is None:
            return
        with self.app.toasting():
            mark_change(self._root, selected.number, kept, note)
        self._reload()

    def action_kept(self) -> None:
        self._mark("kept")

    def action_reverted(self) -> None:
        self._mark("reverted")

    def action_note(self) -> None:
        def done(text: str | None) -> None:
            if text is not None:
                self._mark(None, text)

        if (selected := self._selected) is not None:
            self.query_one(InputLine).ask(f"note on change {selected.number}:", selected.note, str, done)
