"""The present, as faces see it."""

from __future__ import annotations

from swarmtui.model.worker_protocol import StreamRow, WorkerFrame
from swarmtui.session_process.live_state import Board


def first_tokens(t_s: float, ttft_s: float, streams: int) -> WorkerFrame:
    """So many streams have just had their first token."""
    rows = tuple(StreamRow(agent, "writing", agent, "", 1, 2, 2, ttft_s) for agent in range(streams))
    return WorkerFrame(int(t_s * 1e9), streams, streams, 0, 0, 0, rows, 0.0, 0, 0, 0, 0)


def test_ttft_follows_c_at_once_however_many_requests_came_before() -> None:
    board = Board(0)
    board.c = 1
    for second in range(1, 30):
        board.hear(0, first_tokens(second / 10, 0.02, 1))
    assert board.frame(rows=False).ttft_s == 0.02
    board.c = 6
    board.hear(0, first_tokens(3.5, 1.5, 3))
    assert board.frame(rows=False).ttft_s == 1.5


def test_ttft_forgets_what_is_long_past() -> None:
    board = Board(0)
    board.c = 1
    for second in range(8):
        board.hear(0, first_tokens(second, 0.02, 1))
    board.hear(0, first_tokens(60, 3.0, 1))
    assert board.frame(rows=False).ttft_s == 3.0
