"""Read AIPerf's profile_export_aiperf.json, versions 0.1 to 0.13."""

from __future__ import annotations

from typing import Any

from swarmtui.model.session import Spread
from swarmtui.sessions.importers.base import (
    PARTS,
    ImportedBenchmark,
    ImportedFile,
    as_count,
    as_dict,
    as_float,
    build_spread,
    first_text,
    get_path,
    total_of,
)

_TOKEN_TOLERANCE = 0.02
_SECONDS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def read_aiperf(documents: list[Any]) -> ImportedFile | None:
    """Read the file as one level; each metric carries its unit."""
    data, metrics = documents[0], _find_metrics(documents[0])
    if len(documents) > 1 or metrics is None:
        return None
    config = as_dict(data.get("input_config"))
    ok = as_count(_average(metrics, "request_count")) or 0
    failed = as_count(_average(metrics, "error_request_count")) or 0
    c, rate = _load(config)
    notes = [] if c else ["no concurrency given: all requests are taken as one level"]
    complete = data.get("was_cancelled") is not True and data.get("is_complete") is not False
    if not complete:
        notes.append(f"stopped early{_reason(data.get('incomplete_reason'))}")
    # `total_output_tokens` excludes reasoning tokens.
    tokens_out = _sum_of(metrics, "total_osl", "output_sequence_length", ok)
    reported = as_count(_average(metrics, "total_usage_completion_tokens"))
    if reported and tokens_out and abs(tokens_out / reported - 1.0) > _TOKEN_TOLERANCE:
        notes.append(f"AIPerf's tokenizer counted {tokens_out:,} output tokens, the server {reported:,}")

    def times(*names: str) -> Spread:
        metric = next((as_dict(metrics[name]) for name in names if name in metrics), {})
        unit = _SECONDS.get(str(metric.get("unit", "ms")), 1e-3)
        n = as_count(metric.get("count")) or ok
        return build_spread(n, as_float(metric.get("avg")), {part: as_float(metric.get(part)) for part in PARTS}, unit)

    benchmark = ImportedBenchmark(
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
        complete=complete,
    )
    return ImportedFile("AIPerf", _model(config), first_text(data.get("start_time")), [benchmark], notes)


def _find_metrics(data: Any) -> dict[str, Any] | None:
    """Return the metrics, which version 0.1 had under `records`; None if this is not an AIPerf result."""
    found = as_dict(as_dict(data).get("records")) or as_dict(data)
    return found if isinstance(found.get("output_token_throughput"), dict) else None


def _load(config: dict[str, Any]) -> tuple[int | None, float | None]:
    """Return concurrency and rate: since 0.10 in a list of phases that includes warm-up, before under `loadgen`."""
    phases = config.get("phases")
    listed = [as_dict(phase) for phase in phases] if isinstance(phases, list) else []
    measured = [
        phase
        for phase in listed
        if not phase.get("exclude_from_results") and "warmup" not in (phase.get("name"), phase.get("kind"))
    ]
    last = measured[-1] if measured else as_dict(config.get("loadgen"))
    concurrency = as_count(last.get("concurrency")) or as_count(last.get("users"))
    rate = as_float(last.get("rate")) or as_float(last.get("request_rate"))
    return concurrency or None, rate


def _model(config: dict[str, Any]) -> str:
    """Return the first model: since 0.10 under `models`, before under `endpoint`."""
    for names in (
        get_path(config, "models", "items"),
        get_path(config, "models"),
        get_path(config, "endpoint", "model_names"),
    ):
        first = names[0] if isinstance(names, list) and names else names
        name = first_text(first, get_path(first, "name"))
        if name:
            return name
    return ""


def _average(metrics: dict[str, Any], name: str) -> float | None:
    return as_float(as_dict(metrics.get(name)).get("avg"))


def _seconds(metrics: dict[str, Any], name: str) -> float | None:
    value = _average(metrics, name)
    unit = _SECONDS.get(str(as_dict(metrics.get(name)).get("unit", "sec")), 1.0)
    return None if value is None else value * unit


def _sum_of(metrics: dict[str, Any], total: str, each: str, ok: int) -> int | None:
    known = as_count(_average(metrics, total))
    return known if known is not None else total_of(ok, _average(metrics, each))


def _reason(reason: Any) -> str:
    return f": {reason}" if isinstance(reason, str) and reason else ""
