"""Flag what a reader should know about the figures of a level, each with a stable code and a sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from swarmtui.analysis.capacity.scaling import piles_up
from swarmtui.analysis.quality.facts import send_delay_share
from swarmtui.analysis.quality.quality_limits import (
    COALESCED_CHUNKS,
    FIRST_COALESCED,
    FIRST_ERROR,
    IN_FLIGHT,
    MISCOUNTED,
    SEND_DELAY,
)
from swarmtui.model.findings import Finding, Findings
from swarmtui.model.journal import StageStart
from swarmtui.model.load import traits
from swarmtui.model.plan import LevelKey
from swarmtui.model.session import Event, Level
from swarmtui.numbers import short, short_percent
from swarmtui.text import count_noun, name_errors

# Steady excludes ramp-up and drain, so it is below wall only by chance, with few answers.
_STEADY_SHARE = 0.95
# A level does not fit those beside it if its throughput is off by more than this factor.
_MISFIT = 1.5

# What events say about the level in which they are.
# Errors of requests whose server went away.
_CONNECTION = ("closed_early", "refused", "reset")
_EVENT_FLAGS = {
    "server_gone": "the server went away or restarted during this level",
    "host_silent": "a host did not answer for a second or longer: its streams may have lacked tasks",
    "cancel_ignored": "the server went on with requests that were cancelled when this level ended: later levels wait "
    "for answers",
    "precision_missed": "the precision was not reached within 16C requests",
}


def level_flags(level: Level, uncounted: int, unmeasured_errors: int, *, synchronised: bool = False) -> Findings:
    """`uncounted` answers have no token count, `unmeasured_errors` are failed pre-roll requests and fillers."""
    flags = _flags(level, uncounted, unmeasured_errors, synchronised)
    return tuple(Finding(code=code, text=text) for code, text in flags)


def _flags(level: Level, uncounted: int, unmeasured_errors: int, synchronised: bool) -> Iterator[tuple[str, str]]:
    if not level.complete:
        yield "incomplete", f"incomplete: it ended early, after {count_noun(level.n, 'request')}"
    if level.errors:
        unmeasured = f" ({unmeasured_errors} unmeasured: pre-roll or fillers)" if unmeasured_errors else ""
        kinds = name_errors(level.error_counts)
        yield "errors", f"{level.errors} of {level.attempts} requests failed{unmeasured}: {kinds}"
    if level.c_held is not None and IN_FLIGHT.grade(1.0 - level.c_held / level.c) != "ok":
        yield "c_held", f"C held {short(level.c_held)}, planned {level.c}"
    if level.headline_is_steady and (level.out_tps_steady or 0.0) < _STEADY_SHARE * (level.out_tps_wall or 0.0):
        yield "steady_below_wall", "steady is below wall: too few requests for the time at C to represent the level"
    if level.cap_hits:
        yield "cap_hits", f"{level.cap_hits} of {level.ok} finished answers were cut at the token limit"
    if level.degenerate:
        yield "degenerate", f"{level.degenerate} of {level.ok} answers were empty or made no sense"
    if uncounted:
        yield "uncounted", f"{uncounted} of {level.ok} answers have no token count and are in no rate"
    if level.token_source == "chunks":
        yield "token_source", "tokens are counted by chunks (~): the server did not report them"
    if level.token_source == "mixed":
        yield "token_source", "token counts come from several sources (~)"
    if level.coalesced_chunks is not None and COALESCED_CHUNKS.grade(level.coalesced_chunks) == "doubtful":
        yield (
            "coalesced_chunks",
            f"{short_percent(level.coalesced_chunks)} of chunks arrived together with another one: gaps are inexact",
        )
    late_s = level.first_error_s or 0.0
    share = level.first_coalesced or 0.0
    if FIRST_COALESCED.grade(share) != "ok" and late_s > FIRST_ERROR.note * (level.ttft_s.mean or 0.0):
        yield (
            "first_reads",
            f"{short_percent(share)} of first tokens share their timestamp with later ones:"
            f" TTFT may be {short(1e3 * late_s)} ms too long",
        )
    if MISCOUNTED.grade(level.miscounted / max(1, level.ok)) == "doubtful":
        yield "miscounted", f"{level.miscounted} of {level.ok} answers have fewer tokens, by usage, than chunks of text"
    if (delay := send_delay_share(level)) is not None and SEND_DELAY.grade(delay) != "ok":
        yield "send_delay", f"requests were sent late: the delay is {short_percent(delay)} of their TTFT"
    if piles_up(level):
        yield "overloaded", "overloaded: requests pile up, so TTFT and e2e grow with the length of the run"
    if level.stamp == "read":
        yield "read_stamps", "timestamps are from the reader, not from the kernel"
    if level.stamp == "mixed":
        yield "read_stamps", "some timestamps are from the reader, not from the kernel"
    if synchronised:
        yield (
            "synchronised",
            "synchronised: streams keep in step, so that TTFT and stream depend on how they started, and the "
            "half-width is not known; lengths that vary, or a longer run, separate them",
        )


def flag_misfits(levels: Sequence[Level]) -> tuple[Level, ...]:
    """Flag the levels whose throughput does not fit that of the levels on both sides.

    One may be the highest of all, but not by more than its additional streams can bring; none is a valley.
    """
    rated = [x for x in levels if x.headline_tps and x.has_complete_run and x.n >= x.c and traits(x.load).holds_c]
    ordered = sorted(rated, key=lambda level: level.c)
    neighbours = zip(ordered, ordered[1:], ordered[2:], strict=False)
    return _with_flags(levels, {three[1].key: flag for three in neighbours if (flag := _misfit(*three))})


def _misfit(below: Level, level: Level, above: Level) -> Findings:
    lower, here, upper = (x.headline_tps or 0.0 for x in (below, level, above))
    is_peak = here > _MISFIT * max(lower * level.c / below.c, upper)
    is_valley = _MISFIT * here < min(lower, upper)
    if not (is_peak or is_valley):
        return ()
    times = [f"{short(here / tps, 2)} times those of {of.name}" for tps, of in ((lower, below), (upper, above))]
    text = f"does not fit the levels beside it: its tok/s are {' and '.join(times)}; measure it again"
    return (Finding(code="misfit", text=text),)


def flag_outages(levels: Sequence[Level], stages: Sequence[StageStart], events: Sequence[Event]) -> tuple[Level, ...]:
    """Flag the levels by what happened in them, also those that were repeated after a server or host was away."""
    starts = sorted((stage.t_ns, (stage.c, stage.rate)) for stage in stages)
    hit: defaultdict[LevelKey, dict[str, None]] = defaultdict(dict)
    for event in events:
        begun = [key for t_ns, key in starts if t_ns <= event.t_ns]
        name = "server_gone" if event.name == "server_restarted" else event.name
        if begun and name in _EVENT_FLAGS:
            hit[begun[-1]][name] = None
    flags = {key: [Finding(code=name, text=_EVENT_FLAGS[name]) for name in names] for key, names in hit.items()}
    return _with_flags(levels, flags)


def level_without_server(levels: Sequence[Level]) -> int | None:
    """Return the lowest level that ended early because the server was away: its connections were closed or refused.

    The server may be missed at the level after it first.
    """
    if not any(flag.code == "server_gone" for level in levels for flag in level.flags):
        return None
    lost = (
        level.c
        for level in levels
        if not level.has_complete_run
        and 2 * sum(level.error_counts.get(name, 0) for name in _CONNECTION) > max(level.errors, 1)
    )
    return min(lost, default=None)


def _with_flags(levels: Sequence[Level], found: Mapping[LevelKey, Iterable[Finding]]) -> tuple[Level, ...]:
    return tuple(
        msgspec.structs.replace(level, flags=(*level.flags, *found[level.key])) if level.key in found else level
        for level in levels
    )
