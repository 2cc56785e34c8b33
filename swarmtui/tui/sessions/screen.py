"""The screen of saved sessions: sort, filter, show results, replay, compare, export, delete and restore."""

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

from swarmtui.experiments.groups import (
    Entry,
    GroupText,
    ListRow,
    SessionGroup,
    describe_groups,
    group_sessions,
    list_rows,
    session_flags,
)
from swarmtui.experiments.store import baseline_effects
from swarmtui.model.base import BadInput
from swarmtui.model.shared import SHARED_SUFFIX
from swarmtui.model.tuning import LoggedChange
from swarmtui.numbers import local_time
from swarmtui.report.chart import Chart, ChartSeries
from swarmtui.report.charts import drawn_half_widths, main_first
from swarmtui.report.session_list import (
    IN_APP,
    common_values,
    full_answer,
    session_caption,
    session_model,
    session_state,
    session_table,
)
from swarmtui.report.table import Block, Facts, Sentence, Table
from swarmtui.sessions import index
from swarmtui.sessions.journal import JOURNAL, is_running
from swarmtui.text import count_noun, sanitize
from swarmtui.tui.base_screens import HelpTopic, KeyFooter, Page, PanelScreen
from swarmtui.tui.chart_panel import ChartPanel, ChartView
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.keys import Action, in_footer, relabel
from swarmtui.tui.table_list import TableList
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.sessions.index import SessionRow

SessionOrder = Literal["newest first", "best first", "by model", "by workload"]
SESSION_ORDERS: dict[SessionOrder, index.SortOrder] = {
    "newest first": "newest", "best first": "best", "by model": "model", "by workload": "workload",
}  # fmt: skip

_SHORT_TIME = "%m-%d %H:%M"
# From this width on the year is shown.
_WIDE = 120
_PREVIEWED = 4
# The lines of the list around its rows: the frame and the titles of the columns.
_AROUND_ROWS = 3
_DELETED_PREFIX = ".deleted-"
# What an experiment, a row with sessions below it, cannot do; and what it cannot do unless sessions are marked.
_OF_A_SESSION, _OF_MARKED = ("mark", "replay", "delete", "checklist", "share"), ("compare", "export")


# views


class ListedSessions(NamedTuple):
    """The sessions as read, for each id the flags by which it is named, and what is known of each experiment.

    `effects` are the verdicts on sessions that were compared with a baseline.
    """

    rows: list[SessionRow]
    changes: dict[str, str]
    groups: dict[str, GroupText]
    effects: dict[str, LoggedChange]


def read_sessions(root: Path) -> ListedSessions:
    rows = index.list_sessions(root)
    return ListedSessions(rows, session_flags(rows), describe_groups(root, rows), baseline_effects(root))


def preview_blocks(entry: Entry, changes: str) -> list[Block]:
    """Describe the session or experiment under the cursor."""
    if isinstance(entry, SessionGroup):
        count = count_noun(len(entry.sessions), "session")
        return [
            Sentence(entry.name, "lead"),
            Facts((("result", entry.result), ("sessions", f"{count}; enter lists them"))),
        ]
    caption = session_caption(entry, changes)
    state = session_state(entry)
    facts = (
        # With the zone: the id above, and the names of the files, are in UTC.
        ("time", local_time(entry.created, "%Y-%m-%d %H:%M %Z")),
        ("model", session_model(entry)),
        ("workload", entry.workload),
        ("endpoint", entry.endpoint),
        ("answer", full_answer(entry)),
        ("cliff", "" if entry.cliff is None else f"C={entry.cliff}"),
        ("requests", "" if entry.requests is None else f"{entry.requests:,}"),
        ("tags", " ".join(f"{name}={value}" for name, value in entry.tags.items())),
        ("state", "" if state == "done" else f"{state} {entry.problem or ''}"),
        ("files", entry.directory),
    )
    return [*([Sentence(caption, "lead")] if caption else []), Facts(facts)]


def check_shared_name(text: str) -> None:
    if text and not text.endswith(SHARED_SUFFIX):
        raise BadInput(f"the name of a shared file ends with {SHARED_SUFFIX}")


# widgets


class SessionCurvePanel(ChartPanel):
    """The curve of the session under the cursor, with those of the marked ones."""

    key, title = 3, "curve"


