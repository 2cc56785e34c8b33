"""The second table: what the GPUs took for each level, and where the time to the first token went."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.cli.render.table import aligned, varied, wrapped
from swarmtui.model.session import Level
from swarmtui.model.telemetry import Energy, TtftSplit
from swarmtui.sessions.export.figures import NOTHING, amount

_NO_ENERGY = Energy(seconds=0.0)
_NO_SPLIT = TtftSplit(ttft_s=0.0)


def machine_table(levels: Sequence[Level]) -> str:
    """Empty when nothing but the client was measured."""
    rows = [_row(level) for level in levels]
    titles = [varied(levels), "GPU W", "J/token", "tokens/J", "GPU GB", "queue s", "prefill s", "rest s"]
    used = [i for i in range(len(titles)) if i == 0 or any(row[i] != NOTHING for row in rows)]
    if len(used) == 1:
        return ""
    table = aligned([titles[i] for i in used], [[row[i] for i in used] for row in rows], right=[True] * len(used))
    notes = []
    if any(level.energy and level.energy.simulated for level in levels):
        notes.append("GPUs are SIMULATED.")
    if any(level.energy and level.energy.joules is not None for level in levels):
        notes.append("W and J: from the GPUs' energy counters, GPUs only. GB: the most that was in use.")
    if any(level.ttft_split for level in levels):
        estimated = any(level.ttft_split and level.ttft_split.estimated for level in levels)
        told = "; est.: from C=1, where the server does not tell." if estimated else "."
        notes.append(f"queue, prefill, rest: the mean TTFT taken apart{told}")
    return "\n".join([*table, "", *(line for note in notes for line in wrapped(note))]) + "\n"


def _row(level: Level) -> list[str]:
    energy, split = level.energy or _NO_ENERGY, level.ttft_split or _NO_SPLIT
    mark = "est. " if split.estimated else ""
    return [
        f"{level.at:g}",
        amount(energy.mean_w),
        amount(energy.j_per_token),
        amount(energy.tokens_per_j),
        NOTHING if energy.peak_memory is None else f"{energy.peak_memory / 1e9:.1f}",
        NOTHING if split.queue_s is None else mark + amount(split.queue_s, 3),
        NOTHING if split.prefill_s is None else mark + amount(split.prefill_s, 3),
        amount(split.rest_s, 3),
    ]
