"""The columns of tables that have one row per level, by id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from typing import Literal, TypeVar

from swarmtui.model.record import WATERFALL_PARTS, Waterfall
from swarmtui.model.session import Level, SerialBaseline, Spread
from swarmtui.model.telemetry import TtftSplit
from swarmtui.numbers import (
    count,
    factor,
    gib,
    milliseconds,
    percent,
    rate,
    seconds,
    short_percent,
    signed_percent,
    significant,
    supported,
)
from swarmtui.report.table import Cell, Column, Value

Part = TypeVar("Part")


def tokens(estimated: bool, value: float | None, number: Callable[[float], str] = significant) -> Cell | None:
    """Mark a figure per token with ~ if the server did not count the tokens."""
    if value is None:
        return None
    return Cell(f"~{number(value)}", "estimated") if estimated else Cell(number(value))


def _per_token(id: str, title: str, value: Callable[[Level], float | None]) -> Column[Level]:
    return Column(id, title, lambda level: tokens(level.tokens_estimated, value(level)))


def rate_column(id: str, title: str, value: Callable[[Level], float | None]) -> Column[Level]:
    """A rate, in as many digits as the steady rate of its level has."""
    return Column(id, title, lambda x: tokens(x.tokens_estimated, value(x), lambda tps: rate(tps, x.half_width)), rate)


def _scaling(level: Level) -> Cell | None:
    found = level.rate_speedup
    return None if found is None else Cell(f"{supported(found, level.half_width, 3)}×")


def _slowdown(level: Level) -> Cell | None:
    """A difference of rates, which are seldom known well enough for more than whole percents of it."""
    return None if level.slowdown is None else Cell(percent(round(level.slowdown, 2)))


# A rate with one agent that is known to less than this share, or that rests on fewer answers, is a weak base.
_WEAK, _FEW = 0.1, 5
WEAK_BASE = "slowdown and scaling are not sure: the rate with one agent is not known well"


def is_weak_base(levels: Sequence[Level]) -> bool:
    """Whether slowdown and scaling are compared with a rate of one agent that is not known well."""
    base = next((level for level in levels if level.key == (1, None)), None)
    if base is None:
        return False
    few = base.half_width is None and base.ok < _FEW
    return few or (base.half_width or 0.0) > _WEAK or not base.has_complete_run


def mark_weak_base(columns: Sequence[Column[Level]], levels: Sequence[Level]) -> list[Column[Level]]:
    """Mark what is compared with one agent, as not sure, if the rate of one agent is not known well."""
    if not is_weak_base(levels):
        return list(columns)

    def doubt(level: Level, value: Value) -> Value:
        return Cell(value.text, "unsure") if isinstance(value, Cell) and level.key != (1, None) else value

    return [column.then(doubt) if column.id in ("slowdown", "scaling") else column for column in columns]


def _of(part: Callable[[Level], Part | None], value: Callable[[Part], Value]) -> Callable[[Level], Value]:
    """Read a value of a part that not every level has."""

    def read(level: Level) -> Value:
        found = part(level)
        return None if found is None else value(found)

    return read


def _three(value: float) -> str:
    return significant(value, 3)


def _with_range(spread: Spread) -> str | None:
    """The median; of too few answers for one with the range, unless some were cut off and the longest is not known."""
    if spread.p50 is not None or spread.max is None or spread.min == spread.max:
        return None if spread.median is None else seconds(spread.median)
    return f"{seconds(spread.median)} ({seconds(spread.min)}–{seconds(spread.max)})"


def _with_interval(spread: Spread, name: Literal["p90", "p99"]) -> str | None:
    """`1.21 s (1.08 s … 1.44 s)`"""
    value, interval = getattr(spread, name), getattr(spread, f"{name}_interval")
    ends = f" ({seconds(interval[0])} … {seconds(interval[1])})" if interval is not None else ""
    return None if value is None else f"{seconds(value)}{ends}"


def tail(spread: Spread | None) -> float | None:
    """The p99, or the maximum of too few requests for one."""
    return None if spread is None else spread.max if spread.p99 is None else spread.p99


def _ttft_part(value: Callable[[TtftSplit], float | None]) -> Callable[[Level], Value]:
    def read(split: TtftSplit) -> Value:
        part = value(split)
        return Cell(f"est. {seconds(part)}", "estimated") if part is not None and split.estimated else part

    return _of(lambda level: level.ttft_split, read)


def _hit_rate(level: Level) -> Value:
    if level.replay is not None:
        return level.replay.hit_rate
    return level.kv.cached_tokens / level.tokens_in if level.kv and level.kv.cached_tokens and level.tokens_in else None


def _time_share(field: str) -> Callable[[Level], Value]:
    def read(found: Waterfall) -> Value:
        value: float | None = getattr(found, field)
        return None if value is None or not found.total_s else value / found.total_s

    return _of(lambda level: level.waterfall, read)


COLUMNS: dict[str, Column[Level]] = {
    column.id: column
    for column in (
        Column[Level]("load", "C", lambda x: f"{x.offered_load:g}"),
        Column[Level]("runs", "runs", lambda x: x.runs),
        Column[Level]("n", "n", lambda x: x.n),
        Column[Level]("ok", "answers", lambda x: x.ok),
        Column[Level]("errors", "errors", lambda x: x.errors, short="err"),
        Column[Level]("cap_hits", "cap hits", lambda x: x.cap_hits, short="cut"),
        rate_column("steady", "steady", lambda x: x.out_tps_steady),
        # The half-width itself is not known better than to two digits.
        Column[Level]("half_width", "±", lambda x: x.half_width, lambda share: short_percent(share, 2)),
        rate_column("wall", "wall", lambda x: x.out_tps_wall),
        Column[Level]("prompt", "prompt", lambda x: x.prompt_tps, rate),
        rate_column("total", "prompt + output", lambda x: x.total_tps),
        rate_column("stream", "per agent", lambda x: x.per_stream_tps.mean),
        rate_column("stream_clean", "per agent, clean", lambda x: x.per_stream_tps_clean.mean),
        Column[Level]("in_flight", "in flight", lambda x: x.c_achieved, _three),
        Column[Level]("wall_s", "wall time", lambda x: x.wall_s, seconds),
        # latency
        Column[Level]("ttft", "TTFT", lambda x: x.shown_ttft_s.median, seconds),
        Column[Level]("ttft_range", "TTFT", lambda x: _with_range(x.shown_ttft_s)),
        Column[Level]("ttft_mean", "TTFT mean", lambda x: x.shown_ttft_s.mean, seconds),
        Column[Level]("ttft_p90", "TTFT p90", lambda x: x.shown_ttft_s.p90, seconds, short="p90"),
        Column[Level]("ttft_p90_range", "TTFT p90", lambda x: _with_interval(x.shown_ttft_s, "p90")),
        Column[Level]("ttft_p99", "TTFT p99", lambda x: _with_interval(x.shown_ttft_s, "p99")),
        Column[Level]("ttft_max", "TTFT max", lambda x: x.shown_ttft_s.max, seconds),
        Column[Level]("ttft_tail", "p99/max", lambda x: tail(x.shown_ttft_s), seconds),
        Column[Level](
            "tpot", "TPOT mean", lambda x: tokens(x.tokens_estimated, x.tpot_s.mean, milliseconds), short="TPOT"
        ),
        Column[Level]("tpot_p90", "TPOT p90", lambda x: tokens(x.tokens_estimated, x.tpot_s.p90, milliseconds)),
        Column[Level]("e2e", "e2e", lambda x: x.e2e_s.median, seconds),
        Column[Level]("e2e_range", "e2e", lambda x: _with_range(x.e2e_s)),
        Column[Level]("e2e_p90", "e2e p90", lambda x: _with_interval(x.e2e_s, "p90")),
        Column[Level]("stall", "longest stall", lambda x: x.longest_stall_s, seconds),
        # compared with C=1
        Column[Level]("slowdown", "slowdown", _slowdown),
        Column[Level]("scaling", "scaling", _scaling),
        Column[Level]("wall_speedup", "wall speed-up", lambda x: x.wall_speedup, factor),
        Column[Level]("token_ratio", "token ratio", lambda x: x.token_ratio, _three),
        Column[Level]("straggler", "straggler", lambda x: x.straggler, _three),
        Column[Level]("passed", "passed", lambda x: x.pass_rate, short_percent, short="pass"),
        # serial baseline
        Column[Level](
            "speed_up", "speed-up", lambda x: x.serial.speedup if x.serial else x.wall_speedup, factor
        ),
        Column[Level]("serial_s", "serial", _of(lambda x: x.serial, lambda s: _serial(s, seconds(s.wall_s)))),
        Column[Level]("serial_speedup", "speed-up", _of(lambda x: x.serial, lambda s: _serial(s, factor(s.speedup)))),
        Column[Level]("serial_clean", "clean", _of(lambda x: x.serial, lambda s: s.clean_speedup), factor),
        Column[Level]("serial_tps", "serial tok/s", _of(lambda x: x.serial, lambda s: s.out_tps), rate),
        # open loop
        Column[Level]("arrived", "arrival rate", lambda x: x.arrived_per_s, _three),
        Column[Level]("served", "completion rate", lambda x: x.served_per_s, _three, short="done/s"),
        Column[Level]("send_delay", "send delay", lambda x: tail(x.send_delay_s), milliseconds),
        # recorded sessions
        Column[Level]("jobs", "jobs", _of(lambda x: x.replay, lambda r: r.jobs)),
        Column[Level]("jobs_failed", "failed", _of(lambda x: x.replay, lambda r: r.failed)),
        Column[Level]("jobs_h", "jobs/h", _of(lambda x: x.replay, lambda r: r.jobs_per_h), _three),
        Column[Level]("jobs_h_user", "per user", _of(lambda x: x.replay, lambda r: r.jobs_per_h_user), _three),
        Column[Level]("jobs_h_gpu", "per GPU", _of(lambda x: x.replay, lambda r: r.jobs_per_h_gpu), _three),
        Column[Level]("job_s", "time per job", lambda x: x.job_s.median, seconds),
        Column[Level]("context", "live context", _of(lambda x: x.replay, lambda r: r.live_context), count),
        Column[Level]("hit", "hit rate", _hit_rate, short_percent),
        Column[Level]("max_hit", "at most", _of(lambda x: x.replay, lambda r: r.max_hit_rate), short_percent),
        Column[Level]("cached", "cached", _of(lambda x: x.kv, lambda kv: kv.cached_tokens), count),
        Column[Level]("external", "from elsewhere", _of(lambda x: x.kv, lambda kv: kv.external_tokens), count),
        Column[Level]("recomputed", "recomputed", _of(lambda x: x.kv, lambda kv: kv.recomputed_tokens), count),
        Column[Level]("evicted", "evicted", _of(lambda x: x.kv, lambda kv: kv.evicted_tokens), count),
        Column[Level]("preempted", "preempted", _of(lambda x: x.kv, lambda kv: kv.preemptions), count),
        Column[Level]("kv_use", "used", _of(lambda x: x.kv, lambda kv: kv.kv_use), percent),
        Column[Level]("kv_context", "context", _of(lambda x: x.kv, lambda kv: kv.context_tokens), count),
        Column[Level]("kv_fits", "fit", _of(lambda x: x.kv, lambda kv: None if kv.fits is None else floor(kv.fits))),
        Column[Level]("recorded", "recorded", _of(lambda x: x.replay, lambda r: r.recorded_tokens), count),
        Column[Level](
            "prompt_error", "prompt error", _of(lambda x: x.replay, lambda r: r.prompt_error),
            lambda error: signed_percent(error, 2),
        ),
        # where the time goes
        Column[Level]("time_total", "time", _of(lambda x: x.waterfall, lambda w: w.total_s), seconds),
        *(
            Column[Level](f"time_{field}", name, _time_share(field), percent)
            for field, name in WATERFALL_PARTS.items()
        ),
        # speculative decoding
        Column[Level]("spec_tokens", "tokens/step", _of(lambda x: x.speculation, lambda s: s.tokens_per_step), _three),
        Column[Level]("spec_steps", "steps/s", _of(lambda x: x.speculation, lambda s: s.steps_per_s)),
        Column[Level]("spec_drafted", "drafted", _of(lambda x: x.speculation, lambda s: s.drafted_per_step), _three),
        Column[Level]("spec_share", "accepted", _of(lambda x: x.speculation, lambda s: s.acceptance), percent),
        Column[Level](
            "spec_at", "by position",
            _of(lambda x: x.speculation, lambda s: " · ".join(map(percent, s.by_position)) or None),
        ),
        # machine
        Column[Level]("gpu_w", "GPU W", _of(lambda x: x.energy, lambda e: e.mean_w)),
        _per_token("j_token", "J/token", lambda x: x.energy.j_per_token if x.energy else None),
        _per_token("tokens_j", "tokens/J", lambda x: x.energy.tokens_per_j if x.energy else None),
        Column[Level]("gpu_gib", "GPU GiB", _of(lambda x: x.energy, lambda e: e.peak_memory), gib),
        Column[Level]("throttled", "throttled", _of(lambda x: x.energy, lambda e: e.throttled), short_percent),
        Column[Level](
            "ttft_mean", "mean TTFT", _of(lambda x: x.ttft_split, lambda split: split.ttft_s), seconds
        ),
        Column[Level](
            "ttft_queue", "mean TTFT: queue", _ttft_part(lambda split: split.queue_s), seconds, short="queue"
        ),
        Column[Level](
            "ttft_prefill", "mean TTFT: prefill", _ttft_part(lambda split: split.prefill_s), seconds,
            short="prefill"
        ),
        Column[Level](
            "ttft_rest", "mean TTFT: rest", _ttft_part(lambda split: split.rest_s), seconds, short="rest"
        ),
    )
}  # fmt: skip


def _serial(baseline: SerialBaseline, text: str) -> Cell:
    return Cell(f"{text} (extrapolated)", "estimated") if baseline.extrapolated else Cell(text)
