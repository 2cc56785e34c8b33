from __future__ import annotations

import pytest

from swarmtui.model.record import Record
from swarmtui.session_process.live_levels import RequestTimes


def times(**seconds: float) -> RequestTimes:
    found = RequestTimes()
    for name, value in seconds.items():
        for e2e_s in (0.5 * value, 1.5 * value):
            found.add(Record(task=0, c=int(name[1:]), t_sent_ns=0, t_last_ns=round(e2e_s * 1e9)))
    return found


@pytest.mark.parametrize(
    ("known", "c", "slots", "seconds", "at_least"),
    [
        ({"c4": 2.0}, 4, None, 2.0, False),
        ({"c4": 2.0}, 8, None, 2.0, True),
        ({"c1": 1.0, "c4": 1.6}, 8, 8, 2.4, False),
        ({"c1": 1.0, "c4": 1.6}, 8, None, 2.4, True),
        ({"c1": 1.0, "c4": 1.6}, 16, 8, 4.8, True),
        ({"c4": 2.0}, 16, 4, 8.0, True),
        ({"c2": 3.0, "c4": 2.0}, 8, 8, 2.0, False),
        ({"c8": 2.0}, 4, None, 2.0, False),
    ],
    ids=["measured", "slope unknown", "line", "slots unknown", "line to the slots", "queue", "noise", "lower level"],
)
def test_time_of_a_later_level(
    known: dict[str, float], c: int, slots: int | None, seconds: float, at_least: bool
) -> None:
    found = times(**known).estimate(c, slots)
    assert found is not None
    assert found[0] == pytest.approx(seconds)
    assert found[1] is at_least


def test_nothing_is_known_before_the_first_request() -> None:
    assert RequestTimes().estimate(4, None) is None
