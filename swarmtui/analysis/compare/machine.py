"""Compare what a machine used and did at a level: energy, memory, parts of TTFT, rates per GPU and per watt."""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.model.plan import PerLevel
from swarmtui.model.session import Level, Summary


class MachineRow(PerLevel, frozen=True, kw_only=True):
    """A figure without values per run, and so without a verdict: energy, memory, parts of TTFT.

    `change` is that of rates per GPU and per watt, unless ratios are refused.
    """

    figure: str
    unit: str
    before: float | None
    after: float | None
    change: float | None = None


class _Figure(NamedTuple):
    """A figure of one session; `estimated` from C=1, because the server does not report it."""

    name: str
    unit: str
    value: float | None
    estimated: bool = False


def machine_rows(a: Summary, b: Summary, before: Level, after: Level, *, refused: bool) -> list[MachineRow]:
    """Compare one level of two sessions; those per GPU and per watt are first, if the GPUs are not the same."""
    rows: list[MachineRow] = []
    if a.gpus and b.gpus and sorted(a.gpus) != sorted(b.gpus):
        both = zip(_per_hardware(before, len(a.gpus)), _per_hardware(after, len(b.gpus)), strict=True)
        rows += [_row(before, x, y, has_change=not refused) for x, y in both]
    rows += [_row(before, x, y) for x, y in zip(_figures(before), _figures(after), strict=True)]
    return [row for row in rows if row.before is not None or row.after is not None]


def _row(level: Level, a: _Figure, b: _Figure, *, has_change: bool = False) -> MachineRow:
    sides = [side for side, figure in (("A", a), ("B", b)) if figure.estimated and figure.value is not None]
    estimated = " est." if len(sides) == 2 else f" est. {sides[0]}" if sides else ""
    change = b.value / a.value - 1.0 if has_change and a.value and b.value else None
    return MachineRow(
        c=level.c, rate=level.rate, figure=a.name + estimated, unit=a.unit, before=a.value, after=b.value, change=change
    )


def _per_hardware(level: Level, gpus: int) -> tuple[_Figure, ...]:
    return (
        _Figure("output per GPU", "tok/s", level.headline_tps / gpus if level.headline_tps else None),
        _Figure("output per W", "tok/s", level.energy.tokens_per_j if level.energy else None),
    )


def _figures(level: Level) -> tuple[_Figure, ...]:
    energy, split, steps = level.energy, level.ttft_split, level.speculation
    memory = energy.peak_memory if energy else None
    estimated = split is not None and split.estimated
    return (
        _Figure("energy per token", "J", energy.j_per_token if energy else None),
        _Figure("GPU power, sum", "W", energy.mean_w if energy else None),
        _Figure("GPU memory, sum", "GiB", None if memory is None else memory / (1 << 30)),
        # The parts add up to it; the median is another number.
        _Figure("mean TTFT", "s", split.ttft_s if split else None),
        _Figure("mean TTFT: queue", "s", split.queue_s if split else None, estimated),
        _Figure("mean TTFT: prefill", "s", split.prefill_s if split else None, estimated),
        _Figure("mean TTFT: rest", "s", split.rest_s if split else None, estimated),
        # A stream has the product of both: the first depends on the text, the second on the machine.
        _Figure("tokens per step", "", steps.tokens_per_step if steps else None),
        _Figure("steps/s", "", steps.steps_per_s if steps else None),
    )
