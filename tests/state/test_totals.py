"""Totals only grow, and their histogram has each answered request in the bucket of its first token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swarmtui.model.client_protocol import TTFT_BOUNDS, Totals
from swarmtui.model.record import CANCELLED, Record
from swarmtui.state.counts import add_to_totals
from tests.sessions.session_builders import record

S = 1_000_000_000


def total(*records: Record, scheduled: bool = False) -> Totals:
    totals = Totals()
    for one in records:
        totals = add_to_totals(totals, one, scheduled=scheduled)
    return totals


def test_cancelled_requests_are_in_no_count_and_failed_ones_in_no_histogram() -> None:
    found = total(
        record(1, tokens_in=100, tokens_out=20, t_sent_ns=0, t_first_ns=S // 4),
        record(2, error="reset", tokens_in=100, tokens_out=20, t_first_ns=None),
        record(3, error=CANCELLED, tokens_in=100, tokens_out=20, t_first_ns=S),
    )
    assert (found.requests, found.errors, found.tokens_in, found.tokens_out) == (2, {"reset": 1}, 100, 20)
    assert sum(found.ttft_counts) == 1 and found.ttft_sum_s == 0.25
    assert found.ttft_counts[TTFT_BOUNDS.index(0.3)] == 1


def test_a_first_token_at_a_bound_is_in_its_bucket() -> None:
    found = total(record(1, t_sched_ns=None, t_sent_ns=0, t_first_ns=S // 5))
    assert found.ttft_counts[TTFT_BOUNDS.index(0.2)] == 1


def test_scheduled_requests_count_from_when_they_were_due() -> None:
    assert total(record(1, t_sched_ns=0, t_sent_ns=2 * S, t_first_ns=3 * S), scheduled=True).ttft_sum_s == 3.0


@given(st.lists(st.floats(0.0, 300.0)))
def test_every_first_token_is_at_most_the_bound_of_its_bucket(seconds: list[float]) -> None:
    before = Totals()
    for ttft_s in seconds:
        one = record(1, t_sched_ns=None, t_sent_ns=0, t_first_ns=round(ttft_s * S))
        after = add_to_totals(before, one, scheduled=False)
        assert all(new >= old for old, new in zip(before.ttft_counts, after.ttft_counts, strict=True))
        before = after
    rounded = [round(ttft_s * S) / S for ttft_s in seconds]
    for number, bound in enumerate(TTFT_BOUNDS):
        assert sum(before.ttft_counts[: number + 1]) == sum(ttft_s <= bound for ttft_s in rounded)
    assert sum(before.ttft_counts) == len(seconds)
