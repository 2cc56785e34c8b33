"""The worker: timestamps and token counts of a stream, and spooling when the session process dies."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import msgspec
import pytest

from swarmtui.loadgen import session_pipe
from swarmtui.loadgen.event_loop import READ, EventLoop
from swarmtui.model.journal import RequestEntry
from swarmtui.model.record import Record, shift_times
from swarmtui.model.worker_protocol import Ack, SpoolTo, StreamRow
from tests.loadgen.driver import DrivenWorker, task
from tests.loadgen.raw_server import DONE, ROLE, WAIT_S, RawCall, RawServer, delta, hello, usage
from tests.loadgen.scripted_reads import ScriptedConnection

# Allowed error of converting the kernel's wall-clock stamps on a busy machine.
_SLACK_NS = 1_000_000


# stamps and tokens


def test_kernel_stamps_are_in_order() -> None:
    written: list[int] = []

    def handler(call: RawCall) -> None:
        call.begin_stream()
        for chunk in (ROLE, *(delta(content=f"word{n}") for n in range(8)), delta("stop"), usage(8), DONE):
            written.append(time.perf_counter_ns())
            call.chunk(chunk)
            time.sleep(0.025)
        call.end_stream()

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
        received = time.perf_counter_ns()
    assert record.stamp == "kernel"
    steps = [
        record.t_sched_ns, record.t_sent_ns, record.t_headers_ns, record.t_event_ns, record.t_first_ns,
        record.t_last_ns, record.t_done_ns, received,
    ]  # fmt: skip
    known = [step for step in steps if step is not None]
    assert len(known) == len(steps)
    assert known == sorted(known)
    times = record.chunk_times_ns()
    assert len(times) == record.chunks == 8
    assert times == sorted(times)
    # A chunk arrives after it was written, and before the next one was.
    for before, stamp, after in zip(written[1:9], times, written[2:10], strict=True):
        assert before - _SLACK_NS <= stamp <= after + _SLACK_NS


def test_a_first_token_that_is_read_late_has_its_own_timestamp_or_says_so() -> None:
    """Tokens arrive while the worker is stopped; the kernel may have merged their packets."""
    written: list[list[int]] = []

    def handler(call: RawCall) -> None:
        call.begin_stream()
        os.kill(worker.pid, signal.SIGSTOP)
        written.append([])
        for event in (ROLE, *(delta(content=f"word{n}") for n in range(4)), delta("stop"), usage(4), DONE):
            written[-1].append(time.perf_counter_ns())
            call.chunk(event)
            time.sleep(0.01)
        call.end_stream()
        os.kill(worker.pid, signal.SIGCONT)

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        records = worker.run([task(n) for n in range(12)])
    for record, (_, first, second, *_) in zip(records, written, strict=True):
        assert record.t_first_ns is not None and record.first_error_s is not None
        if record.first_coalesced:
            assert record.t_first_ns - 1e9 * record.first_error_s <= first + _SLACK_NS
        else:
            assert first - _SLACK_NS <= record.t_first_ns <= second + _SLACK_NS
            assert record.first_error_s == 0.0


def test_what_arrived_together_is_read_event_by_event_until_the_first_output() -> None:
    """Each read has a timestamp of its own if the kernel kept the packets apart."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    events = [b"%x\r\n%s\r\n" % (len(data), data) for data in (ROLE, *(delta(content=f"word{n}") for n in range(4)))]
    got: list[bytes] = []

    class Reader(ScriptedConnection):
        def deliver(self) -> None:
            got.extend(self.kept.take()[0])
            if len(got) == 3:
                self.keep_reads(b"\n\n\r\n")

        def await_arrivals(self) -> None:
            self.kept.on_ready(READ)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        reader = Reader(EventLoop())
        reader.kept.attach(reader, ours.recvmsg)
        theirs.sendall(b"".join((head, *events)))
        assert ours.recv(1 << 16, socket.MSG_PEEK)
        reader.kept.on_ready(READ)
    assert got == [head, events[0], events[1]] and reader.kept[1::2] == [b"".join(events[2:])]