class SessionsScreen(PanelScreen):
    key_context = "sessions"
    shared = (1, 2, 3)

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._listed = ListedSessions([], {}, {}, {})
        self._order: SessionOrder = "newest first"
        self._marked: set[str] = set()
        self._opened: set[str] = set()
        self._shown: dict[str, ListRow] = {}
        # What the search of a session and earlier ones give together, once it was under the cursor.
        self._deleted = DeletedSessions(root)
        self._problem = ""
        self._is_read = False
        # The rows of the list without a filter; the panels do not move while one is typed.
        self._row_count = 0

    def compose(self) -> ComposeResult:
        with Horizontal(id="saved"):
            yield TableList("sessions", key=1)
            with Vertical(id="session-preview"):
                yield Page("preview", key=2)
                yield SessionCurvePanel()
        yield InputLine()
        yield KeyFooter()

    def actions(self) -> list[Action]:
        """Return the actions for the row under the cursor, if any: an experiment has sessions, and no own result."""
        actions = in_footer(super().actions(), "export", "checklist", "tuning_log", "probe_history")
        row = self._shown.get(self.query_one(TableList).selected)
        if row is None:
            unfit = ("open", *_OF_A_SESSION, *(() if self._marked else _OF_MARKED))
            unfit += () if self._listed.rows else ("sort", "filter")
            actions = [action for action in actions if action.id not in unfit]
        elif isinstance(row.entry, SessionGroup):
            unfit = (*_OF_A_SESSION, *(() if self._marked else _OF_MARKED))
            actions = [action for action in actions if action.id not in unfit]
            actions = relabel(actions, {"open": "hide sessions" if row.opened else "its sessions"})
        elif not self._marked:
            others = [id for id in self._to_compare() if id != row.id]
            labels = {"compare": f"compare with {'older' if others[0] < row.id else 'newer'}"} if others else {}
            selected = self._selected
            labels |= {"open": "attach"} if selected is not None and session_state(selected) == "running" else {}
            actions = relabel(actions, labels)
        # If not all fit, those first that need no other session or a deleted one.
        order = ("open", "mark", "compare", "export", "back", "share", "sort", "filter", "replay", "delete")
        return sorted(actions, key=lambda action: order.index(action.id) if action.id in order else len(order))

    def help_topic(self) -> HelpTopic:
        """Explain the signs of the column of baselines."""
        from swarmtui.tui.dialogs import change_topic

        return change_topic()

    def on_mount(self) -> None:
        self.arrange_panels()

    @property
    def is_short(self) -> bool:
        """Whether the list needs at most half of the lines: preview and curve are below it then."""
        return 0 < self._row_count <= (self.app.size.height - 1) // 2 - _AROUND_ROWS

    def sharing(self) -> Sequence[int]:
        return () if self.is_short else super().sharing()

    def arrange_panels(self) -> None:
        below = self.is_short and self.only_panel is None
        self.set_class(below, "-below")
        self.query_one(TableList).styles.height = self._row_count + _AROUND_ROWS if below else None
        super().arrange_panels()

    def on_screen_resume(self) -> None:
        """Read the sessions, also when the screen is shown again: a run may have ended in front of it."""
        self._reload()

    def _reload(self) -> None:
        run_in_background(self, self._read, group="read")

    def on_unmount(self) -> None:
        self._deleted.purge()

    async def _read(self) -> None:
        before = {row.id for row in self._listed.rows}
        try:
            self._listed = await asyncio.to_thread(read_sessions, self._root)
        except BadInput as problem:
            self._problem = sanitize(str(problem))
        self._is_read = True
        self.update_panels()
        newest, sessions = max((row.id for row in self._listed.rows), default=""), self.query_one(TableList)
        if before and newest > max(before) and newest in sessions.ids:
            sessions.move_to(sessions.ids.index(newest))

    def update_panels(self) -> None:
        text = self.filter_text
        rows = index.search_sessions(self._listed.rows, SESSION_ORDERS[self._order], text)
        filtered = f"/{text} · " if text else ""
        none = f"no sessions yet in {self._root}: each run is saved; F5 on the setup screen starts one"
        if not self._is_read:
            none = "the sessions are being read"
        elif text:
            none = f"no session matches “{text}”; Esc clears the filter"
        listed = list_rows(group_sessions(rows, self._listed.groups), self._opened)
        self._shown = {row.id: row for row in listed}
        if not text and self._row_count != len(listed):
            self._row_count = len(listed)
            self.arrange_panels()
        common = common_values(listed)
        note = " · ".join([*filter(None, common.values()), f"{filtered}{self._order}"])
        sessions = self.query_one(TableList)

        def part(start: int, end: int) -> Table:
            is_wide = sessions.size.width >= _WIDE
            time_form = f"%Y-{_SHORT_TIME}" if is_wide else _SHORT_TIME
            shown = [name for name in IN_APP if name not in common]
            return session_table(listed[start:end], self._listed.changes, shown, time_form, self._listed.effects)

        sessions.marked = self._marked
        sessions.show(part, [row.id for row in listed], note, self._problem or none)

    @property
    def _selected(self) -> SessionRow | None:
        """The session under the cursor."""
        selected = self.query_one(TableList).selected
        return next((row for row in self._listed.rows if row.id == selected), None)

    @on(TableList.Moved)
    def _show_preview(self) -> None:
        """Describe the session under the cursor, and draw its curve over those that are marked."""
        self.query_one(KeyFooter).show(self.actions())
        selected, names, preview = self._selected, self._listed.changes, self.query_one(Page)
        row = self._shown.get(self.query_one(TableList).selected)
        preview.notes = (selected.id if selected else "",)
        blocks = preview_blocks(row.entry, names.get(row.id, "")) if row else []
        preview.show_blocks(blocks)
        marked = [row for row in self._listed.rows if row.id in self._marked and row is not selected]
        rows = [row for row in (selected, *marked[: _PREVIEWED - 1]) if row is not None and row.curve]
        curves = tuple(
            ChartSeries(
                sanitize(row.label) or names.get(row.id) or local_time(row.created, _SHORT_TIME),
                row.curve,
                half_widths=drawn_half_widths(row.curve_half_widths),
                hue=hue,
            )
            for row, hue in zip(rows, main_first(len(rows), "throughput"), strict=True)
        )
        empty = "" if curves else "no level was measured" if selected else "no session is selected"
        if empty and selected and session_state(selected) == "running":
            empty = "running: the curve follows at the end"
        unit = "requests/s" if any(row.best_rate is not None for row in rows) else "C"
        self.query_one(SessionCurvePanel).show(
            ChartView(
                () if empty else (Chart("curve", "", "levels", unit, "output tok/s", curves, linear=True),), (), empty
            )
        )

    def on_resize(self) -> None:
        super().on_resize()
        if self.query(SessionCurvePanel):  # it has none while the app exits
            self.update_panels()

    def action_sort(self) -> None:
        orders = list(SESSION_ORDERS)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self.update_panels()

    def action_filter(self) -> None:
        self.ask_filter("filter sessions:")

    def _selected_id(self) -> str:
        """The id of the session under the cursor; if there is none, say why and return an empty string."""
        sessions = self.query_one(TableList)
        if not sessions.selected:
            self.app.toast(sessions.empty_text)
        elif self._selected is None:
            self.app.toast("this is an experiment: enter lists its sessions")
            return ""
        return sessions.selected

    def action_mark(self) -> None:
        self._marked ^= {self._selected_id()} - {""}
        self.update_panels()

    def _opened_or_closed(self) -> bool:
        """List the sessions of the experiment under the cursor, or hide them; False if it is a session."""
        row = self._shown.get(self.query_one(TableList).selected)
        if row is None or not isinstance(row.entry, SessionGroup):
            return False
        self._opened ^= {row.id}
        self.update_panels()
        return True

    def action_open(self) -> None:
        """Show the result of the session under the cursor, the run if it is running, or those of an experiment."""
        if self._opened_or_closed():
            return
        row = self._selected
        if row is not None and session_state(row) == "running":
            self.app.attach(row.id)
        elif selected := self._selected_id():
            run_in_background(self, partial(self.app.open_result, self._root, selected), group="open")

    def action_replay(self) -> None:
        if self._opened_or_closed():
            return
        if selected := self._selected_id():
            run_in_background(self, partial(self.app.open_replay, self._root, selected), group="open")

    def action_checklist(self) -> None:
        if selected := self._selected_id():
            self.app.open_screen("checklist", self._root, selected)

    def action_share(self) -> None:
        if selected := self._selected_id():
            self.app.open_screen("share", self._root, selected)

    def action_compare(self) -> None:
        """Compare the marked sessions; the oldest is the baseline."""
        if not self._listed.rows:
            self._selected_id()
        elif len(ids := self._to_compare()) < 2:
            self.app.toast("no other session with this model and workload; mark two or more with m")
        else:
            run_in_background(self, partial(self.app.open_comparison, self._root, ids), group="open")

    def _to_compare(self) -> list[str]:
        """The marked sessions; with fewer than two, the one under the cursor and the marked one or the one beside."""
        rows, selected = self._listed.rows, self._selected
        marked = {row.id for row in rows if row.id in self._marked}
        if len(marked) < 2 and selected is not None:
            marked = {selected.id, *(marked - {selected.id} or {index.session_beside(rows, selected) or selected.id})}
        return sorted(marked)

    def action_export(self) -> None:
        """Export the marked sessions in one file, or the one under the cursor."""
        marked = sorted(row.id for row in self._listed.rows if row.id in self._marked)
        ids = marked or [self._selected_id()]
        if ids[0]:
            self.app.open_screen("export", self._root, ids)

    def action_import(self) -> None:
        """Ask for a file that somebody shared, and add it to the list: `b` on its result makes it the baseline."""

        def done(text: str | None) -> None:
            if text:
                run_in_background(self, partial(self._import, Path(text).expanduser()), group="import")

        self.query_one(InputLine).ask("import a shared file:", "", check_shared_name, done)

    async def _import(self, path: Path) -> None:
        from swarmtui.sessions.shared_file import import_shared

        with self.app.toasting():
            name = await asyncio.to_thread(import_shared, path, self._root)
            self.app.toast(f"{name} is imported; b on its result compares the next runs with it")
            self._reload()

    def action_delete(self) -> None:
        if not (selected := self._selected_id()):
            return
        with self.app.toasting():
            self._deleted.delete(selected)
            self._marked.discard(selected)
            self.app.toast(f"{selected} is deleted; u restores it until this screen is closed")
            self._reload()

    def action_undo(self) -> None:
        with self.app.toasting():
            name = self._deleted.restore()
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
