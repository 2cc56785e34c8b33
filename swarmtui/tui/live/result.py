"""The result of an ended run: the answer, large, why no more and what to try, and the levels."""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.analysis.quality.doubts import find_doubts, temper
from swarmtui.model.answer import Answer
from swarmtui.model.client_protocol import Ended, Frame
from swarmtui.model.plan import is_open_loop
from swarmtui.report.answer import point_text
from swarmtui.report.table import Block, Sentence
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import Page
from swarmtui.tui.baseline import compared_text
from swarmtui.tui.lines import Line, ljust, longest_fit, wrap
from swarmtui.tui.live.header import QUALITY_SIGNS, ending_text, saved_text
from swarmtui.tui.live.layout import is_small
from swarmtui.tui.live.levels import LevelsView, levels_view
from swarmtui.tui.live.live_panel import LiveData, LivePanel
from swarmtui.tui.tables import block_lines
from swarmtui.tui.tall_digits import tall

_QUALITY = {"ok": "ok", "note": "ok, with remarks: 6 shows them", "doubtful": "doubtful: 6 shows more"}
_NAME = 13
_GAP = 3


class ResultRow(NamedTuple):
    """One sentence of the answer; `command` is what to copy."""

    name: str
    text: str
    style: str = ""
    command: str = ""


class ResultView(NamedTuple):
    """`number` and `unit` are drawn large; `problem` is why the run ended early."""

    number: str
    unit: str
    rows: tuple[ResultRow, ...]
    problem: str
    levels: LevelsView
    saved: str


def result_view(
    frame: Frame | None,
    ended: Ended | None,
    levels: LevelsView,
    comparison: str,
) -> ResultView:
    """`comparison` is the verdict against the baseline."""
    failed = ended is not None and bool(ended.message)
    answer = frame.answer if frame else None
    number, unit = _large(answer, frame)
    finding = _finding(frame) if answer is None else ""
    rows = _answer_rows(answer, comparison) if answer else (ResultRow("", finding, "bold"), _verdict(comparison))
    return ResultView(
        number=number,
        unit=unit,
        rows=tuple(row for row in rows if row.text),
        problem=ending_text(ended) if ended and failed else "",
        levels=levels,
        saved=saved_text(ended) if ended else "",
    )


def _large(answer: Answer | None, frame: Frame | None) -> tuple[str, str]:
    """The agents that keep the SLO; without one, the best of several levels."""
    if answer is None or frame is None:
        return "", ""
    if answer.agents is not None:
        return str(answer.agents), "agent" if answer.agents == 1 else "agents"
    several = len(frame.levels) > 1 and not is_open_loop(frame.levels)
    return (str(answer.best_c), "best") if several and answer.best_c is not None else ("", "")


def _answer_rows(answer: Answer, comparison: str) -> tuple[ResultRow, ...]:
    at, step = answer.at_capacity, answer.next[0] if answer.next else None
    sign, style = QUALITY_SIGNS[answer.quality]
    known = at is not None or answer.agents is not None
    doubts = f"not sure: {answer.doubts}; " if answer.doubts else ""
    command = step.command if step is not None and step.command not in step.sentence else ""
    return (
        ResultRow("", f"{doubts}{answer.headline.sentence}", "bold"),
        ResultRow("Why no more", answer.limit.sentence if known else ""),
        ResultRow("Try next", step.sentence if step else "", command=command),
        ResultRow("Quality", f"{sign} {_QUALITY[answer.quality]}", style),
        _verdict(comparison),
        ResultRow(f"At {at.c}" if at else "", point_text(at) if at else ""),
    )


def _verdict(comparison: str) -> ResultRow:
    return ResultRow("Compared", comparison, "good")


def _finding(frame: Frame | None) -> str:
    """Where no answer is known: the sweet spot and the cliff; a single level has none."""
    if frame is None:
        return ""
    if frame.search_result:
        return frame.search_result
    enough = len(frame.levels) > 1 or is_open_loop(frame.levels)
    sentence = scaling(frame.levels, frame.slots).sentence if enough else ""
    return temper(sentence, find_doubts(frame.quality))


class ResultPanel(LivePanel, Page):
    def __init__(self) -> None:
        super().__init__(title="result")

    def update_from(self, data: LiveData) -> None:
        frame = data.shown.frame
        levels, tasks = (frame.levels, frame.tasks) if frame else ((), ())
        table = levels_view(levels, data.pair, tasks, "", data.shown.provisional, *data.shown.marked_by)
        comparison = compared_text(data.baseline, data.pair, data.comparison)
        view = result_view(frame, data.shown.ended, table, comparison)
        # On larger screens the table of levels has a region of its own.
        with_levels = is_small(self.screen)
        self.note = longest_fit(view.levels.marks, self.size.width - 30) if with_levels else ""
        self.show(result_lines(view, self.size.width, self.size.height, with_levels=with_levels))


def result_lines(view: ResultView, width: int, height: int, *, with_levels: bool) -> list[Line]:
    """The lines below the heading; with room, where the session is saved is the last of them."""
    lines = block_lines([Sentence(view.problem, "note")] if view.problem else [], width)
    lines += _large_lines(view, width)
    table = view.levels
    blocks: list[Block] = []
    if not table.table.rows:
        blocks.append(Sentence("no request of a level has finished", "detail"))
    elif with_levels:
        blocks += [table.table, *table.alarms]
        blocks += [Sentence(f"{table.grouped}; 4 says more", "note")] if table.grouped else []
    lines += [*([[]] if lines and blocks else []), *block_lines(blocks, width)]
    saved = block_lines([Sentence(view.saved, "detail")] if view.saved else [], width)
    blank = max(1, height - 1 - len(lines) - len(saved)) if saved else 0
    return [*lines, *([] for _ in range(blank)), *saved]


def _large_lines(view: ResultView, width: int) -> list[Line]:
    """The number at the left, the sentences beside it."""
    digits = tall(f"{view.number} {view.unit}") if view.number else []
    indent = max(map(len, digits), default=0) + _GAP if digits else 1
    beside: list[Line] = []
    for row in view.rows:
        name = ljust(row.name, _NAME) if row.name else ""
        parts = wrap(sanitize(row.text), max(20, width - indent - len(name) - 1))
        for at, part in enumerate(parts):
            beside.append([(name if not at else " " * len(name), "title"), (part, row.style)])
        if row.command:
            beside.append([(" " * len(name), ""), (sanitize(row.command), "first")])
    lines: list[Line] = []
    for at in range(max(len(digits), len(beside))):
        left = f" {digits[at]}" if at < len(digits) else ""
        lines.append([(ljust(left, indent), "good"), *(beside[at] if at < len(beside) else [])])
    return lines
