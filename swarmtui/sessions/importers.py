"""Results of other tools, read for comparison: `vllm bench serve`, GuideLLM and AIPerf JSON.

They hold no requests of ours, so nothing can be derived again; what they lack stays null and is said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from swarmtui.analysis.stats import SMALLEST_N, ratio
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.plan import Plan, Requests
from swarmtui.model.schema import SCHEMA_VERSION, BadInput
from swarmtui.model.session import Client, Event, Level, Rates, RunFigures, Session, Spread, Summary

_LARGEST = 512 << 20
_PARTS = ("min", "p50", "p90", "p95", "p99", "max")


def read_foreign(path: Path) -> Summary:
    """One summary for each file; GuideLLM's benchmarks become levels."""
    try:
        if path.stat().st_size > _LARGEST:
            raise BadInput("is larger than any result of the tools that are known", source=str(path))
        data = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"not valid JSON: {error}", source=str(path)) from None
    if isinstance(data, dict):
        if isinstance(data.get("benchmarks"), list):
            return _guidellm(data, path)
        if "output_throughput" in data and "completed" in data:
            return _vllm(data, path)
        metrics = data.get("records") if isinstance(data.get("records"), dict) else data
        if isinstance(metrics, dict) and isinstance(metrics.get("output_token_throughput"), dict):
            return _aiperf(data, metrics, path)
    raise BadInput("is no result of vllm bench serve, GuideLLM or AIPerf", source=str(path))


def _vllm(data: dict[str, Any], path: Path) -> Summary:
    """One file is one level; its percentiles are in milliseconds, under names such as `p99_ttft_ms`."""
    ok, failed = _int(data.get("completed")) or 0, _int(data.get("failed")) or 0
    concurrency = _int(data.get("max_concurrency"))
    n = ok + failed

    def times(name: str) -> Spread:
        parts = {part: _number(data.get(f"{part}_{name}_ms")) for part in ("p90", "p95", "p99")}
        parts["p50"] = _number(data.get(f"median_{name}_ms"))
        return _spread(ok, _number(data.get(f"mean_{name}_ms")), parts, 1e-3)

    level = _level(
        c=concurrency or max(1, n),
        ok=ok,
        failed=failed,
        wall_s=_number(data.get("duration")),
        tokens_in=_int(data.get("total_input_tokens")),
        tokens_out=_int(data.get("total_output_tokens")),
        out_tps=_number(data.get("output_throughput")),
        ttft=times("ttft"),
        tpot=times("tpot"),
        icl=times("itl"),
        e2e=times("e2el"),
    )
    notes = [] if concurrency else [f"no max_concurrency: all {n} requests at the rate {data.get('request_rate')}"]
    return _summary("vllm bench serve", path, str(data.get("model_id", "")), str(data.get("date", "")), [level], notes)


def _guidellm(data: dict[str, Any], path: Path) -> Summary:
    """Latencies stand under `successful`; its inter-token latency is a mean of each request, so our tpot."""
    levels, notes, model = [], [], ""
    for found in map(_dict, data["benchmarks"]):
        metrics = _dict(found.get("metrics"))
        totals = _dict(metrics.get("request_totals"))
        made = _dict(_dict(found.get("run_stats")).get("requests_made"))
        ok = _int(totals.get("successful", made.get("successful")))
        failed = _int(totals.get("errored", made.get("errored"))) or 0
        c = _streams(found, metrics)
        if ok is None or c is None:
            notes.append("a benchmark without a count of requests or a concurrency was left out")
            continue
        model = model or str(_find(found, ("model",)) or "")
        wall = _number(found.get("duration")) or _difference(found.get("start_time"), found.get("end_time"))
        levels.append(
            _level(
                c=c,
                ok=ok,
                failed=failed,
                wall_s=wall,
                tokens_in=_product(ok, _guide(metrics, "prompt_token_count", 1.0).mean),
                tokens_out=_product(ok, _guide(metrics, "output_token_count", 1.0).mean),
                out_tps=_guide(metrics, "output_tokens_per_second", 1.0).mean,
                ttft=_guide(metrics, "time_to_first_token_ms", 1e-3, ok),
                tpot=_guide(metrics, "inter_token_latency_ms", 1e-3, ok),
                icl=Spread(n=0),
                e2e=_guide(metrics, "request_latency", 1.0, ok),
            )
        )
    return _summary("GuideLLM", path, model or str(_find(data, ("model",)) or ""), "", levels, notes)


