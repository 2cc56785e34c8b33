"""Read GuideLLM's benchmarks.json, versions 0.2 to 0.8."""

from __future__ import annotations

from datetime import UTC, datetime
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

_MAX_TIMESTAMP = 4e9


def read_guidellm(documents: list[Any]) -> ImportedFile | None:
    """Read each benchmark as a level."""
    data = documents[0]
    if len(documents) > 1 or not isinstance(data, dict) or not isinstance(data.get("benchmarks"), list):
        return None
    entries = [as_dict(entry) for entry in data["benchmarks"]]
    benchmarks, notes = [], []
    for entry in entries:
        benchmark = _benchmark(entry)
        if benchmark is None:
            notes.append("a benchmark without a request count or a concurrency was skipped")
            continue
        benchmarks.append(benchmark)
        c, rate = benchmark.c, benchmark.rate
        if rate is not None:
            notes.append(f"C={c} is the mean number in flight of an open loop at {rate:g} requests/s")
        if benchmark.cancelled:
            notes.append(
                f"C={c}: {benchmark.cancelled} requests were cancelled at the end; their tokens are not counted"
            )
    start = next((time for entry in entries if (time := as_float(entry.get("start_time")))), None)
    return ImportedFile("GuideLLM", _model(data, entries), _date(start), benchmarks, notes)


def _benchmark(one: dict[str, Any]) -> ImportedBenchmark | None:
    """Read one benchmark. GuideLLM's inter-token latency is a mean per request, which is TPOT here."""
    metrics = as_dict(one.get("metrics"))
    # Since 0.4 in the metrics, before in the benchmark or, in 0.2 and 0.3, in run_stats.
    totals = as_dict(metrics.get("request_totals")) or as_dict(one.get("request_totals"))
    totals = totals or as_dict(get_path(one, "run_stats", "requests_made"))
    ok = as_count(totals.get("successful"))
    strategy = as_dict(get_path(one, "config", "strategy")) or as_dict(get_path(one, "args", "strategy"))
    c, rate = _load(strategy, metrics)
    if ok is None or c is None:
        return None
    return ImportedBenchmark(
        c=c,
        ok=ok,
        failed=as_count(totals.get("errored")) or 0,
        cancelled=as_count(totals.get("incomplete")) or 0,
        wall_s=as_float(one.get("duration")) or _between(one.get("start_time"), one.get("end_time")),
        tokens_in=total_of(ok, _spread(metrics, "prompt_token_count", 1.0, ok).mean),
        tokens_out=total_of(ok, _spread(metrics, "output_token_count", 1.0, ok).mean),
        out_tps=_spread(metrics, "output_tokens_per_second", 1.0, ok).mean,
        ttft=_spread(metrics, "time_to_first_token_ms", 1e-3, ok),
        tpot=_spread(metrics, "inter_token_latency_ms", 1e-3, ok),
        e2e=_spread(metrics, "request_latency", 1.0, ok),
        rate=rate,
    )


def _load(strategy: dict[str, Any], metrics: dict[str, Any]) -> tuple[int | None, float | None]:
    """Return the concurrency; for an open loop the mean number in flight and the rate."""
    streams = as_count(strategy.get("streams"))
    if streams:
        return streams, None
    kind = strategy.get("type_")
    if kind == "synchronous":
        return 1, None
    measured = _spread(metrics, "request_concurrency", 1.0, 1).mean
    in_flight = max(1, round(measured)) if measured else None
    if kind == "throughput":
        return as_count(strategy.get("max_concurrency")) or in_flight, None
    return in_flight, as_float(strategy.get("rate"))


def _spread(metrics: dict[str, Any], name: str, unit: float, n: int) -> Spread:
    """Read a distribution; its percentiles are in a nested table."""
    found = as_dict(metrics.get(name))
    found = as_dict(found.get("successful")) or found
    values = as_dict(found.get("percentiles")) | found
    parts = {part: as_float(values.get(part)) for part in PARTS}
    if parts["p50"] is None:
        parts["p50"] = as_float(found.get("median"))
    return build_spread(n, as_float(found.get("mean")), parts, unit)


def _model(data: dict[str, Any], benchmarks: list[dict[str, Any]]) -> str:
    """Return the model: since 0.4 in the backend of each benchmark, before in its worker, else in the arguments."""
    names = [
        get_path(one, *path)
        for one in benchmarks
        for path in (("config", "backend", "model"), ("worker", "backend_model"))
    ]
    return first_text(*names, get_path(data, "args", "model"), get_path(data, "config", "spec", "backend", "model"))


def _between(start: Any, end: Any) -> float | None:
    first, last = as_float(start), as_float(end)
    return None if first is None or last is None or last <= first else last - first


def _date(seconds: float | None) -> str:
    if seconds is None or not 0 < seconds < _MAX_TIMESTAMP:
        return ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
