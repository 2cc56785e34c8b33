"""The tasks of a level one after another: measured, or extrapolated from a few of them or from rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swarmtui.analysis.levels.speedup import Batch, batch, wall_speedup
from swarmtui.analysis.levels.stats import ratio
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from swarmtui.model.session import Serial


class Rates(NamedTuple):
    """Of one user alone."""

    prompt_tps: float
    decode_tps: float


def serial_rates(plan: Plan) -> Rates | None:
    if plan.serial_prompt_tps is None or plan.serial_decode_tps is None:
        return None
    return Rates(plan.serial_prompt_tps, plan.serial_decode_tps)


def against_serial(
    swarm: Sequence[Record],
    swarm_wall_s: float | None,
    alone: Sequence[Record],
    alone_wall_s: float | None,
    rates: Rates | None,
) -> tuple[Serial, float | None] | None:
    """The baseline with its speed-up, and the token ratio; None where there is nothing to hold the batch against."""
    if not swarm_wall_s or not any(record.ok for record in swarm):
        return None
    together = batch(swarm, swarm_wall_s)
    if rates is not None:
        serial = _from_rates(swarm, rates)
        how = f"extrapolated from {rates.prompt_tps:g} prompt and {rates.decode_tps:g} output tok/s of one user alone"
    else:
        serial = batch(alone, alone_wall_s) if alone_wall_s else None
        how = "measured"
    if serial is None or not serial.tasks:
        return None
    extrapolated = rates is not None or serial.tasks < together.tasks
    if extrapolated and rates is None:
        tasks = "1 task" if serial.tasks == 1 else f"{serial.tasks} tasks"
        how = f"extrapolated from {tasks} of {together.tasks} asked alone"
    found = wall_speedup(serial, together)
    return (
        Serial(
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
