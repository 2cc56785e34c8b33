"""A tune: its grid as it fills up, the leaderboard and the fronts as they grow; each cell one key away."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen

from swarmtui.client.client import attach
from swarmtui.experiments.grid import key_of
from swarmtui.experiments.tune_status import Standing, ask_to_stop, read_standing
from swarmtui.model.client_protocol import Subscribe
from swarmtui.model.schema import BadInput
from swarmtui.text import plain
from swarmtui.tui.dialogs import QuitDialog
from swarmtui.tui.footer import KeyLine
from swarmtui.tui.frame_source import Live, Past
from swarmtui.tui.keys import Where, bindings
from swarmtui.tui.lines import Line, Lines, heading
from swarmtui.tui.live.header import Header
from swarmtui.tui.pager import Page
from swarmtui.tui.tune.configuration_screen import BrokenScreen, CellScreen, ServerLogScreen
from swarmtui.tui.tune.view import (
    CellLine,
    TuneView,
    cell_columns,
    drawn,
    fitted_lines,
    last_row,
    titles,
    tune_view,
)

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

_LOOK_S = 0.5
_FRAMES_HZ = 2.0


class Cells(Lines):
    """The grid, or the leaderboard: lines of cells with a cursor."""

    def __init__(self, key: str, title: str, first: str, *, with_cursor: bool, empty: str, id: str) -> None:
        super().__init__(id=id)
        self._key, self._title, self._first, self._empty = key, title, first, empty
        self.with_cursor = with_cursor
        self.lines: tuple[CellLine, ...] = ()
        self.beside = ""
        self.cursor = 0

    def show(self, lines: tuple[CellLine, ...], beside: str = "") -> None:
        self.lines, self.beside = lines, beside
        self.move(self.cursor)

    def move(self, to: int) -> None:
        self.cursor = min(max(0, to), max(0, len(self.lines) - 1))
        self.redraw()

    @property
    def chosen(self) -> str:
        return self.lines[self.cursor].key if self.lines else ""

    def draw(self, width: int, height: int) -> list[Line]:
        room = max(1, height - 2)
        first = max(0, min(self.cursor - room // 2, len(self.lines) - room))
        more = (
            f"{first + 1}–{min(len(self.lines), first + room)} of {len(self.lines)}" if room < len(self.lines) else ""
        )
        beside = " · ".join(part for part in (self.beside, more) if part)
        head = heading(self._key, self._title, beside, width)
        if not self.lines:
            return [head, [(f" {self._empty}", "dim")]]
        shown, columns = list(enumerate(self.lines))[first : first + room], cell_columns(self.lines, width)
        rows = [drawn(line, columns, self.with_cursor and place == self.cursor) for place, line in shown]
        return [head, [(titles(columns, self._first), "dim")], *rows]


class TuneScreen(Screen[None]):
    """Reads what the tune writes, twice a second; the tune knows nothing of it."""

    where: Where = "tune"
    app: SwarmApp
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("tune")]

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self.standing: Standing | None = None
        self._problem = ""
        self._live: Live | None = None
        self._session = ""
        self._best_first = False
        self._alone: int | None = None

    def compose(self) -> ComposeResult:
        yield Header()
        yield Cells("1", "cells", "state", with_cursor=True, empty="looking …", id="cells")
        with Horizontal(id="findings"):
            yield Cells("2", "leaderboard", "place", with_cursor=False, empty="no cell is finished yet", id="board")
            yield Page("3 fronts and flags", id="fronts")
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(KeyLine).show(self.app.keys.actions(self.where))
        self.run_worker(self._follow(), exit_on_error=False)

    def on_unmount(self) -> None:
        self._hang_up()

    @property
    def is_on(self) -> bool:
        return self.standing is not None and self.standing.alive

    async def _follow(self) -> None:
        while True:
            try:
                self.standing = await asyncio.to_thread(read_standing, self._directory)
                self._problem = ""
            except BadInput as problem:
                self._problem = plain(str(problem))
            self._join_present()
            self.paint()
            if self.standing is not None and not self.standing.alive:
                self.app.tune_is_over()
            await asyncio.sleep(_LOOK_S)

    def _join_present(self) -> None:
        """The figures of the cell that is on come from its own conductor."""
        present = self.standing.present if self.standing and self.standing.alive else None
        session = present.session if present and present.phase in ("warming up", "running") else ""
        if session != self._session:
            self._hang_up()
            self._session = session
            if session:
                try:
                    self._live = Live(attach(session, Subscribe(hz=_FRAMES_HZ)))
                except BadInput:
                    self._session = ""  # it has ended meanwhile, or is not there yet
                else:
                    self._live.open(lambda: None)

    def _hang_up(self) -> None:
        if self._live is not None:
            self._live.close()
            self._live = None

    def paint(self) -> None:
        view = self._view()
        if view is None:
            return
        head = view.head._replace(notice=self._problem, notice_mood="bad") if self._problem else view.head
        self.query_one(Header).show(head, frozen=False)
        self.query_one("#cells", Cells).show(view.cells, view.beside)
        self.query_one("#board", Cells).show(view.board)
        fronts = self.query_one("#fronts", Page)
        lines = fitted_lines(view.found, max(20, fronts.size.width))
        fronts.show(lines or [[(" two finished cells make a front", "dim")]])

    def _view(self) -> TuneView | None:
        if self.standing is None:
            return None
        frame = self._live.track.frame if self._live else None
        return tune_view(self.standing, frame, time.time(), self._best_first)

    def on_resize(self) -> None:
        self.call_after_refresh(self.paint)

    # keys

    def action_move(self, by: int) -> None:
        if self._alone == 3:
            fronts = self.query_one("#fronts", Page)
            fronts.move(fronts.top + by)
            return
        cells = self.query_one("#board" if self._alone == 2 else "#cells", Cells)
        cells.move(cells.cursor + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.query_one("#cells", Cells).size.height - 2))

    def action_edge(self, last: int) -> None:
        self.action_move(10_000 if last else -10_000)

    def action_best_first(self) -> None:
        self._best_first = not self._best_first
        self.paint()

    def action_view(self, number: int) -> None:
        self._alone = None if self._alone == number else number
        for name in ("cells", "board", "fronts"):
            self.set_class(self._alone == ("cells", "board", "fronts").index(name) + 1, f"-only-{name}")
        # Enter opens what the cursor is at: it must be seen.
        self.query_one("#board", Cells).with_cursor = self._alone == 2
        self.call_after_refresh(self.paint)

    def action_back(self) -> None:
        if self._alone is not None:
            self.action_view(self._alone)
        elif len(self.app.screen_stack) > 1:
            self.dismiss()

    def action_sessions(self) -> None:
        self.app.open_sessions()

    @property
    def _is_first(self) -> bool:
        """The app was started for this tune; else it is only looked at, from the list of all."""
        return self.app.screen_stack[0] is self

    def action_leave_tune(self) -> None:
        if self._is_first:
            self.app.detach()
        else:
            self.dismiss()

    def action_stop_tune(self) -> None:
        if not self.is_on:
            self.app.say("the tune is not running")
        elif self._is_first:
            self.app.action_leave()
        else:
            self.app.push_screen(QuitDialog("tune"), self._answered)

    def _answered(self, choice: str | None) -> None:
        if choice == "stop":
            self.stop()
            self.app.say("stopping the server of this cell …")
        elif choice == "detach":
            self.dismiss()

    def stop(self) -> None:
        if self.standing is not None and self.standing.present is not None:
            ask_to_stop(self.standing.present)

    def action_open_cell(self) -> None:
        """Its live screen while it is measured, its log while it starts, its replay or its reason afterwards."""
        key = self.query_one("#board" if self._alone == 2 else "#cells", Cells).chosen
        standing = self.standing
        if standing is None or not key:
            return
        present = standing.present if standing.alive else None
        row = last_row(standing, key)
        if present is not None and present.flags is not None and key_of(present.flags) == key:
            if self._session:
                self._watch(self._session)
            else:
                self.app.push_screen(ServerLogScreen(Path(present.log)))
        elif row is None:
            self.app.say("this cell has not been measured yet")
        elif row.state == "broken":
            self.app.push_screen(BrokenScreen(row))
        else:
            self.run_worker(self._replay(row.session), exclusive=True, group="replay", exit_on_error=False)

    def _watch(self, session: str) -> None:
        try:
            client = attach(session, Subscribe(hz=self.app.hz, rows=True))
        except BadInput as problem:
            self.app.say(str(problem))
        else:
            self.app.push_screen(CellScreen(Live(client)))

    async def _replay(self, session: str) -> None:
        from swarmtui.sessions.replay import open_replay

        try:
            replay = await asyncio.to_thread(open_replay, self._directory.parent.parent, session)
        except BadInput as problem:
            self.app.say(str(problem))
        else:
            self.app.open_replay(Past(replay, self.app.hz))