def _aiperf(data: dict[str, Any], metrics: dict[str, Any], path: Path) -> Summary:
    """One file is one level; each metric carries its unit."""
    config = _dict(data.get("input_config"))
    ok = _int(_dict(metrics.get("request_count")).get("avg")) or 0
    failed = _int(_dict(metrics.get("error_request_count")).get("avg")) or 0
    c = _int(_find(config, ("loadgen", "concurrency"))) or _int(_find(config, ("concurrency",)))
    notes = [] if c else ["no concurrency in it: all requests are taken for one level"]

    def times(name: str) -> Spread:
        metric = _dict(metrics.get(name))
        unit = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}.get(str(metric.get("unit", "ms")), 1e-3)
        return _spread(ok, _number(metric.get("avg")), {part: _number(metric.get(part)) for part in _PARTS}, unit)

    def sum_of(total: str, each: str) -> int | None:
        known = _int(_dict(metrics.get(total)).get("avg"))
        return known if known is not None else _product(ok, _number(_dict(metrics.get(each)).get("avg")))

    level = _level(
        c=c or max(1, ok + failed),
        ok=ok,
        failed=failed,
        wall_s=_number(_dict(metrics.get("benchmark_duration")).get("avg")),
        tokens_in=sum_of("total_isl", "input_sequence_length"),
        tokens_out=sum_of("total_output_tokens", "output_sequence_length"),
        out_tps=_number(_dict(metrics.get("output_token_throughput")).get("avg")),
        ttft=times("time_to_first_token"),
        tpot=times("inter_token_latency"),
        icl=Spread(n=0),
        e2e=times("request_latency"),
    )
    names = _find(config, ("endpoint", "model_names")) or _find(config, ("models", "items")) or []
    first = names[0] if isinstance(names, list) and names else names
    model = str(_dict(first).get("name", "") if isinstance(first, dict) else first or "")
    return _summary("AIPerf", path, model, str(data.get("start_time", "")), [level], notes)


def _level(
    *,
    c: int,
    ok: int,
    failed: int,
    wall_s: float | None,
    tokens_in: int | None,
    tokens_out: int | None,
    out_tps: float | None,
    ttft: Spread,
    tpot: Spread,
    icl: Spread,
    e2e: Spread,
) -> Level:
    rate = ratio(tokens_out, wall_s) or out_tps
    busy = None if e2e.mean is None else ratio(e2e.mean * ok, wall_s)
    all_tokens = None if tokens_in is None or tokens_out is None else tokens_in + tokens_out
    stream = ratio(1.0, tpot.p50 if tpot.p50 is not None else tpot.mean)
    run = RunFigures(
        run=1, n=ok + failed, ok=ok, errors=failed, wall_s=wall_s, steady_s=None, c_achieved=busy,
        tokens_out=tokens_out or 0, out_tps_wall=rate, out_tps_steady=None, per_stream_tps=stream,
        ttft_s=ttft.p50 if ttft.p50 is not None else ttft.mean,
    )  # fmt: skip
    return Level(
        c=c, runs=1, n=ok + failed, ok=ok, errors=failed, cancelled=0,
        error_counts={"not told": failed} if failed else {}, cap_hits=0, degenerate=0, complete=True, wall_s=wall_s,
        steady_s=None, c_achieved=busy, token_source=None, tokens_in=tokens_in, tokens_out=tokens_out,
        cached_tokens=None, out_tps_wall=rate, out_tps_steady=None, prompt_tps=ratio(tokens_in, wall_s),
        total_tps=ratio(all_tokens, wall_s), per_stream_tps=Rates(mean=stream), per_stream_tps_clean=Rates(),
        ttft_s=ttft, ttfo_s=Spread(n=0), tpot_s=tpot, icl_s=icl, e2e_s=e2e, longest_stall_s=icl.max, straggler=None,
        contention=None, rate_speedup=None, wall_speedup=None, token_ratio=None, pass_rate=None, shared_reads=None,
        stamp=None, flags=(), by_run=(run,),
    )  # fmt: skip


