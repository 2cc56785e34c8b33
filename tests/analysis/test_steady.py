from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.levels.runs import (
    Span,
    SteadyPart,
    in_flight_span,
    in_flight_spans,
    mean_in_flight,
    steady,
    window_at,
)
from swarmtui.model.record import CANCELLED, Record
from tests.analysis.record_builders import BOOT_NS, MS, request


def brute_force(records: list[Record], c: int, until_ns: int | None) -> tuple[Span | None, float, int]:
    """Return the window in which c were in flight, from each interval between two events, and what arrived in it."""
    spans = in_flight_spans(records)
    instants = sorted({time for span in spans for time in span} | ({until_ns} if until_ns is not None else set()))
    at_c = [
        (start, stop)
        for start, stop in pairwise(instants)
        if (until_ns is None or stop <= until_ns) and sum(a <= start and stop <= b for a, b in spans) == c
    ]
    if not at_c:
        return None, 0.0, 0
    first, last = at_c[0][0], at_c[-1][1]
    ok = [record for record in records if record.ok and record.chunks]
    per_chunk = sum(r.tokens_out or 0 for r in ok) / sum(r.chunks for r in ok) if ok else 1.0
    inside = [
        share if record.ok else per_chunk
        for record in records
        for time, share in zip(record.chunk_times_ns(), record.tokens_per_chunk(), strict=True)
        if first < time <= last
    ]
    return (first, last), sum(inside), len(inside)


def steady_at(records: list[Record], c: int) -> SteadyPart | None:
    return steady(records, c, window_at(c, in_flight_spans(records)))


@st.composite
def requests(draw: st.DrawFn) -> Record:
    sent = draw(st.integers(0, 60))
    waits = draw(st.lists(st.integers(0, 12), max_size=12))
    chunks = [sent + sum(waits[: place + 1]) for place in range(len(waits))]
    tokens = len(chunks) + draw(st.integers(0, 20)) if len(chunks) > 1 else len(chunks)
    error = draw(st.sampled_from([None, None, None, "reset"]))
    return request(sent, chunks, tokens=tokens, error=error, t_done_ns=BOOT_NS + (max([sent, *chunks]) + 1) * MS)


@given(st.lists(requests(), max_size=12), st.integers(1, 4), st.none() | st.integers(0, 120))
def test_steady_matches_brute_force(records: list[Record], c: int, until: int | None) -> None:
    until_ns = None if until is None else BOOT_NS + until * MS
    window, tokens, chunks = brute_force(records, c, until_ns)
    assert window_at(c, in_flight_spans(records), until_ns=until_ns) == window
    found = steady(records, c, window)
    if window is None or chunks < 2 * c:
        assert found is None
    else:
        assert found is not None
        assert found.seconds == pytest.approx((window[1] - window[0]) / 1e9, rel=1e-12)
        assert found.tokens == pytest.approx(tokens, abs=1e-6)


def test_a_token_at_the_start_of_the_window_was_made_before_it() -> None:
    records = [request(0, [10, 50, 60, 70, 100]), request(50, [60, 70, 80, 100])]
    found = steady_at(records, 2)
    assert found is not None
    assert (found.seconds, found.tokens) == (0.05, 7.0)


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
    found = steady_at(records, c)
    assert found is not None
    assert (found.seconds, found.tokens) == (0.4, 40.0 * c)


def test_tokens_between_an_end_and_the_next_send_count() -> None:
    """One of two agents pauses from 100 to 101 ms: the token of the other at 100.5 ms is part of the same step."""
    records = [
        request(0, [10, 50, 100]),
        request(101, [110, 150, 200]),
        request(0, [10, 100.5, 200]),
    ]
    found = steady_at(records, 2)
    assert found is not None
    assert (found.seconds, found.tokens) == (0.2, 9.0)


