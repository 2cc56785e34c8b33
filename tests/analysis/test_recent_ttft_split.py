"""Split TTFT live and by level, from the requests that ended between two samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from swarmtui.analysis.machine.ttft_split import level_split, recent_split, request_ends, split_by_timings
from swarmtui.model.record import Record
from swarmtui.model.telemetry import ServerHistogram, ServerState, Telemetry
from tests.analysis.level_builders import level, spread
from tests.analysis.record_builders import BOOT_NS, MS, request

SECOND = 1_000


def sample(at_ms: float, ended: Sequence[Record], queue_ms: dict[int, float], prefill_ms: float) -> Telemetry:
    """Build a sample of a server that reports the queue time of each ended request, by its C."""
    done = [r for r in ended if r.t_done_ns is not None and r.t_done_ns <= BOOT_NS + at_ms * MS]
    queue = ServerHistogram(count=len(done), sum=sum(queue_ms[r.c] for r in done) / 1e3)
    prefill = ServerHistogram(count=len(done), sum=len(done) * prefill_ms / 1e3)
    state = ServerState(engine="vLLM", url="http://here", queue=queue, prefill=prefill)
    t_ns = BOOT_NS + round(at_ms * MS)
    return Telemetry(t_ns=t_ns - 400 * MS, servers=(state,), servers_t_ns=t_ns)


def requests_at(c: int, number: int, first_ms: int, count: int, ttft_ms: int, every_ms: int = 250) -> list[Record]:
    """Build requests at regular intervals, each with 2 s of output."""
    starts = [first_ms + every_ms * number for number in range(count)]
    return [request(at, (at + ttft_ms, at + ttft_ms + 2 * SECOND), c=c, stage=number) for at in starts]


def test_level_split_excludes_neighbouring_levels() -> None:
    one, four = requests_at(1, 1, 0, 8, 60), requests_at(4, 2, 5 * SECOND, 8, 560)
    both = one + four
    samples = [sample(at, both, {1: 10.0, 4: 500.0}, 40.0) for at in range(300, 12 * SECOND, SECOND)]
    first, second = (level_split([own], request_ends(both), samples) for own in (one, four))
    assert first is not None and first.queue_s == pytest.approx(0.010) and first.rest_s == pytest.approx(0.010)
    assert second is not None and second.queue_s == pytest.approx(0.500) and second.rest_s == pytest.approx(0.020)
    assert second.ttft_s == pytest.approx(0.560) and not second.estimated


def test_level_split_combines_runs() -> None:
    runs = [requests_at(4, number, 10 * SECOND * number, 6, 560) for number in (1, 2)]
    between = requests_at(1, 9, 15 * SECOND, 4, 60)
    every = runs[0] + between + runs[1]
    samples = [sample(at, every, {1: 10.0, 4: 500.0}, 40.0) for at in range(8 * SECOND, 30 * SECOND, SECOND)]
    found = level_split(runs, request_ends(every), samples)
    assert found is not None and found.queue_s == pytest.approx(0.5) and found.prefill_s == pytest.approx(0.04)


def test_no_split_for_a_level_between_two_samples() -> None:
    short = [request(at, (at + 50, at + 60), c=4) for at in range(100, 500, 50)]
    samples = [sample(at, short, {4: 10.0}, 40.0) for at in (0, 300)]
    assert level_split([short], request_ends(short), samples) is None
    assert level_split([short], request_ends(short), []) is None


def test_recent_split_covers_the_last_seconds_at_this_c() -> None:
    one, eight = requests_at(1, 1, 0, 40, 60), requests_at(8, 2, 13 * SECOND, 20, 1060)
    finished = sorted(one + eight, key=lambda record: record.t_done_ns or 0)
    samples = [sample(at, finished, {1: 10.0, 8: 1_000.0}, 40.0) for at in range(0, 20 * SECOND, SECOND)]
    now = BOOT_NS + 20 * SECOND * MS
    found = recent_split(now, 8, [r for r in finished if (r.t_done_ns or 0) <= now], samples, ())
    assert found is not None and found.queue_s == pytest.approx(1.0) and found.rest_s == pytest.approx(0.02)
    assert recent_split(now, 16, finished, samples, ()) is None


def test_recent_split_of_long_answers() -> None:
    slow = [request(0, (1_060, at), c=8) for at in (30_000, 31_000, 32_000)]
    samples = [sample(at, slow, {8: 1_000.0}, 40.0) for at in range(0, 50 * SECOND, SECOND)]
    found = recent_split(BOOT_NS + 50 * SECOND * MS, 8, slow, samples, ())
    assert found is not None and found.queue_s == pytest.approx(1.0)
    assert recent_split(BOOT_NS + 200 * SECOND * MS, 8, slow, samples, ()) is None


def test_recent_split_is_estimated_without_server_metrics() -> None:
    eight = requests_at(8, 2, 0, 8, 1060)
    now = BOOT_NS + 5 * SECOND * MS
    single = level(1, ttft_s=spread(0.06), tokens_in=160, ok=16)
    found = recent_split(now, 8, eight, (), (single,))
    assert found is not None and found.estimated and found.queue_s == pytest.approx(1.0)
    assert recent_split(now, 8, eight, (), ()) is None


def test_split_by_timings_needs_no_metrics() -> None:
    at: dict[str, Any] = {"t_headers_ns": BOOT_NS + 900 * MS, "engine_prefill_s": 0.15}
    found = split_by_timings([request(0, (1_060, 2_000), **at)] * 4)
    assert found is not None and not found.estimated
    assert (found.queue_s, found.prefill_s) == (0.9, 0.15) and found.rest_s == pytest.approx(0.01)


def test_early_headers_give_no_queue_time() -> None:
    at: dict[str, Any] = {"t_headers_ns": BOOT_NS + 2 * MS, "engine_prefill_s": 0.15}
    found = split_by_timings([request(0, (1_060, 2_000), **at)] * 4)
    assert found is not None and found.queue_s is None and found.rest_s == pytest.approx(0.91)
