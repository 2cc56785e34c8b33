"""Build requests and stages for tests; times are in milliseconds since a boot time above zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swarmtui.model.journal import StageEnd, StageStart
from swarmtui.model.record import Record

BOOT_NS = 7_000_000_000_123
MS = 1_000_000


def request(sent: float, chunks: Sequence[float], *, task: int = 0, tokens: int | None = None, **fields: Any) -> Record:
    """Build a request with output at each time of `chunks`: one token per chunk, or `tokens` in all."""
    times = [BOOT_NS + round(at * MS) for at in chunks]
    offsets = [(time - times[0]) // 1000 for time in times]
    defaults: dict[str, Any] = {
        "task": task,
        "stage": 1,
        "c": 1,
        "run": 1,
        "stamp": "kernel",
        "t_sent_ns": BOOT_NS + round(sent * MS),
        "t_first_ns": times[0] if times else None,
        "t_first_content_ns": times[0] if times else None,
        "t_last_ns": times[-1] if times else None,
        "t_done_ns": times[-1] if times else None,
        "chunks": len(times),
        "chunk_us": tuple(b - a for a, b in zip([0, *offsets], offsets, strict=False)),
        "first_tokens": 1 if times else None,
        "tokens_in": 10,
        "tokens_out": len(times) if tokens is None else tokens,
        "token_source": "usage",
    }
    return Record(**(defaults | fields))


def stage(number: int = 1, c: int = 1, run: int = 1, **fields: Any) -> StageStart:
    defaults: dict[str, Any] = {"number": number, "t_ns": BOOT_NS, "c": c, "run": run, "phase": "level"}
    return StageStart(**(defaults | fields))


def end(number: int = 1, *, at: float = 1e9, complete: bool = True) -> StageEnd:
    return StageEnd(number=number, t_ns=BOOT_NS + round(at * MS), complete=complete)
