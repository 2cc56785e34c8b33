"""A batch of tasks at once against the same tasks one by one, with and without answers cut at the token limit."""

from __future__ import annotations

from collections.abc import Iterable

from swarmtui.analysis.levels.stats import ratio
from swarmtui.model.record import Record
from swarmtui.model.schema import Stored


class Batch(Stored, frozen=True, kw_only=True):
    """`wall_s` is of the whole batch; `capped_s` is the time of its `capped` answers alone, one by one."""

    tasks: int
    wall_s: float
    tokens_out: int | None = None
    capped: int = 0
    capped_s: float = 0.0


class Speedup(Stored, frozen=True, kw_only=True):
    """`token_ratio`: how much of the serial work the swarm did. `clean` is null, with a `reason`, where it must be."""

    raw: float
    clean: float | None
    token_ratio: float | None
    reason: str = ""


def batch(records: Iterable[Record], wall_s: float) -> Batch:
    ok = [record for record in records if record.ok]
    capped = [record.e2e_s or 0.0 for record in ok if record.cap_hit]
    counts = [record.tokens_out for record in ok]
    tokens = None if None in counts else sum(count or 0 for count in counts)
    return Batch(tasks=len(ok), wall_s=wall_s, tokens_out=tokens, capped=len(capped), capped_s=sum(capped))


def wall_speedup(serial: Batch, swarm: Batch) -> Speedup:
    """Raw: wall over wall. Clean: a serial answer that was cut counts as long as the mean of those that were not."""
    per_batch = serial.wall_s * swarm.tasks / serial.tasks
    raw = per_batch / swarm.wall_s
    share = ratio(swarm.tokens_out, serial.tokens_out)
    tokens = None if share is None else share * serial.tasks / swarm.tasks
    if swarm.capped:
        why = f"answers of the swarm were cut too ({swarm.capped}), and its wall is that of its longest"
        return Speedup(raw=raw, clean=None, token_ratio=tokens, reason=why)
    whole = serial.tasks - serial.capped
    if not whole:
        return Speedup(raw=raw, clean=None, token_ratio=tokens, reason="every serial answer was cut")
    clean = (serial.wall_s - serial.capped_s) / whole * swarm.tasks / swarm.wall_s
    return Speedup(raw=raw, clean=clean, token_ratio=tokens)
