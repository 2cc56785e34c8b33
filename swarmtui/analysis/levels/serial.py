"""Compare a batch of tasks with the same tasks run serially: measured, or extrapolated from a few tasks or rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from swarmtui.analysis.levels.stats import ratio
from swarmtui.model.load import SerialRates
from swarmtui.model.record import Record
from swarmtui.model.session import SerialBaseline
from swarmtui.text import count_noun


class Batch(NamedTuple):
    """Totals of tasks that ran together or serially; `capped_s` is the sum of the e2e times of the `capped` answers."""

    tasks: int
    wall_s: float
    tokens_out: int | None = None
    capped: int = 0
    capped_s: float = 0.0


def compare_with_serial(
    batch: Sequence[Record],
    batch_wall_s: float | None,
    serial_records: Sequence[Record],
    serial_wall_s: float | None,
    rates: SerialRates | None,
) -> tuple[SerialBaseline, float | None] | None:
    """Return the serial baseline with the speed-up, and the token ratio; None without a baseline."""
    if not batch_wall_s or not any(record.ok for record in batch):
        return None
    concurrent = _summarise(batch, batch_wall_s)
    if rates is not None:
        serial = _batch_from_rates(batch, rates)
        how = f"extrapolated from {rates.prompt_tps:g} prompt and {rates.decode_tps:g} output tok/s of a single stream"
        return wall_speedup(serial, concurrent, how) if serial else None
    serial = _summarise(serial_records, serial_wall_s) if serial_wall_s else None
    if serial is None or not serial.tasks:
        return None
    few = f"extrapolated from {count_noun(serial.tasks, 'task')} of {concurrent.tasks} run serially"
    return wall_speedup(serial, concurrent, few if serial.tasks < concurrent.tasks else "measured")


def wall_speedup(serial: Batch, concurrent: Batch, how: str = "measured") -> tuple[SerialBaseline, float | None]:
    """Divide wall time by wall time; for the clean speed-up, a cut serial answer counts as the mean of the uncut ones.

    The second figure is the tokens of the concurrent run / those of the serial run, if that was measured.
    """
    wall_s = serial.wall_s * concurrent.tasks / serial.tasks
    whole, clean, reason = serial.tasks - serial.capped, None, ""
    if concurrent.capped:
        cut = count_noun(concurrent.capped, "answer")
        reason = f"{cut} of the concurrent run hit the token limit too, and the longest answer sets its wall time"
    elif not whole:
        reason = "every serial answer was cut"
    else:
        clean = (serial.wall_s - serial.capped_s) / whole * concurrent.tasks / concurrent.wall_s
    share = ratio(concurrent.tokens_out, serial.tokens_out)
    extrapolated = how != "measured"
    baseline = SerialBaseline(
        how=how,
        extrapolated=extrapolated,
        tasks=serial.tasks,
        wall_s=wall_s,
        out_tps=ratio(serial.tokens_out, serial.wall_s),
        speedup=wall_s / concurrent.wall_s,
        clean_speedup=clean,
        reason=reason,
    )
    return baseline, None if share is None or extrapolated else share * serial.tasks / concurrent.tasks


def _summarise(records: Iterable[Record], wall_s: float) -> Batch:
    ok = [record for record in records if record.ok]
    capped = [record.e2e_s or 0.0 for record in ok if record.cap_hit]
    counts = [record.tokens_out for record in ok]
    tokens = None if None in counts else sum(count or 0 for count in counts)
    return Batch(len(ok), wall_s, tokens, len(capped), sum(capped))


def _batch_from_rates(batch: Sequence[Record], rates: SerialRates) -> Batch | None:
    ok = [record for record in batch if record.ok]
    if any(record.tokens_in is None or record.tokens_out is None for record in ok):
        return None
    tokens_in, tokens_out = sum(r.tokens_in or 0 for r in ok), sum(r.tokens_out or 0 for r in ok)
    return Batch(len(ok), tokens_in / rates.prompt_tps + tokens_out / rates.decode_tps, tokens_out)
