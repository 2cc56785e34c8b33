"""Render the tables below the levels: GPU energy and memory, the parts of TTFT, load modes and goodput."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.cli.render.table import align_table, load_title, wrap
from swarmtui.model.session import Level, Summary
from swarmtui.model.telemetry import Energy, TtftSplit
from swarmtui.numbers import MISSING, gib, significant
from swarmtui.sessions.export.load_tables import load_tables
from swarmtui.sessions.export.report import goodput_table
from swarmtui.text import sanitize

_NO_ENERGY = Energy(seconds=0.0)
_NO_SPLIT = TtftSplit(ttft_s=0.0)


def machine_table(levels: Sequence[Level]) -> str:
    """GPU figures and the parts of TTFT by level; empty if neither was measured."""
    rows = [_row(level) for level in levels]
    titles = [load_title(levels), "GPU W", "J/token", "tokens/J", "GPU GiB", "queue s", "prefill s", "rest s"]
    used = [i for i in range(len(titles)) if i == 0 or any(row[i] != MISSING for row in rows)]
    if len(used) == 1:
        return ""
    table = align_table([titles[i] for i in used], [[row[i] for i in used] for row in rows], right=[True] * len(used))
    notes = []
    if any(level.energy and level.energy.simulated for level in levels):
        notes.append("GPUs are SIMULATED.")
    if any(level.energy and level.energy.joules is not None for level in levels):
        notes.append("W and J: from the GPUs' energy counters, GPUs only. GiB: peak memory in use.")
    if any(level.energy and level.energy.all_gpus for level in levels):
        notes.append("W, J and GiB are of all GPUs of this host: which of them the server uses is not known.")
    if any(level.ttft_split for level in levels):
        estimated = any(level.ttft_split and level.ttft_split.estimated for level in levels)
        source = "; est.: estimated from C=1, as the server does not report it." if estimated else "."
        notes.append(f"queue, prefill, rest: the parts of the mean TTFT{source}")
    return "\n".join([*table, "", *(line for note in notes for line in wrap(note))]) + "\n"


def _row(level: Level) -> list[str]:
    energy, split = level.energy or _NO_ENERGY, level.ttft_split or _NO_SPLIT
    mark = "est. " if split.estimated else ""
    return [
        f"{level.offered_load:g}",
        significant(energy.mean_w),
        significant(energy.j_per_token),
        significant(energy.tokens_per_j),
        gib(energy.peak_memory),
        MISSING if split.queue_s is None else mark + significant(split.queue_s, 3),
        MISSING if split.prefill_s is None else mark + significant(split.prefill_s, 3),
        significant(split.rest_s, 3),
    ]


def load_text(summary: Summary) -> str:
    """The tables of the load mode and of the SLO; empty for a plain closed loop."""
    parts = []
    for table in (*load_tables(summary), goodput_table(summary)):
        if not table.rows:
            continue
        rows = [[sanitize(cell).replace("|", "¦") for cell in row] for row in table.rows]
        lines = [sanitize(table.title), "", *align_table(list(table.columns), rows, right=list(table.right))]
        lines += ["", *wrap(sanitize(table.note))] if table.note else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n" if parts else ""
