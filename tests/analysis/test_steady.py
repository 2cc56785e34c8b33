from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.levels.steady import in_flight_span, intervals_at, steady
from swarmtui.model.record import Record
from tests.analysis.record_builders import BOOT_NS, MS, request


def brute_force(records: list[Record], c: int, until_ns: int | None) -> tuple[int, float, int]:
    """Return nanoseconds, tokens and chunks with c in flight, from each interval between two events."""
    spans = [span for span in map(in_flight_span, records) if span]
    instants = sorted({time for span in spans for time in span} | ({until_ns} if until_ns is not None else set()))
    length, tokens, chunks = 0, 0.0, 0
    for start, stop in pairwise(instants):
        if until_ns is not None and stop > until_ns:
            continue
        if sum(a <= start and stop <= b for a, b in spans) != c:
            continue
        length += stop - start
        for record in records:
            if not record.ok:
                continue
            for time, share in zip(record.chunk_times_ns(), record.tokens_per_chunk(), strict=True):
                if start < time <= stop:
                    tokens, chunks = tokens + share, chunks + 1
    return length, tokens, chunks


@st.composite
def requests(draw: st.DrawFn) -> Record:
    sent = draw(st.integers(0, 60))
    waits = draw(st.lists(st.integers(0, 12), max_size=12))
    chunks = [sent + sum(waits[: place + 1]) for place in range(len(waits))]
    tokens = len(chunks) + draw(st.integers(0, 20)) if len(chunks) > 1 else len(chunks)
    error = draw(st.sampled_from([None, None, None, "reset"]))
    return request(sent, chunks, tokens=tokens, error=error, t_done_ns=BOOT_NS + (max([sent, *chunks]) + 1) * MS)


@settings(max_examples=100, deadline=None)
@given(st.lists(requests(), max_size=12), st.integers(1, 4), st.none() | st.integers(0, 120))
def test_steady_matches_brute_force(records: list[Record], c: int, until: int | None) -> None:
    until_ns = None if until is None else BOOT_NS + until * MS
    length, tokens, chunks = brute_force(records, c, until_ns)
    found = steady(records, c, until_ns)
    if length == 0 or chunks < 2 * c:
        assert found is None
    else:
        assert found is not None
        assert found.seconds == pytest.approx(length / 1e9, rel=1e-12)
        assert found.tokens == pytest.approx(tokens, abs=1e-6)


def test_silent_request_is_in_flight_until_its_timeout() -> None:
    """Its last token came after 64 ms, the idle timeout after 1 s; an answer ends with its last token."""
    silent = request(0, [50, 64], error="idle_timeout", t_done_ns=BOOT_NS + 1000 * MS)
    answered = request(0, [50, 64], t_done_ns=BOOT_NS + 70 * MS)
    assert in_flight_span(silent) == (BOOT_NS, BOOT_NS + 1000 * MS)
    assert in_flight_span(answered) == (BOOT_NS, BOOT_NS + 64 * MS)


@pytest.mark.parametrize("c", [1, 3, 16])
def test_back_to_back_streams_sum_to_their_rates(c: int) -> None:
    """Each request takes 100 ms and has 10 tokens, none waits: 100 tok/s per stream."""
    records = [request(100 * turn, [100 * turn + 10 * k for k in range(1, 11)]) for turn in range(4) for _ in range(c)]
    found = steady(records, c)
    assert found is not None
    assert (found.seconds, found.tokens) == (0.4, 40.0 * c)


def test_gap_between_two_requests_is_not_steady() -> None:
    """One of two agents pauses from 100 to 101 ms; the chunk of the other at 100.5 ms is outside."""
    records = [
        request(0, [10, 50, 100]),
        request(101, [110, 150, 200]),
        request(0, [10, 100.5, 200]),
    ]
    assert intervals_at(2, [span for span in map(in_flight_span, records) if span]) == [
        BOOT_NS,
        BOOT_NS + 100 * MS,
        BOOT_NS + 101 * MS,
        BOOT_NS + 200 * MS,
    ]
    found = steady(records, 2)
    assert found is not None
    assert (found.seconds, found.tokens) == (0.199, 8.0)


def test_last_chunk_is_at_t_last_despite_rounded_offsets() -> None:
    """Offsets are rounded to the microsecond, here beyond t_last; the last tokens still count."""
    record = request(0, [10, 20])
    late = msgspec.structs.replace(record, t_last_ns=BOOT_NS + 20 * MS - 400)
    found = steady([late], 1)
    assert found is not None
    assert found.tokens == 2.0


def test_tokens_of_a_chunk_count_at_its_arrival() -> None:
    records = [
        request(0, [10, 60], tokens=40, chunk_tokens=(8, 32)),
        request(50, [70, 90, 95, 100], tokens=4),
    ]
    found = steady(records, 2)
    assert found is None, "one chunk is too few"
    single = steady(records, 1)
    assert single is not None
    assert (single.seconds, single.tokens) == (0.09, 8 + 4)


def test_null_when_c_were_never_in_flight() -> None:
    assert steady([request(0, [1, 2, 3]), request(10, [11, 12, 13])], 2) is None
    assert steady([], 1) is None


def test_failed_request_occupies_a_stream_but_adds_no_tokens() -> None:
    good = request(0, [10, 20, 30, 40])
    bad = request(0, [10, 20, 30, 40], error="reset")
    found = steady([good, bad], 2)
    assert found is not None
    assert (found.seconds, found.tokens) == (0.04, 4.0)


def test_unsent_request_was_never_in_flight() -> None:
    assert in_flight_span(request(0, [], t_sent_ns=None, t_done_ns=BOOT_NS, error="connect")) is None
    assert in_flight_span(request(5, [], t_done_ns=BOOT_NS + 9 * MS, error="http_500")) == (
        BOOT_NS + 5 * MS,
        BOOT_NS + 9 * MS,
    )
