"""What a reader should know beside a level's figures, one short sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from swarmtui.model.session import Level

OFF_NOMINAL = 0.05
SHARED_READS = 0.01
LATE_S = 0.002


def flags(level: Level, uncounted: int) -> tuple[str, ...]:
    """`uncounted`: answers whose tokens nobody counted."""
    return tuple(_flags(level, uncounted))


def _flags(level: Level, uncounted: int) -> Iterator[str]:
    if not level.complete:
        yield "incomplete: it ended before all that was planned"
    if level.errors:
        names = ", ".join(f"{name} {count}" for name, count in level.error_counts.items())
        yield f"{level.errors} of {level.n} requests failed: {names}"
    achieved = level.c_achieved if level.load == "closed" else None  # others drain, wait or are not meant to hold C
    if achieved is not None and level.c > 0 and abs(achieved / level.c - 1.0) > OFF_NOMINAL:
        yield f"achieved C {achieved:.3g}, wanted {level.c}"
    if level.cap_hits:
        yield f"{level.cap_hits} of {level.ok} answers were cut at the token limit"
    if level.degenerate:
        yield f"{level.degenerate} of {level.ok} answers are degenerate: empty, repeated, ended at once or miscounted"
    if uncounted:
        yield f"{uncounted} of {level.ok} answers have no token count, and add nothing to the rates"
    if level.token_source == "chunks":
        yield "tokens are counted by chunks (~), the server did not tell"
    if level.token_source == "mixed":
        yield "token counts come from several sources (~)"
    if level.coalesced_chunks is not None and level.coalesced_chunks > SHARED_READS:
        yield f"{100 * level.coalesced_chunks:.3g} % of chunks shared a read, and so another chunk's time stamp"
    if level.lateness_s is not None and (late := level.lateness_s.p99 or level.lateness_s.max or 0.0) > LATE_S:
        yield f"requests were sent up to {1e3 * late:.3g} ms late; latencies count from when they were due"
    if level.stamp == "read":
        yield "time stamps are from the reader, not from the kernel"
    if level.stamp == "mixed":
        yield "some time stamps are from the reader, not from the kernel"
