"""The table of finished levels, with columns that depend on the load mode and a comparison with the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from swarmtui.analysis.capacity.marks import level_marks
from swarmtui.model.answer import Answer
from swarmtui.model.client_protocol import ProvisionalLevel
from swarmtui.model.findings import ALARMS, SearchState, Slots
from swarmtui.model.session import Level, TaskFigures
from swarmtui.report.levels import level_table, mark_names
from swarmtui.report.remarks import grouped_remarks, remarks
from swarmtui.report.table import Cell, Code, Column, Sentence, Table
from swarmtui.report.tasks import task_table
from swarmtui.text import count_noun
from swarmtui.tui.lines import Line, Movable, Panel, longest_fit, wrapped_note
from swarmtui.tui.live.curve import planned_levels
from swarmtui.tui.live.live_panel import LiveData, LivePanel
from swarmtui.tui.tables import block_lines, table_lines

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair

# The blanks between columns: as many as fit.
_GAPS = (8, 7, 6, 5, 4, 3, 2)
_SLO_SIGNS: dict[str, tuple[str, Code]] = {
    "kept": ("✓", "kept"), "missed": ("✖", "missed"), "unsure": ("?", "unsure"), "dip": ("▽", "unsure"),
}  # fmt: skip


class LevelsView(NamedTuple):
    """The table of levels, and below it alarms, remarks, the tasks of a mixed load and what the columns mean.

    The rows from `planned` on are levels that have not begun. `marks` explains the signs, in several versions from long
    to short. Where there is no room for all remarks, `by_kind` has one line for each kind, `grouped` a few words.
    """

    table: Table
    planned: int
    legend: str
    marks: tuple[str, ...]
    alarms: tuple[Sentence, ...]
    remarks: tuple[Sentence, ...]
    by_kind: tuple[Sentence, ...]
    grouped: str
    empty: str
    tasks: Table


def levels_view(
    levels: Sequence[Level],
    baseline: Pair | None = None,
    tasks: Sequence[TaskFigures] = (),
    empty: str = "",
    provisional: Sequence[ProvisionalLevel] = (),
    slots: Slots | None = None,
    answer: Answer | None = None,
    search: SearchState | None = None,
    planned: Sequence[float] = (),
) -> LevelsView:
    """`baseline` compares each level with the baseline session; `empty` says why there is no level.

    `planned` are the loads of levels that follow.
    """
    marks = level_marks(levels, slots, answer, search)
    table = level_table(levels, tasks, baseline, provisional, marks)
    begun = [level.offered_load for level in (*levels, *provisional)]
    if search is not None and search.goal == "capacity":
        table = _with_slo(table, begun, search)
    following = [load for load in planned if load not in begun]
    table = table._replace(rows=(*table.rows, *(_planned_row(table, load) for load in following)))
    complete = all(level.has_complete_run for level in levels)
    partial = "○ so far" if provisional else "" if complete else "○ incomplete"
    names = mark_names(marks) if levels or provisional else ("",)
    flags = [(level.name, flag) for level in levels for flag in level.flags]
    refused = [Sentence(f"not comparable: {why}", "note") for why in baseline.refused] if baseline and levels else []
    return LevelsView(
        table._replace(note=""),
        len(begun),
        table.note,
        tuple(" · ".join(filter(None, (name, partial))) for name in names),
        tuple(Sentence(f"✖ {flag.text}", "alarm") for _, flag in flags if flag.code in ALARMS),
        (*refused, *(Sentence(f"{name}: {flag}", "note") for name, flag in flags if flag.code not in ALARMS)),
        (*refused, *(Sentence(text, "note") for text in remarks(levels, alarms=False))),
        " · ".join((*(sentence.text for sentence in refused), *grouped_remarks(levels))),
        empty,
        task_table(tasks),
    )


def remark_lines(view: LevelsView, width: int, height: int) -> list[Line]:
    """Return the remarks on the levels, as many words as there is room for."""
    versions = (view.remarks, view.by_kind, (Sentence(view.grouped, "note"),) if view.grouped else ())
    count = Sentence(count_noun(len(view.remarks), "remark", "remarks"), "note")
    lines = (block_lines(version, width) for version in (*versions, (count,)))
    return next(found for found in lines if len(found) <= max(1, height))


def _with_slo(table: Table, loads: Sequence[float], search: SearchState) -> Table:
    """Add a column with the requests of each level that met the SLO, before the comparison."""
    known = {float(level.c): level for level in search.levels}
    cells = []
    for load in loads:
        level = known.get(load)
        sign, code = _SLO_SIGNS[level.state] if level is not None else ("…", "partial")
        counted = f" {level.good} of {level.n}" if level is not None and level.good is not None else ""
        cells.append(Cell(f"{sign}{counted}", code))
    at = next((number for number, column in enumerate(table.columns) if column.id == "ttft"), len(table.columns) - 1)
    column: Column[Level] = Column("slo", "SLO")
    return table._replace(
        columns=(*table.columns[: at + 1], column, *table.columns[at + 1 :]),
        rows=tuple((*row[: at + 1], cell, *row[at + 1 :]) for row, cell in zip(table.rows, cells, strict=True)),
    )


def _planned_row(table: Table, load: float) -> tuple[Cell, ...]:
    words = {"load": f"{load:g}", "n": "planned"}
    return tuple(Cell(words.get(column.id, ""), "partial") for column in table.columns)


class LevelsPanel(LivePanel, Movable, Panel[LevelsView]):
    """Shows the newest levels; the movement keys show earlier and planned ones."""

    key, title, place = 4, "levels", "levels"
    # The first row that is shown; None follows the newest level.
    _first: int | None = None
    _last_first = 0

    def update_from(self, data: LiveData) -> None:
        live = data.shown
        levels, tasks = (live.frame.levels, live.frame.tasks) if live.frame else ((), ())
        planned = planned_levels(live.session, live.frame)
        about = (data.pair, tasks, data.no_level, live.provisional, *live.marked_by, planned)
        self.show_made(levels_view, levels, *about)

    def move(self, by: int) -> None:
        self._first = max(0, (self._last_first if self._first is None else self._first) + by)
        self.redraw()

    def move_page(self, by: int) -> None:
        self.move(by * max(1, self.inner_size.height - 3))

    def move_to_edge(self, last: bool) -> None:
        self._first = None if last else 0
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None or not view.table.rows:
            return [self.heading("", width), *(wrapped_note(view.empty, width) if view else [])]
        titles, *rows = table_lines(view.table, width, _GAPS)
        room = max(1, height - 2 - bool(view.remarks) - len(view.alarms))
        shown = self._visible_rows(len(rows), room, view.planned)
        cut = f"{shown.start + 1}–{shown.stop} of {len(rows)}" if len(shown) < len(rows) else ""
        marks = longest_fit(view.marks, width - 22 - len(cut))
        note = " · ".join(filter(None, (marks, cut)))
        lines = [self.heading(note, width), titles, *rows[shown.start : shown.stop]]
        lines += block_lines(view.alarms, width)
        lines += remark_lines(view, width, height - len(lines))
        if view.tasks.rows and len(lines) + 2 < height:
            lines += [[], *table_lines(view.tasks, width)]
        return [*lines, *_legend(view.legend, width, height - len(lines))]

    def _visible_rows(self, total: int, room: int, planned: int) -> range:
        """The rows that fit: those that were chosen, else up to the level after the newest one."""
        follow = max(0, min(total, planned + 1) - room)
        first = min(follow if self._first is None else self._first, max(0, total - room))
        self._last_first = first
        return range(first, min(total, first + room))


def _legend(text: str, width: int, room: int) -> list[Line]:
    """As many sentences about the columns as have room below a blank line."""
    sentences = text.split(". ")
    for end in range(len(sentences), 0, -1):
        lines = block_lines([Sentence(". ".join(sentences[:end]), "detail")], width)
        if len(lines) < room:
            return [[], *lines]
    return []
