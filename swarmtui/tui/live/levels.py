"""The table of finished levels, with columns that depend on the load mode and a comparison with the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from swarmtui.analysis.capacity.marks import level_marks
from swarmtui.model.answer import Answer
from swarmtui.model.client_protocol import Frame, ProvisionalLevel
from swarmtui.model.findings import ALARMS, Goodput, SearchState, Slots
from swarmtui.model.session import Level, TaskFigures
from swarmtui.report.levels import (
    column_meanings,
    first_tokens_over,
    level_table,
    sign_names,
    slo_cells,
    unsure_names,
    visit_texts,
)
from swarmtui.report.remarks import AT_LIMIT, at_limit, grouped_remarks, remarks
from swarmtui.report.table import Cell, Code, Sentence, Table, fit
from swarmtui.report.tasks import task_table
from swarmtui.text import count_noun
from swarmtui.tui.lines import Line, Panel, longest_fit, part_text, wrapped_note
from swarmtui.tui.live.curve import planned_levels
from swarmtui.tui.live.layout import EXPLAINED, MEANINGS
from swarmtui.tui.live.live_panel import LiveData, ScrollingPanel
from swarmtui.tui.live.plan_line import judged_so_far
from swarmtui.tui.tables import block_lines, table_lines

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair

# The blanks between columns: as many as fit.
GAPS = (8, 7, 6, 5, 4, 3, 2)
# The least widths of columns: with them, the size of the panel decides which are shown, not what is measured.
WIDTHS = {
    "load": 4, "n": 10, "slo": 14, "steady": 6, "half_width": 6, "wall": 6, "stream": 6, "ttft": 7, "ttft_p90": 7,
    "room": 7, "tpot": 7, "e2e": 7,
}  # fmt: skip
# Fewer lines left explain too little.
_LEAST_MEANINGS = 2


class LevelsView(NamedTuple):
    """The table of levels, and below it alarms, remarks and the tasks of a mixed load.

    `leading` are the rows that are followed where not all have room and nothing is pinned: the newest level and the
    next one; after the end, those that are marked. `pinned` are the rows to show, the first one above all: the running
    level, the best one and the first past it; after the end, those that are `compared` with a baseline come next. The
    baseline has the rows `measured_before` as well.
    `marks` explains the signs, in several versions from long to short, `unsure` only why levels are not sure. Where
    there is no room for all remarks, `by_kind` has one line for each kind, `grouped` a few words; they are dim unless
    requests failed or the answer is in doubt. `visits` are what stands for the count of a row whose visits were not
    alike, from long to short.
    """

    table: Table
    leading: range
    pinned: tuple[int, ...]
    compared: tuple[int, ...]
    measured_before: tuple[int, ...]
    marks: tuple[str, ...]
    unsure: str
    alarms: tuple[Sentence, ...]
    remarks: tuple[Sentence, ...]
    by_kind: tuple[Sentence, ...]
    grouped: Sentence
    empty: str
    tasks: Table
    visits: tuple[tuple[int, tuple[str, ...]], ...] = ()

    def table_for(self, rows: Sequence[int], width: int) -> Table:
        """Return the table with the columns that these rows fill: those of the baseline only if it has one of them.

        Counts of single visits have only the room that no other column needs.
        """
        table = self.table if {*rows} & {*self.measured_before} else self.table.without(("baseline", "change"))
        columns = fit(table, width, GAPS, WIDTHS).columns
        versions = zip(*(texts for _, texts in self.visits), strict=True)
        wider = (_with_texts(table, dict(zip(dict(self.visits), texts, strict=True))) for texts in versions)
        return next((found for found in wider if fit(found, width, GAPS, WIDTHS).columns == columns), table)


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
    now: LevelNow | None = None,
    goodput: Sequence[Goodput] = (),
    slo: str = "",
) -> LevelsView:
    """`baseline` compares each level with the baseline session; `empty` says why there is no level.

    `planned` are the loads of levels that follow, `now` is the one that is running. `goodput` has what the
    `slo` says about the levels of an ended session.
    """
    marks = level_marks(levels, slots, answer, search)
    running = now.load if now is not None else None
    met = slo_cells(goodput, search)
    if search is not None and search.goal == "capacity":
        met = (met or {}) | ({now.load: Cell(now.counted, "partial")} if now is not None and now.counted else {})
    # A level that ended before it measured a request has no figures.
    levels = [level for level in levels if level.n or level.offered_load in (met or ())]
    over = first_tokens_over(levels, goodput, slo)
    table = level_table(
        levels,
        tasks,
        baseline,
        provisional,
        marks,
        growing=answer is None,
        slo=met,
        over=over,
        search=search,
        running=running,
    )
    begun = [level.offered_load for level in (*levels, *provisional)]
    following = [load for load in planned if load not in begun]
    rows = (*table.rows, *(_planned_row(table, load, now) for load in following))
    # A level has its place from the start.
    ordered = sorted(zip((*begun, *following), rows, strict=True), key=lambda of: of[0])
    table, loads = table._replace(rows=tuple(row for _, row in ordered)), [load for load, _ in ordered]
    newest = loads.index(begun[-1]) if begun else 0
    marked = [at for at, load in enumerate(loads) if load in (marks.best, marks.past)] if answer else []
    before = {row.key for row in baseline.rows if row.leads and row.before is not None} if baseline else set()
    measured_before = tuple(loads.index(level.offered_load) for level in levels if level.key in before)
    by_load = visit_texts(search)
    judged = goodput if met is not None else ()
    codes = {row[0].code for row in table.rows}
    used = [("○ measured now", "○ now")] if "partial" in codes and provisional else []
    used += [("◇ incomplete", "◇ incomplete")] if "incomplete" in codes else []
    signs = sign_names(marks, judged, search, used) if levels or provisional else ()
    unsure = unsure_names(marks, judged, search)[-1] if signs else ""
    flags = [(level.name, flag) for level in levels for flag in level.flags]
    refused = [Sentence(f"not comparable: {why}", "note") for why in baseline.refused] if baseline and levels else []
    doubted = answer is not None and answer.quality == "doubtful"
    code: Code = "note" if doubted or any(level.errors for level in levels) else "detail"
    single = [Sentence(f"{name}: {flag}", code) for name, flag in flags if flag.code not in (*ALARMS, AT_LIMIT)]
    single += [Sentence(text, code) for text in at_limit(levels)]
    return LevelsView(
        table._replace(note=""),
        range(marked[0], marked[-1] + 1) if marked else range(newest, newest + 2),
        tuple(loads.index(load) for load in (running, marks.best, marks.past) if load in loads),
        measured_before if answer is not None else (),
        measured_before,
        signs or ("",),
        unsure,
        tuple(Sentence(f"✖ {flag.text}", "alarm") for _, flag in flags if flag.code in ALARMS),
        (*refused, *single),
        (*refused, *(Sentence(text, code) for text in remarks(levels, alarms=False))),
        Sentence(
            " · ".join((*(sentence.text for sentence in refused), *grouped_remarks(levels))),
            "note" if refused else code,
        ),
        empty,
        task_table(tasks),
        tuple((at, by_load[load]) for at, load in enumerate(loads) if load in by_load and load != running),
    )


def _with_texts(table: Table, texts: Mapping[int, str]) -> Table:
    """Replace what the table says about the SLO in some rows."""
    column = next((at for at, column in enumerate(table.columns) if column.id == "slo"), None)
    if column is None:
        return table
    rows = list(table.rows)
    for at, text in texts.items():
        rows[at] = (*rows[at][:column], rows[at][column]._replace(text=text), *rows[at][column + 1 :])
    return table._replace(rows=tuple(rows))


def shown_rows(view: LevelsView, room: int) -> range:
    """Return `room` rows without a gap: around the first pinned one, with those of the others that fit beside it.

    Below a row comes before above it: a search goes up.
    """
    total = len(view.table.rows)
    first, *others = (*view.pinned, *view.compared) or (min(view.leading.stop, total) - 1,)
    rows = range(first, first + 1)
    for at in others:
        wider = range(min(rows.start, at), max(rows.stop, at + 1))
        rows = wider if len(wider) <= room else rows
    while len(rows) < min(room, total):
        below = rows.stop < total and (not rows.start or rows.stop - first <= first + 1 - rows.start)
        rows = range(rows.start - (not below), rows.stop + below)
    return rows


def remark_lines(view: LevelsView, width: int, height: int, keys: str = "press 4") -> list[Line]:
    """Return the remarks on the levels, as many words as there is room for; `keys` show the panel alone."""
    versions = (view.remarks, view.by_kind, (view.grouped,) if view.grouped.text else ())
    kinds = count_noun(len(view.by_kind), "kind of remark", "kinds of remarks")
    count = Sentence(f"{kinds}: {keys}", view.grouped.code)
    lines = (block_lines(version, width) for version in (*versions, (count,)))
    return next(found for found in lines if len(found) <= max(1, height))


class LevelNow(NamedTuple):
    """The load of the running level, what it does, and in a search how many of its requests met the SLO.

    Those of a level that is visited again are from before, like the other figures of its row, until it is judged.
    """

    load: float
    doing: str
    counted: str


def level_now(frame: Frame | None) -> LevelNow | None:
    if frame is None or frame.status == "ended":
        return None
    counts = judged_so_far(frame)
    known = frame.search.level(frame.c) if frame.search is not None else None
    doing = "measuring" if frame.begun is None else "warming up"
    counted = "" if counts is None else f"{counts[0]} of {counts[1]}" if counts[1] else doing
    if counted and known is not None:
        counted = f"was {known.good or 0} of {known.n}"
    return LevelNow(frame.c if frame.rate is None else frame.rate, doing, counted)


def _planned_row(table: Table, load: float, now: LevelNow | None) -> tuple[Cell, ...]:
    doing = now.doing if now is not None and now.load == load else "planned"
    words = {"load": f"{load:g}", "n": doing, "slo": doing}
    return tuple(Cell(words.get(column.id, ""), "partial") for column in table.columns)


class LevelsPanel(ScrollingPanel, Panel[LevelsView]):
    """Shows the newest levels; the movement keys show earlier and planned ones."""

    key, title, place = 4, "levels", "levels"
    # The first row that is shown beside other panels; None follows the newest level.
    _first: int | None = None
    _last_first = 0
    # The rows and columns that were drawn last.
    _drawn: Table | None = None

    def update_from(self, data: LiveData) -> None:
        self.alone = data.only_panel == self.key
        live = data.shown
        levels, tasks = (live.frame.levels, live.frame.tasks) if live.frame else ((), ())
        planned = planned_levels(live.frame)
        goodput = live.frame.goodput if live.frame else ()
        now = (planned, level_now(live.frame), goodput, live.frame.slo if live.frame else "")
        self.show_made(levels_view, levels, data.pair, tasks, data.no_level, live.provisional, *live.marked_by, *now)

    def move(self, by: int) -> None:
        if self.alone:
            super().move(by)
            return
        self._first = max(0, (self._last_first if self._first is None else self._first) + by)
        self.redraw()

    def move_to_edge(self, last: bool) -> None:
        self._first = None if last else 0
        super().move_to_edge(last)

    def figure_at(self, x: int, y: int) -> str:
        """The column of the cell, from the first blank before it."""
        if self.view is None or not y:
            return ""
        columns = fit(self._drawn or self.view.table, self.inner_size.width - 1, GAPS, WIDTHS)
        ends = accumulate(columns.gap + width for width in columns.widths)
        return next((column.id for column, end in zip(columns.columns, ends, strict=True) if x <= end), "")

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None or not view.table.rows:
            return [self.heading("", width), *(wrapped_note(view.empty, width) if view else [])]
        # A blank is between the last column and the frame.
        total, inside = len(view.table.rows), width - 1
        alarms, tasks = block_lines(view.alarms, width), table_lines(view.tasks, width) if view.tasks.rows else []
        if self.alone:
            remarks = block_lines(view.remarks, width)
            table = self._drawn = view.table_for(range(total), inside)
            texts = _meanings(table, inside)
            meanings = [[], *block_lines([Sentence(text, "detail") for text in texts], width)]
            lines = [*table_lines(table, inside, GAPS, WIDTHS), *alarms, *remarks, *meanings]
            lines += [[], *tasks] if tasks else []
            return self.scrolled(longest_fit(view.marks, width - 34), lines, width, height, 1 + view.leading.stop)
        # The rows that are pinned come before alarms, all rows before remarks, and these before meanings of columns.
        free = height - 2 - len(view.alarms) - total - bool(view.remarks)
        kept = min(MEANINGS, max(0, free)) if self.is_attached and self.app.size.height >= EXPLAINED else 0
        height -= kept
        room = max(1, min(len(view.pinned), height - 2), height - 2 - len(view.alarms))
        shown = self._visible_rows(total, room, view)
        table = self._drawn = view.table_for(shown, inside)
        titles, *rows = table_lines(table, inside, GAPS, WIDTHS)
        unsaid = len(view.remarks) if len(shown) + 2 + len(alarms) >= height else 0
        cuts = [f"{cut}: {self.keys_alone}" for cut in _left_out(part_text(shown, total), unsaid)] or [""]
        # Signs are explained rather than that there are remarks, which change nothing.
        notes = [" · ".join(filter(None, (marks, cut))) for cut in cuts for marks in view.marks]
        # Nothing else may say why a level is not sure; the keys for other rows are in the help.
        part = part_text(shown, total)
        whys = [*([f"{view.unsure} · {part}"] if part else []), view.unsure] if view.unsure else []
        note = longest_fit((*notes, *whys, *cuts), width - 19)
        lines = [self.heading(note, width), titles, *(rows[at] for at in shown), *alarms]
        lines += remark_lines(view, width, height - len(lines), self.keys_alone) if len(lines) < height else []
        if tasks and len(lines) + 2 < height:
            lines += [[], *tasks]
        free = height + kept - len(lines)
        most = kept or (free if free >= _LEAST_MEANINGS else 0)
        legend = _legend(view.table._replace(rows=()), inside, width, most) if most else []
        # It stands at the lower edge, whatever is above it.
        return [*lines, *([[]] * (free - len(legend)) if legend else []), *legend]

    def _visible_rows(self, total: int, room: int, view: LevelsView) -> range:
        """The rows that fit: those that were chosen, else those around the pinned ones."""
        first = shown_rows(view, room).start if self._first is None else min(self._first, max(0, total - room))
        self._last_first = first
        return range(first, min(total, first + room))


def _left_out(part: str, remarks: int) -> list[str]:
    """Name what the panel alone shows, in versions from long to short: all rows if this is a part, and the remarks."""
    rows, count = f"{part}, all" if part else "", count_noun(remarks, "remark") if remarks else ""
    return [", ".join(filter(None, (rows, count))), *([rows] if rows and count else [])] if rows or count else []


def _meanings(table: Table, width: int) -> list[str]:
    """Explain the columns that have room."""
    layout = fit(table, width, GAPS, WIDTHS)
    return column_meanings(
        table, {column.id: title for column, title in zip(layout.columns, layout.titles, strict=True)}
    )


def _legend(table: Table, inside: int, width: int, most: int) -> list[Line]:
    """Explain as many columns as so many lines have room for."""
    sentences = _meanings(table, inside)
    versions = (". ".join(sentences[:end]) for end in range(len(sentences), 0, -1))
    legends = (block_lines([Sentence(text, "detail")], width) for text in versions)
    return next((lines for lines in legends if len(lines) <= most), [])
