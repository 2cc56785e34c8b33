"""`vllm bench serve --save-result`, and its forerunner benchmark_serving.py."""

from __future__ import annotations

from typing import Any

from swarmtui.model.session import Spread
from swarmtui.sessions.importers.shape import Found, Measured, count, number, spread_of, text


def is_vllm(data: Any) -> bool:
    return isinstance(data, dict) and "output_throughput" in data and "completed" in data


def read_vllm(results: list[dict[str, Any]]) -> Found:
    """One result is one level; `--append-result` writes several into a file, a line each."""
    notes: list[str] = []
    measured = [_measured(result, notes) for result in results]
    first = results[0]
    return Found("vllm bench serve", text(first.get("model_id")), _date(text(first.get("date"))), measured, notes)


def _measured(data: dict[str, Any], notes: list[str]) -> Measured:
    """Times are in milliseconds, under names such as `p99_ttft_ms`; end-to-end ones only where they were asked for."""
    ok = count(data.get("completed")) or 0
    failed = count(data.get("failed"))
    if failed is None:  # older ones tell only how many were to be sent
        failed = max(0, (count(data.get("num_prompts")) or ok) - ok)
    held, rate = count(data.get("max_concurrency")), number(data.get("request_rate"))
    if held:
        c = held
    elif rate is None:
        c = max(1, ok + failed)
        notes.append(f"no max_concurrency: all {ok + failed} requests at the rate {data.get('request_rate')}")
    else:
        c = max(1, count(data.get("max_concurrent_requests")) or ok + failed)
        notes.append(f"no max_concurrency: an open loop of {rate:g} requests a second, at most {c} in flight")

    def times(name: str) -> Spread:
        parts = {part: number(data.get(f"{part}_{name}_ms")) for part in ("p90", "p95", "p99")}
        parts["p50"] = number(data.get(f"median_{name}_ms"))
        return spread_of(ok, number(data.get(f"mean_{name}_ms")), parts, 1e-3)

    return Measured(
        c=c,
        ok=ok,
        failed=failed,
        wall_s=number(data.get("duration")),
        tokens_in=count(data.get("total_input_tokens")),
        tokens_out=count(data.get("total_output_tokens")),
        out_tps=number(data.get("output_throughput")),
        ttft=times("ttft"),
        tpot=times("tpot"),
        icl=times("itl"),
        e2e=times("e2el"),
        rate=None if held else rate,
    )


def _date(written: str) -> str:
    """`20260501-101500`, in the time of the machine that measured."""
    day, dash, time = written.partition("-")
    if not dash or not (day + time).isdigit() or (len(day), len(time)) != (8, 6):
        return written
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}"
