"""The figures of a record follow from its timestamps, and are null without them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.loadgen.response import Response
from swarmtui.model.record import Record

RECORD = Record(
    task=1,
    t_sent_ns=1_000_000_000,
    t_first_ns=1_200_000_000,
    t_first_content_ns=1_300_000_000,
    t_last_ns=2_200_000_000,
    chunks=11,
    tokens_out=81,
    first_tokens=1,
)


def test_latencies_and_rates_of_a_request() -> None:
    assert RECORD.ok
    assert RECORD.ttft_s == pytest.approx(0.2)
    assert RECORD.ttfo_s == pytest.approx(0.3)
    assert RECORD.e2e_s == pytest.approx(1.2)
    assert RECORD.decode_tps == pytest.approx(80.0)
    assert RECORD.tpot_s == pytest.approx(0.0125)


def test_send_delay_counts_from_the_due_time() -> None:
    assert Record(task=1, t_sched_ns=1_000_000_000, t_sent_ns=1_030_000_000).send_delay_s == pytest.approx(0.03)
    assert Record(task=1, t_sent_ns=1_030_000_000).send_delay_s is None


def test_decode_rate_leaves_out_the_first_chunk() -> None:
    assert msgspec.structs.replace(RECORD, first_tokens=8).decode_tps == pytest.approx(73.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens_out": None},
        {"first_tokens": None},
        {"t_first_ns": None},
        {"t_last_ns": RECORD.t_first_ns},
        {"first_tokens": 81},
        {"chunks": 2, "tokens_out": 2},
        {"chunks": 3, "tokens_out": 3},
        {"coalesced_chunks": 8},
    ],
    ids=[
        "no count",
        "no first count",
        "no first token",
        "one read",
        "one chunk",
        "one gap",
        "two gaps",
        "three reads",
    ],
)
def test_decode_rate_is_null_without_enough_data(changes: dict[str, int | None]) -> None:
    record = msgspec.structs.replace(RECORD, **changes)
    assert record.decode_tps is None
    assert record.tpot_s is None


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({"chunks": 4, "tokens_out": 4}, 3.0),
        ({"chunks": 2, "first_tokens": 40}, 41.0),
        ({"coalesced_chunks": 7}, 80.0),
    ],
    ids=["three gaps", "two large chunks", "four reads"],
)
def test_decode_rate_rests_on_three_tokens_or_reads(changes: dict[str, int], rate: float) -> None:
    assert msgspec.structs.replace(RECORD, **changes).decode_tps == pytest.approx(rate)


@pytest.mark.parametrize(
    ("changes", "tokens", "seconds"),
    [
        ({"tokens_out": 12, "token_source": "usage"}, 11, 1.1),
        ({"tokens_out": 12, "token_source": "engine"}, 11, 1.1),
        ({"tokens_out": 11, "token_source": "usage"}, 10, 1.0),
        ({"tokens_out": 12, "token_source": "tokenize"}, 11, 1.0),
        ({"tokens_out": 12, "token_source": "usage", "t_finish_ns": None}, 11, 1.0),
        ({"tokens_out": 12, "token_source": "usage", "t_finish_ns": 5}, 11, 1.0),
    ],
    ids=["end counted", "by the engine", "all in chunks", "counted from the text", "older record", "impossible time"],
)
def test_end_of_sequence_token_takes_until_the_finish_reason(
    changes: dict[str, Any], tokens: int, seconds: float
) -> None:
    record = msgspec.structs.replace(RECORD, **({"t_finish_ns": 2_300_000_000} | changes))
    assert record.decode_tps == pytest.approx(tokens / seconds)
    assert record.e2e_s == pytest.approx(1.2)


def test_latency_of_a_failed_request_is_null() -> None:
    record = Record(task=1, error="refused")
    assert not record.ok
    assert (record.ttft_s, record.ttfo_s, record.e2e_s, record.decode_tps) == (None, None, None, None)
    assert record.chunk_times_ns() == []


@given(st.integers(0, 1 << 60), st.lists(st.integers(0, 10**10), max_size=200))
def test_chunk_times_round_trip_within_a_microsecond(first: int, gaps: list[int]) -> None:
    answer, t = Response(), first
    for gap in gaps:
        t += gap
        answer.add_output(t, "x", None, "")
    record = Record(task=1, t_first_ns=answer.times[0] if answer.times else None, chunk_us=answer.chunk_us())
    assert len(record.chunk_times_ns()) == len(gaps)
    for kept, exact in zip(record.chunk_times_ns(), answer.times, strict=True):
        assert abs(kept - exact) <= 500
    longest = max(gaps[1:], default=None)
    assert record.longest_gap_us == (None if longest is None else pytest.approx(longest / 1e3, abs=1))


@pytest.mark.parametrize(
    ("record", "shares"),
    [
        (Record(task=1, chunks=3, tokens_out=6, chunk_tokens=(1, 2, 3)), [1.0, 2.0, 3.0]),
        (Record(task=1, chunks=3, tokens_out=9, first_tokens=1), [1.0, 4.0, 4.0]),
        (Record(task=1, chunks=1, tokens_out=9, first_tokens=9), [9.0]),
        (Record(task=1, chunks=2), [0.0, 0.0]),
        (Record(task=1), []),
    ],
)
def test_tokens_per_chunk_add_up(record: Record, shares: list[float]) -> None:
    assert record.tokens_per_chunk() == shares


def test_record_round_trips_through_the_journal() -> None:
    record = msgspec.structs.replace(RECORD, chunk_us=(0, 7), left_out=("a",), text="größer 🐝", chunk_tokens=(1, 80))
    assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record


def test_tokens_of_chunks_add_up_to_those_of_the_answer() -> None:
    assert msgspec.structs.replace(RECORD, chunks=1).tokens_per_chunk() == [81.0]
    assert msgspec.structs.replace(RECORD, chunks=3).tokens_per_chunk() == [1.0, 40.0, 40.0]
    assert msgspec.structs.replace(RECORD, chunks=2, tokens_out=None).tokens_per_chunk() == [0.0, 0.0]
    assert msgspec.structs.replace(RECORD, chunks=2, chunk_tokens=(5, 76)).tokens_per_chunk() == [5.0, 76.0]


@pytest.mark.parametrize(
    ("tokens", "source", "chunks", "miscounted"),
    [
        (60, "usage", 60, False),
        (30, "usage", 60, True),
        (0, "usage", 2, True),
        (0, "usage", 0, False),
        (58, "usage", 62, False),
        (1, "usage", 3, False),
        (30, "chunks", 60, False),
        (120, "engine", 60, False),
        (None, None, 60, False),
    ],
)
def test_an_answer_with_fewer_tokens_than_chunks_is_miscounted(
    tokens: int | None, source: Any, chunks: int, miscounted: bool
) -> None:
    record = Record(task=1, tokens_out=tokens, token_source=source, chunks=chunks)
    assert record.miscounted == miscounted


def test_a_shared_first_timestamp_is_bounded_by_the_gaps_after_it_and_by_what_came_before() -> None:
    shared = Record(
        task=1, t_sent_ns=0, t_headers_ns=100_000_000, t_event_ns=190_000_000, t_first_ns=200_000_000,
        t_last_ns=260_000_000, chunks=9, first_coalesced=2,
    )  # fmt: skip
    assert shared.first_error_s == pytest.approx(0.010)  # two gaps of 10 ms, but the role came 10 ms before
    early = msgspec.structs.replace(shared, t_event_ns=200_000_000 - 20)
    assert early.first_error_s == pytest.approx(0.020)
    assert msgspec.structs.replace(early, chunks=3).first_error_s == pytest.approx(0.100)
    assert msgspec.structs.replace(early, first_coalesced=0).first_error_s == 0.0
    assert Record(task=1).first_error_s is None


def test_answer_that_came_in_one_read_for_the_most_part_has_no_rate() -> None:
    answer = Record(
        task=1, t_sent_ns=0, t_first_ns=100_000_000, t_last_ns=100_030_000, chunks=4, tokens_out=4, first_tokens=1,
        token_source="usage",
    )  # fmt: skip
    assert msgspec.structs.replace(answer, first_coalesced=1).decode_tps == pytest.approx(3 / 30e-6)
    assert msgspec.structs.replace(answer, first_coalesced=2).decode_tps is None
