"""AIPerf's profile_export_aiperf.json, from 0.1 to 0.13."""

from __future__ import annotations

from typing import Any

from swarmtui.model.session import Spread
from swarmtui.sessions.importers.shape import (
    PARTS,
    Found,
    Measured,
    count,
    find,
    number,
    product,
    spread_of,
    table,
    text,
)

_APART = 0.02
_SECONDS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def metrics_of(data: Any) -> dict[str, Any] | None:
    """Beside the configuration; up to 0.1 in a table of their own. None where these are no results of AIPerf."""
    found = table(table(data).get("records")) or table(data)
    return found if isinstance(found.get("output_token_throughput"), dict) else None


def read_aiperf(data: dict[str, Any], metrics: dict[str, Any]) -> Found:
    """One file is one level; each metric carries its unit."""
    config = table(data.get("input_config"))
    ok = count(_average(metrics, "request_count")) or 0
    failed = count(_average(metrics, "error_request_count")) or 0
    c, rate = _load(config)
    notes = [] if c else ["no concurrency in it: all requests are taken for one level"]
    whole = data.get("was_cancelled") is not True and data.get("is_complete") is not False
    if not whole:
        notes.append("it was stopped before its end" + _because(data.get("incomplete_reason")))
    # All that was written; `total_output_tokens` is without what was reasoned.
    tokens_out = _sum_of(metrics, "total_osl", "output_sequence_length", ok)
    told = count(_average(metrics, "total_usage_completion_tokens"))
    if told and tokens_out and abs(tokens_out / told - 1.0) > _APART:
        notes.append(f"its own tokeniser counted {tokens_out:,} output tokens, the server {told:,}")

    def times(*names: str) -> Spread:
        metric = next((table(metrics[name]) for name in names if name in metrics), {})
        unit = _SECONDS.get(str(metric.get("unit", "ms")), 1e-3)
        n = count(metric.get("count")) or ok
        return spread_of(n, number(metric.get("avg")), {part: number(metric.get(part)) for part in PARTS}, unit)

    measured = Measured(
        c=c or max(1, ok + failed),
        ok=ok,
        failed=failed,
        wall_s=_seconds(metrics, "benchmark_duration"),
        tokens_in=_sum_of(metrics, "total_isl", "input_sequence_length", ok),
        tokens_out=tokens_out,
        out_tps=_average(metrics, "output_token_throughput"),
        ttft=times("time_to_first_token", "ttft"),
        ttfo=times("time_to_first_output_token"),
        tpot=times("inter_token_latency"),
        icl=times("inter_chunk_latency"),
        e2e=times("request_latency"),
        rate=rate,
        complete=whole,
    )
    return Found("AIPerf", _model(config), text(data.get("start_time")), [measured], notes)


def _load(config: dict[str, Any]) -> tuple[int | None, float | None]:
    """Since 0.10 in a list of phases, of which warm-up is one; before under `loadgen`."""
    phases = config.get("phases")
    listed = [table(phase) for phase in phases] if isinstance(phases, list) else []
    counted = [
        phase
        for phase in listed
        if not phase.get("exclude_from_results") and "warmup" not in (phase.get("name"), phase.get("kind"))
    ]
    last = counted[-1] if counted else table(config.get("loadgen"))
    held = count(last.get("concurrency")) or count(last.get("users"))
    rate = number(last.get("rate")) or number(last.get("request_rate"))
    return held or None, rate


def _model(config: dict[str, Any]) -> str:
    """Since 0.10 under `models`, before under `endpoint`; one, or a list of which the first is meant."""
    for names in (find(config, "models", "items"), find(config, "models"), find(config, "endpoint", "model_names")):
        first = names[0] if isinstance(names, list) and names else names
        told = text(first, find(first, "name"))
        if told:
            return told
    return ""


def _average(metrics: dict[str, Any], name: str) -> float | None:
    return number(table(metrics.get(name)).get("avg"))


def _seconds(metrics: dict[str, Any], name: str) -> float | None:
    value = _average(metrics, name)
    unit = _SECONDS.get(str(table(metrics.get(name)).get("unit", "sec")), 1.0)
    return None if value is None else value * unit


def _sum_of(metrics: dict[str, Any], total: str, each: str, ok: int) -> int | None:
    known = count(_average(metrics, total))
    return known if known is not None else product(ok, _average(metrics, each))


def _because(reason: Any) -> str:
    return f": {reason}" if isinstance(reason, str) and reason else ""