def test_batch_synchronous_server_loses_no_tokens() -> None:
    """All streams get a token every 10 ms; one ends at each step, and is replaced a millisecond later."""
    c, steps = 8, 64
    records = []
    for agent in range(c):
        sent = 0.0
        for end in range(10 * (agent + 1), 10 * steps, 10 * c):
            records.append(request(sent, [at for at in range(10, 10 * steps, 10) if sent < at <= end]))
            sent = end + 1.0
        records.append(request(sent, [at for at in range(10, 10 * steps + 1, 10) if sent < at]))
    found = steady_at(records, c)
    assert found is not None
    assert found.tokens / found.seconds == pytest.approx(100 * c, rel=0.01)


def test_cancelled_request_counts_by_its_chunks() -> None:
    """Answers have four tokens per chunk; the count of a cancelled one is not known."""
    full = request(0, [10, 20, 30, 40], tokens=16, first_tokens=4)
    cut = request(0, [10, 20, 30], tokens=3, error=CANCELLED, t_done_ns=BOOT_NS + 40 * MS)
    assert steady([full, cut], 2, (BOOT_NS, BOOT_NS + 40 * MS)) == SteadyPart(seconds=0.04, tokens=28.0, chunks=7)
    known = msgspec.structs.replace(cut, chunk_tokens=(1, 2, 3))
    assert steady([full, known], 2, (BOOT_NS, BOOT_NS + 40 * MS)) == SteadyPart(seconds=0.04, tokens=22.0, chunks=7)


def test_mean_in_flight_counts_the_overlap() -> None:
    spans = [(0, 100), (50, 200), (90, 110), (300, 400)]
    assert mean_in_flight(spans, (50, 150)) == pytest.approx((50 + 100 + 20) / 100)
    assert mean_in_flight(spans, (50, 50)) is None


def test_last_chunk_is_at_t_last_despite_rounded_offsets() -> None:
    """Offsets are rounded to the microsecond, here beyond t_last; the last tokens still count."""
    record = request(0, [10, 20])
    late = msgspec.structs.replace(record, t_last_ns=BOOT_NS + 20 * MS - 400)
    found = steady_at([late], 1)
    assert found is not None
    assert found.tokens == 2.0


def test_tokens_of_a_chunk_count_at_its_arrival() -> None:
    records = [
        request(0, [10, 60], tokens=40, chunk_tokens=(8, 32)),
        request(50, [70, 90, 95, 100], tokens=4),
    ]
    found = steady_at(records, 2)
    assert found is None, "one chunk is too few"
    single = steady(records, 1, (BOOT_NS, BOOT_NS + 50 * MS))
    assert single is None
    assert steady(records, 1, (BOOT_NS, BOOT_NS + 60 * MS)) == SteadyPart(seconds=0.06, tokens=40.0, chunks=2)


def test_null_when_c_were_never_in_flight() -> None:
    assert steady_at([request(0, [1, 2, 3]), request(10, [11, 12, 13])], 2) is None
    assert steady_at([], 1) is None


def test_tokens_of_a_failed_request_count() -> None:
    good = request(0, [10, 20, 30, 40])
    bad = request(0, [10, 20, 30], error="reset", t_done_ns=BOOT_NS + 40 * MS)
    found = steady_at([good, bad], 2)
    assert found is not None
    assert (found.seconds, found.tokens) == (0.04, 7.0)


def test_unsent_request_was_never_in_flight() -> None:
    assert in_flight_span(request(0, [], t_sent_ns=None, t_done_ns=BOOT_NS, error="connect")) is None
    assert in_flight_span(request(5, [], t_done_ns=BOOT_NS + 9 * MS, error="http_500")) == (
        BOOT_NS + 5 * MS,
        BOOT_NS + 9 * MS,
    )


def test_chunks_read_together_with_the_last_one_count() -> None:
    """Their times are rounded up to a microsecond, past the exact time of the last token, which ends the window."""
    record = request(0, [10, 20, 30, 30], t_last_ns=BOOT_NS + 30 * MS - 311)
    assert record.t_last_ns is not None
    found = steady([record], 0, (BOOT_NS, record.t_last_ns))
    assert found is not None and found.tokens == 4.0
