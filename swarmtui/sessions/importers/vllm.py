"""Read results of `vllm bench serve --save-result` and of its predecessor benchmark_serving.py."""

from __future__ import annotations

from typing import Any

from swarmtui.model.session import Spread
from swarmtui.sessions.importers.base import (
    ImportedBenchmark,
    ImportedFile,
    as_count,
    as_float,
    build_spread,
    first_text,
)


def read_vllm(documents: list[Any]) -> ImportedFile | None:
    """Read each result as a level; `--append-result` writes one per line."""
    if not all(isinstance(data, dict) and "output_throughput" in data and "completed" in data for data in documents):
        return None
    notes: list[str] = []
    benchmarks = [_benchmark(data, notes) for data in documents]
    model, date = first_text(documents[0].get("model_id")), first_text(documents[0].get("date"))
    return ImportedFile("vllm bench serve", model, _date(date), benchmarks, notes)


def _benchmark(data: dict[str, Any], notes: list[str]) -> ImportedBenchmark:
    """Read one result. Times are in milliseconds, in fields such as `p99_ttft_ms`."""
    ok = as_count(data.get("completed")) or 0
    failed = as_count(data.get("failed"))
    if failed is None:  # older versions only report how many were planned
        failed = max(0, (as_count(data.get("num_prompts")) or ok) - ok)
    concurrency, rate = as_count(data.get("max_concurrency")), as_float(data.get("request_rate"))
    if concurrency:
        c = concurrency
    elif rate is None:
        c = max(1, ok + failed)
        notes.append(f"no max_concurrency: all {ok + failed} requests at the rate {data.get('request_rate')}")
    else:
        c = max(1, as_count(data.get("max_concurrent_requests")) or ok + failed)
        notes.append(f"no max_concurrency: an open loop at {rate:g} requests/s with at most {c} in flight")

    def times(name: str) -> Spread:
        parts = {part: as_float(data.get(f"{part}_{name}_ms")) for part in ("p90", "p95", "p99")}
        parts["p50"] = as_float(data.get(f"median_{name}_ms"))
        return build_spread(ok, as_float(data.get(f"mean_{name}_ms")), parts, 1e-3)

    return ImportedBenchmark(
        c=c,
        ok=ok,
        failed=failed,
        wall_s=as_float(data.get("duration")),
        tokens_in=as_count(data.get("total_input_tokens")),
        tokens_out=as_count(data.get("total_output_tokens")),
        out_tps=as_float(data.get("output_throughput")),
        ttft=times("ttft"),
        tpot=times("tpot"),
        icl=times("itl"),
        e2e=times("e2el"),
        rate=None if concurrency else rate,
    )


def _date(written: str) -> str:
    """Convert `20260501-101500`, which is in the local time of the machine."""
    day, dash, time = written.partition("-")
    if not dash or not (day + time).isdigit() or (len(day), len(time)) != (8, 6):
        return written
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}"
