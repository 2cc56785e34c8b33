"""The table of finished levels, with columns that depend on the load mode and a comparison with the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from swarmtui.analysis.capacity.scaling import best_level, scaling
from swarmtui.model.client_protocol import ProvisionalLevel
from swarmtui.model.findings import ALARMS
from swarmtui.model.load import LoadBase, Open, traits
from swarmtui.model.session import Level, Spread, TaskFigures
from swarmtui.numbers import MISSING, factor, percent, rate, seconds, signed_percent
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, Panel, rjust, wrap, wrapped_note
from swarmtui.tui.live.live_panel import LivePanel

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair
    from swarmtui.tui.live.screen import LiveScreen

Cell = TypeVar("Cell")

# The comparison with the baseline follows the throughput, the second column.
_BASELINE_TITLES, _BASELINE_WIDTHS, _BASELINE_AT = ("baseline", "change"), (9, 20), 2
MARKS = "▸ best · ▼ past the cliff"
PROVISIONAL_MARKS = "▸ best · ▼ cliff · ○ so far"
INCOMPLETE_MARKS = "▸ best · ▼ cliff · ○ incomplete"
# The table alone does not need the height of a curve.
_MAX_HEIGHT = 14
# In a narrower panel the figures of the tasks would be cut.
_TASKS_WIDTH = 64


class LevelLine(NamedTuple):
    """`best` has the highest throughput before the cliff, `past_cliff` is the first level after it.

    A provisional level has a `note` in place of its last cells.
    """

    cells: tuple[str, ...]
    best: bool = False
    past_cliff: bool = False
    partial: bool = False
    note: str = ""


class LevelsView(NamedTuple):
    """The table of levels; as many of its columns, and of the lines of `tasks`, are shown as fit."""

    titles: tuple[str, ...]
    widths: tuple[int, ...]
    lines: tuple[LevelLine, ...]
    remarks: tuple[str, ...]
    empty: str
    tasks: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()


class LevelColumn(NamedTuple):
    title: str
    width: int
    cell: Callable[[Level], str]


# views


def levels_view(
    levels: Sequence[Level],
    baseline: Pair | None = None,
    tasks: Sequence[TaskFigures] = (),
    empty: str = "",
    provisional: Sequence[ProvisionalLevel] = (),
) -> LevelsView:
    """`baseline` compares each level with the baseline session; `empty` says why there is no level."""
    loads = {traits(level.load) for level in levels} or {Open for level in provisional if level.rate is not None}
    columns = _columns(levels, tasks, loads)
    best, cliff = best_load(levels), scaling(levels).cliff
    lines = tuple(
        LevelLine(
            cells=_insert(tuple(column.cell(level) for column in columns), _baseline_cells(level, baseline)),
            best=level.offered_load == best,
            past_cliff=cliff is not None and level.c == cliff.c,
            partial=not level.has_complete_run,
        )
        for level in levels
    )
    titles = _insert(tuple(column.title for column in columns), _BASELINE_TITLES if baseline else ())
    lines += tuple(_provisional_line(level, titles) for level in provisional)
    refused = tuple(f"not comparable: {sanitize(str(why))}" for why in baseline.refused) if baseline and levels else ()
    return LevelsView(
        titles,
        _insert(tuple(column.width for column in columns), _BASELINE_WIDTHS if baseline else ()),
        lines,
        (*refused, *(f"{level.name}: {flag}" for level in levels for flag in level.flags if flag.code not in ALARMS)),
        empty,
        _task_lines(tasks),
        tuple(flag.text for level in levels for flag in level.flags if flag.code in ALARMS),
    )


def _provisional_line(level: ProvisionalLevel, titles: Sequence[str]) -> LevelLine:
    """Fill the columns up to the TTFT that have a figure so far."""
    tps = rate(level.out_tps)
    figures = {
        "C": f"{level.c}", "rate": f"{level.offered_load:g}", "steady": tps, "wall": tps, "tok/s": tps,
        "stream": rate(level.per_stream_tps), "TTFT": seconds(level.ttft_s),
    }  # fmt: skip
    cells = tuple(figures.get(title, "") for title in titles[: titles.index("TTFT") + 1])
    counted = level.of is not None and level.done < level.of
    return LevelLine(cells, partial=True, note=f"{level.done}/{level.of}" if counted else f"{level.done} done")


def best_load(levels: Sequence[Level]) -> float | None:
    """The C, or the request rate, of the best level."""
    found = best_level(levels)
    return found.offered_load if found else None


def _insert(cells: tuple[Cell, ...], comparison: tuple[Cell, ...]) -> tuple[Cell, ...]:
    return (*cells[:_BASELINE_AT], *comparison, *cells[_BASELINE_AT:])


def _baseline_cells(level: Level, baseline: Pair | None) -> tuple[str, ...]:
    """The throughput of the baseline, and the verdict on the difference."""
    if baseline is None:
        return ()
    row = next((row for row in baseline.rows if row.key == level.key and row.leads), None)
    if row is None or row.before is None:
        return (MISSING, MISSING)
    if row.verdict is None:
        return (rate(row.before), "not comparable")
    return (rate(row.before), f"{signed_percent(row.change)} {row.verdict.word}")


def _columns(
    levels: Sequence[Level], tasks: Sequence[TaskFigures], loads: Set[type[LoadBase]]
) -> tuple[LevelColumn, ...]:
    """Return the load first, then the throughput; `tasks` are those of a mixed load."""
    checked = (LevelColumn("pass", 7, lambda level: percent(level.pass_rate)),)
    passes = checked if any(level.verdicts for level in levels) else ()
    load = next(iter(loads)) if len(loads) == 1 else LoadBase
    if load.by_rate:
        return (
            LevelColumn("rate", 6, lambda level: f"{level.offered_load:g}"),
            LevelColumn("done/s", 8, lambda level: rate(level.served_per_s)),
            LevelColumn("tok/s", 8, lambda level: _tokens(level, level.out_tps_wall)),
            LevelColumn("TTFT", 8, lambda level: seconds(level.ttft_s.median)),
            LevelColumn("send delay", 11, lambda level: _send_delay(level.send_delay_s)),
            *passes, _N, _ERRORS, _STREAM, _IN_FLIGHT,
        )  # fmt: skip
    if load.primary:
        primary = {task.c: task.type for task in reversed(tasks)}
        return (
            _C,
            _WALL,
            LevelColumn("primary", 8, lambda level: rate(_primary_tps(tasks, level.c, primary.get(level.c)))),
            LevelColumn("side", 8, lambda level: rate(_side_tps(tasks, level.c, primary.get(level.c)))),
            _TTFT, *passes, _N, _ERRORS, _IN_FLIGHT,
        )  # fmt: skip
    if load.replayed:
        return (
            _C, _WALL, _STREAM, _TTFT,
            LevelColumn("jobs/h", 7, lambda level: rate(level.replay.jobs_per_h if level.replay else None)),
            LevelColumn("hit", 6, lambda level: percent(level.replay.hit_rate if level.replay else None)),
            LevelColumn("at most", 8, lambda level: percent(level.replay.max_hit_rate if level.replay else None)),
            _SLOWDOWN, _N, _ERRORS, _IN_FLIGHT,
        )  # fmt: skip
    if loads and all(load.batch or load.by_type for load in loads):
        return (_C, _WALL, _STREAM, _TTFT, *passes, _SLOWDOWN, _SPEED_UP, _N, _ERRORS, _IN_FLIGHT)
    return (_C, _STEADY, _STREAM, _TTFT, *passes, _SLOWDOWN, _SCALING, _N, _ERRORS, _WALL, _IN_FLIGHT)


def _task_lines(tasks: Sequence[TaskFigures]) -> tuple[str, ...]:
    """One line per type of task and turn of a mixed load."""
    if not tasks:
        return ()
    lines = [f"{'C':>4}  {'task':<14}{'turn':>4}{'n':>5}{'tok/s':>8}{'TTFT':>9}{'e2e':>9}  answers"]
    for task in tasks:
        verdicts = ", ".join(f"{count} {name}" for name, count in task.verdicts.items())
        lines.append(
            f"{task.c:>4}  {task.type[:13]:<14}{task.turn + 1:>4}{task.n:>5}{rate(task.per_stream_tps):>8}"
            f"{seconds(task.ttft_s.median):>9}{seconds(task.e2e_s):>9}  {verdicts}"
        )
    return tuple(lines)


def _send_delay(delay: Spread | None) -> str:
    """The p99, or the maximum of too few requests for one, as in reports."""
    return seconds(None if delay is None else delay.p99 if delay.p99 is not None else delay.max)


def _tokens(level: Level, value: float | None) -> str:
    """Mark a rate with ~ if its tokens were counted as chunks."""
    estimated = "~" if level.tokens_estimated and value is not None else ""
    return estimated + rate(value)


def _primary_tps(tasks: Sequence[TaskFigures], c: int, primary: str | None) -> float | None:
    return _mean_tps([task for task in tasks if task.c == c and task.type == primary])


def _side_tps(tasks: Sequence[TaskFigures], c: int, primary: str | None) -> float | None:
    return _mean_tps([task for task in tasks if task.c == c and task.type != primary])


def _mean_tps(tasks: Sequence[TaskFigures]) -> float | None:
    """The rate over all turns and types: tokens / time, so that a short answer counts by its tokens."""
    known = [
        (task.per_stream_tps, task.ok * task.tokens_out) for task in tasks if task.per_stream_tps and task.tokens_out
    ]
    return sum(tokens for _, tokens in known) / sum(tokens / tps for tps, tokens in known) if known else None


_C = LevelColumn("C", 4, lambda level: f"{level.offered_load:g}")
_STEADY = LevelColumn("steady", 8, lambda level: _tokens(level, level.out_tps_steady))
_WALL = LevelColumn("wall", 8, lambda level: _tokens(level, level.out_tps_wall))
_STREAM = LevelColumn("stream", 7, lambda level: _tokens(level, level.per_stream_tps.mean))
_TTFT = LevelColumn("TTFT", 8, lambda level: seconds(level.ttft_s.median))
_SLOWDOWN = LevelColumn("slowdown", 9, lambda level: percent(level.slowdown))
_SCALING = LevelColumn("scaling", 8, lambda level: factor(level.rate_speedup))
_SPEED_UP = LevelColumn(
    "speed-up", 9, lambda level: factor(level.serial.speedup if level.serial else level.wall_speedup)
)
_N = LevelColumn("n", 5, lambda level: str(level.n))
_ERRORS = LevelColumn("err", 4, lambda level: str(level.errors))
_IN_FLIGHT = LevelColumn("in flight", 10, lambda level: rate(level.c_achieved))


# widget


class LevelsPanel(LivePanel, Panel[LevelsView]):
    key, title = 4, "levels"
    hidden_after_end = True

    def update_from(self, screen: LiveScreen) -> None:
        live = screen.shown
        levels, tasks = (live.frame.levels, live.frame.tasks) if live.frame else ((), ())
        self.show_made(levels_view, levels, screen.pair, tasks, screen.no_level, live.provisional)

    @property
    def empty(self) -> str:
        return self.view.empty if self.view and not self.view.lines else ""

    @property
    def height_needed(self) -> int:
        """The lines of the table with its heading and titles, one for remarks, and a blank one."""
        if self.view is None:
            return 1
        return min(_MAX_HEIGHT, len(self.view.lines) + len(self.view.alarms) + bool(self.view.remarks) + 3)

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [self.heading("", width)]
        lines = [self.heading(marks_note(view), width)]
        if not view.lines:
            return [*lines, *wrapped_note(view.empty, width)]
        titles, *rows = table_lines(view, width)
        room = max(1, height - 2 - bool(view.remarks) - len(view.alarms))
        lines += [titles, *rows[-room:], *alarm_lines(view, width)]
        remarks = remark_lines(view, width)
        if len(remarks) > height - len(lines):
            remarks = [[(f" {len(view.remarks)} remarks: press 4", "warn")]]
        lines += remarks
        if view.tasks and len(lines) + 2 < height and width >= _TASKS_WIDTH:
            lines += [[], [(view.tasks[0], "dim")], *([(line, "")] for line in view.tasks[1:])]
        return lines


def marks_note(view: LevelsView) -> str:
    """Explain the marks in the first column."""
    if any(line.note for line in view.lines):
        return PROVISIONAL_MARKS
    if any(line.partial for line in view.lines):
        return INCOMPLETE_MARKS
    return MARKS if view.lines else ""


def table_lines(view: LevelsView, width: int) -> list[Line]:
    """Return the titles, then one line per level."""
    lines: list[Line] = [[(" ", ""), (_table_row(view.titles, view.widths, width), "dim")]]
    for line in view.lines:
        mark, style = ("○", "dim") if line.partial else (" ", "")
        if line.best or line.past_cliff:
            mark, style = ("▸", "good") if line.best else ("▼", "warn")
        shown = _table_row(line.cells, view.widths, width)
        if line.note:
            # In a narrow panel the note replaces the last figures.
            shown = f"{shown[: max(0, width - len(line.note) - 4)]}  {line.note}"
        lines.append([(mark, style), (shown, style)])
    return lines


def alarm_lines(view: LevelsView, width: int) -> list[Line]:
    return [[(f" ✖ {text}", "bad")] for alarm in view.alarms for text in wrap(alarm, max(8, width - 4))]


def remark_lines(view: LevelsView, width: int) -> list[Line]:
    return [[(f" {text}", "warn")] for remark in view.remarks for text in wrap(remark, max(8, width - 2))]


def _table_row(cells: tuple[str, ...], widths: tuple[int, ...], width: int) -> str:
    """Join as many columns as fit."""
    text, used = "", 1
    for cell, room in zip(cells, widths, strict=False):
        used += room
        if used > width:
            break
        text += rjust(cell, room)
    return text
