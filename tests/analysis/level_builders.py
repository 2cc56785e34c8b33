"""Build levels and summaries from the few figures that a test needs; the rest is null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swarmtui.model.base import SCHEMA_VERSION
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.plan import Plan
from swarmtui.model.session import ClientInfo, Level, RateSummary, RunFigures, Session, Spread, Summary


def spread(value: float | None, n: int = 16) -> Spread:
    """Build a spread of equal values."""
    if value is None:
        return Spread(n=0)
    return Spread(n=n, mean=value, min=value, max=value, p50=value if n >= 5 else None)


def run(number: int = 1, **fields: Any) -> RunFigures:
    defaults: dict[str, Any] = {
        "run": number, "n": 16, "ok": 16, "errors": 0, "wall_s": 10.0, "steady_s": 9.0, "c_achieved": None,
        "tokens_out": 1000, "out_tps_wall": None, "out_tps_steady": None, "per_stream_tps": None, "ttft_s": None,
    }  # fmt: skip
    return RunFigures(**(defaults | fields))


def level(
    c: int,
    *,
    tps: float | None = None,
    ttft: float | None = None,
    tpot: float | None = None,
    stream: float | None = None,
    runs: Sequence[float] = (),
    n: int = 16,
    **fields: Any,
) -> Level:
    """Build a level; `runs` are the steady rates of its runs, `tps` is that of the level."""
    defaults: dict[str, Any] = {
        "c": c, "runs": max(1, len(runs)), "n": n, "ok": n, "errors": 0, "unfinished": 0, "error_counts": {},
        "cap_hits": 0, "degenerate": 0, "complete": True, "wall_s": 10.0, "steady_s": 9.0, "c_achieved": float(c),
        "c_held": float(c),
        "token_source": "usage", "tokens_in": 100 * n, "tokens_out": 100 * n, "cached_tokens": 0,
        "out_tps_wall": tps, "out_tps_steady": tps, "prompt_tps": None, "total_tps": None,
        "per_stream_tps": RateSummary(mean=stream), "per_stream_tps_clean": RateSummary(), "ttft_s": spread(ttft, n),
        "ttfo_s": Spread(n=0), "tpot_s": spread(tpot, n), "icl_s": Spread(n=0), "e2e_s": Spread(n=0),
        "longest_stall_s": None, "straggler": None, "contention": None, "rate_speedup": None, "wall_speedup": None,
        "token_ratio": None, "pass_rate": None, "coalesced_chunks": 0.0, "stamp": "kernel", "flags": (),
        "by_run": tuple(run(k, out_tps_steady=rate, ok=4 * c) for k, rate in enumerate(runs or [tps or 0.0], start=1)),
    }  # fmt: skip
    return Level(**(defaults | fields))


def session(name: str = "20261115-014455-3f9a", **fields: Any) -> Session:
    defaults: dict[str, Any] = {
        "id": name,
        "created": "2026-11-15T01:44:55Z",
        "t0_ns": 0,
        "endpoints": (Endpoint(url="http://127.0.0.1:8000", model="qwen3"),),
        "workload": "coding",
        "workload_digest": "0123456789abcdef",
        "workload_spec": {"kind": "prompts"},
        "plan": Plan(),
        "client": ClientInfo(version="0.1.0", python="3.11.7", host="box", cores=2),
    }
    return Session(**(defaults | fields))


def summary(levels: Sequence[Level], name: str = "20261115-014455-3f9a", **fields: Any) -> Summary:
    return Summary(
        schema=SCHEMA_VERSION,
        state="done",
        message="",
        session=session(name, **fields),
        levels=tuple(levels),
        warmup_requests=4,
        events=(),
    )
