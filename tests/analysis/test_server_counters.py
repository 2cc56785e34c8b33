"""The change of server counters between two samples: differences, new observations, and restarts."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from swarmtui.analysis.machine.server_counters import counter_change, counters_reset, histogram_change, histogram_mean
from swarmtui.model.telemetry import Bucket, ServerHistogram, ServerState

BOUNDS = (0.1, 0.5, 1.0, 5.0)


def observed(*values: float) -> ServerHistogram:
    """Cumulative, as a server keeps it."""
    ranks = [bisect_left(BOUNDS, value) for value in values]
    buckets = tuple(Bucket(le=le, count=float(sum(r <= i for r in ranks))) for i, le in enumerate(BOUNDS))
    return ServerHistogram(count=float(len(values)), sum=sum(values), buckets=buckets)


def test_histogram_change_counts_new_observations() -> None:
    before, after = observed(4.0, 4.0, 4.0), observed(4.0, 4.0, 4.0, 0.2, 0.4)
    assert histogram_mean(histogram_change(before, after)) == pytest.approx(0.3)
    assert histogram_mean(histogram_change(before, before)) is None


def test_reset_histogram_has_no_change() -> None:
    assert histogram_change(observed(1.0, 2.0), observed(1.0)) is None


def state(url: str, tokens: float, finished: float, running: float | None = None) -> ServerState:
    return ServerState(engine="vLLM", url=url, output_tokens=tokens, finished=finished, running=running)


def test_replicas_are_matched_by_url() -> None:
    before = (state("a", 100.0, 1.0), state("b", 9000.0, 50.0))
    after = (state("b", 9010.0, 51.0, running=2.0), state("a", 150.0, 2.0, running=1.0))
    found = counter_change(before, after)
    assert found is not None and not found.restarted
    assert (found.state.output_tokens, found.state.finished, found.state.running) == (60.0, 2.0, 3.0)
    assert found.state.prompt_tokens is None


def test_restart_gives_no_changes() -> None:
    before, after = state("a", 100.0, 5.0), state("a", 20.0, 5.0)
    assert counters_reset(before, after) and not counters_reset(after, before)
    found = counter_change((before,), (after,))
    assert found is not None and found.restarted and found.state.output_tokens is None


def test_no_change_without_a_common_server() -> None:
    assert counter_change((state("a", 1.0, 1.0),), (state("b", 2.0, 2.0),)) is None
    assert counter_change((), ()) is None


def test_histograms_of_replicas_are_summed() -> None:
    old = (
        ServerState(engine="vLLM", url="a", ttft=observed(1.0)),
        ServerState(engine="vLLM", url="b", ttft=observed()),
    )
    new = (
        ServerState(engine="vLLM", url="a", ttft=observed(1.0, 0.2)),
        ServerState(engine="vLLM", url="b", ttft=observed(0.3)),
    )
    found = counter_change(old, new)
    assert found is not None and found.state.ttft is not None
    assert found.state.ttft.count == 2.0 and found.state.ttft.sum == pytest.approx(0.5)
