"""The worker at its work: stamps, streams that come and go, conversations, and what is left when nobody listens."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
from driver import DrivenWorker, task
from scripted_server import DONE, ROLE, Call, ScriptedServer, delta, hello, usage

from swarmtui.model.session import Request
from swarmtui.model.wire import Ack, Drop, StreamRow, Watch

# Kernel stamps are wall-clock time translated; so much may the translation be off on a busy machine.
_SLACK_NS = 1_000_000


class Gate:
    """An answer that begins at once and ends when the test says so."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, call: Call) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        call.begin()
        call.chunk(ROLE + delta(content="a"))
        self.open.wait(10)
        with self._lock:
            self.now -= 1
        call.chunk(delta("stop", content="b") + usage(2) + DONE)
        call.end()


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
        call.chunk(delta(content="yes") + delta("stop") + usage(2) + DONE)
        call.end()

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        (record,) = worker.run([task(0)])
    assert record.t_event_ns is not None and record.t_first_ns is not None
    assert record.t_event_ns < begun[0] <= record.t_first_ns + _SLACK_NS
    assert record.t_first_reasoning_ns == record.t_first_ns
    assert record.t_first_content_ns is not None and record.t_first_content_ns > record.t_first_ns
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


# more and fewer streams


def test_raising_adds_streams() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(6))
        worker.streams(1)
        worker.frame(lambda frame: frame.in_flight == 1)
        worker.streams(3, number=2)
        frame = worker.frame(lambda frame: frame.in_flight == 3)
        assert frame.queued == 3
        gate.open.set()
        records = worker.records(6)
    assert gate.most == 3
    assert {record.agent for record in records} == {0, 1, 2}
    assert {record.stretch for record in records} == {1, 2}


def test_lowering_lets_streams_finish() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(6))
        worker.streams(3)
        worker.frame(lambda frame: frame.in_flight == 3)
        worker.streams(1, number=2)
        worker.frame(lambda frame: frame.agents == 1 and frame.in_flight == 3)
        gate.open.set()
        records = worker.records(6)
    assert [record.error for record in records] == [None] * 6
    assert {record.agent for record in records if record.stretch == 2} == {0}
    assert [record.c for record in records if record.stretch == 2] == [1, 1, 1]


def test_lowering_with_cancel_ends_the_streams_above() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(3))
        worker.streams(3)
        worker.frame(lambda frame: frame.in_flight == 3 and not frame.waiting)
        worker.streams(1, number=2, cancel=True)
        cancelled = worker.records(2)
        gate.open.set()
        (last,) = worker.records(1)
    assert [(record.error, record.text) for record in cancelled] == [("cancelled", "a")] * 2
    assert {record.agent for record in cancelled} == {1, 2}
    assert (last.error, last.agent) == (None, 0)


def test_pause_and_resume() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(4))
        worker.streams(2)
        worker.frame(lambda frame: frame.in_flight == 2)
        worker.streams(0)
        gate.open.set()
        assert [record.error for record in worker.records(2)] == [None] * 2
        for _ in range(2):
            frame = worker.frame(lambda frame: True)
        assert (frame.in_flight, frame.queued) == (0, 2)
        assert len(server.seen) == 2
        worker.streams(2)
        assert [record.error for record in worker.records(2)] == [None] * 2


def test_drop_forgets_the_queue_and_with_cancel_also_what_is_in_flight() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue(task(n) for n in range(5))
        worker.streams(2)
        worker.frame(lambda frame: frame.in_flight == 2)
        worker.say(Drop())
        frame = worker.frame(lambda frame: frame.drops == 1)
        assert (frame.in_flight, frame.queued) == (2, 0)
        worker.say(Drop(cancel=True))
        assert [record.error for record in worker.records(2)] == ["cancelled"] * 2
        worker.frame(lambda frame: frame.drops == 2 and not frame.in_flight)
    assert len(server.seen) == 2


def test_two_workers_have_agents_of_their_own() -> None:
    numbers = []
    with ScriptedServer(Gate()) as server:
        for worker_number in (0, 1):
            with DrivenWorker(server.url, worker=worker_number, workers=2) as worker:
                worker.enqueue(task(n) for n in range(3))
                worker.streams(3)
                frame = worker.frame(lambda frame: len(frame.rows) == 3)
                worker.streams(2, number=2, cancel=True)
                (cancelled,) = worker.records(1)
                numbers.append((sorted(row.agent for row in frame.rows), cancelled.agent))
    assert numbers == [([0, 2, 4], 4), ([1, 3, 5], 5)]


def test_the_text_of_a_stream_can_be_watched() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.say(Watch(0))
        worker.enqueue([task(0)])
        worker.streams(1)
        assert worker.frame(lambda frame: bool(frame.text)).text == "a"
        assert worker.frame(lambda frame: True).text == ""
        worker.say(Watch(None))
        gate.open.set()
        worker.records(1)


# conversations


def _counting(call: Call) -> None:
    said = sum(message["role"] == "assistant" for message in call.body["messages"])
    call.stream(ROLE, delta(reasoning_content="hm"), delta(content=f"answer {said}"), delta("stop"), usage(3), DONE)


def test_a_conversation_gets_the_models_own_answers_back() -> None:
    with ScriptedServer(_counting) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(7, "one", followups=("two", "three"))])
        worker.streams(1)
        records = worker.records(3)
    assert [(record.task, record.turn, record.error) for record in records] == [
        (7, 0, None),
        (7, 1, None),
        (7, 2, None),
    ]
    assert [(message["role"], message["content"]) for message in server.seen[2].body["messages"]] == [
        ("user", "one"),
        ("assistant", "answer 0"),
        ("user", "two"),
        ("assistant", "answer 1"),
        ("user", "three"),
    ]


def test_a_conversation_ends_with_its_first_failure() -> None:
    def answer(call: Call) -> None:
        if len(call.body["messages"]) > 1:
            call.whole("500 No", "broken", "text/plain")
        else:
            _counting(call)

    with ScriptedServer(answer) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(0, "one", followups=("two", "three")), task(1, "next")])
        worker.streams(1)
        records = worker.records(3)
    assert [(record.task, record.turn, record.error) for record in records] == [
        (0, 0, None),
        (0, 1, "http_500"),
        (1, 0, None),
    ]


def test_a_later_turn_belongs_to_the_stretch_in_which_it_is_sent() -> None:
    gate = Gate()
    with ScriptedServer(gate) as server, DrivenWorker(server.url) as worker:
        worker.enqueue([task(0, "one", followups=("two",))])
        worker.streams(1, number=1)
        worker.frame(lambda frame: frame.in_flight == 1)
        worker.streams(2, number=2)
        worker.frame(lambda frame: frame.agents == 2)
        gate.open.set()
        records = worker.records(2)
    assert [(record.turn, record.stretch, record.c) for record in records] == [(0, 1, 1), (1, 2, 2)]


# when the conductor dies


def _spooled(path: Path) -> list[int]:
    return [msgspec.json.decode(line, type=Request).record.task for line in path.read_bytes().splitlines()]


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
    code = f"import sys, swarmtui.swarm.worker; sys.exit(' '.join(m for m in {heavy!r} if m in sys.modules) or None)"
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
