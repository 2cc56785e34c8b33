"""Compute the steady rate: output tokens per second while exactly C requests were in flight."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum

from swarmtui.model.record import Record
from swarmtui.model.schema import Stored

Span = tuple[int, int]


class Steady(Stored, frozen=True, kw_only=True):
    seconds: float
    tokens: float


def in_flight_span(record: Record) -> Span | None:
    """Return the time from the send to the last token; of a failed request to its end, since it occupied a stream.

    None for a request that was never sent.
    """
    ends = (record.t_last_ns, record.t_done_ns) if record.ok else (record.t_done_ns, record.t_last_ns)
    end = ends[0] if ends[0] is not None else ends[1]
    if record.t_sent_ns is None or end is None or end < record.t_sent_ns:
        return None
    return record.t_sent_ns, end


def steady(finished: Sequence[Record], c: int, until_ns: int | None = None) -> Steady | None:
    """Return the time and tokens; None where C were never in flight together, or for fewer than 2·C chunks.

    `finished` are the requests of one run that ended by themselves, with or without an error; the tokens of failed
    ones are in no rate. Cancelled requests are left out because their tokens are not known: while one was in flight,
    fewer than C count. Other requests may share the server after `until_ns`. The first chunk of a request counts like
    any other.
    """
    spans = (in_flight_span(record) for record in finished)
    bounds = intervals_at(c, [span for span in spans if span is not None], until_ns)
    nanoseconds = sum(bounds[1::2]) - sum(bounds[::2])
    tokens, chunks = _output_within(bounds, (record for record in finished if record.ok))
    if not nanoseconds or chunks < 2 * c:
        return None
    return Steady(seconds=nanoseconds / 1e9, tokens=tokens)


def intervals_at(c: int, spans: Iterable[Span], until_ns: int | None = None) -> list[int]:
    """Return start, end, start, end … of the times at which exactly `c` spans overlap."""
    changes: defaultdict[int, int] = defaultdict(int)
    for start, end in spans:
        changes[start] += 1
        changes[end] -= 1
    bounds: list[int] = []
    level = 0
    for time in sorted(changes):
        before, level = level, level + changes[time]
        if (before == c) != (level == c):
            bounds.append(time)
    if until_ns is not None:
        bounds = [time for time in bounds if time < until_ns]
        if len(bounds) % 2:
            bounds.append(until_ns)
    return bounds


def _output_within(bounds: Sequence[int], records: Iterable[Record]) -> tuple[float, int]:
    """Count tokens and chunks inside; a chunk exactly at a bound belongs to the interval which that bound ends.

    A time is inside where the number of bounds below it is odd.
    """
    tokens: list[float] = []
    chunks = 0
    for record in records:
        times = record.chunk_times_ns()
        if not times:
            continue
        if record.t_last_ns is not None:
            times[-1] = record.t_last_ns
        shares = record.tokens_per_chunk()
        low, high = bisect_left(bounds, times[0]), bisect_left(bounds, times[-1])
        if low == high:
            inside = shares if low % 2 else []
        else:
            inside = [
                share for time, share in zip(times, shares, strict=False) if bisect_left(bounds, time, low, high) % 2
            ]
        tokens.append(fsum(inside))
        chunks += len(inside)
    return fsum(tokens), chunks
