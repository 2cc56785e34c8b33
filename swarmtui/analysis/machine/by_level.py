"""Add machine figures to levels: energy from the GPU counters, and the split of TTFT."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from swarmtui.analysis.levels.runs import runs_by_level
from swarmtui.analysis.machine.energy import energy_used, server_gpus
from swarmtui.analysis.machine.ttft_split import estimate_split, level_split, request_ends
from swarmtui.model.record import Record
from swarmtui.model.session import Level, StageEnd, StageStart
from swarmtui.model.telemetry import DiscoveredServer, Telemetry, TtftSplit


def add_machine_figures(
    levels: Sequence[Level],
    stages: Sequence[StageStart],
    ends: Sequence[StageEnd],
    telemetry: Sequence[Telemetry],
    records: Sequence[Record],
    servers: Sequence[DiscoveredServer] = (),
) -> tuple[Level, ...]:
    """Add energy and TTFT parts; energy is that of all GPUs if it is not known which of them `servers` use."""
    uuids = server_gpus(telemetry, servers)
    started, ended = {start.number: start.t_ns for start in stages}, {end.number: end.t_ns for end in ends}
    # Stages whose tokens are in no level, such as a pause, add no joules either.
    runs = runs_by_level(records, stages, ends)
    single = next((level for level in levels if level.c == 1), None)
    samples = sorted((sample for sample in telemetry if sample.servers), key=lambda sample: sample.servers_read_ns)
    by_stage: defaultdict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_stage[record.stage].append(record)
    all_ends = request_ends(records) if samples else []
    found = []
    for level in levels:
        counted = [run for run in runs.get(level.key, ()) if run.finished]
        measured = [run.stage for run in counted]
        timed = [number for number in measured if number in started and number in ended]
        spans = [(started[number], ended[number]) for number in timed]
        # A run that was cut has no end time, so that its joules are not known.
        tokens: float | None = level.tokens_out if timed == measured else None
        if level.steady_s and level.out_tps_steady and all(run.has_preroll for run in counted):
            spans = [window for run in counted if (window := run.steady_window) is not None]
            tokens = level.out_tps_steady * level.steady_s
        parts = level_split([by_stage[number] for number in timed], all_ends, samples)
        found.append(
            msgspec.structs.replace(
                level,
                energy=energy_used(telemetry, spans, tokens, uuids) if telemetry else None,
                ttft_split=parts or _estimate(level, single),
            )
        )
    return tuple(found)


def _estimate(level: Level, single: Level | None) -> TtftSplit | None:
    return (
        estimate_split(level.ttft_s.mean, _mean_prompt_tokens(level), single.ttft_s.mean, _mean_prompt_tokens(single))
        if single
        else None
    )


def _mean_prompt_tokens(level: Level) -> float | None:
    return level.tokens_in / level.ok if level.tokens_in is not None and level.ok else None