def test_much_that_arrives_at_once_is_complete() -> None:
    """More arrives while the worker is stopped than it reads at a time."""
    streams, texts = 64, [f"{n} " * 2500 for n in range(8)]
    events = [delta(content=text) for text in texts]
    connected, sent, stopped = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    def handler(call: RawCall) -> None:
        call.begin_stream()
        connected.release()
        assert stopped.wait(WAIT_S)
        call.send(b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events))
        sent.release()
        for event in (delta("stop"), usage(len(texts)), DONE):
            call.chunk(event)
        call.end_stream()

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(streams))
        worker.start_stage(streams)
        assert all(connected.acquire(timeout=WAIT_S) for _ in range(streams))
        os.kill(worker.pid, signal.SIGSTOP)
        stopped.set()
        assert all(sent.acquire(timeout=WAIT_S) for _ in range(streams))
        os.kill(worker.pid, signal.SIGCONT)
        records = worker.records(streams)
    assert [(r.error, r.chunks, r.text) for r in records] == [(None, len(texts), "".join(texts))] * streams


def test_role_chunk_is_not_the_first_token() -> None:
    started: list[int] = []

    def handler(call: RawCall) -> None:
        call.begin_stream()
        call.chunk(ROLE)
        time.sleep(0.1)
        started.append(time.perf_counter_ns())
        call.chunk(delta(reasoning_content="hm"))
        time.sleep(0.02)
        call.chunk(delta(content="yes") + delta("stop") + usage(2) + DONE)
        call.end_stream()

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert record.t_event_ns is not None and record.t_first_ns is not None
    assert record.t_event_ns < started[0] <= record.t_first_ns + _SLACK_NS
    assert record.t_first_reasoning_ns == record.t_first_ns
    assert record.t_first_content_ns is not None and record.t_first_content_ns >= record.t_first_ns
    assert (record.text, record.reasoning) == ("yes", "hm")


def test_several_tokens_per_chunk() -> None:
    def handler(call: RawCall) -> None:
        call.begin_stream()
        call.chunk(ROLE)
        for _ in range(10):
            call.chunk(delta(content="x" * 32))
            time.sleep(0.01)
        call.chunk(delta("length") + usage(80) + DONE)
        call.end_stream()

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        capped, exact = worker.run([task(0, max_tokens=80), task(1, max_tokens=80, exact=True)])
    assert (capped.chunks, capped.tokens_out, capped.token_source) == (10, 80, "usage")
    assert capped.first_tokens == 8
    assert capped.t_first_ns is not None and capped.t_last_ns is not None
    assert capped.decode_tps == pytest.approx(72 / ((capped.t_last_ns - capped.t_first_ns) / 1e9))
    assert (capped.cap_hit, exact.cap_hit) == (True, False)


def test_stream_sent_byte_by_byte() -> None:
    def handler(call: RawCall) -> None:
        call.begin_stream()
        stream = b": hi\r\n\r\n" + ROLE + delta(content="größer ") + delta("stop", content="日本 🐝") + usage(5) + DONE
        for byte in stream.replace(b"\n", b"\r\n"):
            call.chunk(bytes([byte]))
        call.end_stream()

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert (record.error, record.text, record.tokens_out, record.chunks) == (None, "größer 日本 🐝", 5, 2)


def test_response_without_text_has_no_first_token() -> None:
    def handler(call: RawCall) -> None:
        call.stream(ROLE, delta("stop"), usage(1), DONE)

    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert (record.error, record.tokens_out, record.ttft_s, record.first_tokens) == (None, 1, None, None)
    assert record.degenerate


def test_text_is_kept_only_on_request_or_to_count_tokens() -> None:
    def handler(call: RawCall) -> None:
        call.stream(
            ROLE, delta(content="a"), delta("stop", content="b"), *([usage(2)] if call.prompt == "count" else [])
        )

    with RawServer(handler) as server, DrivenWorker(server.url, keep_text=False) as worker:
        counted, uncounted = worker.run([task(0, "count"), task(1, "do not")])
    assert (counted.token_source, counted.text) == ("usage", None)
    assert (uncounted.token_source, uncounted.text) == ("chunks", "ab")


# spooling


def _spooled(path: Path) -> list[int]:
    return [msgspec.json.decode(line, type=RequestEntry).record.task for line in path.read_bytes().splitlines()]


def test_unacknowledged_records_are_spooled(tmp_path: Path) -> None:
    spool = tmp_path / "spool.jsonl"
    with RawServer(hello) as server, DrivenWorker(server.url, spool=str(spool)) as worker:
        worker.enqueue(task(n) for n in range(5))
        worker.start_stage(1)
        finished = worker.finished(5)
        worker.send(Ack(finished[2].number))
        worker.close_pipe()
    assert _spooled(spool) == [3, 4]
    assert spool.stat().st_mode & 0o777 == 0o600


