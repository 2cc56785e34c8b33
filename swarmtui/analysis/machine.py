"""What the machine says, beside each level: energy from its counters, and where the time to the first token went."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from swarmtui.analysis.energy import Span, energy
from swarmtui.analysis.server_change import change
from swarmtui.analysis.ttft_split import estimate, split
from swarmtui.model.session import Level, StretchEnd, StretchStart
from swarmtui.model.telemetry import ServerState, Telemetry, TtftSplit


def with_machine(
    levels: Sequence[Level],
    stretches: Sequence[StretchStart],
    ends: Sequence[StretchEnd],
    telemetry: Sequence[Telemetry],
) -> tuple[Level, ...]:
    ended = {end.number: end.t_ns for end in ends}
    alone = next((level for level in levels if level.c == 1), None)
    done = []
    for level in levels:
        spans = [
            (s.t_ns, ended[s.number]) for s in stretches if s.phase == "level" and s.c == level.c and s.number in ended
        ]
        done.append(
            msgspec.structs.replace(
                level,
                energy=energy(telemetry, spans, level.tokens_out) if telemetry else None,
                ttft_split=_split(level, alone, spans, telemetry),
            )
        )
    return tuple(done)


def _split(
    level: Level, alone: Level | None, spans: Sequence[Span], telemetry: Sequence[Telemetry]
) -> TtftSplit | None:
    found = split(level.ttft_s.mean, level.ok, _grown(spans, telemetry))
    if found is not None or alone is None:
        return found
    return estimate(level.ttft_s.mean, _prompt(level), alone.ttft_s.mean, _prompt(alone))


def _grown(spans: Sequence[Span], telemetry: Sequence[Telemetry]) -> ServerState | None:
    """What servers counted during a level: only where it is one span, with a look shortly before and behind it."""
    if len(spans) != 1:
        return None
    start, end = spans[0]
    before = [seen for seen in telemetry if seen.servers and seen.t_ns <= start]
    behind = [seen for seen in telemetry if seen.servers and seen.t_ns >= end]
    if not before or not behind:
        return None
    found = change(before[-1].servers, behind[0].servers)
    return found.state if found is not None and not found.restarted else None


def _prompt(level: Level) -> float | None:
    return level.tokens_in / level.ok if level.tokens_in is not None and level.ok else None
