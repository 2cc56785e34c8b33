"""The current state, as clients receive it."""

from __future__ import annotations

import pytest

from swarmtui.model.record import Record
from swarmtui.model.worker_protocol import StreamRow, WorkerFrame
from swarmtui.session_process.live_state import LiveState


def first_tokens(t_s: float, ttft_s: float, streams: int) -> WorkerFrame:
    """A frame in which all streams have just received their first token."""
    rows = tuple(StreamRow(agent, "writing", agent, "", 1, 2, 2, ttft_s) for agent in range(streams))
    return WorkerFrame(int(t_s * 1e9), streams, streams, 0, 0, rows, 0.0, 0, 0, 0, 0)


def test_ttft_follows_a_change_of_c_immediately() -> None:
    state = LiveState(0)
    state.c = 1
    for second in range(1, 30):
        state.update_worker(0, first_tokens(second / 10, 0.02, 1))
    assert state.frame(rows=False).ttft_s == 0.02
    state.c = 6
    state.update_worker(0, first_tokens(3.5, 1.5, 3))
    assert state.frame(rows=False).ttft_s == 1.5


def test_ttft_ignores_old_requests() -> None:
    state = LiveState(0)
    state.c = 1
    for second in range(8):
        state.update_worker(0, first_tokens(second, 0.02, 1))
    state.update_worker(0, first_tokens(60, 3.0, 1))
    assert state.frame(rows=False).ttft_s == 3.0


def chunks(t_s: float, count: int) -> WorkerFrame:
    """A frame in which one stream has received `count` chunks since the last frame."""
    row = StreamRow(0, "writing", 0, "", 1, count, 1000, None)
    return WorkerFrame(round(t_s * 1e9), 1, 1, 0, 0, (row,), 0.0, 0, 0, 0, 0)


def test_rate_covers_the_last_second() -> None:
    state = LiveState(0)
    for frame in range(30):
        state.update_worker(0, chunks(frame / 10, 10))
    assert state.frame(rows=False).out_tps == pytest.approx(100.0)
    for frame in range(30, 35):
        state.update_worker(0, chunks(frame / 10, 0))
    assert state.frame(rows=False).out_tps == pytest.approx(50.0)
    for frame in range(35, 41):
        state.update_worker(0, chunks(frame / 10, 0))
    assert state.frame(rows=False).out_tps == 0.0


def test_rate_of_a_stream_does_not_depend_on_how_many_wait() -> None:
    """Eight streams of which two write 20 tok/s each: in each second others, and none during the last moment."""
    state = LiveState(0)
    state.c = 8
    for tenth in range(1, 100):
        agent, total = tenth // 20, 2 * (tenth % 20)
        rows = tuple(
            StreamRow(agent + pair, "writing", agent, "", 1, 2, total, 0.1, span_s=max(0, total - 1) / 20)
            for pair in (0, 4)
        )
        state.update_worker(0, WorkerFrame(tenth * 10**8, 8, 8, 6, 0, rows, 0.0, 0, 0, 0, 0))
    state.update_worker(0, WorkerFrame(10**10, 8, 8, 8, 0, (), 0.0, 0, 0, 0, 0))
    assert state.frame(rows=False).per_stream_tps == pytest.approx(20.0)


@pytest.mark.parametrize("seen", [0, 10, 25])
def test_rate_has_the_chunks_that_arrive_after_the_last_row_of_an_answer(seen: int) -> None:
    """Ten answers of 30 chunks per second, each between two frames but for the chunks that the first of them has."""
    state = LiveState(0)
    state.c = 1
    for task in range(30):
        t_ns, sent_ns = (task + 1) * 10**8, (task + 1) * 10**8 - 10**7
        row = StreamRow(0, "writing", task, "", sent_ns, seen, seen, 0.1, span_s=(seen - 1) / 1000)
        state.update_worker(0, WorkerFrame(t_ns, 1, 1, 0, 0, (row,) if seen else (), 0.0, 0, 0, 0, 0))
        last_ns = sent_ns + 29 * 10**6
        state.add_record(
            Record(task=task, t_sent_ns=sent_ns, t_first_ns=sent_ns, t_last_ns=last_ns, chunks=30, tokens_out=30)
        )
    frame = state.frame(rows=False)
    assert frame.out_tps == pytest.approx(300.0) and frame.per_stream_tps == pytest.approx(1000.0)


def test_rate_is_unknown_before_a_quarter_of_the_window() -> None:
    state = LiveState(0)
    for t_s in (0.0, 0.1, 0.2):
        state.update_worker(0, chunks(t_s, 10))
    assert state.frame(rows=False).out_tps is None
    state.update_worker(0, chunks(0.3, 10))
    assert state.frame(rows=False).out_tps == pytest.approx(100.0)
