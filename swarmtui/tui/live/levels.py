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
from swarmtui.report.table import Sentence, Table
from swarmtui.report.tasks import task_table
from swarmtui.text import count_noun
from swarmtui.tui.lines import Line, Panel, longest_fit, wrapped_note
from swarmtui.tui.live.live_panel import LiveData, LivePanel
from swarmtui.tui.tables import block_lines, table_lines

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair

# The table alone does not need the height of a curve.
_MAX_HEIGHT = 14


class LevelsView(NamedTuple):
    """The table of levels, and below it alarms, remarks and the tasks of a mixed load.

    `marks` explains its signs, in several versions from long to short. Where there is no room for all remarks,
    `by_kind` has one line for each kind, `grouped` a few words.
    """

    table: Table
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
) -> LevelsView:
    """`baseline` compares each level with the baseline session; `empty` says why there is no level."""
    marks = level_marks(levels, slots, answer, search)
    table = level_table(levels, tasks, baseline, provisional, marks)
    complete = all(level.has_complete_run for level in levels)
    partial = "○ so far" if provisional else "" if complete else "○ incomplete"
    names = mark_names(marks) if levels or provisional else ("",)
    flags = [(level.name, flag) for level in levels for flag in level.flags]
    refused = [Sentence(f"not comparable: {why}", "note") for why in baseline.refused] if baseline and levels else []
    return LevelsView(
        table._replace(note=""),
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


class LevelsPanel(LivePanel, Panel[LevelsView]):
    key, title = 4, "levels"

    def update_from(self, data: LiveData) -> None:
        live = data.shown
        levels, tasks = (live.frame.levels, live.frame.tasks) if live.frame else ((), ())
        self.show_made(levels_view, levels, data.pair, tasks, data.no_level, live.provisional, *live.marked_by)

    @property
    def empty(self) -> str:
        return self.view.empty if self.view and not self.view.table.rows else ""

    @property
    def height_needed(self) -> int:
        """The lines of the table with its heading and titles, one for remarks, and a blank one."""
        if self.view is None:
            return 1
        return min(_MAX_HEIGHT, len(self.view.table.rows) + len(self.view.alarms) + bool(self.view.remarks) + 3)

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        lines = [self.heading(longest_fit(view.marks, width - 13) if view else "", width)]
        if view is None or not view.table.rows:
            return [*lines, *(wrapped_note(view.empty, width) if view else [])]
        titles, *rows = table_lines(view.table, width)
        room = max(1, height - 2 - bool(view.remarks) - len(view.alarms))
        lines += [titles, *rows[-room:], *block_lines(view.alarms, width)]
        lines += remark_lines(view, width, height - len(lines))
        if view.tasks.rows and len(lines) + 2 < height:
            lines += [[], *table_lines(view.tasks, width)]
        return lines
