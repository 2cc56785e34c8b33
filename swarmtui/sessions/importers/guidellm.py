"""GuideLLM's benchmarks.json, from 0.2 to 0.8."""

from __future__ import annotations

from datetime import UTC, datetime
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

_LATEST = 4e9


def is_guidellm(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("benchmarks"), list)


def read_guidellm(data: dict[str, Any]) -> Found:
    """Each benchmark is a level."""
    benchmarks = [table(one) for one in data["benchmarks"]]
    measured, notes = [], []
    for one in benchmarks:
        found = _measured(one)
        if found is None:
            notes.append("a benchmark without a count of requests or a concurrency was left out")
            continue
        measured.append(found)
        if found.rate is not None:
            notes.append(f"C={found.c} is the mean in flight of an open loop of {found.rate:g} requests a second")
        if found.cancelled:
            notes.append(
                f"C={found.c}: {found.cancelled} requests were cut off at the end; their tokens are not counted"
            )
    begun = next((at for one in benchmarks if (at := number(one.get("start_time")))), None)
    return Found("GuideLLM", _model(data, benchmarks), _date(begun), measured, notes)


def _measured(one: dict[str, Any]) -> Measured | None:
    """Latencies stand under `successful`; its inter-token latency is a mean of each request, so our tpot."""
    metrics = table(one.get("metrics"))
    # Of the metrics since 0.4, of the benchmark before; 0.2 and 0.3 also have what was made before sampling.
    totals = table(metrics.get("request_totals")) or table(one.get("request_totals"))
    totals = totals or table(find(one, "run_stats", "requests_made"))
    ok = count(totals.get("successful"))
    strategy = table(find(one, "config", "strategy")) or table(find(one, "args", "strategy"))
    c, rate = _load(strategy, metrics)
    if ok is None or c is None:
        return None
    return Measured(
        c=c,
        ok=ok,
        failed=count(totals.get("errored")) or 0,
        cancelled=count(totals.get("incomplete")) or 0,
        wall_s=number(one.get("duration")) or _between(one.get("start_time"), one.get("end_time")),
        tokens_in=product(ok, _spread(metrics, "prompt_token_count", 1.0, ok).mean),
        tokens_out=product(ok, _spread(metrics, "output_token_count", 1.0, ok).mean),
        out_tps=_spread(metrics, "output_tokens_per_second", 1.0, ok).mean,
        ttft=_spread(metrics, "time_to_first_token_ms", 1e-3, ok),
        tpot=_spread(metrics, "inter_token_latency_ms", 1e-3, ok),
        e2e=_spread(metrics, "request_latency", 1.0, ok),
        rate=rate,
    )


def _load(strategy: dict[str, Any], metrics: dict[str, Any]) -> tuple[int | None, float | None]:
    """Streams that were held; of an open loop its rate, and how many were in flight on average."""
    held = count(strategy.get("streams"))
    if held:
        return held, None
    kind = strategy.get("type_")
    if kind == "synchronous":
        return 1, None
    measured = _spread(metrics, "request_concurrency", 1.0, 1).mean
    in_flight = max(1, round(measured)) if measured else None
    if kind == "throughput":
        return count(strategy.get("max_concurrency")) or in_flight, None
    return in_flight, number(strategy.get("rate"))


def _spread(metrics: dict[str, Any], name: str, unit: float, n: int) -> Spread:
    """Percentiles stand in a table of their own."""
    found = table(metrics.get(name))
    found = table(found.get("successful")) or found
    values = table(found.get("percentiles")) | found
    parts = {part: number(values.get(part)) for part in PARTS}
    if parts["p50"] is None:
        parts["p50"] = number(found.get("median"))
    return spread_of(n, number(found.get("mean")), parts, unit)


def _model(data: dict[str, Any], benchmarks: list[dict[str, Any]]) -> str:
    """Said by the backend of each benchmark since 0.4, by its worker before, else by the arguments of all."""
    told = [
        find(one, *path) for one in benchmarks for path in (("config", "backend", "model"), ("worker", "backend_model"))
    ]
    return text(*told, find(data, "args", "model"), find(data, "config", "spec", "backend", "model"))


def _between(start: Any, end: Any) -> float | None:
    first, last = number(start), number(end)
    return None if first is None or last is None or last <= first else last - first


def _date(seconds: float | None) -> str:
    if seconds is None or not 0 < seconds < _LATEST:
        return ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
