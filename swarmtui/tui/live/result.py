"""The result of an ended run: what was found, the levels, where it is saved, and the keys that continue from here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.analysis.quality.doubts import find_doubts, temper
from swarmtui.model.client_protocol import Ended, Frame
from swarmtui.model.plan import is_open_loop
from swarmtui.report.table import Block, Sentence
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import Page
from swarmtui.tui.keys import Action
from swarmtui.tui.lines import Line
from swarmtui.tui.live.header import ending_text, saved_text
from swarmtui.tui.live.levels import LevelsView, levels_view
from swarmtui.tui.live.live_panel import LiveData, LivePanel
from swarmtui.tui.tables import block_lines

# The order in which the next steps are offered.
_NEXT = ("again", "export", "compare_baseline", "baseline", "sessions", "play", "back")


class ResultView(NamedTuple):
    """`found` are sentences on the result, `problem` is why the run ended early, `next_keys` are key and label."""

    problem: str
    found: tuple[str, ...]
    levels: LevelsView
    saved: str
    next_keys: tuple[tuple[str, str], ...]


def result_view(
    frame: Frame | None,
    ended: Ended | None,
    levels: LevelsView,
    comparison: str,
    server: str,
    actions: Sequence[Action],
) -> ResultView:
    """`comparison` is the verdict against the baseline; `server` is the state of the server after the end."""
    failed = ended is not None and bool(ended.message)
    offered = {action.id: action for action in actions}
    return ResultView(
        problem=" · ".join(part for part in (server, ending_text(ended) if ended and failed else "") if part),
        found=tuple(part for part in (_finding(frame), comparison) if part),
        levels=levels,
        saved=saved_text(ended) if ended else "",
        next_keys=tuple((offered[name].shown, offered[name].label) for name in _NEXT if name in offered),
    )


def _finding(frame: Frame | None) -> str:
    """The sweet spot and the cliff; a single level has none."""
    if frame is None:
        return ""
    if frame.search_result:
        return sanitize(frame.search_result)
    enough = len(frame.levels) > 1 or is_open_loop(frame.levels)
    sentence = scaling(frame.levels, frame.slots).sentence if enough else ""
    return sanitize(temper(sentence, find_doubts(frame.quality)))


class ResultPanel(LivePanel, Page):
    def __init__(self) -> None:
        super().__init__(title="result")

    def update_from(self, data: LiveData) -> None:
        frame = data.shown.frame
        levels, tasks = (frame.levels, frame.tasks) if frame else ((), ())
        slots = frame.slots if frame else None
        table = levels_view(levels, data.pair, tasks, provisional=data.shown.provisional, slots=slots)
        comparison = data.comparison or (f"compared with {sanitize(data.baseline.name)}" if data.pair else "")
        view = result_view(frame, data.shown.ended, table, comparison, data.server, data.actions)
        self.note = view.levels.marks
        self.show(result_lines(view, self.size.width, self.size.height))


def result_lines(view: ResultView, width: int, height: int) -> list[Line]:
    """The lines below the heading; with room, the keys are the last of them."""
    said = [Sentence(view.problem, "note")] if view.problem else []
    said += [Sentence(text, "ok") for text in view.found]
    levels: list[Block] = [Sentence("no request of a level has finished", "detail")]
    if view.levels.table.rows:
        levels = [view.levels.table, *view.levels.alarms, *view.levels.remarks]
    lines = block_lines((*said, *([Sentence("")] if said else []), *levels), width)
    saved = block_lines([Sentence(view.saved, "detail")] if view.saved else [], width)
    last = [*saved, *_next_lines(view.next_keys, width)]
    blank = max(1, height - 1 - len(lines) - len(last))
    return [*lines, *([] for _ in range(blank)), *last]


def _next_lines(keys: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """One entry per key, as many lines as needed."""
    lines: list[Line] = []
    used = width
    for shown, label in keys:
        size = len(shown) + len(label) + 4
        if used + size > width:
            lines.append([])
            used = 0
        lines[-1] += [(f" {shown}", "title"), (f" {label}  ", "")]
        used += size
    return lines
