"""The tuning log: what was changed, what it gave; marked as kept or reverted, with a note."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from swarmtui.experiments.tune_store import mark_change, read_log
from swarmtui.model.schema import BadInput
from swarmtui.text import plain
from swarmtui.tui.footer import KeyLine
from swarmtui.tui.input_line import Prompt
from swarmtui.tui.keys import Where, bindings, shown
from swarmtui.tui.lines import Line, Lines, heading, wrapped
from swarmtui.tui.log.view import ChangeLine, change_lines, drawn, titles, whole

if TYPE_CHECKING:
    from swarmtui.model.tuning import Change
    from swarmtui.tui.app import SwarmApp

_EMPTY = "no changes yet: R after a run, `swarmtui run --baseline last` and `swarmtui ab` write them"
_BELOW = 6


class Changes(Lines):
    """The rows with a cursor, and below them all words of the one under it."""

    lines: list[ChangeLine] = []
    changes: tuple[Change, ...] = ()
    cursor = 0
    empty = "looking …"

    def show(self, changes: tuple[Change, ...], empty: str) -> None:
        self.changes, self.lines, self.empty = changes, change_lines(changes), empty
        self.move(self.cursor)

    def move(self, to: int) -> None:
        self.cursor = min(max(0, to), max(0, len(self.lines) - 1))
        self.redraw()

    @property
    def chosen(self) -> Change | None:
        number = self.lines[self.cursor].number if self.lines else None
        return next((change for change in self.changes if change.number == number), None)

    def draw(self, width: int, height: int) -> list[Line]:
        head = heading("", "tuning log", f"newest first · {len(self.lines)}" if self.lines else "", width)
        if not self.lines:
            return [head, *([(f" {line}", "dim")] for line in wrapped(self.empty, max(8, width - 2)))]
        room = max(1, height - 3 - _BELOW)
        first = max(0, min(self.cursor - room // 2, len(self.lines) - room))
        shown = list(enumerate(self.lines))[first : first + room]
        rows = [drawn(line, width, place == self.cursor) for place, line in shown]
        filled: list[Line] = [*rows, *([[]] * (room - len(rows)))]
        chosen = self.chosen
        below = whole(chosen, width) if chosen else []
        return [
            head,
            [(titles(width), "dim")],
            *filled,
            heading("", f"change {self.lines[self.cursor].number}", "", width),
            *below,
        ]


class LogScreen(Screen[None]):
    where: Where = "log"
    app: SwarmApp
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("log")]

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def compose(self) -> ComposeResult:
        yield Changes()
        yield Prompt()
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(KeyLine).show(shown(self.app.keys.actions(self.where), "back"))
        self._read()

    def _read(self) -> None:
        self.run_worker(self._take(), exclusive=True, exit_on_error=False)

    async def _take(self) -> None:
        try:
            found, empty = await asyncio.to_thread(read_log, self._root), _EMPTY
        except BadInput as problem:
            found, empty = (), plain(str(problem))
        self.query_one(Changes).show(found, empty)

    def _mark(self, kept: Literal["kept", "reverted"] | None, note: str | None = None) -> None:
        chosen = self.query_one(Changes).chosen
        if chosen is None:
            return
        try:
            mark_change(self._root, chosen.number, kept, note)
        except BadInput as problem:
            self.app.say(str(problem))
        self._read()

    def action_kept(self) -> None:
        self._mark("kept")

    def action_reverted(self) -> None:
        self._mark("reverted")

    def action_note(self) -> None:
        def done(words: str | None) -> None:
            if words is not None:
                self._mark(None, words)

        chosen = self.query_one(Changes).chosen
        if chosen is not None:
            self.query_one(Prompt).ask(f"note on change {chosen.number}", chosen.note, str, done)

    def action_move(self, by: int) -> None:
        changes = self.query_one(Changes)
        changes.move(changes.cursor + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.query_one(Changes).size.height - _BELOW - 3))

    def action_edge(self, last: int) -> None:
        self.action_move(len(self.query_one(Changes).lines) if last else -len(self.query_one(Changes).lines))

    def action_back(self) -> None:
        self.dismiss()
