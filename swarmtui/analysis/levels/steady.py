"""Compute the steady rate: all output tokens per second while C requests were in flight; and whether C was held."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
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
    ends = (record.t_end_ns, record.t_done_ns) if record.ok else (record.t_done_ns, record.t_last_ns)
    end = ends[0] if ends[0] is not None else ends[1]
    if record.t_sent_ns is None or end is None or end < record.t_sent_ns:
        return None
    return record.t_sent_ns, end


def in_flight_spans(records: Iterable[Record]) -> list[Span]:
    return [span for span in map(in_flight_span, records) if span is not None]


def window_at(c: int, spans: Iterable[Span], since_ns: int | None = None, until_ns: int | None = None) -> Span | None:
    """Return the first and the last moment at which exactly `c` spans overlap; None if they never do.

    Moments in between at which one has ended and the next has not begun stay inside: on a server that decodes all
    streams in one step, the tokens of the others arrive just then.
    """
    changes: defaultdict[int, int] = defaultdict(int)
    for start, end in spans:
        changes[start] += 1
        changes[end] -= 1
    window: Span | None = None
    level = 0
    for time, following in pairwise(sorted(changes)):
        level += changes[time]
        start = time if since_ns is None else max(time, since_ns)
        end = following if until_ns is None else min(following, until_ns)
        if level == c and start < end:
            window = (window[0] if window else start, end)
    return window


def mean_in_flight(spans: Iterable[Span], window: Span) -> float | None:
    """Return Σ overlap of the spans with the window / its length."""
    first, last = window
    if last <= first:
        return None
    return sum(max(0, min(end, last) - max(start, first)) for start, end in spans) / (last - first)


def steady(records: Sequence[Record], c: int, window: Span | None) -> Steady | None:
    """Return the time of the window and the tokens that arrived in it; None for fewer than 2·C chunks.

    The tokens of all requests count, of whatever phase, also of cancelled and failed ones: these are estimated by
    their chunks and the tokens per chunk of the others. A chunk exactly at the start of the window is outside.
    """
    if window is None or window[1] <= window[0]:
        return None
    counted = [record for record in records if record.ok and record.tokens_out is not None and record.chunks]
    chunks_counted = sum(record.chunks for record in counted)
    tokens_per_chunk = sum(record.tokens_out or 0 for record in counted) / chunks_counted if chunks_counted else 1.0
    tokens: list[float] = []
    chunks = 0
    for record in records:
        times = record.chunk_times_ns()
        if not times or times[0] > window[1]:
            continue
        if record.t_last_ns is not None:
            times[-1] = record.t_last_ns
        first, last = (bisect_right(times, bound) for bound in window)
        estimated = not record.ok and record.chunk_tokens is None
        shares = [tokens_per_chunk] * len(times) if estimated else record.tokens_per_chunk()
        tokens += shares[first:last]
        chunks += last - first
    if chunks < 2 * c:
        return None
    return Steady(seconds=(window[1] - window[0]) / 1e9, tokens=fsum(tokens))
