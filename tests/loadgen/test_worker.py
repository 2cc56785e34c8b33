"""The worker at its work: stamps and tokens of a stream, and what is left when nobody listens."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from swarmtui.model.session import RequestEntry
from swarmtui.model.worker_protocol import Ack, StreamRow
from tests.loadgen.driver import DrivenWorker, task
from tests.loadgen.scripted_server import DONE, ROLE, Call, ScriptedServer, delta, hello, usage

# Kernel stamps are wall-clock time translated; so much may the translation be off on a busy machine.
_SLACK_NS = 1_000_000


# stamps and tokens


def test_stamps_are_the_kernels_and_in_order() -> None:
    written: list[int] = []

    def answer(call: Call) -> None:
        call.begin()
        for chunk in (ROLE, *(delta(content=f"word{n}") for n in range(8)), delta("stop"), usage(8), DONE):
            written.append(time.perf_counter_ns())
            call.chunk(chunk)
            time.sleep(0.025)
        call.end()

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
        heard = time.perf_counter_ns()
    assert record.stamp == "kernel"
    stages = [
        record.t_sched_ns, record.t_sent_ns, record.t_headers_ns, record.t_event_ns, record.t_first_ns,
        record.t_last_ns, record.t_done_ns, heard,
    ]  # fmt: skip
    known = [stage for stage in stages if stage is not None]
    assert len(known) == len(stages)
    assert known == sorted(known)
    times = record.chunk_times_ns()
    assert len(times) == record.chunks == 8
    assert times == sorted(times)
    # No chunk can have come before it was written, nor later than the next one was.
    for before, stamp, after in zip(written[1:9], times, written[2:10], strict=True):
        assert before - _SLACK_NS <= stamp <= after + _SLACK_NS


def test_a_chunk_with_only_a_role_does_not_start_the_answer() -> None:
    begun: list[int] = []

    def answer(call: Call) -> None:
        call.begin()
        call.chunk(ROLE)
        time.sleep(0.1)
        begun.append(time.perf_counter_ns())
        call.chunk(delta(reasoning_content="hm"))
        time.sleep(0.02)
        call.chunk(delta(content="yes") + delta("stop") + usage(2) + DONE)
        call.end()

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert record.t_event_ns is not None and record.t_first_ns is not None
    assert record.t_event_ns < begun[0] <= record.t_first_ns + _SLACK_NS
    assert record.t_first_reasoning_ns == record.t_first_ns
    assert record.t_first_content_ns is not None and record.t_first_content_ns >= record.t_first_ns
    assert (record.text, record.reasoning) == ("yes", "hm")


def test_several_tokens_in_a_chunk() -> None:
    def answer(call: Call) -> None:
        call.begin()
        call.chunk(ROLE)
        for _ in range(10):
            call.chunk(delta(content="x" * 32))
            time.sleep(0.01)
        call.chunk(delta("length") + usage(80) + DONE)
        call.end()

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        capped, wanted = worker.run([task(0, max_tokens=80), task(1, max_tokens=80, exact=True)])
    assert (capped.chunks, capped.tokens_out, capped.token_source) == (10, 80, "usage")
    assert capped.first_tokens == 8
    assert capped.t_first_ns is not None and capped.t_last_ns is not None
    assert capped.decode_tps == pytest.approx(72 / ((capped.t_last_ns - capped.t_first_ns) / 1e9))
    assert (capped.cap_hit, wanted.cap_hit) == (True, False)


def test_a_stream_cut_into_bytes_is_read_the_same() -> None:
    def answer(call: Call) -> None:
        call.begin()
        stream = b": hi\r\n\r\n" + ROLE + delta(content="größer ") + delta("stop", content="日本 🐝") + usage(5) + DONE
        for byte in stream.replace(b"\n", b"\r\n"):
            call.chunk(bytes([byte]))
        call.end()

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert (record.error, record.text, record.tokens_out, record.chunks) == (None, "größer 日本 🐝", 5, 2)


def test_an_answer_without_any_text_has_no_first_token() -> None:
    def answer(call: Call) -> None:
        call.stream(ROLE, delta("stop"), usage(1), DONE)

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert (record.error, record.tokens_out, record.ttft_s, record.first_tokens) == (None, 1, None, None)
    assert record.degenerate


def test_text_is_kept_only_when_asked_for_or_when_it_must_be_counted() -> None:
    def answer(call: Call) -> None:
        call.stream(
            ROLE, delta(content="a"), delta("stop", content="b"), *([usage(2)] if call.asked == "count" else [])
        )

    with ScriptedServer(answer) as server, DrivenWorker(server.url, keep_text=False) as worker:
        counted, uncounted = worker.run([task(0, "count"), task(1, "do not")])
    assert (counted.token_source, counted.text) == ("usage", None)
    assert (uncounted.token_source, uncounted.text) == ("chunks", "ab")


# when the conductor dies


def _spooled(path: Path) -> list[int]:
    return [msgspec.json.decode(line, type=RequestEntry).record.task for line in path.read_bytes().splitlines()]


def test_what_was_not_acknowledged_is_spooled(tmp_path: Path) -> None:
    spool = tmp_path / "spool.jsonl"
    with ScriptedServer(hello) as server, DrivenWorker(server.url, spool=str(spool)) as worker:
        worker.enqueue(task(n) for n in range(5))
        worker.streams(1)
        finished = worker.finished(5)
        worker.say(Ack(finished[2].number))
        worker.abandon()
    assert _spooled(spool) == [3, 4]
    assert spool.stat().st_mode & 0o777 == 0o600


def test_nothing_is_spooled_when_all_is_acknowledged(tmp_path: Path) -> None:
    spool = tmp_path / "spool.jsonl"
    with ScriptedServer(hello) as server, DrivenWorker(server.url, spool=str(spool)) as worker:
        worker.enqueue(task(n) for n in range(2))
        worker.streams(1)
        worker.say(Ack(worker.finished(2)[-1].number))
        worker.abandon()
    assert not spool.exists()


def test_each_record_is_spooled_once_when_the_conductor_had_stopped_reading(tmp_path: Path) -> None:
    """The pipe is full, so that writing to it fails as well as reading."""
    spool, count = tmp_path / "spool.jsonl", 300

    def answer(call: Call) -> None:
        call.stream(ROLE, delta("stop", content="x" * 4096), usage(1), DONE)

    with ScriptedServer(answer) as server, DrivenWorker(server.url, spool=str(spool)) as worker:
        worker.enqueue(task(n) for n in range(count))
        worker.streams(4)
        while len(server.seen) < count:
            time.sleep(0.01)
        worker.abandon()
    tasks = _spooled(spool)
    assert len(tasks) == len(set(tasks)) >= count - 4


def test_the_worker_process_loads_nothing_that_it_does_not_need() -> None:
    heavy = ("textual", "scipy", "numpy", "plotext", "asyncio", "httpx2", "httpx", "click")
    code = f"import sys, swarmtui.loadgen.worker; sys.exit(' '.join(m for m in {heavy!r} if m in sys.modules) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


def test_windows_add_up_to_the_chunks_of_the_stream() -> None:
    def answer(call: Call) -> None:
        call.begin()
        call.chunk(ROLE)
        for n in range(30):
            call.chunk(delta(content=f"w{n}"))
            time.sleep(0.01)
        gate.wait(10)
        call.chunk(delta("stop") + DONE)
        call.end()

    gate = threading.Event()
    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(0)])
        worker.streams(1)
        rows: list[StreamRow] = []
        while not rows or rows[-1].total < 30:
            rows += worker.frame(lambda frame: bool(frame.rows)).rows
        gate.set()
        worker.records(1)
    assert sum(row.chunks for row in rows) == 30
    assert len([row for row in rows if row.chunks]) > 1
