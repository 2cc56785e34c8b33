"""Saved sessions: sorted, filtered, watched again, compared, deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from swarmtui.model.schema import BadInput
from swarmtui.text import plain
from swarmtui.tui.footer import KeyLine
from swarmtui.tui.input_line import Prompt
from swarmtui.tui.keys import Where, bindings, shown
from swarmtui.tui.lines import Line, Lines, heading
from swarmtui.tui.sessions.checks_screen import ChecksScreen
from swarmtui.tui.sessions.compare_screen import CompareScreen, summaries_of
from swarmtui.tui.sessions.trash import Trash
from swarmtui.tui.sessions.view import BY, By, ordered, session_line, titles

if TYPE_CHECKING:
    from swarmtui.sessions.index import Listed
    from swarmtui.tui.app import SwarmApp


class Board(Lines):
    """The rows, with a cursor."""

    rows: list[Listed] = []
    marked: set[str] = set()
    cursor = 0
    beside = ""
    empty = "looking …"

    def show(self, rows: list[Listed], marked: set[str], beside: str, empty: str) -> None:
        self.rows, self.marked, self.beside, self.empty = rows, marked, beside, empty
        self.move(self.cursor)

    def move(self, to: int) -> None:
        self.cursor = min(max(0, to), max(0, len(self.rows) - 1))
        self.redraw()

    @property
    def chosen(self) -> str:
        return self.rows[self.cursor].id if self.rows else ""

    def draw(self, width: int, height: int) -> list[Line]:
        lines: list[Line] = [heading("", "sessions", self.beside, width), [(titles(width), "dim")]]
        if not self.rows:
            return [lines[0], [(f" {self.empty}", "dim")]]
        room = height - 2
        first = max(0, min(self.cursor - room // 2, len(self.rows) - room))
        for place, row in enumerate(self.rows[first : first + room], first):
            here, line = place == self.cursor, session_line(row, width)
            style = "bold" if here else "dim" if line.doubtful else ""
            sign = ("›" if here else " ") + ("*" if row.id in self.marked else " ") + " "
            lines.append([(sign, "cursor"), ("".join(line.cells), style)])
        return lines


class SessionsScreen(Screen[None]):
    where: Where = "sessions"
    app: SwarmApp
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("sessions")]

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._listed: list[Listed] = []
        self._by: By = "newest first"
        self._words = ""
        self._marked: set[str] = set()
        self._trash = Trash(root)
        self._problem = ""

    def compose(self) -> ComposeResult:
        yield Board()
        yield Prompt()
        yield KeyLine()

    def on_mount(self) -> None:
        actions = shown(self.app.keys.actions("sessions"), "checklist", "tuning_log", "probe_history")
        # Where not all fit, what is done with sessions goes before what leads elsewhere.
        self.query_one(KeyLine).show(sorted(actions, key=lambda action: action.group != "Sessions"))
        self.run_worker(self._read(), exclusive=True, exit_on_error=False)

    def on_unmount(self) -> None:
        self._trash.empty()

    async def _read(self) -> None:
        from swarmtui.sessions.index import list_sessions

        try:
            self._listed = await asyncio.to_thread(list_sessions, self._root)
        except BadInput as problem:
            self._problem = plain(str(problem))
        self.paint()

    def paint(self) -> None:
        rows = ordered(self._listed, self._by, self._words)
        narrowed = f"/{self._words} · " if self._words else ""
        empty = self._problem or (f"none fits “{self._words}”" if self._words else f"no session yet in {self._root}")
        self.query_one(Board).show(rows, self._marked, f"{narrowed}{self._by} · {len(rows)}", empty)

    def action_move(self, by: int) -> None:
        board = self.query_one(Board)
        board.move(board.cursor + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.query_one(Board).size.height - 2))

    def action_edge(self, last: int) -> None:
        self.query_one(Board).move(len(self._listed) if last else 0)

    def action_sort(self) -> None:
        self._by = BY[(BY.index(self._by) + 1) % len(BY)]
        self.paint()

    def action_narrow(self) -> None:
        def typed(words: str) -> None:
            self._words = words
            self.paint()

        self.query_one(Prompt).ask("sessions with", self._words, str, lambda words: typed(words or ""), typed)

    def action_back(self) -> None:
        if self._words:
            self._words = ""
            self.paint()
        else:
            self.dismiss()

    def action_mark(self) -> None:
        self._marked ^= {self.query_one(Board).chosen} - {""}
        self.action_move(1)
        self.paint()

    def action_watch(self) -> None:
        chosen = self.query_one(Board).chosen
        if chosen:
            self.run_worker(self._watch(chosen), exclusive=True, exit_on_error=False)

    async def _watch(self, chosen: str) -> None:
        from swarmtui.sessions.replay import open_replay
        from swarmtui.tui.frame_source import Past

        try:
            replay = await asyncio.to_thread(open_replay, self._root, chosen)
        except BadInput as problem:
            self.app.say(str(problem))
        else:
            self.app.open_replay(Past(replay, self.app.hz))

    def action_checklist(self) -> None:
        chosen = self.query_one(Board).chosen
        if chosen:
            self.app.push_screen(ChecksScreen(self._root, chosen))

    def action_compare(self) -> None:
        order = [row.id for row in self._listed if row.id in self._marked]
        if len(order) < 2:
            self.app.say("mark two sessions or more with m, the oldest is what the others are compared with")
        else:
            self.run_worker(self._compare(sorted(order)), exclusive=True, exit_on_error=False)

    async def _compare(self, names: list[str]) -> None:
        try:
            found = await asyncio.to_thread(summaries_of, self._root, names)
        except BadInput as problem:
            self.app.say(str(problem))
            return
        labels = {row.id: f"{plain(row.label)} ({row.id})" if row.label else row.id for row in self._listed}
        self.app.push_screen(CompareScreen(found, labels))

    def action_delete(self) -> None:
        chosen = self.query_one(Board).chosen
        if not chosen:
            return
        try:
            self._trash.take(chosen)
        except BadInput as problem:
            self.app.say(str(problem))
            return
        self._marked.discard(chosen)
        self.app.say(f"{chosen} is deleted; u brings it back as long as this screen is open")
        self.run_worker(self._read(), exclusive=True, exit_on_error=False)

    def action_undo(self) -> None:
        try:
            name = self._trash.give_back()
        except BadInput as problem:
            self.app.say(str(problem))
            return
        self.app.say(f"{name} is back" if name else "nothing was deleted here")
        self.run_worker(self._read(), exclusive=True, exit_on_error=False)
