"""The screen of saved sessions: sort, filter, replay, compare, export, delete and restore."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message

from swarmtui.analysis.compare.names import varying_flags
from swarmtui.model.base import BadInput
from swarmtui.numbers import MISSING, local_time, rate
from swarmtui.sessions import index
from swarmtui.sessions.journal import JOURNAL, is_running
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import CursorScreen, KeyFooter
from swarmtui.tui.cursor_list import CursorList
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.keys import Action, in_footer
from swarmtui.tui.lines import Line, LineWidget, heading, ljust, rjust, wrap, wrapped_note
from swarmtui.tui.sessions.compare_screen import OverlayPanel, OverlayView, SessionCurve
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.sessions.index import SessionRow

SessionOrder = Literal["newest first", "best first", "by model", "by workload"]
SESSION_ORDERS: dict[SessionOrder, index.SortOrder] = {
    "newest first": "newest", "best first": "best", "by model": "model", "by workload": "workload",
}  # fmt: skip

_TIME, _BEST, _SWEET = 12, 14, 6
_SHORT_TIME = "%m-%d %H:%M"
# Above this width the year is shown.
_WIDE = 120
# The largest shares of the remaining width that the model and the workload get.
_MODEL_SHARE, _WORKLOAD_SHARE = 0.4, 0.25
_LONGEST_STATE = 13
_PREVIEWED = 4
_DELETED_PREFIX = ".deleted-"


# views


class SessionColumns(NamedTuple):
    """The widths that the columns need; 0 for what is the same in all sessions, which is named in `common` instead."""

    model: int
    workload: int
    state: int
    common: str


class ListedSessions(NamedTuple):
    """The sessions as read, and for each id the flags in which it differs from others of its model."""

    rows: list[SessionRow]
    flags: dict[str, str]


def read_sessions(root: Path) -> ListedSessions:
    rows = index.list_sessions(root)
    by_model: dict[str, list[SessionRow]] = {}
    for row in rows:
        by_model.setdefault(row.model, []).append(row)
    flags: dict[str, str] = {}
    for group in by_model.values():
        texts = varying_flags([row.flags for row in group])
        flags |= {row.id: sanitize(text) for row, text in zip(group, texts, strict=True) if text}
    return ListedSessions(rows, flags)


def session_columns(rows: Sequence[SessionRow]) -> SessionColumns:
    readable = [row for row in rows if row.problem is None]
    models, workloads = {_model(row) for row in readable}, {row.workload for row in readable}
    states = {_state(row) for row in rows}
    common = " · ".join(sanitize(next(iter(names))) for names in (models, workloads) if len(names) == 1)
    return SessionColumns(
        model=max(map(len, models)) if len(models) > 1 else 0,
        workload=max(map(len, workloads)) if len(workloads) > 1 else 0,
        state=0 if states <= {"done"} else min(_LONGEST_STATE, max(map(len, states))),
        common=common,
    )


def session_line(row: SessionRow, flags: str, columns: SessionColumns, width: int) -> str:
    mark = "~" if row.chunks_counted else ""
    best = f"{mark}{rate(row.best_out_tps)} at {row.best_at}" if row.best_at else MISSING
    sweet = MISSING if row.sweet_spot is None else f"C={row.sweet_spot}"
    name = sanitize(row.problem or "") or session_caption(row, flags)
    time = local_time(row.created, f"%Y-{_SHORT_TIME}" if width >= _WIDE else _SHORT_TIME) or sanitize(row.id)
    return _cells((time, name, _model(row), row.workload, best, sweet, _state(row)), columns, width)


def session_caption(row: SessionRow, flags: str) -> str:
    """The name of a session: its label, and the flags in which it differs."""
    label = sanitize(row.label)
    return " · ".join(part for part in (label, flags if flags not in label else "") if part)


def _model(row: SessionRow) -> str:
    return f"(sim) {row.model}" if row.simulated else row.model


def _state(row: SessionRow) -> str:
    return "unreadable" if row.problem is not None or row.state is None else row.state


def _titles(columns: SessionColumns, width: int) -> str:
    names = ("time", "label · flags that differ", "model", "workload", "best tok/s", "sweet", "state")
    return "   " + _cells(names, columns, width)


def _cells(texts: Sequence[str], columns: SessionColumns, width: int) -> str:
    """Fit the columns into the width; what distinguishes the sessions gets the rest of it."""
    time, name, model, workload, best, sweet, state = map(sanitize, texts)
    time_width = _TIME + (5 if width >= _WIDE else 0)
    last = columns.state + 2 if columns.state else 0
    room = width - 3 - time_width - _BEST - _SWEET - last
    model_width = min(columns.model + 1, int(_MODEL_SHARE * room)) if columns.model else 0
    workload_width = min(columns.workload + 1, int(_WORKLOAD_SHARE * room)) if columns.workload else 0
    name_width = room - model_width - workload_width
    parts = ((time, time_width), (name, name_width), (model, model_width), (workload, workload_width))
    left = "".join(ljust(text, size - 1) + " " for text, size in parts if size)
    return left + rjust(best, _BEST) + rjust(sweet, _SWEET) + (f"  {ljust(state, columns.state)}" if last else "")


def preview_lines(row: SessionRow, flags: str, width: int) -> list[Line]:
    """Describe the session under the cursor."""
    best = f"{rate(row.best_out_tps)} tok/s at {row.best_at}" if row.best_at else ""
    facts = (
        ("", session_caption(row, flags)),
        # With the zone: the id above, and the names of the files, are in UTC.
        ("time", local_time(row.created, "%Y-%m-%d %H:%M %Z")),
        ("model", _model(row)),
        ("workload", row.workload),
        ("endpoint", row.endpoint),
        ("best", best),
        ("sweet spot", "" if row.sweet_spot is None else f"C={row.sweet_spot}"),
        ("cliff", "" if row.cliff is None else f"C={row.cliff}"),
        ("requests", "" if row.requests is None else f"{row.requests:,}"),
        ("tags", " ".join(f"{name}={value}" for name, value in row.tags.items())),
        ("state", "" if _state(row) == "done" else f"{_state(row)} {row.problem or ''}"),
        ("files", row.directory),
    )
    lines: list[Line] = []
    for name, text in facts:
        if text:
            first, *more = wrap(sanitize(text), max(8, width - 13 if name else width - 2))
            lines.append([(f" {ljust(name, 11)}", "dim"), (first, "")] if name else [(f" {first}", "bold")])
            lines += [[(" " * (12 if name else 1), ""), (part, "" if name else "bold")] for part in more]
    return lines


# widgets


class SessionList(CursorList["SessionRow"]):
    """The saved sessions; only the visible rows are formatted, since there may be thousands."""

    class Moved(Message):
        pass

    marked: set[str] = set()
    flags: dict[str, str] = {}
    columns = SessionColumns(0, 0, 0, "")
    note = ""
    empty = "loading …"

    def show(self, rows: Sequence[SessionRow], flags: dict[str, str], marked: set[str], note: str, empty: str) -> None:
        self.columns = session_columns(rows)
        self.flags, self.marked, self.empty = flags, marked, empty
        self.note = " · ".join(part for part in (self.columns.common, note) if part)
        selected = self.selected_id
        self.set_rows(rows, next((at for at, row in enumerate(rows) if row.id == selected), None))

    @property
    def selected_id(self) -> str:
        return self.selected.id if self.selected else ""

    def move_to(self, position: int) -> None:
        super().move_to(position)
        self.post_message(self.Moved())

    def draw(self, width: int, height: int) -> list[Line]:
        head = heading("", "sessions", self.note, width)
        if not self.rows:
            return [head, *wrapped_note(self.empty, width)]
        lines: list[Line] = [head, [(_titles(self.columns, width), "dim")]]
        for position, row in self.visible_rows(height - self.other_lines):
            here = position == self.cursor
            failed = _state(row) in ("unreadable", "failed", "interrupted")
            sign = ("›" if here else " ") + ("*" if row.id in self.marked else " ") + " "
            text = session_line(row, self.flags.get(row.id, ""), self.columns, width)
            lines.append([(sign, "cursor"), (text, "bold" if here else "dim" if failed else "")])
        return lines


class SessionFacts(LineWidget):
    row: SessionRow | None = None
    flags = ""

    def show(self, row: SessionRow | None, flags: str) -> None:
        self.row, self.flags = row, flags
        lines = len(preview_lines(row, flags, self.size.width)) + 1 if row and self.size else 1
        self.styles.height = lines
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        head = heading("", "preview", self.row.id if self.row else "", width)
        return [head, *(preview_lines(self.row, self.flags, width) if self.row else [])]


class SessionCurvePanel(OverlayPanel):
    """The curve of the session under the cursor, with those of the marked ones."""

    title = "curve"


class SessionsScreen(CursorScreen):
    key_context = "sessions"

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._listed = ListedSessions([], {})
        self._order: SessionOrder = "newest first"
        self._marked: set[str] = set()
        self._deleted = DeletedSessions(root)
        self._problem = ""

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield SessionList()
            with Vertical(id="session-preview"):
                yield SessionFacts()
                yield SessionCurvePanel()
        yield InputLine()
        yield KeyFooter()

    def actions(self) -> list[Action]:
        actions = in_footer(super().actions(), "export", "checklist", "tuning_log", "probe_history")
        # If not all fit, those first that need no other session or a deleted one.
        order = ("replay", "mark", "compare", "export", "back", "sort", "filter", "delete")
        return sorted(actions, key=lambda action: order.index(action.id) if action.id in order else len(order))

    def on_mount(self) -> None:
        self._reload()

    def _reload(self) -> None:
        run_in_background(self, self._read, group="read")

    def on_unmount(self) -> None:
        self._deleted.purge()

    async def _read(self) -> None:
        try:
            self._listed = await asyncio.to_thread(read_sessions, self._root)
        except BadInput as problem:
            self._problem = sanitize(str(problem))
        self.update_panels()

    def update_panels(self) -> None:
        text = self.filter_text
        rows = index.search_sessions(self._listed.rows, SESSION_ORDERS[self._order], text)
        filtered = f"/{text} · " if text else ""
        none = f"no sessions yet in {self._root}: each run is saved; F5 on the setup screen starts one"
        if text:
            none = f"no session matches “{text}”; Esc clears the filter"
        note = f"{filtered}{self._order} · {len(rows)}"
        self.query_one(SessionList).show(rows, self._listed.flags, self._marked, note, self._problem or none)

    @on(SessionList.Moved)
    def _show_preview(self) -> None:
        """Describe the session under the cursor, and draw its curve over those that are marked."""
        selected = self.query_one(SessionList).selected
        names = self._listed.flags
        self.query_one(SessionFacts).show(selected, names.get(selected.id, "") if selected else "")
        marked = [row for row in self._listed.rows if row.id in self._marked and row is not selected]
        rows = [row for row in (selected, *marked[: _PREVIEWED - 1]) if row is not None and row.curve]
        curves = tuple(
            SessionCurve(sanitize(row.label) or names.get(row.id) or local_time(row.created, _SHORT_TIME), row.curve)
            for row in rows
        )
        empty = "" if any(len(curve.points) > 1 for curve in curves) else "a curve needs two levels"
        if empty and selected and _state(selected) == "running":
            empty = "running: the curve follows at the end"
        unit = "requests/s" if any(row.best_rate is not None for row in rows) else "C"
        self.query_one(SessionCurvePanel).show(OverlayView("output tok/s", curves, unit, empty))

    def on_resize(self) -> None:
        if self.query(SessionCurvePanel):  # it has none while the app exits
            self._show_preview()

    def action_sort(self) -> None:
        orders = list(SESSION_ORDERS)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self.update_panels()

    def action_filter(self) -> None:
        self.ask_filter("filter sessions:")

    def _selected_id(self) -> str:
        """The id of the session under the cursor; if there is none, say why and return an empty string."""
        sessions = self.query_one(SessionList)
        if not sessions.selected_id:
            self.app.toast(sessions.empty)
        return sessions.selected_id

    def action_mark(self) -> None:
        self._marked ^= {self._selected_id()} - {""}
        self.action_move(1)
        self.update_panels()

    def action_replay(self) -> None:
        if selected := self._selected_id():
            run_in_background(self, partial(self.app.open_replay, self._root, selected), group="open")

    def action_checklist(self) -> None:
        if selected := self._selected_id():
            self.app.open_screen("checklist", self._root, selected)

    def action_compare(self) -> None:
        """Compare the marked sessions; the oldest is the baseline."""
        if not self._listed.rows:
            self._selected_id()
        elif len(ids := self._to_compare()) < 2:
            self.app.toast("no earlier session with this model and workload; mark two or more with m")
        else:
            run_in_background(self, partial(self.app.open_comparison, self._root, ids), group="open")

    def _to_compare(self) -> list[str]:
        """The marked sessions; with fewer than two, the one under the cursor and the marked one or the one before."""
        rows, selected = self._listed.rows, self.query_one(SessionList).selected
        marked = {row.id for row in rows if row.id in self._marked}
        if len(marked) < 2 and selected is not None:
            earlier = (
                row.id
                for row in rows
                if row.id < selected.id
                and row.levels
                and (row.model, row.workload) == (selected.model, selected.workload)
            )
            marked = {selected.id, *(marked - {selected.id} or {next(earlier, selected.id)})}
        return sorted(marked)

    def action_export(self) -> None:
        """Export the marked sessions in one file, or the one under the cursor."""
        marked = sorted(row.id for row in self._listed.rows if row.id in self._marked)
        ids = marked or [self._selected_id()]
        if ids[0]:
            self.app.open_screen("export", self._root, ids)

    def action_delete(self) -> None:
        if not (selected := self._selected_id()):
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
