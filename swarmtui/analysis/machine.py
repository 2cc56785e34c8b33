"""What the machine says, beside each level: energy from its counters, and where the time to the first token went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from swarmtui.analysis.energy import energy
from swarmtui.analysis.ttft_split import ends_of, estimate, of_level
from swarmtui.model.record import Record
from swarmtui.model.session import Level, StretchEnd, StretchStart
from swarmtui.model.telemetry import Telemetry, TtftSplit


def with_machine(
    levels: Sequence[Level],
    stretches: Sequence[StretchStart],
    ends: Sequence[StretchEnd],
    telemetry: Sequence[Telemetry],
    records: Sequence[Record],
) -> tuple[Level, ...]:
    ended = {end.number: end.t_ns for end in ends}
    alone = next((level for level in levels if level.c == 1), None)
    looks = sorted((seen for seen in telemetry if seen.servers), key=lambda seen: seen.asked_ns)
    by_stretch: defaultdict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_stretch[record.stretch].append(record)
    all_ends = ends_of(records) if looks else []
    done = []
    for level in levels:
        own = [s for s in stretches if s.phase == "level" and (s.c, s.rate) == level.key and s.number in ended]
        spans = [(s.t_ns, ended[s.number]) for s in own]
        parts = of_level([by_stretch[s.number] for s in own], all_ends, looks)
        done.append(
            msgspec.structs.replace(
                level,
                energy=energy(telemetry, spans, level.tokens_out) if telemetry else None,
                ttft_split=parts or _estimate(level, alone),
            )
        )
    return tuple(done)


def _estimate(level: Level, alone: Level | None) -> TtftSplit | None:
    return estimate(level.ttft_s.mean, _prompt(level), alone.ttft_s.mean, _prompt(alone)) if alone else None


def _prompt(level: Level) -> float | None:
    return level.tokens_in / level.ok if level.tokens_in is not None and level.ok else None
