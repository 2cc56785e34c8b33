"""Build the tables that are specific to a load mode, to answer checks and to replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import fsum, log10

from swarmtui.model.answer_check import PASSES
from swarmtui.model.load import Open, Sessions, traits
from swarmtui.model.plan import load_title
from swarmtui.model.session import Level, Spread, Summary, TaskFigures
from swarmtui.numbers import MISSING, count, factor, milliseconds, seconds, short_percent, signed_percent, significant
from swarmtui.sessions.export.structs import Table

_FIRST_TURN = 0
_SHADES = "·░▒▓█"


def load_tables(summary: Summary) -> tuple[Table, ...]:
    """Return the tables that have rows: none for a closed loop on one endpoint without checks."""
    levels = summary.levels
    load = summary.session.plan.load
    tables: tuple[Table, ...] = (_serial(levels), _throughput_kinds(levels), _arrivals(summary))
    if load.primary:
        tables += (_primary(summary.tasks, levels),)
    tables += (_sessions(summary), _hits(levels), _ttft_by_turn(levels))
    if load.by_type:
        tables += (_by_type(summary.tasks),)
    tables += (_answers(summary.tasks), _replicas(summary))
    return tuple(table for table in tables if table.rows)


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
                short_percent(level.slowdown),
            )
        )
        notes += [f"C={level.c}: no clean speed-up: {found.reason}"] if found.reason else []
        notes += [f"C={level.c}: serial time is {found.how}"] if found.extrapolated else []
    columns = (
        "C", "serial", "concurrent", "speed-up", "clean", "token ratio", "serial tok/s", "concurrent tok/s", "slowdown",
    )  # fmt: skip
    meaning = (
        "speed-up: serial / concurrent wall time; clean: without cap hits; "
        "token ratio: tokens of the concurrent run / serial run"
    )
    return _table("Serial and concurrent", columns, rows, "; ".join([meaning, *notes]))


def _throughput_kinds(levels: Sequence[Level]) -> Table:
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
        if traits(level.load).prompt_heavy
    ]
    columns = ("agents", "wall", "prompt tok/s", "output tok/s", "prompt + output tok/s", "TTFT mean", "TTFT max")
    note = "prompt tokens are read, not generated"
    return _table("Prompt and output throughput", columns, rows, note)


def _arrivals(summary: Summary) -> Table:
    load = summary.session.plan.load
    arrival = load.arrival if isinstance(load, Open) else MISSING
    rows = [
        (
            MISSING if level.rate is None else f"{level.rate:g}",
            arrival,
            str(level.n),
            str(level.errors),
            significant(level.arrived_per_s, 3),
            significant(level.served_per_s, 3),
            significant(level.c_achieved, 3),
            _send_delay(level.send_delay_s),
            seconds(level.ttft_s.median),
            seconds(level.ttft_s.p99 if level.ttft_s.p99 is not None else level.ttft_s.max),
            seconds(level.e2e_s.median),
        )
        for level in summary.levels
        if level.rate is not None
    ]
    columns = (
        "rate", "arrivals", "n", "errors", "arrival rate", "completion rate", "in flight", "send delay", "TTFT",
        "p99/max", "e2e",
    )  # fmt: skip
    note = (
        "arrival and completion rate: requests/s as scheduled and as finished; latencies count from the scheduled "
        "time; send delay: p99, or the maximum below 299 requests"
    )
    return _table("Open loop", columns, rows, note)


def _sessions(summary: Summary) -> Table:
    rows = [
        (
            str(level.c),
            str(found.jobs),
            str(found.failed),
            significant(found.jobs_per_h, 3),
            significant(found.jobs_per_h_user, 3),
            significant(found.jobs_per_h_gpu, 3),
            seconds(found.job_s.median),
            count(found.live_context),
            _send_delay(level.send_delay_s),
        )
        for level in summary.levels
        if (found := level.replay) is not None and traits(level.load).replayed
    ]
    load = summary.session.plan.load
    if not isinstance(load, Sessions):
        load = Sessions()
    columns = ("C", "jobs", "failed", "jobs/h", "per user", "per GPU", "time per job", "live context", "send delay")
    note = (
        "C: recorded sessions at a time, each with its sub-agents; jobs: sessions played from first to last request; "
        "jobs/h: requests as shares of their session; time per job: median, with pauses of at most "
        f"{load.max_gap_s:g} s{'' if load.time_scale == 1 else f' divided by {load.time_scale:g}'}; "
        "live context: tokens, mean; send delay: p99, or the maximum below 299 requests"
        f"{'' if load.rules is None else f'; rules of {load.rules}'}"
    )
    return _table("Sessions", columns, rows, note)


def _hits(levels: Sequence[Level]) -> Table:
    rows = [
        (
            f"{level.offered_load:g}",
            short_percent(found.hit_rate),
            short_percent(found.max_hit_rate),
            count(found.cached_tokens),
            count(found.fresh_tokens),
            count(found.recorded_tokens),
            MISSING if found.prompt_error is None else signed_percent(found.prompt_error, 2),
        )
        for level in levels
        if (found := level.replay) is not None
    ]
    varied = load_title(levels)
    columns = (varied, "hit rate", "at most", "cached tokens", "fresh tokens", "recorded", "prompt error")
    sizes = {level.replay.block_size for level in levels if level.replay is not None}
    blocks = f", in blocks of {size} tokens" if (size := max(filter(None, sizes), default=1)) > 1 else ""
    note = (
        "hit rate: share of prompt tokens from the prefix cache, as measured; "
        f"at most: with a cache that keeps all{blocks}; "
        "recorded: prompt tokens of the trace; prompt error: as the server counted them, compared with the trace"
    )
    if any(level.replay is not None and level.replay.hit_rate_by == "server" for level in levels):
        note += (
            "; hit rates, cached and fresh tokens are from the counters of the server, and include unmeasured requests"
        )
    return _table("Prefix cache", columns, rows, note)


def _ttft_by_turn(levels: Sequence[Level]) -> Table:
    """Tabulate the median TTFT at the highest level, shaded by its size."""
    level = next((level for level in reversed(levels) if level.replay is not None and level.replay.ttft), None)
    cells = {} if level is None or level.replay is None else {(c.turn, c.context): c for c in level.replay.ttft}
    turns, contexts = sorted({turn for turn, _ in cells}), sorted({context for _, context in cells})
    if level is None or len(cells) < 2:
        return _table("", (), ())
    longest = max(cell.ttft_s for cell in cells.values())
    texts = {place: f"{seconds(cell.ttft_s)} {_shade(cell.ttft_s, longest)}" for place, cell in cells.items()}
    rows = [
        (
            str(turn) if turn == 1 else f"{turn}–{2 * turn - 1}",
            *(texts.get((turn, context), MISSING) for context in contexts),
        )
        for turn in turns
    ]
    columns = ("turn", *(f"{context // 1024}k+" if context else "0+" for context in contexts))
    note = "median TTFT by turn of an agent, and by prompt tokens from there to twice as many"
    return _table(f"TTFT by turn and prompt length at {level.name}", columns, rows, note)


def _shade(value: float, highest: float) -> str:
    """Return a block that is the darker the nearer a value is to the highest, by its logarithm over two decades."""
    share = 1.0 + log10(max(value, highest / 100.0) / highest) / 2.0 if highest > 0.0 else 0.0
    return _SHADES[min(len(_SHADES) - 1, int(share * len(_SHADES)))]


def _send_delay(delay: Spread | None) -> str:
    return MISSING if delay is None else milliseconds(delay.p99 if delay.p99 is not None else delay.max)


def _primary(tasks: Sequence[TaskFigures], levels: Sequence[Level]) -> Table:
    """Tabulate the primary task, which is the first type of each level."""
    turns = sorted({task.turn for task in tasks if task.turn})
    rows = []
    base: float | None = None
    for level in levels:
        kind = next((task.type for task in tasks if task.c == level.c), None)
        own = {task.turn: task for task in tasks if task.c == level.c and task.type == kind}
        first = own.get(_FIRST_TURN)
        if first is None:
            continue
        ttft = first.ttft_s.median
        base = ttft if base is None else base
        change = MISSING if not base or ttft is None else signed_percent(ttft / base - 1, 0)
        times = [task.e2e_s for task in own.values()]
        total = fsum(time for time in times if time is not None) if None not in times else None
        rows.append(
            (
                str(level.c),
                significant(first.per_stream_tps, 3),
                significant(level.out_tps_wall, 3),
                seconds(ttft),
                change,
                *(seconds(own[turn].e2e_s if turn in own else None) for turn in (_FIRST_TURN, *turns)),
                seconds(total),
            )
        )
    names = tuple(f"turn {turn + 1}" for turn in (_FIRST_TURN, *turns))
    note = (
        "wall: output tok/s of all tasks; TTFT change: compared with the first level; turns: median e2e, and the sum "
        "of these medians"
    )
    columns = ("C", "tok/s turn 1", "wall tok/s", "TTFT", "TTFT change", *names, "sum of turns")
    return _table("Primary task", columns, rows, note)


def _by_type(tasks: Sequence[TaskFigures]) -> Table:
    rows = tuple(
        (
            task.type,
            f"{task.ok} of {task.n}",
            seconds(task.ttft_s.median),
            significant(task.per_stream_tps),
            seconds(task.e2e_s),
            significant(task.tokens_out, 3),
        )
        for task in tasks
    )
    columns = ("task", "answered", "TTFT", "stream tok/s", "e2e", "tokens")
    return Table("Tasks of the graph", columns, rows, (False, *(True,) * 5))


def _answers(tasks: Sequence[TaskFigures]) -> Table:
    """Tabulate the verdicts on answers: one row per task type, one column per level."""
    checked = [task for task in tasks if task.verdicts]
    kinds, levels = (
        list(dict.fromkeys(task.type for task in checked)),
        sorted({_offered_load(task) for task in checked}),
    )
    rows = []
    for kind in kinds:
        cells = []
        for c in levels:
            counts: Counter[str] = Counter()
            for task in checked:
                if _offered_load(task) == c and task.type == kind:
                    counts.update(task.verdicts)
            cells.append(_verdicts(counts))
        rows.append((kind or "(no type)", *cells))
    rates = any(task.rate is not None for task in checked)
    columns = ("answers", *(f"{c:g}/s" if rates else f"C={c:g}" for c in levels))
    note = "passed / checked, and the other verdicts"
    return Table("Answers", columns, tuple(rows), (False,) * len(columns), note)


def _offered_load(task: TaskFigures) -> float:
    return task.c if task.rate is None else task.rate


def _verdicts(counts: Counter[str]) -> str:
    if not counts:
        return MISSING
    passed = sum(counts[name] for name in PASSES)
    others = [f"{count} {name}" for name, count in sorted(counts.items()) if name != "pass" and count]
    return f"{passed}/{sum(counts.values())}" + (f" ({', '.join(others)})" if others else "")


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
            seconds(part.ttft_s.median),
        )
        for level in summary.levels
        for part in level.replicas
    ]
    varied = load_title(summary.levels)
    columns = (varied, "endpoint", "n", "errors", "tok/s", "stream tok/s", "TTFT")
    return Table("Replicas", columns, tuple(rows), (True, False, *(True,) * 5))
