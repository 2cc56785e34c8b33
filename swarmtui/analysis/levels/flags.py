"""Flag what a reader should know about the figures of a level, each with a stable code and a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from swarmtui.analysis.quality.judge import COALESCED_CHUNKS, IN_FLIGHT
from swarmtui.model.findings import Finding, Findings
from swarmtui.model.session import Event, Level, SerialBaseline, StageStart
from swarmtui.numbers import short, short_percent

SEND_DELAY_S = 0.002

_SERVER_GONE = Finding(code="server_gone", text="the server went away or restarted during this level")


def level_flags(level: Level, uncounted: int) -> Findings:
    """`uncounted` is the number of answers without a token count."""
    return tuple(Finding(code=code, text=text) for code, text in _flags(level, uncounted))


def _flags(level: Level, uncounted: int) -> Iterator[tuple[str, str]]:
    if not level.complete:
        yield "incomplete", "incomplete: it ended before all planned requests were done"
    if level.errors:
        names = ", ".join(f"{name} {count}" for name, count in level.error_counts.items())
        yield "errors", f"{level.errors} of {level.n} requests failed: {names}"
    # Other loads drain, wait or are not meant to hold C.
    achieved = level.c_achieved if level.load == "closed" else None
    if achieved is not None and level.c > 0 and IN_FLIGHT.grade(abs(achieved / level.c - 1.0)) != "ok":
        yield "in_flight", f"mean in flight {short(achieved)}, planned {level.c}"
    if level.cap_hits:
        yield "cap_hits", f"{level.cap_hits} of {level.ok} answers were cut at the token limit"
    if level.degenerate:
        yield (
            "degenerate",
            f"{level.degenerate} of {level.ok} answers are degenerate: empty, repeated, ended at once or miscounted",
        )
    if uncounted:
        yield "uncounted", f"{uncounted} of {level.ok} answers have no token count and are in no rate"
    if level.token_source == "chunks":
        yield "token_source", "tokens are counted by chunks (~): the server did not report them"
    if level.token_source == "mixed":
        yield "token_source", "token counts come from several sources (~)"
    if level.coalesced_chunks is not None and COALESCED_CHUNKS.grade(level.coalesced_chunks) != "ok":
        yield (
            "coalesced_chunks",
            f"{short_percent(level.coalesced_chunks)} of chunks were coalesced: they carry another chunk's time stamp",
        )
    if level.lateness_s is not None and (delay := level.lateness_s.p99 or level.lateness_s.max or 0.0) > SEND_DELAY_S:
        yield "send_delay", f"requests were sent up to {short(1e3 * delay)} ms late; latencies count from the due time"
    if level.stamp == "read":
        yield "read_stamps", "time stamps are from the reader, not from the kernel"
    if level.stamp == "mixed":
        yield "read_stamps", "some time stamps are from the reader, not from the kernel"


def serial_flags(serial: SerialBaseline) -> Findings:
    return (Finding(code="serial_extrapolated", text=f"serial time {serial.how}"),) if serial.extrapolated else ()


def flag_outages(levels: Sequence[Level], stages: Sequence[StageStart], events: Sequence[Event]) -> tuple[Level, ...]:
    """Flag the levels in which the server went away, also those that were repeated afterwards."""
    gone = [event.t_ns for event in events if event.name in ("server_gone", "server_restarted")]
    starts = sorted((stage.t_ns, (stage.c, stage.rate)) for stage in stages)
    hit = {[key for t_ns, key in starts if t_ns <= when][-1] for when in gone if starts and starts[0][0] <= when}
    return tuple(
        msgspec.structs.replace(level, flags=(*level.flags, _SERVER_GONE)) if level.key in hit else level
        for level in levels
    )