def test_acknowledged_records_are_not_spooled(tmp_path: Path) -> None:
    spool = tmp_path / "spool.jsonl"
    with RawServer(hello) as server, DrivenWorker(server.url, spool=str(spool)) as worker:
        worker.enqueue(task(n) for n in range(2))
        worker.start_stage(1)
        worker.send(Ack(worker.finished(2)[-1].number))
        worker.close_pipe()
    assert not spool.exists()


def test_records_are_spooled_elsewhere_if_there_is_no_space(tmp_path: Path) -> None:
    full, other = "/dev/full", tmp_path / "other" / "spool.jsonl"
    with RawServer(hello) as server, DrivenWorker(server.url, spool=(full, str(other))) as worker:
        worker.run(task(n) for n in range(3))
        worker.close_pipe()
    assert _spooled(other) == [0, 1, 2]
    assert other.parent.stat().st_mode & 0o777 == 0o700


def test_records_are_spooled_in_the_clock_of_the_session_and_not_where_others_can_read(tmp_path: Path) -> None:
    open_to_all, private, ahead_ns = tmp_path / "open", tmp_path / "private", 5_000_000_000_000
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    paths = (str(tmp_path / "missing" / "spool.jsonl"), str(open_to_all / "s.jsonl"), str(private / "s.jsonl"))
    with RawServer(hello) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
        worker.send(SpoolTo(paths, ahead_ns))
        worker.close_pipe()
    assert not list(open_to_all.iterdir())
    (line,) = (private / "s.jsonl").read_bytes().splitlines()
    assert msgspec.json.decode(line, type=RequestEntry).record == shift_times(record, -ahead_ns)
    assert record.t_sent_ns is not None and shift_times(record, 1).t_sent_ns == record.t_sent_ns + 1


def test_unacknowledged_records_beyond_a_size_are_spooled(tmp_path: Path) -> None:
    """The worker does not wait for its end, so that its memory is bounded."""
    spool = tmp_path / "spool.jsonl"

    def handler(call: RawCall) -> None:
        call.stream(ROLE, delta(content="x" * (1 << 20)), delta("stop", content="y"), usage(2), DONE)

    with RawServer(handler) as server, DrivenWorker(server.url, spool=str(spool), keep_text=True) as worker:
        worker.run(task(n) for n in range(70))
        early = _spooled(spool)
        worker.send(Ack(70))
        worker.close_pipe()
    assert early == list(range(len(early))) and len(early) >= 60
    assert _spooled(spool) == early


def test_copies_are_kept_until_all_records_that_were_spooled_after_them_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the session is full, so that the copies and the spooled records are in the same file."""
    monkeypatch.setattr(session_pipe, "_OVERDUE_NS", -1)
    other = tmp_path / "other" / "spool.jsonl"
    records = session_pipe.UnacknowledgedRecords()
    records.spool_to(("/dev/full", str(other)), 0)
    records.add(Record(task=1, agent=0))
    records.copy_overdue()
    records.add(Record(task=2, agent=0))
    records.spool()
    records.acknowledge(1)
    assert _spooled(other) == [1, 2]
    records.acknowledge(2)
    assert not other.exists()


def test_records_are_spooled_once_if_session_process_stops_reading(tmp_path: Path) -> None:
    """The pipe is full, so that both reading and writing fail."""
    spool, count = tmp_path / "spool.jsonl", 300

    def handler(call: RawCall) -> None:
        if len(server.calls) >= count:
            all_sent.set()
        call.stream(ROLE, delta("stop", content="x" * 4096), usage(1), DONE)

    all_sent = threading.Event()
    with RawServer(handler) as server, DrivenWorker(server.url, spool=str(spool)) as worker:
        worker.enqueue(task(n) for n in range(count))
        worker.start_stage(4)
        assert all_sent.wait(WAIT_S)
        worker.close_pipe()
    tasks = _spooled(spool)
    assert len(tasks) == len(set(tasks)) >= count - 4


def test_frame_rows_add_up_to_all_chunks() -> None:
    def handler(call: RawCall) -> None:
        call.begin_stream()
        call.chunk(ROLE)
        for n in range(30):
            call.chunk(delta(content=f"w{n}"))
            time.sleep(0.01)
        gate.wait(WAIT_S)
        call.chunk(delta("stop") + DONE)
        call.end_stream()

    gate = threading.Event()
    with RawServer(handler) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(0)])
        worker.start_stage(1)
        rows: list[StreamRow] = []
        while not rows or rows[-1].total < 30:
            rows += worker.wait_for_frame(lambda frame: bool(frame.rows)).rows
        gate.set()
        worker.records(1)
    assert sum(row.chunks for row in rows) == 30
    assert len([row for row in rows if row.chunks]) > 1
