"""The rate of a single stream."""

from __future__ import annotations

import pytest

from swarmtui.model.worker_protocol import StreamRow, WorkerFrame
from swarmtui.state.streams import StreamTally, Throughput


@pytest.mark.parametrize(("per_s", "tolerance"), [(8.4, 0.02), (100.0, 0.01)])
def test_rate_of_a_slow_stream_is_not_quantised(per_s: float, tolerance: float) -> None:
    """A stream of 8.4 tok/s gets 8 or 9 tokens in a second; frames come four times per second."""
    rate, shown = StreamTally(0), []
    for quarter in range(1, 80):
        chunks = int(per_s * quarter / 4)
        row = StreamRow(0, "writing", 1, "", 1, 0, chunks, 0.1, span_s=max(0, chunks - 1) / per_s)
        rate.update(quarter * 250_000_000, row, 1.0)
        shown.append(rate.rate)
    assert shown[40:] == [pytest.approx(per_s, rel=tolerance)] * len(shown[40:])


def test_rate_ends_with_the_stream() -> None:
    rate = StreamTally(0)
    for second, total in enumerate((0, 10, 20, 20, 20)):
        row = StreamRow(0, "writing" if second < 3 else "idle", 1, "", 1, 0, total, 0.1, span_s=total / 10)
        rate.update(second * 1_000_000_000, row, 1.0)
    assert rate.rate is None and rate.recent == (10.0, 10.0, None, None)


@pytest.mark.parametrize("wait_s", [0.0, 1.0, 6.0])
def test_rate_of_a_stream_does_not_contain_its_waiting_time(wait_s: float) -> None:
    """Answers of 20 tokens at 40 tok/s; the level calls this a stream of 40 tok/s, however long each of them waited."""
    rate, shown, length_s = StreamTally(0), set(), wait_s + 19 / 40 + 0.05
    for quarter in range(1, 200):
        answer, t_s = divmod(quarter / 4, length_s)
        total = min(20, max(0, 1 + int((t_s - wait_s) * 40))) if t_s >= wait_s else 0
        row = StreamRow(0, "writing" if total else "waiting", int(answer), "", 1, 0, total, 0.1, max(0, total - 1) / 40)
        rate.update(quarter * 250_000_000, row, 1.0)
        shown.add(rate.rate and round(rate.rate, 3))
    assert shown - {None} == {40.0}


@pytest.mark.parametrize(("tokens", "rate"), [(2, None), (3, None), (4, 1000.0), (8, 1000.0)])
def test_answers_of_a_few_tokens_have_no_rate(tokens: int, rate: float | None) -> None:
    """It holds for all answers together and for a single stream: 80 in the last seconds, a token per millisecond."""
    key, together, alone = (1, None), Throughput(), StreamTally(0)
    for task in range(80):
        at = 50_000_000 * (task + 1)
        span_s = (tokens - 1) / 1000
        row = StreamRow(0, "idle", task, "", at, tokens, tokens, 0.001, span_s)
        together.add_frame(key, WorkerFrame(at, 1, 1, 0, 0, (row,), 0.0, 0, 0, 0))
        alone.update(at, row, 1.0)
    assert together.stream_tps(key, 1.0) == (rate and pytest.approx(rate))
    assert alone.rate == (rate and pytest.approx(rate))
    assert together.stream_tps(key, 8.0) == pytest.approx(8000.0), "few large chunks"


def test_a_silence_of_all_streams_is_known_after_two_seconds_from_the_first_chunk_of_a_level() -> None:
    key, together, second = (4, None), Throughput(), 1_000_000_000
    assert together.silent_s(9 * second) is None, "nothing was sent yet"
    for at, chunks in ((1, 5), (2, 0), (3, 0), (4, 0)):
        row = StreamRow(0, "writing", 1, "", 1, chunks, 5, 0.1, 0.5)
        together.add_frame(key, WorkerFrame(at * second, 1, 1, 0, 0, (row,), 0.0, 0, 0, 0))
    assert together.silent_s(2 * second) is None and together.silent_s(4 * second) == 3.0
    together.restart()
    assert together.silent_s(4 * second) is None, "another level"


def test_rate_under_another_load_begins_anew_and_recent_output_stays() -> None:
    rate = StreamTally(0)

    def write(second: int, total: int, span_s: float) -> None:
        rate.update(second * 1_000_000_000, StreamRow(0, "writing", 1, "", 1, 0, total, 0.1, span_s), 1.0)

    for second in range(1, 5):
        write(second, 100 * second, second - 0.01)
    rate.restart()
    write(5, 410, 4.99)
    assert rate.rate == pytest.approx(10.0)
    assert rate.recent[-2:] == (100.0, 10.0)
