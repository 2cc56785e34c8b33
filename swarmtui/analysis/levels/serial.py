"""The tasks of a level one after another: measured, or extrapolated from a few of them or from rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from swarmtui.analysis.levels.stats import ratio
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from swarmtui.model.schema import Stored
from swarmtui.model.session import SerialBaseline


class Rates(NamedTuple):
    """Of one user alone."""

    prompt_tps: float
    decode_tps: float


def serial_rates(plan: Plan) -> Rates | None:
    if plan.serial_prompt_tps is None or plan.serial_decode_tps is None:
        return None
    return Rates(plan.serial_prompt_tps, plan.serial_decode_tps)


def compare_with_serial(
    swarm: Sequence[Record],
    swarm_wall_s: float | None,
    serial: Sequence[Record],
    serial_wall_s: float | None,
    rates: Rates | None,
) -> tuple[SerialBaseline, float | None] | None:
    """The baseline with its speed-up, and the token ratio; None where there is nothing to hold the batch against."""
    if not swarm_wall_s or not any(record.ok for record in swarm):
        return None
    together = summarise_batch(swarm, swarm_wall_s)
    if rates is not None:
        serial = _from_rates(swarm, rates)
        how = f"extrapolated from {rates.prompt_tps:g} prompt and {rates.decode_tps:g} output tok/s of one user alone"
    else:
        serial = summarise_batch(serial, serial_wall_s) if serial_wall_s else None
        how = "measured"
    if serial is None or not serial.tasks:
        return None
    extrapolated = rates is not None or serial.tasks < together.tasks
    if extrapolated and rates is None:
        tasks = "1 task" if serial.tasks == 1 else f"{serial.tasks} tasks"
        how = f"extrapolated from {tasks} of {together.tasks} asked alone"
    found = wall_speedup(serial, together)
    return (
        SerialBaseline(
            how=how,
            extrapolated=extrapolated,
            tasks=serial.tasks,
            wall_s=serial.wall_s * together.tasks / serial.tasks,
            out_tps=ratio(serial.tokens_out, serial.wall_s),
            speedup=found.raw,
            clean_speedup=found.clean,
            reason=found.reason,
        ),
        None if extrapolated else found.token_ratio,
    )


def _from_rates(swarm: Sequence[Record], rates: Rates) -> Batch | None:
    ok = [record for record in swarm if record.ok]
    if any(record.tokens_in is None or record.tokens_out is None for record in ok):
        return None
    tokens_in, tokens_out = sum(r.tokens_in or 0 for r in ok), sum(r.tokens_out or 0 for r in ok)
    wall_s = tokens_in / rates.prompt_tps + tokens_out / rates.decode_tps
    return Batch(tasks=len(ok), wall_s=wall_s, tokens_out=tokens_out)


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


def summarise_batch(records: Iterable[Record], wall_s: float) -> Batch:
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