def _summary(tool: str, path: Path, model: str, created: str, levels: list[Level], notes: list[str]) -> Summary:
    """Its workload is known only by its lengths: two files with the same lengths may be compared, no others."""
    if not levels:
        raise BadInput(f"a result of {tool} in which nothing was measured", source=str(path))
    levels = sorted(levels, key=lambda level: level.c)
    session = Session(
        id=path.name,
        created=created,
        t0_ns=0,
        endpoints=(Endpoint(url="", model=model),),
        workload=tool,
        workload_digest=_digest(tool, levels),
        workload_spec={},
        plan=Plan(levels=tuple(level.c for level in levels), requests=Requests(count=levels[0].n, per_stream=False)),
        client=Client(version=tool, python="", host="", cores=0),
        tags={"imported": tool},
    )
    said = [f"imported from {tool}: wall rates only, no steady ones; stream rates are 1 / tpot", *notes]
    events = tuple(Event(t_ns=0, name="imported", detail=note) for note in said)
    return Summary(
        schema=SCHEMA_VERSION, state="done", message="", session=session, levels=tuple(levels), warmup_requests=0,
        events=events,
    )  # fmt: skip


def _digest(tool: str, levels: Iterable[Level]) -> str:
    lengths = [
        f"{level.tokens_in / level.ok:.2g}/{level.tokens_out / level.ok:.2g}"
        for level in levels
        if level.ok and level.tokens_in is not None and level.tokens_out is not None
    ]
    return hashlib.sha256(f"{tool} {sorted(set(lengths))}".encode()).hexdigest() if lengths else ""


def _guide(metrics: dict[str, Any], name: str, unit: float, n: int | None = None) -> Spread:
    """Percentiles stand beside the mean, or in a table of their own."""
    found = _dict(metrics.get(name))
    found = _dict(found.get("successful")) or found
    table = _dict(found.get("percentiles")) | found
    parts = {part: _number(table.get(part)) for part in _PARTS}
    if parts["p50"] is None:
        parts["p50"] = _number(found.get("median"))
    count = n if n is not None else _int(found.get("count")) or 0
    return _spread(count, _number(found.get("mean")), parts, unit)


def _spread(n: int, mean: float | None, parts: Mapping[str, float | None], unit: float) -> Spread:
    """With no percentile that its n cannot carry, whatever the tool printed."""
    kept = {
        part: value * unit
        for part, value in parts.items()
        if value is not None and (part not in SMALLEST_N or n >= SMALLEST_N[part])
    }
    known = mean is not None or bool(kept)
    return Spread(n=n if known else 0, mean=None if mean is None else mean * unit, **kept)


def _streams(found: dict[str, Any], metrics: dict[str, Any]) -> int | None:
    for path in (
        ("config", "strategy", "streams"),
        ("args", "strategy", "streams"),
        ("scheduler", "strategy", "streams"),
    ):
        streams = _int(_find(found, path))
        if streams:
            return streams
    measured = _guide(metrics, "request_concurrency", 1.0, 10**6).mean
    return max(1, round(measured)) if measured else None


def _find(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _int(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else round(number)


def _product(count: int, each: float | None) -> int | None:
    return None if each is None else round(count * each)


def _difference(start: Any, end: Any) -> float | None:
    first, last = _number(start), _number(end)
    return None if first is None or last is None or last <= first else last - first
