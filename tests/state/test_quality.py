"""Facts about measurement quality that are gathered during a run, and what of them counts at its end."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from swarmtui.model.record import Record
from swarmtui.model.telemetry import Gpu, QualityLine, ServerState, Telemetry
from swarmtui.model.worker_protocol import WorkerFrame
from swarmtui.state.quality import QualityMonitor, TtftSplitWindow
from swarmtui.state.streams import WatchedStreams
from tests.analysis.level_builders import level

SECOND = 1_000_000_000


def sample(at_s: float, gpus: tuple[Gpu, ...] = (), **server: Any) -> Telemetry:
    t_ns = round(at_s * SECOND)
    state = ServerState(engine="vLLM", url="http://here/metrics", **server)
    return Telemetry(t_ns=t_ns, servers_t_ns=t_ns, servers=(state,), gpus=gpus)


def line(lines: tuple[QualityLine, ...], code: str) -> QualityLine:
    return next(found for found in lines if found.code == code)


def test_other_client_that_left_before_the_end_counts_at_the_end() -> None:
    monitor = QualityMonitor(cache="warm")
    for at, total in enumerate([4, 4, 9, 9, 9, 9, 4, 4, 4, 4]):
        monitor.add_sample(sample(at, running=float(total), waiting=0.0), 4)
    now, final = monitor.facts(()), monitor.facts((), ended=True)
    assert (now.other_clients, now.in_flight) == (0.0, 4.0)
    assert (final.other_clients, final.in_flight) == (5.0, 4.0)
    assert line(monitor.lines(()), "other_clients").state == "ok"
    assert line(monitor.final(()).lines, "other_clients").state == "doubtful"


def test_requests_that_ended_after_the_metrics_were_read_are_not_other_clients() -> None:
    monitor = QualityMonitor(cache="warm")
    for at in range(6):
        read = sample(at, running=16.0, waiting=0.0)
        monitor.add_sample(read, 16)
        monitor.add_sample(Telemetry(t_ns=read.t_ns + SECOND // 2, servers_t_ns=read.t_ns, servers=read.servers), 2)
    assert line(monitor.final(()).lines, "other_clients").state == "ok"


def test_cancelled_requests_are_ours_although_our_count_was_still_that_before() -> None:
    """At the end of a level the server is read several times per second, and our own count comes late."""
    monitor = QualityMonitor(cache="warm")
    for at, ours, total in [
        (0.8, 8, 8),
        (1.0, 8, 8),
        (1.2, 8, 8),
        (1.4, 0, 8),
        (1.6, 0, 8),
        (1.8, 0, 8),
        (2.0, 0, 8),
        (2.2, 0, 8),
    ]:
        if at == 1.2:
            for task in range(8):
                cancelled_ns = round(1.1 * SECOND)
                monitor.add_record(Record(task=task, error="cancelled", t_sent_ns=1, t_done_ns=cancelled_ns))
        monitor.add_sample(sample(at, running=float(total), waiting=0.0), ours)
    assert monitor.facts((), ended=True).other_clients == 0.0


def test_cancelled_requests_that_the_server_still_has_are_not_other_clients() -> None:
    """A level ends with eight requests cancelled; the server notices it after three seconds."""
    monitor = QualityMonitor(cache="warm")
    for at, ours, total in [(0, 8, 8), (1, 8, 8), (2, 0, 7), (3, 0, 4), (4, 0, 4), (5, 0, 0), (6, 2, 2), (7, 2, 2)]:
        if at == 2:
            for task in range(8):
                cancelled_ns = round(1.9 * SECOND)
                monitor.add_record(Record(task=task, error="cancelled", t_sent_ns=1, t_done_ns=cancelled_ns))
        monitor.add_sample(sample(at, running=float(total), waiting=0.0), ours)
    assert monitor.facts((), ended=True).other_clients == 0.0
    # A client that comes later is one, and so is one that stays for longer than a cancelled request.
    for at in range(8, 11):
        monitor.add_sample(sample(at, running=5.0, waiting=0.0), 2)
    assert monitor.facts((), ended=True).other_clients == 3.0


def test_another_client_is_seen_beside_cancelled_requests() -> None:
    monitor = QualityMonitor(cache="warm")
    monitor.add_record(Record(task=0, error="cancelled", t_sent_ns=1, t_done_ns=1))
    for at in range(10):
        monitor.add_sample(sample(at, running=5.0, waiting=0.0), 4)
    assert monitor.facts((), ended=True).other_clients == 1.0


def test_cached_share_comes_from_the_server_if_answers_do_not_report_it() -> None:
    monitor = QualityMonitor(cache="cold")
    monitor.add_baseline(sample(0, cache_queries=1000.0, cache_hits=900.0))
    monitor.add_sample(sample(1, cache_queries=2000.0, cache_hits=900.0), 1)
    assert monitor.facts(()).cached_share == 0.0
    assert line(monitor.lines(()), "cold_cache").state == "ok"
    monitor.add_sample(sample(2, cache_queries=3000.0, cache_hits=1700.0), 1)
    assert monitor.facts(()).cached_share == pytest.approx(0.4)
    assert line(monitor.lines(()), "cold_cache").state == "doubtful"


def test_preemptions_before_the_run_do_not_count() -> None:
    monitor = QualityMonitor(cache="warm")
    monitor.add_baseline(sample(0, preemptions=7.0))
    monitor.add_sample(sample(1, preemptions=7.0), 1)
    assert line(monitor.lines(()), "preemptions").state == "ok"
    monitor.add_sample(sample(2, preemptions=9.0), 1)
    assert monitor.facts(()).preemptions == 2.0
    assert line(monitor.lines(()), "preemptions").state == "doubtful"


def test_clocks_set_by_the_user_are_not_throttling() -> None:
    monitor = QualityMonitor(cache="warm")
    monitor.add_record(Record(task=0, t_sent_ns=1, t_done_ns=2))
    card: dict[str, Any] = {"uuid": "GPU-1", "index": 0, "name": "card"}
    for at, reasons in enumerate([("application clocks",)] * 8 + [("thermal",)] * 2):
        monitor.add_sample(Telemetry(t_ns=at * SECOND, gpus=(Gpu(**card, throttle=reasons),)), 1)
    monitor.add_sample(Telemetry(t_ns=10 * SECOND, gpus=(Gpu(**card, throttle=()),)), 0)
    facts = monitor.facts(())
    assert (facts.throttled, facts.throttle) == (0.2, ("thermal",))
    assert line(monitor.lines(()), "throttling").state == "doubtful"


def test_a_share_of_the_first_second_is_no_doubt_yet_but_the_end_judges_what_there_is() -> None:
    """A request follows 20 ms after the one before: much of half a second, and of few requests at all."""
    monitor, start = QualityMonitor(cache="warm"), SECOND
    for task in range(40):
        end = start + SECOND // 4
        monitor.add_record(Record(task=task, t_sent_ns=start, t_done_ns=end, chunks=9, first_coalesced=1))
        start = end + SECOND // 50
        if task == 3:
            early = line(monitor.lines(()), "turnaround")
            assert early.state == "note" and early.early and early.sentence.endswith("; too early to tell")
            assert line(monitor.final(()).lines, "turnaround").state == "doubtful"
    assert line(monitor.lines(()), "turnaround").state == "doubtful"


def test_first_reads_are_judged_live_by_enough_answers() -> None:
    monitor = QualityMonitor(cache="warm")
    made: dict[str, Any] = {"t_sent_ns": 1, "t_first_ns": SECOND, "t_last_ns": 60 * SECOND, "first_coalesced": 3}
    for task in range(64):
        assert all(found.state != "doubtful" for found in monitor.lines(()) if found.code == "first_reads")
        monitor.add_record(Record(task=task, chunks=9, **made))
    assert line(monitor.lines(()), "first_reads").state == "doubtful"


@pytest.mark.parametrize(
    "add_record",
    [QualityMonitor(cache="warm").add_record, TtftSplitWindow().add_record, WatchedStreams().add_record],
    ids=["quality", "ttft split", "watched stream"],
)
def test_memory_does_not_grow_with_the_length_of_answers(add_record: Callable[[Record], None]) -> None:
    tracemalloc.start()
    for task in range(128):
        gaps = tuple(range(1000 + task, 3000 + task))
        add_record(Record(task=task, agent=task, chunks=len(gaps), chunk_us=gaps, text="x" * (20_000 + task)))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 2_000_000


def test_open_loop_has_no_planned_concurrency() -> None:
    closed = level(8, c_held=4.0)
    scheduled = msgspec.structs.replace(closed, rate=2.0, load="open")
    monitor = QualityMonitor(cache="warm")
    assert monitor.facts((closed,)).c == 8 and monitor.facts((scheduled,)).c is None


def frame(t_s: float, cpu_s: float) -> WorkerFrame:
    return WorkerFrame(round(t_s * SECOND), 1, 1, 0, 0, (), 0.0, round(cpu_s * SECOND), 0, 0)


def test_cpu_is_that_of_each_worker_by_itself() -> None:
    """Frames of 24 workers arrive in turn; each has used another CPU time so far."""
    monitor = QualityMonitor(cache="warm")
    for tenth in range(40):
        for worker in range(24):
            monitor.add_frame(worker, frame(tenth / 10 + worker / 1000, worker + 0.2 * tenth / 10))
    assert monitor.cpu == pytest.approx(0.2)
    assert monitor.facts((), ended=True).worker_cpu == pytest.approx(0.2)
    assert monitor.facts(()).worker_cpu == pytest.approx(0.2)


def test_tokens_of_cancelled_requests_are_ours() -> None:
    monitor = QualityMonitor(cache="warm")
    monitor.add_baseline(sample(0, output_tokens=1000.0))
    monitor.add_record(Record(task=0, chunks=50, tokens_out=100, t_sent_ns=1))
    monitor.add_record(Record(task=1, chunks=10, error="cancelled", phase="filler", t_sent_ns=1))
    monitor.add_sample(sample(1, output_tokens=1125.0), 0)
    facts = monitor.facts((), ended=True)
    assert (facts.client_tokens, facts.server_tokens, facts.uncertain_tokens) == (120.0, 125.0, 16.0)
    assert line(monitor.final(()).lines, "token_counts").state == "ok"
    monitor.add_record(Record(task=2, error="timeout", t_sent_ns=1))
    assert monitor.facts((), ended=True).client_tokens is None, "nobody knows how many the server generated"


def test_a_fast_stream_runs_on_until_the_server_notices_that_it_was_cancelled() -> None:
    """200 tok/s: an answer that was cancelled after 10 chunks may have another 100 tokens by then."""
    monitor = QualityMonitor(cache="warm")
    monitor.add_baseline(sample(0, output_tokens=1000.0))
    monitor.add_record(
        Record(task=0, chunks=201, tokens_out=201, first_tokens=1, t_sent_ns=1, t_first_ns=2, t_last_ns=SECOND + 2)
    )
    monitor.add_record(Record(task=1, chunks=10, error="cancelled", t_sent_ns=1))
    monitor.add_sample(sample(1, output_tokens=1310.0), 0)
    assert line(monitor.final(()).lines, "token_counts").state == "ok"
    monitor.add_sample(sample(2, output_tokens=1320.0), 0)
    assert line(monitor.final(()).lines, "token_counts").state == "doubtful"


@pytest.mark.parametrize(
    ("engine", "running", "counted", "state"),
    [
        ("llama.cpp", 0.0, 1400.0, "ok"),
        ("llama.cpp", 0.0, 1380.0, "doubtful"),
        ("llama.cpp", 1.0, 1300.0, "ok"),
        ("llama.cpp", 1.0, 1250.0, "doubtful"),
        ("vLLM", 1.0, 1300.0, "doubtful"),
    ],
)
def test_tokens_of_a_request_are_compared_once_the_server_has_counted_them(
    engine: str, running: float, counted: float, state: str
) -> None:
    """200 tokens of answers, and 100 each of cancelled requests of two stages, of which the second may still run."""
    monitor = QualityMonitor(cache="warm")
    before, after = sample(0, output_tokens=1000.0), sample(1, output_tokens=counted, running=running)
    (server,) = after.servers
    monitor.add_baseline(before)
    monitor.add_record(Record(task=0, chunks=200, tokens_out=200, t_sent_ns=1))
    for stage in (1, 2):
        for task in (1, 2):
            monitor.add_record(Record(task=task, chunks=50, error="cancelled", stage=stage, t_sent_ns=1))
    monitor.add_sample(msgspec.structs.replace(after, servers=(msgspec.structs.replace(server, engine=engine),)), 0)
    assert line(monitor.final(()).lines, "token_counts").state == state


def test_a_line_is_early_until_enough_is_measured_whatever_it_says() -> None:
    """A host that is quiet in the first second may be drowned in the next one: it is not ok yet."""
    monitor = QualityMonitor(cache="warm")
    for at in range(8):
        monitor.add_record(Record(task=at, t_sent_ns=at * SECOND + 1, t_done_ns=(at + 1) * SECOND, chunks=9))
        turnaround = line(monitor.lines(()), "turnaround")
        assert (turnaround.state, turnaround.early) == ("ok", at < 5)
    assert not any(found.early for found in monitor.final(()).lines)
