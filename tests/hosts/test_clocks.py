"""Times of hosts are converted with the offset of the ping that was delayed least."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.hosts.clocks import HostClock, RoundTrip, best_offset
from swarmtui.model.hosts import ClockOffset
from swarmtui.model.record import Record
from swarmtui.model.worker_protocol import Finished, StreamRow, WatchedUpdate, WorkerFrame

MS = 1_000_000
DELAYS = st.tuples(st.integers(0, 50 * MS), st.integers(0, 50 * MS))


@given(st.integers(-(10**15), 10**15), st.lists(DELAYS, min_size=1, max_size=8))
def test_true_offset_is_within_the_bound_however_pings_are_delayed(offset: int, delays: list[tuple[int, int]]) -> None:
    pings, now = [], 10**15
    for there, back in delays:
        pings.append(RoundTrip(now, now + there + offset, now + there + back))
        now += there + back + MS
    found = best_offset(pings)
    assert abs(found.offset_ns - offset) <= found.bound_ns
    assert found.bound_ns <= min(there + back for there, back in delays) // 2 + 1


def clock(*offsets: tuple[int, int]) -> HostClock:
    """A clock with these offsets, each measured at a time of the session."""
    found = HostClock()
    for t_ns, offset_ns in offsets:
        found.add(ClockOffset(t_ns=t_ns, offset_ns=offset_ns, bound_ns=10))
    return found


def test_record_moves_as_a_whole_by_the_offset_when_it_was_sent() -> None:
    record = Record(task=1, t_sched_ns=1_990, t_sent_ns=2_100, t_first_ns=3_500, t_done_ns=9_000, chunk_us=(0, 3))
    moved = clock((0, 1_000), (1_000, 1_040), (2_000, 1_060)).convert(Finished(7, record))
    assert isinstance(moved, Finished)
    assert moved.number == 7
    assert moved.record == msgspec.structs.replace(
        record, t_sched_ns=950, t_sent_ns=1_060, t_first_ns=2_460, t_done_ns=7_960
    )


def test_frame_is_converted_with_its_rows_and_its_watched_stream() -> None:
    row = StreamRow(1, "writing", 4, "chat", 2_100, 1, 9, 0.1)
    watched = WatchedUpdate(agent=1, task=4, t_sent_ns=2_100, times=(2_200, 2_300))
    frame = WorkerFrame(
        t_ns=3_200, agents=2, in_flight=1, waiting=0, queued=0, rows=(row, msgspec.structs.replace(row, t_sent_ns=0)),
        lag_ms=0.0, cpu_ns=1, clock_steps=0, drops=0, watched=watched,
    )  # fmt: skip
    moved = clock((0, 1_000), (2_000, 1_100)).convert(frame)
    assert isinstance(moved, WorkerFrame) and moved.watched is not None
    # A request keeps its time from frame to frame, although the offset is measured again.
    assert (moved.t_ns, moved.rows[0].t_sent_ns, moved.rows[1].t_sent_ns) == (2_100, 1_100, 0)
    assert (moved.watched.t_sent_ns, moved.watched.times) == (1_100, (1_200, 1_300))


def test_change_between_two_measurements_counts_as_an_error() -> None:
    assert clock((0, 1_000)).bound_ns == 10
    assert clock((0, 1_000), (1_000, 1_040), (2_000, 1_030)).bound_ns == 50
