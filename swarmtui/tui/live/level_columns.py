"""Which figures of a level stand in the table, by how its load was laid on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarmtui.model.session import Level, Spread, TaskFigures
from swarmtui.tui.numbers import percent, rate, seconds, times


class Column(NamedTuple):
    title: str
    width: int
    cell: Callable[[Level], str]


def columns_of(levels: Sequence[Level], tasks: Sequence[TaskFigures] = ()) -> tuple[Column, ...]:
    """What differs from level to level first, then its throughput; `tasks` are of a mixed load."""
    loads = {level.load for level in levels}
    checked = (Column("pass", 7, lambda level: percent(level.pass_rate)),)
    passes = checked if any(level.verdicts for level in levels) else ()
    if loads == {"open"}:
        return (
            Column("rate", 6, lambda level: f"{level.at:g}"),
            Column("served", 8, lambda level: rate(level.served_per_s)),
            Column("tok/s", 8, lambda level: _tokens(level, level.out_tps_wall)),
            Column("TTFT", 8, lambda level: seconds(middle(level.ttft_s))),
            Column("late", 8, lambda level: seconds(level.lateness_s.max if level.lateness_s else None)),
            *passes, _N, _ERRORS, _STREAM, _REAL_C,
        )  # fmt: skip
    if loads == {"mixed"}:
        first = {task.c: task.type for task in reversed(tasks)}
        return (
            _C,
            _WALL,
            Column("primary", 8, lambda level: rate(_of_type(tasks, level.c, first.get(level.c)))),
            Column("side", 8, lambda level: rate(_beside(tasks, level.c, first.get(level.c)))),
            _TTFT, *passes, _N, _ERRORS, _REAL_C,
        )  # fmt: skip
    if loads and loads <= {"barrier", "swarm", "dag"}:
        won = Column("won", 7, lambda level: times(level.serial.speedup if level.serial else level.wall_speedup))
        return (_C, _WALL, _STREAM, _TTFT, *passes, _LOST, won, _N, _ERRORS, _REAL_C)
    steady = Column("steady", 8, lambda level: _tokens(level, level.out_tps_steady))
    gain = Column("gain", 7, lambda level: times(level.rate_speedup))
    return (_C, steady, _STREAM, _TTFT, *passes, _LOST, gain, _N, _ERRORS, _WALL, _REAL_C)


def middle(spread: Spread) -> float | None:
    return spread.p50 if spread.p50 is not None else spread.mean


def task_lines(tasks: Sequence[TaskFigures]) -> tuple[str, ...]:
    """Each type of task by itself, turn by turn: what the main one lost, which answers were right."""
    if not tasks:
        return ()
    lines = [f"{'C':>4}  {'task':<14}{'turn':>4}{'n':>5}{'tok/s':>8}{'TTFT':>9}{'in all':>9}  answers"]
    for task in tasks:
        verdicts = ", ".join(f"{count} {name}" for name, count in task.verdicts.items())
        lines.append(
            f"{task.c:>4}  {task.type[:13]:<14}{task.turn + 1:>4}{task.n:>5}{rate(task.per_stream_tps):>8}"
            f"{seconds(middle(task.ttft_s)):>9}{seconds(task.e2e_s):>9}  {verdicts}"
        )
    return tuple(lines)


def _tokens(level: Level, value: float | None) -> str:
    """A count of chunks is only near to one of tokens."""
    about = "~" if level.token_source in ("chunks", "mixed") and value is not None else ""
    return about + rate(value)


def _of_type(tasks: Sequence[TaskFigures], c: int, kind: str | None) -> float | None:
    return _mean([task for task in tasks if task.c == c and task.type == kind])


def _beside(tasks: Sequence[TaskFigures], c: int, primary: str | None) -> float | None:
    return _mean([task for task in tasks if task.c == c and task.type != primary])


def _mean(tasks: Sequence[TaskFigures]) -> float | None:
    """Over requests, however they are divided into turns and types."""
    known = [(task.per_stream_tps, task.ok) for task in tasks if task.per_stream_tps is not None and task.ok]
    return sum(tps * n for tps, n in known) / sum(n for _, n in known) if known else None


_C = Column("C", 4, lambda level: f"{level.at:g}")
_WALL = Column("wall", 8, lambda level: _tokens(level, level.out_tps_wall))
_STREAM = Column("stream", 8, lambda level: _tokens(level, level.per_stream_tps.mean))
_TTFT = Column("TTFT", 8, lambda level: seconds(middle(level.ttft_s)))
_LOST = Column("lost", 6, lambda level: percent(level.contention))
_N = Column("n", 5, lambda level: str(level.n))
_ERRORS = Column("err", 4, lambda level: str(level.errors))
_REAL_C = Column("real C", 8, lambda level: rate(level.c_achieved))
