"""What the machine says, beside each level: energy from its counters, and where the time to the first token went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from swarmtui.analysis.levels.runs import runs_by_level
from swarmtui.analysis.machine.energy import energy_used
from swarmtui.analysis.machine.ttft_split import estimate_split, level_split, request_ends
from swarmtui.model.record import Record
from swarmtui.model.session import Level, StageEnd, StageStart
from swarmtui.model.telemetry import Telemetry, TtftSplit


def add_machine_figures(
    levels: Sequence[Level],
    stretches: Sequence[StageStart],
    ends: Sequence[StageEnd],
    telemetry: Sequence[Telemetry],
    records: Sequence[Record],
) -> tuple[Level, ...]:
    begun, ended = {start.number: start.t_ns for start in stretches}, {end.number: end.t_ns for end in ends}
    # What a level's tokens are not counted in, its joules are not either: a pause, or C on the way to another.
    runs = runs_by_level(records, stretches, ends)
    alone = next((level for level in levels if level.c == 1), None)
    looks = sorted((seen for seen in telemetry if seen.servers), key=lambda seen: seen.servers_read_ns)
    by_stretch: defaultdict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_stretch[record.stage].append(record)
    all_ends = request_ends(records) if looks else []
    done = []
    for level in levels:
        made_of = [run.stretch for run in runs.get(level.key, ()) if run.finished]
        own = [number for number in made_of if number in begun and number in ended]
        spans = [(begun[number], ended[number]) for number in own]
        # Of a run that was cut nobody knows when it ended, so that its tokens have no joules.
        tokens = level.tokens_out if own == made_of else None
        parts = level_split([by_stretch[number] for number in own], all_ends, looks)
        done.append(
            msgspec.structs.replace(
                level,
                energy=energy_used(telemetry, spans, tokens) if telemetry else None,
                ttft_split=parts or _estimate(level, alone),
            )
        )
    return tuple(done)


def _estimate(level: Level, alone: Level | None) -> TtftSplit | None:
    return estimate_split(level.ttft_s.mean, _prompt(level), alone.ttft_s.mean, _prompt(alone)) if alone else None


def _prompt(level: Level) -> float | None:
    return level.tokens_in / level.ok if level.tokens_in is not None and level.ok else None
