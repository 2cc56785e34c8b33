"""The screen of saved sessions: sort, filter, replay, compare, delete and restore."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from textual.app import ComposeResult

from swarmtui.model.schema import BadInput
from swarmtui.numbers import MISSING, rate
from swarmtui.sessions import index
from swarmtui.sessions.journal import JOURNAL, is_running
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import CursorScreen, KeyFooter
from swarmtui.tui.cursor_list import CursorList
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.keys import Action, in_footer
from swarmtui.tui.lines import Line, heading, ljust, rjust

if TYPE_CHECKING:
    from swarmtui.sessions.index import SessionRow

SessionOrder = Literal["newest first", "best first", "by model", "by workload"]
SESSION_ORDERS: dict[SessionOrder, index.SortOrder] = {
    "newest first": "newest", "best first": "best", "by model": "model", "by workload": "workload",
}  # fmt: skip

_WIDE = 106
_WIDE_COLUMNS = (17, 14, 24, 14, 16, 9)
_NARROW_COLUMNS = (12, 11, 18, 12, 15, 0)
# The columns that get spare width (label, model, workload), and the width that all columns need.
_GROWING = (1, 2, 3)
_NEEDED = (80, 116)
_DELETED_PREFIX = ".deleted-"


# views


class SessionLine(NamedTuple):
    cells: tuple[str, ...]
    failed: bool


def session_line(row: SessionRow, width: int) -> SessionLine:
    mark = "~" if row.chunks_counted else ""
    best = f"{mark}{rate(row.best_out_tps)} at {row.best_at}" if row.best_at else MISSING
    model = f"(sim) {row.model}" if row.simulated else row.model
    created = row.created[0 if width >= _WIDE else 5 : 16].replace("T", " ") or sanitize(row.id)
    texts = (
        created,
        sanitize(row.label),
        sanitize(model),
        sanitize(row.workload),
        best,
        MISSING if row.requests is None else f"{row.requests:,}",
        "  " + sanitize(row.problem or row.state or "unreadable"),
    )
    failed = row.problem is not None or row.state in ("failed", "interrupted")
    return SessionLine(_cells(texts, width), failed)


def _titles(width: int) -> str:
    names = (
        "created (UTC)" if width >= _WIDE else "created",
        "label",
        "model",
        "workload",
        "best tok/s",
        "requests",
        "  state",
    )
    return "   " + "".join(_cells(names, width))


def _cells(texts: Sequence[str], width: int) -> tuple[str, ...]:
    """Fit the columns into the width; a narrow screen has no column of requests."""
    columns = _WIDE_COLUMNS if width >= _WIDE else _NARROW_COLUMNS
    more = max(0, width - _NEEDED[width >= _WIDE]) // len(_GROWING)
    wider = [room + more if number in _GROWING else room for number, room in enumerate(columns)]
    cells = [
        ljust(text, room - 1) + " " if number < 4 else rjust(text, room)
        for number, (text, room) in enumerate(zip(texts, wider, strict=False))
        if room
    ]
    return (*cells, texts[-1])


# widgets


class SessionList(CursorList["SessionRow"]):
    """Only the visible rows are formatted: there may be thousands."""

    marked: set[str] = set()
    note = ""
    empty = "loading …"

    def show(self, rows: Sequence[SessionRow], marked: set[str], note: str, empty: str) -> None:
        self.marked, self.note, self.empty = marked, note, empty
        self.set_rows(rows)

    @property
    def selected_id(self) -> str:
        return self.selected.id if self.selected else ""

    def draw(self, width: int, height: int) -> list[Line]:
        head = heading("", "sessions", self.note, width)
        if not self.rows:
            return [head, [(f" {self.empty}", "dim")]]
        lines: list[Line] = [head, [(_titles(width), "dim")]]
        for position, row in self.visible_rows(height - self.other_lines):
            here, line = position == self.cursor, session_line(row, width)
            style = "bold" if here else "dim" if line.failed else ""
            sign = ("›" if here else " ") + ("*" if row.id in self.marked else " ") + " "
            lines.append([(sign, "cursor"), ("".join(line.cells), style)])
        return lines


class SessionsScreen(CursorScreen):
    key_context = "sessions"

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._rows: list[SessionRow] = []
        self._order: SessionOrder = "newest first"
        self._marked: set[str] = set()
        self._deleted = DeletedSessions(root)
        self._problem = ""

    def compose(self) -> ComposeResult:
        yield SessionList()
        yield InputLine()
        yield KeyFooter()

    def actions(self) -> list[Action]:
        actions = in_footer(self.app.keys.actions("sessions"), "checklist", "tuning_log", "probe_history")
        # If not all fit, the actions on sessions come first.
        return sorted(actions, key=lambda action: action.group != "Sessions")

    def on_mount(self) -> None:
        self._reload()

    def _reload(self) -> None:
        self.run_worker(self._read(), exclusive=True, exit_on_error=False)

    def on_unmount(self) -> None:
        self._deleted.purge()

    async def _read(self) -> None:
        try:
            self._rows = await asyncio.to_thread(index.list_sessions, self._root)
        except BadInput as problem:
            self._problem = sanitize(str(problem))
        self.update_panels()

    def update_panels(self) -> None:
        text = self.filter_text
        rows = index.search_sessions(self._rows, SESSION_ORDERS[self._order], text)
        filtered = f"/{text} · " if text else ""
        none = f"no session matches “{text}”" if text else f"no sessions yet in {self._root}"
        note = f"{filtered}{self._order} · {len(rows)}"
        self.query_one(SessionList).show(rows, self._marked, note, self._problem or none)

    def action_sort(self) -> None:
        orders = list(SESSION_ORDERS)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self.update_panels()

    def action_narrow(self) -> None:
        self.ask_filter("filter sessions:")

    def action_mark(self) -> None:
        self._marked ^= {self.query_one(SessionList).selected_id} - {""}
        self.action_move(1)
        self.update_panels()

    def action_watch(self) -> None:
        selected = self.query_one(SessionList).selected_id
        if selected:
            self.run_worker(self.app.open_replay(self._root, selected), exclusive=True, exit_on_error=False)

    def action_checklist(self) -> None:
        selected = self.query_one(SessionList).selected_id
        if selected:
            self.app.open_screen("checklist", self._root, selected)

    def action_compare(self) -> None:
        marked = [row.id for row in self._rows if row.id in self._marked]
        if len(marked) < 2:
            self.app.toast("mark two or more sessions with m; the oldest one is the baseline")
        else:
            self.run_worker(self.app.open_comparison(self._root, sorted(marked)), exclusive=True, exit_on_error=False)

    def action_delete(self) -> None:
        selected = self.query_one(SessionList).selected_id
        if not selected:
            return
        try:
            self._deleted.delete(selected)
        except BadInput as problem:
            self.app.toast(str(problem))
            return
        self._marked.discard(selected)
        self.app.toast(f"{selected} is deleted; u restores it until this screen is closed")
        self._reload()

    def action_undo(self) -> None:
        try:
            name = self._deleted.restore()
        except BadInput as problem:
            self.app.toast(str(problem))
            return
        self.app.toast(f"{name} is restored" if name else "nothing to restore")
        self._reload()


class DeletedSessions:
    """Sessions that can be restored: renamed with a dot, which hides them, and removed by `purge`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: list[str] = []

    def delete(self, name: str) -> None:
        directory = self._root / name
        try:
            if (directory / JOURNAL).exists() and is_running(directory):
                raise BadInput("is running; stop it first", key=name)
            directory.rename(self._root / f"{_DELETED_PREFIX}{name}")
        except OSError as error:
            raise BadInput(f"cannot be deleted: {error.strerror}", key=name) from None
        self._names.append(name)

    def restore(self) -> str:
        """Restore the session deleted last and return its name; empty if there is none."""
        if not self._names:
            return ""
        name = self._names.pop()
        try:
            (self._root / f"{_DELETED_PREFIX}{name}").rename(self._root / name)
        except OSError as error:
            raise BadInput(f"cannot be restored: {error.strerror}", key=name) from None
        return name

    def purge(self) -> None:
        for name in self._names:
            shutil.rmtree(self._root / f"{_DELETED_PREFIX}{name}", ignore_errors=True)
        self._names.clear()
