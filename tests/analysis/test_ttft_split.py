"""The parts of TTFT add up, and estimates are marked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.machine.ttft_split import estimate_split, split_by_counters, split_by_timings
from swarmtui.model.record import EngineTimings
from swarmtui.model.telemetry import ServerHistogram, ServerState
from tests.analysis.level_builders import level
from tests.analysis.record_builders import BOOT_NS, MS, request


def seconds(mean: float, n: int = 10) -> ServerHistogram:
    return ServerHistogram(count=n, sum=mean * n)


def test_split_from_queue_and_prefill_histograms() -> None:
    server = ServerState(engine="vLLM", queue=seconds(2.0), prefill=seconds(0.4), ttft=seconds(2.45))
    found = split_by_counters(2.5, None, 10, server)
    assert found is not None and not found.estimated
    assert found.queue_s == pytest.approx(2.0) and found.prefill_s == pytest.approx(0.4)
    assert found.rest_s == pytest.approx(0.1)


def test_split_from_queue_and_ttft_histograms() -> None:
    found = split_by_counters(2.5, None, 10, ServerState(engine="SGLang", queue=seconds(2.0), ttft=seconds(2.3)))
    assert found is not None and found.prefill_s == pytest.approx(0.3) and found.rest_s == pytest.approx(0.2)


def test_split_from_prefill_seconds_counter() -> None:
    found = split_by_counters(1.0, None, 4, ServerState(engine="llama.cpp", prefill_seconds=2.0))
    assert found is not None
    assert (found.queue_s, found.prefill_s, found.rest_s) == (None, 0.5, 0.5)


def test_no_split_without_server_figures() -> None:
    assert split_by_counters(1.0, None, 4, ServerState(engine="TGI")) is None
    assert split_by_counters(1.0, None, 4, None) is None
    assert split_by_counters(None, None, 4, ServerState(engine="vLLM", queue=seconds(1.0))) is None
    assert (
        split_by_counters(1.0, None, 4, ServerState(engine="vLLM", queue=ServerHistogram(count=0.0, sum=0.0))) is None
    )


def test_no_split_when_server_reports_more_time_than_client() -> None:
    assert split_by_counters(1.0, None, 4, ServerState(engine="vLLM", queue=seconds(3.0), prefill=seconds(0.5))) is None


def test_estimate_needs_prompts_of_equal_length() -> None:
    single = level(1, ttft=0.5, n=1, tokens_in=1000)
    found = estimate_split(3.0, 1024.0, single)
    assert found is not None and found.estimated
    assert (found.queue_s, found.prefill_s, found.rest_s) == (2.5, 0.5, None)
    assert estimate_split(3.0, 2048.0, single) is None
    assert estimate_split(3.0, None, single) is None
    assert estimate_split(3.0, 1024.0, level(1, n=1, tokens_in=1000)) is None


@given(st.floats(0.001, 100.0), st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_parts_are_non_negative_and_add_up(ttft: float, queue: float, prefill: float) -> None:
    found = split_by_counters(
        ttft, None, 10, ServerState(engine="vLLM", queue=seconds(queue), prefill=seconds(prefill))
    )
    if found is None:
        assert queue + prefill > ttft
        return
    parts = [part for part in (found.queue_s, found.prefill_s, found.rest_s) if part is not None]
    assert min(parts) >= 0.0 and sum(parts) == pytest.approx(ttft, rel=0.06)


def test_prefill_seconds_are_divided_by_the_server_request_count() -> None:
    """A sample that is early or late counts more or fewer requests than the client."""
    found = split_by_counters(1.0, 100.0, 4, ServerState(engine="llama.cpp", prefill_seconds=2.5, prompt_tokens=500.0))
    assert found is not None and found.prefill_s == pytest.approx(0.5)


@pytest.mark.parametrize(("headers_ms", "queue_s"), [(30, 0.03), (100, None), (95, None)])
def test_split_by_timings_only_where_its_parts_add_up(headers_ms: int, queue_s: float | None) -> None:
    """Headers that come with the first token do not end the queueing."""
    record = request(0, [100, 200], t_headers_ns=BOOT_NS + headers_ms * MS, engine_prefill_s=0.07)
    found = split_by_timings([record])
    assert (found.queue_s if found else None) == queue_s
    assert (found is None) == (queue_s is None)


def test_queue_and_prefill_of_single_requests_replace_estimates() -> None:
    """vLLM sends headers at once: without its own queue time, they would say that nothing waits."""
    told = EngineTimings(queue_s=0.02)
    records = [request(0, [100, 200], t_headers_ns=BOOT_NS + MS, engine_prefill_s=0.07, engine=told) for _ in range(4)]
    found = split_by_timings(records)
    assert found is not None and not found.estimated
    assert found.queue_s == pytest.approx(0.02) and found.prefill_s == pytest.approx(0.07)
    assert found.rest_s == pytest.approx(found.ttft_s - 0.09)


def test_parts_longer_than_the_ttft_are_not_of_this_request() -> None:
    told = EngineTimings(queue_s=0.5)
    record = request(0, [100, 200], t_headers_ns=BOOT_NS + MS, engine_prefill_s=0.1, engine=told)
    assert split_by_timings([record]) is None
