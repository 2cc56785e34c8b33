"""The request of the agent that a client watches."""

from __future__ import annotations

import pytest

from swarmtui.model.worker_protocol import WatchedUpdate
from swarmtui.state.streams import WatchedStreams

MS = 1_000_000


def test_latest_gaps_of_a_long_answer_are_kept() -> None:
    """The spread has all of them."""
    streams = WatchedStreams()
    streams.select(3)
    times = [0]
    for gap in range(1, 1001):
        times.append(times[-1] + gap * MS)
    for at in range(0, len(times), 100):
        streams.update(WatchedUpdate(3, 7, times=tuple(times[at : at + 100])))
    found = streams.view()
    assert found is not None and found.gaps_s.n == 1000 > len(found.recent_gaps_s) > 1
    assert found.recent_gaps_s[-1] == pytest.approx(1.0) and found.recent_gaps_s[0] > 0.5


def test_other_request_begins_anew() -> None:
    streams = WatchedStreams()
    streams.select(3)
    streams.update(WatchedUpdate(3, 7, times=(1, 2), text="a"))
    streams.update(WatchedUpdate(3, -1))
    streams.update(WatchedUpdate(4, 9, times=(3,), text="other"))
    between = streams.view()
    assert between is not None and (between.task, between.text, between.chunks) == (7, "a", 2)
    streams.update(WatchedUpdate(3, 8, times=(5,), text="b"))
    after = streams.view()
    assert after is not None and (after.task, after.text, after.chunks) == (8, "b", 1)
