"""The result of an ended run: the answer, large, why no more and what to try, and the levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.analysis.capacity.words import agents_clause, doubt_words
from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.analysis.quality.doubts import find_doubts, temper
from swarmtui.model.answer import Answer, NextStep
from swarmtui.model.client_protocol import Ended, Frame
from swarmtui.model.findings import SearchState
from swarmtui.model.plan import is_open_loop
from swarmtui.numbers import short_percent
from swarmtui.report.answer import (
    NO_STEP,
    NOT_SURE,
    answer_number,
    app_step,
    doubt_text,
    leading_steps,
    point_text,
    steps_text,
)
from swarmtui.report.remarks import odd_answers
from swarmtui.report.table import Sentence, Table
from swarmtui.text import count_noun, sanitize
from swarmtui.tui.base_screens import Page
from swarmtui.tui.baseline import compared_text
from swarmtui.tui.lines import Line, ljust, tall, wrap
from swarmtui.tui.live.header import QUALITY_SIGNS, ending_text
from swarmtui.tui.live.layout import EXPLAINED, MEANINGS, EndedRows, live_layout
from swarmtui.tui.live.levels import LevelsView, levels_view, remark_lines, shown_rows
from swarmtui.tui.live.live_panel import LiveData, LivePanel
from swarmtui.tui.tables import block_lines, table_lines

_NAME = 13
_GAP = 3
# In a panel of this width, all sentences are beside the number.
_WIDE = 100
# A part of the table of levels has at least these rows.
_LEAST_ROWS = 2
# Levels with more lines of remarks than this have the others behind their key.
_MOST_REMARKS = 3


class ResultRow(NamedTuple):
    """One sentence of the answer; `command` is what to copy, `brief` what a narrow panel shows of it."""

    name: str
    text: str
    style: str = ""
    command: str = ""
    brief: str = ""


class ResultView(NamedTuple):
    """`number` and `unit` are drawn large, in the `style` of the quality; `problem` is why the run ended early."""

    number: str
    unit: str
    style: str
    quality: str
    quality_style: str
    rows: tuple[ResultRow, ...]
    problem: str
    levels: LevelsView


def result_view(
    frame: Frame | None,
    ended: Ended | None,
    levels: LevelsView,
    comparison: str,
    *,
    brief_comparison: str = "",
    steps: tuple[NextStep, ...] = (),
    again_key: str = "",
) -> ResultView:
    """`comparison` is the verdict against the baseline, the brief one without the notes that its own screen has.

    `steps` are what to try by what both have shown. `again_key` asks a server again that was restarted for such a step.
    """
    failed = ended is not None and bool(ended.message)
    answer = frame.answer if frame else None
    if answer is not None and steps:
        answer = msgspec.structs.replace(answer, next=steps)
    number, unit = _large(answer, frame)
    finding = _finding(frame) if answer is None else ""
    compared = ResultRow("Compared", comparison, brief=brief_comparison)
    rows: tuple[ResultRow, ...] = (ResultRow("", finding, "bold"), compared)
    if answer is not None:
        rows = _answer_rows(answer, compared, again_key, find_doubts(frame.quality, brief=True) if frame else ())
    return ResultView(
        number=number,
        unit=unit,
        style=QUALITY_SIGNS["doubtful"][1] if answer is not None and answer.is_doubtful else "good",
        quality=_quality(answer, odd_answers(frame.levels)) if answer is not None and frame is not None else "",
        quality_style=QUALITY_SIGNS[answer.quality][1] if answer is not None else "dim",
        rows=tuple(row for row in rows if row.text or row.brief),
        problem=ending_text(ended) if ended and failed else "",
        levels=levels,
    )


def _large(answer: Answer | None, frame: Frame | None) -> tuple[str, str]:
    """The agents that keep the SLO; without one, the best of several levels."""
    if answer is None or frame is None:
        return "", ""
    if answer.agents is not None:
        number = answer_number(answer)
        if answer.headline.code == "fewer_agents":
            number = f"<{min((level.c for level in frame.levels), default=1)}"
        return number, "agent" if number == "1" else "agents"
    several = len(frame.levels) > 1 and not is_open_loop(frame.levels)
    return (answer_number(answer), "best") if several and answer.best_c is not None else ("", "")


def _answer_rows(answer: Answer, compared: ResultRow, again_key: str, doubts: Sequence[str]) -> tuple[ResultRow, ...]:
    """`doubts` are those of the answer in fewer words."""
    at, steps = answer.at_capacity, [app_step(step) for step in leading_steps(answer.next)]
    known = at is not None or answer.agents is not None
    command = next((step.command for step in steps if step.command and step.command not in step.sentence), "")
    # The command has a place of its own.
    try_next = steps_text(steps, again_key, commands=False)
    shorter = msgspec.structs.replace(answer, doubts=", ".join(doubts))
    # A wide terminal has a panel of these figures.
    point = ResultRow(f"At {at.c}", "", brief=point_text(at, brief=True)) if at else ResultRow("", "")
    # How sure it is follows in a line of its own, if it has one.
    sure = f"each end {_sure(answer)} sure: " if _sure(answer) else ""
    headline = answer.headline.sentence
    if sure and answer.border and answer.headline.code == "capacity":
        headline = f"{_number_text(answer)} with {parse_slo(answer.slo).words()}"
    return (
        ResultRow("", headline, "bold", brief=_brief(answer)),
        ResultRow("Doubt", doubt_text(answer), brief=doubt_text(shorter)),
        ResultRow("How sure", f"{sure}{answer.border}" if answer.border else ""),
        compared,
        point,
        ResultRow("Why no more", answer.limit.sentence if known else ""),
        ResultRow("Try next", try_next or NO_STEP, command=command),
    )


def _brief(answer: Answer) -> str:
    """Return the headline without the SLO, which the header shows; empty for another one than a capacity."""
    if answer.headline.code not in ("capacity", "capacity_or_more") or answer.agents is None:
        return ""
    said = _number_text(answer).rstrip(",")
    return f"{said}, {_sure(answer)} sure" if _sure(answer) and not answer.border else said


def _number_text(answer: Answer) -> str:
    return agents_clause(answer.agents or 0, answer.low, answer.high)


def _sure(answer: Answer) -> str:
    return "" if answer.confidence is None or answer.doubts else short_percent(answer.confidence)


def _quality(answer: Answer, odd: int) -> str:
    """Say how good the measurement is, and how many answers were `odd`; panel 6 has the reasons of a doubt."""
    sign = QUALITY_SIGNS[answer.quality][0]
    said = f"{sign} quality ok" if answer.quality in ("ok", "note") else f"{sign} {NOT_SURE} (press 6)"
    return f"{said}, {count_noun(odd, 'odd answer')}" if odd else said


def _finding(frame: Frame | None) -> str:
    """Return what stands for an unknown answer: the bracket of a capacity search, else the sweet spot and the cliff."""
    if frame is None:
        return ""
    if frame.search is not None and frame.search.goal == "capacity" and frame.status != "ended":
        return _bracket(frame.search)
    if frame.search_result:
        return frame.search_result
    enough = len(frame.levels) > 1 or is_open_loop(frame.levels)
    sentence = scaling(frame.levels, frame.slots).sentence if enough else ""
    return temper(sentence, find_doubts(frame.quality))


def _bracket(search: SearchState) -> str:
    doubt = {level.c: f" ({words})" for level in search.levels if (words := doubt_words(level))}
    kept = f"kept with at least {count_noun(search.at_least, 'agent')}" if search.at_least else ""
    missed = f"missed with {search.high}{doubt.get(search.high, '')}" if search.high is not None else ""
    return f"so far the SLO is {' and '.join(filter(None, (kept, missed))) or 'not decided at any level'}"


def result_of(data: LiveData) -> ResultView:
    """Return the result of what a live screen shows."""
    frame, session = data.shown.frame, data.shown.session
    levels, tasks = (frame.levels, frame.tasks) if frame else ((), ())
    judged, slo = (frame.goodput, frame.slo) if frame else ((), "")
    shown = data.shown
    table = levels_view(levels, data.pair, tasks, "", shown.provisional, *shown.marked_by, goodput=judged, slo=slo)
    doubtful = frame is not None and frame.answer is not None and bool(frame.answer.doubts)
    said, brief = (compared_text(data.pair, data.comparison, doubtful=doubtful, notes=notes) for notes in (True, False))
    steps = data.pair.next if data.pair else ()
    # A simulator of this process is no server that the user restarts.
    real = session is not None and any(one.url and not one.embedded for one in session.endpoints)
    key = data.again_key if real else ""
    return result_view(frame, data.shown.ended, table, said, brief_comparison=brief, steps=steps, again_key=key)


def ended_rows(data: LiveData, width: int, height: int) -> EndedRows:
    """Return the rows that the result and the levels need in a terminal of this size."""
    view, inner = result_of(data), width - 2
    # As they are drawn: of more kinds than these, they are the few words of one line.
    remarks = remark_lines(view.levels, inner, _MOST_REMARKS)
    levels = 1 + len(view.levels.table.rows) + len(view.levels.alarms) + len(remarks)
    levels += MEANINGS if height >= EXPLAINED else 0
    return EndedRows(2 + len(result_lines(view, inner, 0, with_levels=False)), 2 + levels)


class ResultPanel(LivePanel, Page):
    key, title, place = 7, "result", "result"

    def __init__(self) -> None:
        super().__init__(title="result")

    def update_from(self, data: LiveData) -> None:
        view = result_of(data)
        width, height = self.inner_size
        self.notes = (view.quality if len(view.quality) <= width - 30 else "",)
        self.note_style = view.quality_style
        # Nearly always the table of levels has a region of its own.
        regions = live_layout(*self.app.size, ended_rows(data, *self.app.size) if data.has_ended else None)
        self.show(result_lines(view, width, height, with_levels=regions.region("levels") is None))


def result_lines(view: ResultView, width: int, height: int, *, with_levels: bool) -> list[Line]:
    """The lines below the heading: the answer, whether a change helped, and why; their order is always the same.

    If `with_levels`, as many of them follow as fit, those next to the marked ones first.
    """
    lines = _above(view, width)
    if not view.levels.table.rows:
        return [*lines, [], *block_lines([Sentence("no request of a level has finished", "detail")], width)]
    return [*lines, *(_level_lines(view.levels, width, height, height - 1 - len(lines)) if with_levels else [])]


def _above(view: ResultView, width: int) -> list[Line]:
    problem = block_lines([Sentence(view.problem, "note")] if view.problem else [], width)
    return [*problem, *large_lines(view.number, view.unit, view.rows, width, view.style)]


def _level_lines(view: LevelsView, width: int, height: int, room: int) -> list[Line]:
    """The levels and remarks on them, after a blank line; in `room` lines those next to the marked ones.

    Panel 4, which has the same `height`, shows what is left out. Rows of levels come before remarks, and before the
    line that says how to see the others.
    """
    if room < 1:
        return []
    rows = len(view.table.rows)
    alone = remark_lines(view, width, height - 2 - rows - len(view.alarms))
    few = block_lines([view.grouped] if view.grouped.text else [], width)
    if few and len(alone) >= len(few) and alone != few:
        few = block_lines([view.grouped._replace(text=f"{view.grouped.text}; press 4 for more")], width)
    notes = [*block_lines(view.alarms, width), *few]
    if rows + len(notes) + 2 <= room:
        return [[], *table_lines(view.table_for(range(rows), width), width), *notes]
    which = "all" if rows + 2 < height else "more of the"
    alarms, blank = block_lines(view.alarms, width), list[Line]([[]])
    # A row that is compared with the baseline says more than the key for the others.
    least = min(rows, _LEAST_ROWS + bool(view.compared))
    others = f"{which} {rows} levels" if rows > least else "the remarks"
    left_out = block_lines([Sentence(f"press 4 for {others}", "detail")], width)
    ways: tuple[tuple[int, list[Line], list[Line]], ...]
    ways = ((least, blank, [*left_out, *notes]), (least, [], [*left_out, *alarms]), (least, [], left_out), (1, [], []))
    for fewest, above, below in ways:
        shown = room - len(above) - 1 - len(below)
        if shown >= fewest:
            return [*above, *table_lines(_part(view, shown, width), width), *below]
    return block_lines([Sentence("press 4 for the levels", "detail")], width)


def _part(view: LevelsView, room: int, width: int) -> Table:
    shown = shown_rows(view, room)
    table = view.table_for(shown, width)
    return table._replace(rows=tuple(table.rows[at] for at in shown))


def large_lines(number: str, unit: str, rows: Sequence[ResultRow], width: int, style: str = "good") -> list[Line]:
    """The number at the left, the sentences beside it; in a narrow panel, those that begin beside it, others below."""
    digits = tall(f"{number} {unit}") if number else []
    indent = max(map(len, digits), default=0) + _GAP if digits else 1
    room = width - indent - 1
    narrow = width < _WIDE
    rows = [row for row in (row._replace(text=(row.brief if narrow else "") or row.text) for row in rows) if row.text]
    placed = list(rows) if width >= _WIDE or not digits else []
    for row in rows if not placed else ():
        if len(_row_lines(placed, room)) >= len(digits):
            break
        placed.append(row)
    beside = _row_lines(placed, room)
    lines: list[Line] = []
    for at in range(max(len(digits), len(beside))):
        left = f" {digits[at]}" if at < len(digits) else ""
        lines.append([(ljust(left, indent), style), *(beside[at] if at < len(beside) else [])])
    below = _row_lines(rows[len(placed) :], width - 2)
    return [*lines, *([(" ", ""), *line] for line in below)]


def _row_lines(rows: Sequence[ResultRow], width: int) -> list[Line]:
    lines: list[Line] = []
    for row in rows:
        name = ljust(row.name, _NAME) if row.name else ""
        room = max(20, width - len(name))
        for at, part in enumerate(wrap(sanitize(row.text), room)):
            lines.append([(name if not at else " " * len(name), "title"), (part, row.style)])
        parts = wrap(sanitize(row.command), room) if row.command else []
        lines += [[(" " * len(name), ""), (part, "focus")] for part in parts]
    return lines
