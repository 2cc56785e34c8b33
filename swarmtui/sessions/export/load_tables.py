"""The tables that belong to a way of laying on load: what each of them was done for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import fsum

from swarmtui.model.answer_check import PASSES
from swarmtui.model.session import Level, Spread, Summary, TaskFigures
from swarmtui.numbers import MISSING, factor, milliseconds, percent, seconds, signed_percent, significant
from swarmtui.sessions.export.structs import Table

PRIMARY_TURN = 0


def load_tables(summary: Summary) -> tuple[Table, ...]:
    """Nothing for a closed loop on one endpoint without checks: its levels say all."""
    levels = summary.levels
    load = summary.session.plan.load
    made: tuple[Table, ...] = (_serial(levels), _three_rates(levels), _arrivals(summary))
    if load == "mixed":
        made += (_primary(summary.tasks, levels),)
    if load == "dag":
        made += (_by_type(summary.tasks),)
    made += (_answers(summary.tasks), _replicas(summary))
    return tuple(table for table in made if table.rows)


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], note: str = "") -> Table:
    return Table(title, columns, tuple(rows), (True,) * len(columns), note)


def _serial(levels: Sequence[Level]) -> Table:
    rows, notes = [], []
    for level in levels:
        found = level.serial
        if found is None or level.wall_s is None:
            continue
        rows.append(
            (
                str(level.c),
                f"{seconds(found.wall_s)}{' (extrapolated)' if found.extrapolated else ''}",
                seconds(level.wall_s),
                f"{factor(found.speedup)}{' (extrapolated)' if found.extrapolated else ''}",
                factor(found.clean_speedup),
                significant(level.token_ratio, 3),
                significant(found.out_tps),
                significant(level.out_tps_wall),
                percent(level.contention),
            )
        )
        notes += [f"C={level.c}: no clean speed-up: {found.reason}"] if found.reason else []
        notes += [f"C={level.c}: serial time is {found.how}"] if found.extrapolated else []
    columns = ("C", "one by one", "together", "speed-up", "clean", "token ratio", "tok/s serial", "tok/s swarm", "lost")
    meaning = "speed-up: wall over wall; clean: without cut answers; token ratio: work of the batch / baseline"
    return _table("One by one against together", columns, rows, "; ".join([meaning, *notes]))


def _three_rates(levels: Sequence[Level]) -> Table:
    rows = [
        (
            str(level.c),
            seconds(level.wall_s),
            significant(level.prompt_tps),
            significant(level.out_tps_wall),
            significant(level.total_tps),
            seconds(level.ttft_s.mean),
            seconds(level.ttft_s.max),
        )
        for level in levels
        if level.load == "swarm"
    ]
    columns = ("agents", "wall", "prompt tok/s", "output tok/s", "combined tok/s", "TTFT mean", "TTFT max")
    note = "combined = prompt + output: not what a reader of answers gets"
    return _table("Three kinds of tok/s", columns, rows, note)


def _arrivals(summary: Summary) -> Table:
    plan = summary.session.plan
    rows = [
        (
            MISSING if level.rate is None else f"{level.rate:g}",
            plan.arrival,
            str(level.n),
            str(level.errors),
            significant(level.arrived_per_s, 3),
            significant(level.served_per_s, 3),
            significant(level.c_achieved, 3),
            _late(level.lateness_s),
            _middle(level.ttft_s),
            seconds(level.ttft_s.p99 if level.ttft_s.p99 is not None else level.ttft_s.max),
            _middle(level.e2e_s),
        )
        for level in summary.levels
        if level.rate is not None
    ]
    columns = (
        "rate",
        "arrivals",
        "n",
        "errors",
        "came/s",
        "served/s",
        "in flight",
        "sent late",
        "TTFT",
        "p99/max",
        "e2e",
    )
    note = (
        "came, served: requests a second as they were due and as answers ended; latencies count from when a request "
        "was due; sent late: p99, or the most below 299 requests"
    )
    return _table("Open loop", columns, rows, note)


def _late(late: Spread | None) -> str:
    return MISSING if late is None else milliseconds(late.p99 if late.p99 is not None else late.max)


def _middle(spread: Spread) -> str:
    return seconds(spread.p50 if spread.p50 is not None else spread.mean)


def _primary(tasks: Sequence[TaskFigures], levels: Sequence[Level]) -> Table:
    """The first type of a level is the primary one: it is asked first."""
    turns = sorted({task.turn for task in tasks if task.turn})
    rows = []
    alone: float | None = None
    for level in levels:
        kind = next((task.type for task in tasks if task.c == level.c), None)
        own = {task.turn: task for task in tasks if task.c == level.c and task.type == kind}
        first = own.get(PRIMARY_TURN)
        if first is None:
            continue
        ttft = first.ttft_s.p50 if first.ttft_s.p50 is not None else first.ttft_s.mean
        alone = ttft if alone is None else alone
        change = MISSING if not alone or ttft is None else signed_percent(ttft / alone - 1, 0)
        spent = [task.e2e_s for task in own.values()]
        whole = fsum(part for part in spent if part is not None) if None not in spent else None
        rows.append(
            (
                str(level.c),
                significant(first.per_stream_tps, 3),
                significant(level.out_tps_wall, 3),
                seconds(ttft),
                change,
                *(seconds(own[turn].e2e_s if turn in own else None) for turn in (PRIMARY_TURN, *turns)),
                seconds(whole),
            )
        )
    names = tuple(f"turn {turn + 1}" for turn in (PRIMARY_TURN, *turns))
    columns = ("C", "tok/s turn 1", "tok/s of all", "TTFT", "TTFT change", *names, "whole")
    return _table("The primary task", columns, rows, "TTFT change: against the first level")


def _by_type(tasks: Sequence[TaskFigures]) -> Table:
    rows = tuple(
        (
            task.type,
            f"{task.ok} of {task.n}",
            _middle(task.ttft_s),
            significant(task.per_stream_tps),
            seconds(task.e2e_s),
            significant(task.tokens_out, 3),
        )
        for task in tasks
    )
    columns = ("task", "answered", "TTFT", "tok/s a stream", "e2e", "tokens")
    return Table("Tasks of the graph", columns, rows, (False, *(True,) * 5))


def _answers(tasks: Sequence[TaskFigures]) -> Table:
    """Types down, levels across: how many were right, and what the others were."""
    judged = [task for task in tasks if task.verdicts]
    kinds, levels = list(dict.fromkeys(task.type for task in judged)), sorted({_at(task) for task in judged})
    rows = []
    for kind in kinds:
        cells = []
        for c in levels:
            counts: Counter[str] = Counter()
            for task in judged:
                if _at(task) == c and task.type == kind:
                    counts.update(task.verdicts)
            cells.append(_verdicts(counts))
        rows.append((kind or "(no type)", *cells))
    rates = any(task.rate is not None for task in judged)
    columns = ("answers", *(f"{c:g}/s" if rates else f"C={c:g}" for c in levels))
    note = "right / judged, and what else was said of them"
    return Table("Answers", columns, tuple(rows), (False,) * len(columns), note)


def _at(task: TaskFigures) -> float:
    return task.c if task.rate is None else task.rate


def _verdicts(counts: Counter[str]) -> str:
    if not counts:
        return MISSING
    right = sum(counts[name] for name in PASSES)
    told = [f"{count} {name}" for name, count in sorted(counts.items()) if name != "pass" and count]
    return f"{right}/{sum(counts.values())}" + (f" ({', '.join(told)})" if told else "")


def _replicas(summary: Summary) -> Table:
    known = summary.session.endpoints
    rows = [
        (
            f"{level.offered_load:g}",
            known[part.endpoint].url if 0 <= part.endpoint < len(known) else str(part.endpoint),
            str(part.n),
            str(part.errors),
            significant(part.out_tps_wall),
            significant(part.per_stream_tps),
            _middle(part.ttft_s),
        )
        for level in summary.levels
        for part in level.replicas
    ]
    varied = "rate" if any(level.rate is not None for level in summary.levels) else "C"
    columns = (varied, "endpoint", "n", "errors", "tok/s", "tok/s a stream", "TTFT")
    return Table("Replicas", columns, tuple(rows), (True, False, *(True,) * 5))
