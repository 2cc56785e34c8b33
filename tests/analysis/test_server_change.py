"""Between two looks at a server: differences, percentiles of what was new, and restarts found out."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.server_change import change, fell_back, mean_between, percentile_between
from swarmtui.model.telemetry import Bucket, ServerHistogram, ServerState

BOUNDS = (0.1, 0.5, 1.0, 5.0)


def observed(*values: float) -> ServerHistogram:
    """Cumulative, as a server keeps it."""
    ranks = [bisect_left(BOUNDS, value) for value in values]
    buckets = tuple(Bucket(le=le, count=float(sum(r <= i for r in ranks))) for i, le in enumerate(BOUNDS))
    return ServerHistogram(count=float(len(values)), sum=sum(values), buckets=buckets)


def test_only_what_is_new_counts() -> None:
    before, after = observed(4.0, 4.0, 4.0), observed(4.0, 4.0, 4.0, 0.2, 0.4)
    assert mean_between(before, after) == pytest.approx(0.3)
    assert percentile_between(before, after, 0.5) == pytest.approx(0.3), "the middle of the bucket from 0.1 to 0.5"
    assert percentile_between(before, before, 0.5) is None
    assert mean_between(before, before) is None


def test_above_all_bounds_the_highest_is_given() -> None:
    assert percentile_between(None, observed(9.0, 9.0), 0.9) == 5.0


def test_a_histogram_that_fell_back_has_no_difference() -> None:
    assert percentile_between(observed(1.0, 2.0), observed(1.0), 0.5) is None
    assert mean_between(observed(1.0, 2.0), observed(1.0)) is None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0.0, 4.9), max_size=20),
    st.lists(st.floats(0.0, 4.9), min_size=1, max_size=20),
    st.floats(0.01, 1.0),
)
def test_a_percentile_lies_in_the_bucket_of_the_true_one(old: list[float], new: list[float], q: float) -> None:
    found = percentile_between(observed(*old), observed(*old, *new), q)
    rank = max(1, -int(-q * len(new) // 1))
    bucket = bisect_left(BOUNDS, sorted(new)[rank - 1])
    assert found is not None
    low = 0.0 if bucket == 0 else BOUNDS[bucket - 1]
    assert low - 1e-9 <= found <= BOUNDS[bucket] + 1e-9


def state(url: str, tokens: float, finished: float, running: float | None = None) -> ServerState:
    return ServerState(engine="vLLM", url=url, output_tokens=tokens, finished=finished, running=running)


def test_replicas_are_compared_each_with_itself() -> None:
    before = (state("a", 100.0, 1.0), state("b", 9000.0, 50.0))
    after = (state("b", 9010.0, 51.0, running=2.0), state("a", 150.0, 2.0, running=1.0))
    found = change(before, after)
    assert found is not None and not found.restarted
    assert (found.state.output_tokens, found.state.finished, found.state.running) == (60.0, 2.0, 3.0)
    assert found.state.prompt_tokens is None


def test_a_restart_is_found_and_gives_no_differences() -> None:
    before, after = state("a", 100.0, 5.0), state("a", 20.0, 5.0)
    assert fell_back(before, after) and not fell_back(after, before)
    found = change((before,), (after,))
    assert found is not None and found.restarted and found.state.output_tokens is None


def test_servers_never_seen_together_have_no_change() -> None:
    assert change((state("a", 1.0, 1.0),), (state("b", 2.0, 2.0),)) is None
    assert change((), ()) is None


def test_histograms_of_replicas_are_added() -> None:
    old = (
        ServerState(engine="vLLM", url="a", ttft=observed(1.0)),
        ServerState(engine="vLLM", url="b", ttft=observed()),
    )
    new = (
        ServerState(engine="vLLM", url="a", ttft=observed(1.0, 0.2)),
        ServerState(engine="vLLM", url="b", ttft=observed(0.3)),
    )
    found = change(old, new)
    assert found is not None and found.state.ttft is not None
    assert found.state.ttft.count == 2.0 and found.state.ttft.sum == pytest.approx(0.5)
