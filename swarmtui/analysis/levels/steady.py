"""The steady rate: output that came while exactly C requests were in flight, over that time."""

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
    """From sent to the last token; of one that failed to its end, since a silence before a timeout holds its place.

    None for what was never sent.
    """
    ends = (record.t_last_ns, record.t_done_ns) if record.ok else (record.t_done_ns, record.t_last_ns)
    end = ends[0] if ends[0] is not None else ends[1]
    if record.t_sent_ns is None or end is None or end < record.t_sent_ns:
        return None
    return record.t_sent_ns, end


def steady(finished: Sequence[Record], c: int, until_ns: int | None = None) -> Steady | None:
    """None when C were never in flight together, or when fewer than 2·C chunks came in that time.

    `finished` are the requests of one run that ended by themselves, well or not. Tokens of failed ones count in no
    rate. A cancelled request has no place here: its tokens are not known, so the time that it took is left out by
    counting one stream less. After `until_ns` the run was no longer alone on the server.
    The first chunk of a request counts like any other: its tokens were made for it in that time.
    """
    spans = (in_flight_span(record) for record in finished)
    bounds = intervals_at(c, [span for span in spans if span is not None], until_ns)
    nanoseconds = sum(bounds[1::2]) - sum(bounds[::2])
    tokens, chunks = _output_within(bounds, (record for record in finished if record.ok))
    if not nanoseconds or chunks < 2 * c:
        return None
    return Steady(seconds=nanoseconds / 1e9, tokens=tokens)


def intervals_at(c: int, spans: Iterable[Span], until_ns: int | None = None) -> list[int]:
    """Start, end, start, end … of the times in which exactly `c` spans lay over each other."""
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
    """Tokens and chunks inside; a chunk exactly at a bound belongs to the time which that bound closes.

    With so many bounds below a time, it lies inside when their number is odd.
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
