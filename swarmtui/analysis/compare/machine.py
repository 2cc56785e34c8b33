"""Compare what a machine used and did at a level: energy, memory, parts of TTFT, rates per GPU and per watt."""

from __future__ import annotations

from collections.abc import Callable

from swarmtui.model.plan import PerLevel
from swarmtui.model.session import Level, Speculation, Summary
from swarmtui.model.telemetry import Energy, TtftSplit


class MachineRow(PerLevel, frozen=True, kw_only=True):
    """A figure without values per run, and so without a verdict: energy, memory, parts of TTFT.

    `change` is that of rates per GPU and per watt, unless ratios are refused.
    """

    figure: str
    unit: str
    before: float | None
    after: float | None
    change: float | None = None


def machine_rows(a: Summary, b: Summary, before: Level, after: Level, *, refused: bool) -> list[MachineRow]:
    """Compare one level of two sessions; those per GPU and per watt are first, if the GPUs are not the same."""
    return [*_hardware_rows(a, b, before, after, refused=refused), *_level_rows(before, after)]


_ENERGY: tuple[tuple[str, str, Callable[[Energy], float | None]], ...] = (
    ("energy per token", "J", lambda energy: energy.j_per_token),
    ("GPU power, sum", "W", lambda energy: energy.mean_w),
    ("GPU memory, sum", "GiB", lambda energy: _gib(energy.peak_memory)),
)
_TTFT_PARTS: tuple[tuple[str, Callable[[TtftSplit], float | None]], ...] = (
    ("mean TTFT: queue", lambda split: split.queue_s),
    ("mean TTFT: prefill", lambda split: split.prefill_s),
    ("mean TTFT: rest", lambda split: split.rest_s),
)


# A stream has the product of both: the first depends on the text, the second on the machine.
_SPECULATION: tuple[tuple[str, str, Callable[[Speculation], float | None]], ...] = (
    ("tokens per step", "", lambda found: found.tokens_per_step),
    ("steps/s", "", lambda found: found.steps_per_s),
)


def _gib(count: int | None) -> float | None:
    return None if count is None else count / (1 << 30)


def _hardware_rows(a: Summary, b: Summary, before: Level, after: Level, *, refused: bool) -> list[MachineRow]:
    """Compare rates per GPU and per watt, if the GPUs are not the same."""
    if not a.gpus or not b.gpus or sorted(a.gpus) == sorted(b.gpus):
        return []
    sides = ((a, before), (b, after))
    per_gpu = [one.headline_tps / len(summary.gpus) if one.headline_tps else None for summary, one in sides]
    per_watt = [one.energy.tokens_per_j if one.energy else None for _, one in sides]
    rows = [
        MachineRow(
            c=before.c,
            rate=before.rate,
            figure=name,
            unit="tok/s",
            before=x,
            after=y,
            change=y / x - 1.0 if x and y and not refused else None,
        )
        for name, (x, y) in (("output per GPU", per_gpu), ("output per W", per_watt))
    ]
    return [row for row in rows if row.before is not None or row.after is not None]


def _level_rows(a: Level, b: Level) -> list[MachineRow]:
    rows = [
        MachineRow(
            c=a.c,
            rate=a.rate,
            figure=name,
            unit=unit,
            before=value(a.energy) if a.energy else None,
            after=value(b.energy) if b.energy else None,
        )
        for name, unit, value in _ENERGY
    ]
    # The parts add up to it; the median is another number.
    whole = [level.ttft_split.ttft_s if level.ttft_split else None for level in (a, b)]
    rows.append(MachineRow(c=a.c, rate=a.rate, figure="mean TTFT", unit="s", before=whole[0], after=whole[1]))
    for name, part in _TTFT_PARTS:
        before = part(a.ttft_split) if a.ttft_split else None
        after = part(b.ttft_split) if b.ttft_split else None
        estimated = _estimated(a.ttft_split, before, b.ttft_split, after)
        rows.append(MachineRow(c=a.c, rate=a.rate, figure=name + estimated, unit="s", before=before, after=after))
    for name, unit, figure in _SPECULATION:
        values = [figure(level.speculation) if level.speculation else None for level in (a, b)]
        rows.append(MachineRow(c=a.c, rate=a.rate, figure=name, unit=unit, before=values[0], after=values[1]))
    return [row for row in rows if row.before is not None or row.after is not None]


def _estimated(a: TtftSplit | None, before: float | None, b: TtftSplit | None, after: float | None) -> str:
    """Name the sides whose part is estimated from C=1, because the server does not report it."""
    values = (("A", a, before), ("B", b, after))
    sides = [side for side, split, value in values if split and value is not None and split.estimated]
    return " est." if len(sides) == 2 else f" est. {sides[0]}" if sides else ""
