"""Build the tables of tasks, answers and replicas, and of the TTFT by turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum, log10

from swarmtui.model.answer_check import PASSES
from swarmtui.model.plan import load_title
from swarmtui.model.session import Level, Replica, Summary, TaskFigures
from swarmtui.numbers import seconds, signed_percent, significant
from swarmtui.report.table import Column, Fields, Table, Value, keyed, tabulate

_SHADES = "·░▒▓█"
_TASK: tuple[Column[TaskFigures], ...] = (
    Column("load", "C", lambda task: f"{_offered_load(task):g}"),
    Column("task", "task", lambda task: task.type, right=False, least=8),
    Column("turn", "turn", lambda task: task.turn + 1),
    Column("answered", "answered", lambda task: f"{task.ok} of {task.n}"),
    Column("stream", "tok/s per agent", lambda task: task.per_stream_tps, short="tok/s"),
    Column("ttft", "TTFT", lambda task: task.ttft_s.median, seconds),
    Column("e2e", "e2e", lambda task: task.e2e_s, seconds),
    Column("tokens", "tokens", lambda task: task.tokens_out, lambda value: significant(value, 3)),
    Column("answers", "answers", lambda task: _verdicts(Counter(task.verdicts)), right=False, least=8),
)


def task_table(tasks: Sequence[TaskFigures]) -> Table:
    note = (
        "tok/s: of one agent while it writes. It and TTFT are of the finished answers; in the levels they are of the "
        "time in which the tok/s of all was measured"
    )
    return tabulate("", tasks, _TASK, note, drop=("tokens",))


def task_tables(summary: Summary) -> tuple[Table, ...]:
    """Tabulate the primary task of a mixed load, the tasks of a graph, and the answers that were checked."""
    load = summary.session.plan.load
    graph = tabulate("Tasks of the graph", summary.tasks if load.by_type else (), _TASK)
    return (
        *([_primary(summary.tasks, summary.levels)] if load.primary else []),
        ttft_by_turn(summary.levels),
        graph.without(("load", "turn", "answers")),
        _answers(summary.tasks),
        _replicas(summary),
    )


def _primary(tasks: Sequence[TaskFigures], levels: Sequence[Level]) -> Table:
    """Tabulate the primary task, which is the first type of each level."""
    rows: list[Fields] = []
    base: float | None = None
    for level in levels:
        kind = next((task.type for task in tasks if task.c == level.c), None)
        turns = {task.turn: task for task in tasks if task.c == level.c and task.type == kind}
        if 0 not in turns:
            continue
        ttft = turns[0].ttft_s.median
        base = ttft if not rows else base
        times = [task.e2e_s for task in turns.values()]
        rows.append(
            {
                "load": level.c,
                "stream": turns[0].per_stream_tps,
                "wall": level.out_tps_wall,
                "ttft": ttft,
                "change": None if not base or ttft is None else signed_percent(ttft / base - 1, 0),
                "sum": None if None in times else fsum(time for time in times if time is not None),
            }
            | {f"turn{turn}": task.e2e_s for turn, task in turns.items()}
        )
    columns = [
        keyed("load", "C"),
        keyed("stream", "tok/s turn 1", lambda value: significant(value, 3)),
        keyed("wall", "wall tok/s", lambda value: significant(value, 3)),
        keyed("ttft", "TTFT", seconds),
        keyed("change", "TTFT change"),
        *(keyed(f"turn{turn}", f"turn {turn + 1}", seconds) for turn in sorted({0, *(task.turn for task in tasks)})),
        keyed("sum", "sum of turns", seconds),
    ]
    note = (
        "wall: output tok/s of all tasks; TTFT change: compared with the first level; turns: median e2e, and the sum "
        "of these medians"
    )
    return tabulate("Primary task", rows, columns, note)


def ttft_by_turn(levels: Sequence[Level]) -> Table:
    """Tabulate the median TTFT at the highest level, shaded by its size."""
    level = next((level for level in reversed(levels) if level.replay is not None and level.replay.ttft), None)
    found = level.replay.ttft if level and level.replay else ()
    if level is None or len(found) < 2:
        return Table("", (), ())
    longest = max(part.ttft_s for part in found)
    rows: dict[int, dict[str, Value]] = {}
    for part in sorted(found, key=lambda part: part.turn):
        row = rows.setdefault(part.turn, {"turn": "1" if part.turn == 1 else f"{part.turn}–{2 * part.turn - 1}"})
        row[str(part.context)] = f"{seconds(part.ttft_s)} {_shade(part.ttft_s, longest)}"
    contexts = sorted({part.context for part in found})
    columns = [keyed("turn", "turn"), *(keyed(str(at), f"{at // 1024}k+" if at else "0+") for at in contexts)]
    note = "median TTFT by turn of an agent, and by prompt tokens from there to twice as many"
    title = f"TTFT by turn and prompt length at {level.name}"
    return tabulate(title, list[Fields](rows.values()), columns, note)


def _shade(value: float, highest: float) -> str:
    """Return a block that is the darker the nearer a value is to the highest, by its logarithm over two decades."""
    share = 1.0 + log10(max(value, highest / 100.0) / highest) / 2.0 if highest > 0.0 else 0.0
    return _SHADES[min(len(_SHADES) - 1, int(share * len(_SHADES)))]


def _answers(tasks: Sequence[TaskFigures]) -> Table:
    """Tabulate the verdicts on answers: one row per task type, one column per level."""
    checked = [task for task in tasks if task.verdicts]
    counts: dict[str, dict[float, Counter[str]]] = {}
    for task in checked:
        counts.setdefault(task.type, {}).setdefault(_offered_load(task), Counter()).update(task.verdicts)
    rates = any(task.rate is not None for task in checked)
    columns = [keyed("task", "answers", right=False)]
    columns += [
        keyed(f"{load:g}", f"{load:g}/s" if rates else f"C={load:g}", right=False)
        for load in sorted({_offered_load(task) for task in checked})
    ]
    rows: list[Fields] = [
        {"task": kind or "(no type)"} | {f"{load:g}": _verdicts(found) for load, found in by_load.items()}
        for kind, by_load in counts.items()
    ]
    return tabulate("Answers", rows, columns, "passed / checked, and the other verdicts")


def _offered_load(task: TaskFigures) -> float:
    return task.c if task.rate is None else task.rate


def _verdicts(counts: Counter[str]) -> str:
    if not counts:
        return ""
    passed = sum(counts[name] for name in PASSES)
    others = [f"{count} {name}" for name, count in sorted(counts.items()) if name != "pass" and count]
    return f"{passed}/{counts.total()}" + (f" ({', '.join(others)})" if others else "")


def _replicas(summary: Summary) -> Table:
    known = summary.session.endpoints
    columns: list[Column[tuple[Level, Replica]]] = [
        Column("load", load_title(summary.levels), lambda row: f"{row[0].offered_load:g}"),
        Column(
            "endpoint", "endpoint",
            lambda row: known[row[1].endpoint].url if 0 <= row[1].endpoint < len(known) else str(row[1].endpoint),
            right=False,
        ),
        Column("n", "n", lambda row: row[1].n),
        Column("errors", "errors", lambda row: row[1].errors, short="err"),
        Column("wall", "tok/s", lambda row: row[1].out_tps_wall),
        Column("stream", "tok/s per agent", lambda row: row[1].per_stream_tps),
        Column("ttft", "TTFT", lambda row: row[1].ttft_s.median, seconds),
    ]  # fmt: skip
    return tabulate("Replicas", [(level, part) for level in summary.levels for part in level.replicas], columns)
