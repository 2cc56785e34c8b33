"""Build the main table of the levels, in the terminal and in the app."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from swarmtui.analysis.capacity.marks import LevelMarks, level_marks
from swarmtui.analysis.capacity.words import UnsureReason, room_share, unsure_reasons, visit_counts
from swarmtui.analysis.limits.slo import is_awaited, parse_slo, time_text
from swarmtui.model.client_protocol import ProvisionalLevel
from swarmtui.model.findings import Goodput, SearchState
from swarmtui.model.load import LoadBase, traits
from swarmtui.model.plan import is_open_loop
from swarmtui.model.session import Level, TaskFigures
from swarmtui.numbers import rate, seconds
from swarmtui.report.level_columns import COLUMNS, WEAK_BASE, mark_weak_base
from swarmtui.report.table import MARKS, Cell, Code, Column, Table, Value, tabulate
from swarmtui.report.verdicts import change_cell, change_percent, verdict_cell

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair

_MAIN = "steady half_width stream ttft ttft_p90 tpot e2e passed baseline change slowdown scaling"
_OPEN = "served wall stream ttft ttft_p90 tpot e2e send_delay passed baseline change in_flight"
_MIXED = "wall primary side ttft ttft_p90 tpot e2e passed baseline change slowdown scaling"
_SESSIONS = "wall stream ttft ttft_p90 tpot e2e passed jobs_h hit max_hit baseline change slowdown"
_BATCH = "wall stream ttft ttft_p90 tpot e2e passed baseline change slowdown scaling speed_up"
# In the order in which a narrow page drops them: first what can be derived from other columns.
_DROP = (
    "tpot", "e2e", "in_flight", "max_hit", "errors", "scaling", "slowdown", "ttft_p90", "half_width", "hit",
    "speed_up", "side", "passed", "room", "baseline", "n", "stream",
)  # fmt: skip
# The titles of columns in this table, where each figure is there once.
_TITLES = {"steady": "tok/s", "wall": "tok/s"}
# What the columns mean, after their titles.
_MEANINGS = {
    "slo": "requests that kept its hardest limit",
    "steady": "output of all agents while C requests were in flight (steady)",
    "wall": "output of all agents from the first request to the last token (wall)",
    "half_width": "half-width of its 95 % interval",
    "stream": "output tok/s of one agent while it writes (mean)",
    "primary": "output tok/s of one agent with the primary task (mean)",
    "side": "output tok/s of one agent with a side task (mean)",
    "baseline": "tok/s of the baseline",
    "change": "compared with the baseline",
    "ttft": "time to the first token (median)",
    "ttft_p90": "its 90th percentile, of 29 requests or more",
    "room": "what is left to the nearest limit of the SLO, as a share of it; below 0 % it was missed",
    "tpot": "time between tokens of one answer (mean)",
    "e2e": "time to the end of an answer (median)",
    "passed": "answers that passed their check",
    "slowdown": "how much less one agent gets than with C=1",
    "scaling": "output of all agents compared with C=1",
}
_OPEN_MEANINGS = {
    "load": "requests per second, open loop",
    "served": "answers per second",
    "ttft": "time to the first token (median), from when the request was due",
    "e2e": "time to the end of an answer (median), from when the request was due",
    "send_delay": "how late requests were sent (p99 or maximum)",
    "in_flight": "requests at a time (mean), from when they were sent",
}
_VERDICTS = ("faster", "slower", "same", "likely faster", "likely slower", "unsure", "refused", "unknown")


# What an SLO says about a level.
SLO_SIGNS: dict[str, tuple[str, Code]] = {
    "kept": ("✓", "kept"), "missed": ("✖", "missed"), "unsure": ("?", "unknown"), "dip": ("!", "unknown"),
    "likely kept": ("✓?", "unknown"), "likely missed": ("✖?", "unknown"),
}  # fmt: skip
KEPT = {True: "kept", False: "missed", None: "unsure"}


def level_table(
    levels: Sequence[Level],
    tasks: Sequence[TaskFigures] = (),
    baseline: Pair | None = None,
    provisional: Sequence[ProvisionalLevel] = (),
    marks: LevelMarks | None = None,
    *,
    growing: bool = False,
    slo: Mapping[float, Cell] | None = None,
    over: Mapping[float, str] | None = None,
    search: SearchState | None = None,
    judged: Sequence[Goodput] = (),
    running: float | None = None,
) -> Table:
    """Tabulate the main figures of each level, with the level to choose and the first one past it marked.

    `baseline` compares them with another session. `provisional` are levels without final figures: the `running` one,
    if null all of them, and those that ended a moment ago. Without `marks`, the levels alone decide. A `growing` table
    has the columns from the start that later levels may fill, others only those with a value.
    `slo` has the requests that met the SLO by load, which take the place of the number of requests. `over` has what
    stands for a TTFT that is not known, by load: see `first_tokens_over`. Of a `search` for the capacity, which visits
    levels with few requests, what is left to the limit takes the place of the p90. `judged` says which are not decided.
    """
    is_open = is_open_loop((*levels, *provisional))
    columns = _main_columns(levels, tasks, baseline, is_open)
    headline = next(column for column in columns if column.id in ("steady", "wall"))
    own: dict[str, Callable[[Level, Value], Value]] = {
        # A level whose row has no figure for it has no change.
        "change": lambda level, value: None if headline.cell(level).code == "missing" else value,
        # One that ended before most first tokens came has no median, but it is known to be past the limit.
        "ttft": lambda level, value: (over or {}).get(level.offered_load) if value is None else value,
    }
    columns = [column.then(own[column.id]) if column.id in own else column for column in columns]
    if slo is not None:
        met: Column[Level] = Column("slo", "SLO met", lambda level: slo.get(level.offered_load))
        columns = [met if column.id == "n" else column for column in columns]
    if search is not None and search.goal == "capacity":
        rooms = {float(one.c): one.room for one in search.levels}
        room: Column[Level] = Column("room", "spare", lambda level: rooms.get(level.offered_load), room_share)
        columns = [room if column.id == "ttft_p90" else column for column in columns]
    if levels and not growing:
        columns = [column for column in columns if any(column.cell(level).code != "missing" for level in levels)]
    marks = marks or level_marks(levels)
    rows = []
    for level in levels:
        code = mark_code(marks, level.offered_load) or (None if level.has_complete_run else "incomplete")
        rows.append(_marked((column.cell(level) for column in columns), code))
    for so_far in provisional:
        counted = so_far.of is not None and so_far.done < so_far.of
        figures: dict[str, Value] = {
            "load": f"{so_far.offered_load:g}",
            "n": f"{so_far.done}/{so_far.of}" if counted else f"{so_far.done} done",
            "slo": (slo or {}).get(so_far.offered_load, ""),
            headline.id: so_far.out_tps,
            "stream": so_far.per_stream_tps,
            "ttft": so_far.ttft_s,
        }
        first, *others = (column.format(figures.get(column.id, ""))._replace(code="partial") for column in columns)
        code = _provisional_code(so_far, running, search) or mark_code(marks, so_far.offered_load)
        rows.append((Cell(MARKS.get(code, "") + first.text, code or "partial"), *others))
    table = tabulate("", (), columns, drop=_DROP)._replace(rows=tuple(rows))
    signs = sign_names(marks, judged, search)[0] if slo is not None else mark_names(marks)[0]
    return table._replace(note=_legend(table, levels, marks, signs, is_open))


def _provisional_code(level: ProvisionalLevel, running: float | None, search: SearchState | None) -> Code | None:
    """Return whether a level runs, or was left before it had its requests; null if it only waits for its figures."""
    if running is None or level.offered_load == running:
        return "partial"
    judged = search is not None and search.level(level.c) is not None
    return None if judged or (level.of is not None and level.done >= level.of) else "incomplete"


def slo_counts(found: Iterable[Goodput], search: SearchState | None = None) -> dict[float, tuple[str, int, int]]:
    """Return by load the verdict, the requests that met the condition that was met least often, and all of it."""
    counts = {level.offered_load: (KEPT[level.kept], *level.met_least) for level in found}
    if search is not None and search.goal == "capacity":
        counts |= {float(one.c): (search.shown_state(one), one.good or 0, one.n) for one in search.levels}
    return counts


def slo_cells(found: Iterable[Goodput], search: SearchState | None = None) -> dict[float, Cell] | None:
    """Return by load how many requests met the SLO, with the verdict on the level; None without an SLO."""
    counts = slo_counts(found, search)
    cells = {load: (SLO_SIGNS[state], f"{good} of {n}") for load, (state, good, n) in counts.items()}
    return {load: Cell(f"{sign} {text}", code) for load, ((sign, code), text) in cells.items()} or None


def visit_texts(search: SearchState | None) -> dict[float, tuple[str, ...]]:
    """Return by load the requests of each visit that met the SLO, from long to short, where visits were not alike.

    `? 17 of 17, then 5 of 17`: their sum would not show that.
    """
    levels = search.levels if search is not None and search.goal == "capacity" else ()
    found: dict[float, tuple[str, ...]] = {}
    for level in levels:
        if counts := level.unlike_visits:
            sign = SLO_SIGNS[search.shown_state(level)][0] if search is not None else ""
            found[float(level.c)] = (f"{sign} {visit_counts(counts)}", f"{sign} {visit_counts(counts, '/')}")
    return found


def first_tokens_over(levels: Iterable[Level], found: Iterable[Goodput], slo: str) -> dict[float, str]:
    """Return by load what most first tokens of a level took longer than: `> 2 s`, the limit, or `> 4.1 s`.

    The second is the median of those that arrived, if it is past the limit: others were still awaited.
    """
    conditions = parse_slo(slo).conditions if slo else ()
    limit_s = parse_slo(slo).strictest("ttft") if slo else None
    late: dict[float, float] = {}
    by_load = {level.offered_load: level for level in levels}
    for load, level in by_load.items():
        if limit_s is not None and level.judged_ttft_s and is_awaited(level.judged_ttft_s):
            late[load] = limit_s
    for level_found in found:
        for condition, share in zip(conditions, level_found.conditions, strict=False):
            if condition.limits.keys() == {"ttft"} and 2 * share.good < share.n:
                late[level_found.offered_load] = condition.limits["ttft"]
    return {load: _longer_than(limit, by_load.get(load)) for load, limit in late.items()}


def _longer_than(limit_s: float, level: Level | None) -> str:
    median = level.ttft_s.median if level is not None else None
    return f"> {seconds(median, 2) if median is not None and median > limit_s else time_text(limit_s)}"


def mark_code(marks: LevelMarks, load: float) -> Code | None:
    if load == marks.best:
        return "kept" if marks.by_slo else "best"
    if load != marks.past:
        return None
    return "cliff" if not marks.by_slo else "unknown" if marks.doubted else "missed"


def _marked(cells: Iterable[Cell], code: Code | None) -> tuple[Cell, ...]:
    """Mark the load of a row, and all figures of the level to choose and of one that is not finished.

    A verdict keeps its own code, since the best level can be slower than the baseline.
    """
    first, *others = cells
    if code in ("best", "kept", "incomplete"):
        others = [cell if cell.code in _VERDICTS else cell._replace(code=code) for cell in others]
    return Cell(MARKS.get(code, "") + first.text, code or first.code), *others


# Why a level has the sign of doubt.
_UNSURE: dict[UnsureReason, tuple[str, str]] = {
    "few": ("too few requests", "few requests"), "running": ("measured again now", "running"),
    "differs": ("visits differ", "visits differ"), "close": ("close to a limit", "close"),
    "slowed": ("something else slowed the server", "server slowed"),
}  # fmt: skip


def mark_names(*sessions: LevelMarks) -> tuple[str, str]:
    """Explain the signs in words, and in few words; with an SLO, only those that are used in one of the sessions."""
    if not all(marks.by_slo for marks in sessions):
        return "▸ best · ▼ past the cliff", "▸ best · ▼ cliff"
    best, past = ("▸ most agents that keep the SLO", "▸ most agents"), ("▼ first level past it", "▼ past it")
    if any(marks.so_far for marks in sessions):
        best = "▸ most agents that keep the SLO so far", "▸ most agents so far"
    used = [best] if any(marks.best is not None for marks in sessions) else []
    for marks in sessions:
        if marks.past is not None:
            long, short = _UNSURE["slowed"]
            why = (f"? not sure: {long}", f"? {short}") if marks.disturbed else ("? not sure yet", "? not sure")
            used.append(why if marks.doubted else past)
    long, short = (" · ".join(dict.fromkeys(names)) for names in zip(*used, strict=True)) if used else ("", "")
    return long, short


def unsure_names(marks: LevelMarks, judged: Iterable[Goodput], search: SearchState | None) -> tuple[str, str, str]:
    """Say why levels are not sure, from long to short: `? too few requests, visits differ`; empty if none is."""
    reasons = unsure_reasons(judged, search, disturbed=marks.disturbed)
    if marks.disturbed and marks.doubted and marks.past is not None and "slowed" not in reasons:
        reasons = (*reasons, "slowed")
    long, short = (", ".join(_UNSURE[reason][at] for reason in reasons) for at in (0, 1))
    return (f"? not sure: {long}", f"? {long}", f"? {short}") if reasons else ("", "", "")


def sign_names(
    marks: LevelMarks, judged: Sequence[Goodput], search: SearchState | None, used: Sequence[tuple[str, str]] = ()
) -> tuple[str, ...]:
    """Explain the signs of levels and of what the SLO says about them, in versions from long to short.

    Why a level is not sure is in all of them. `used` explains other signs of levels, in words and in few words.
    """
    states = {KEPT[one.kept] for one in judged}
    if search is not None and search.goal == "capacity":
        states = {search.shown_state(level) for level in search.levels}
    others = [*used]
    if likely := " ".join(SLO_SIGNS[state][0] for state in ("likely kept", "likely missed") if state in states):
        # At the end, requests are enough.
        ended = search is not None and search.next_c is None
        words = ("close to the limit", "close") if ended else ("likely: few requests, or close to the limit", "likely")
        others.append((f"{likely} {words[0]}", f"{likely} {words[1]}"))
    unsure = unsure_names(marks, judged, search)
    long, short = mark_names(marks._replace(past=None) if marks.doubted and unsure[0] else marks)
    in_few = [few for _, few in others]
    versions = [[long, *(words for words, _ in others), unsure[0]], [short, *in_few, unsure[1]]]
    versions += [[*in_few, unsure[1]], [*in_few[-1:], unsure[2]], [unsure[2]]] if unsure[0] else []
    return tuple(dict.fromkeys(" · ".join(filter(None, parts)) for parts in versions))


def _main_columns(
    levels: Sequence[Level], tasks: Sequence[TaskFigures], baseline: Pair | None, is_open: bool
) -> list[Column[Level]]:
    loads = {traits(level.load) for level in levels}
    load = next(iter(loads)) if len(loads) == 1 else LoadBase
    shown = _OPEN if is_open else _MIXED if load.primary else _SESSIONS if load.replayed else _MAIN
    if loads and all(load.batch or load.by_type for load in loads):
        shown = _BATCH
    used = {
        "passed": any(level.verdicts for level in levels),
    } | dict.fromkeys(("baseline", "change"), baseline is not None)
    own = _baseline_columns(baseline) | _task_columns(tasks)
    names = [name for name in f"load n {shown} errors".split() if used.get(name, True)]
    columns = mark_weak_base([own.get(name) or COLUMNS[name] for name in names], levels)
    columns = [column._replace(title=_TITLES.get(column.id, column.title)) for column in columns]
    return [columns[0]._replace(title="rate" if is_open else "C"), *columns[1:]]


def _baseline_columns(pair: Pair | None) -> dict[str, Column[Level]]:
    leading = [row for row in pair.rows if row.leads and row.before is not None and pair.tells(row)] if pair else []
    rows = {row.key: row for row in leading}

    def change(level: Level) -> Value:
        row = rows.get(level.key)
        if row is None:
            return None
        if row.verdict is None:
            return Cell("not comparable", "refused")
        if pair is not None and pair.searched:
            return change_cell(row)
        return verdict_cell(row.word, f"{change_percent(row)} ", row.likely)

    def before(level: Level) -> Value:
        row = rows.get(level.key)
        return rate(row.before, row.half_widths[0]) if row else None

    columns = [Column("baseline", "baseline", before), Column("change", "change", change)]
    return {column.id: column for column in columns}


def _task_columns(tasks: Sequence[TaskFigures]) -> dict[str, Column[Level]]:
    """The rates of the first type of each level and of the others, of a mixed load."""
    primary = {task.c: task.type for task in reversed(tasks)}
    at = {
        (c, first): _mean_tps([task for task in tasks if task.c == c and (task.type == primary[c]) == first])
        for c in primary
        for first in (True, False)
    }
    return {
        "primary": Column("primary", "primary", lambda level: at.get((level.c, True)), rate),
        "side": Column("side", "side", lambda level: at.get((level.c, False)), rate),
    }


def _mean_tps(tasks: Sequence[TaskFigures]) -> float | None:
    """The rate over all turns and types: tokens / time, so that a short answer counts by its tokens."""
    rated = ((task.per_stream_tps, task.ok, task.tokens_out) for task in tasks)
    known = [(tps, ok * tokens) for tps, ok, tokens in rated if tps and tokens]
    return sum(tokens for _, tokens in known) / sum(tokens / tps for tps, tokens in known) if known else None


def column_meanings(table: Table, titles: Mapping[str, str]) -> list[str]:
    """Explain the columns that have `titles`, by id: `TTFT: time to the first token (median)`"""
    meanings = _MEANINGS | (_OPEN_MEANINGS if "served" in titles else {})
    texts = [f"{title}: {meanings[id]}" for id, title in titles.items() if id in meanings]
    compared = [at for at, column in enumerate(table.columns) if column.id in ("slowdown", "scaling")]
    weak = any(row[at].code == "unsure" for row in table.rows for at in compared)
    changes = [at for at, column in enumerate(table.columns) if column.id == "change" and "change" in titles]
    chance = any(row[at].code == "unsure" for row in table.rows for at in changes)
    return [*(["?: the change may be chance"] if chance else []), *texts, *([WEAK_BASE] if weak else [])]


def _legend(table: Table, levels: Sequence[Level], marks: LevelMarks, signs: str, is_open: bool) -> str:
    titles = {column.id: column.short or column.title for column in table.columns}
    texts = column_meanings(table, titles)
    if any(level.judged_ttft_s is not None for level in levels):
        first = " and ".join(title for id, title in titles.items() if id in ("ttft", "ttft_p90"))
        texts.append(f"{first}: of the requests that the SLO counts")
    if any(level.unfinished for level in levels) and "n" in titles:
        texts.append("n: requests that ended while tok/s was measured")
    if marks.by_slo and signs:
        texts.append(signs)
    elif marks.best is not None and not is_open:
        texts.append("▸: best, the lowest C with 95 % of the most tok/s before a cliff; ▼: past it")
    if not all(level.has_complete_run for level in levels):
        texts.append("◇: incomplete, not compared with the others")
    return "".join(f"{text}. " for text in texts).rstrip()
