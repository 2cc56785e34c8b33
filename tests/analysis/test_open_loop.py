"""Up to which arrival rate a server keeps up."""

from __future__ import annotations

import msgspec
import pytest

from swarmtui.analysis.capacity.scaling import keeps_up, piles_up, scaling
from swarmtui.analysis.levels.figures import level_figures
from swarmtui.model.session import Level, Spread
from tests.analysis.level_builders import level
from tests.analysis.record_builders import BOOT_NS, MS, end, request, stage


def at_rate(rate: float, served: float, *, e2e: float = 0.5, n: int = 100) -> Level:
    e2e_s = Spread(n=n, mean=e2e)
    return level(512, tps=100.0, rate=rate, load="open", n=n, arrived_per_s=rate, served_per_s=served, e2e_s=e2e_s)


def test_sentence_names_highest_sustained_and_first_overloaded_rate() -> None:
    levels = [at_rate(4, 4.1), at_rate(8, 7.9), at_rate(12, 9.1, e2e=3.0), at_rate(16, 9.0, e2e=5.0)]
    found = scaling(levels)
    assert found.sentence == "keeps up with 8 requests/s; at 12/s it completes 9.1 requests/s, and the queue grows"
    assert (found.sweet_spot, found.cliff, found.slots) == (None, None, None)
    assert found.refused["sweet spot"].code == "open_loop"


def test_requests_that_fail_do_not_queue() -> None:
    """A server that refuses 30 of 100 requests at once completes the others as they arrive."""
    refused = msgspec.structs.replace(at_rate(10, 7.0), ok=70, errors=30)
    assert scaling([refused]).sentence == "at 10/s it completes 7 requests/s, and 30 of 100 failed"
    assert [piles_up(one) for one in (refused, msgspec.structs.replace(refused, served_per_s=5.0))] == [False, True]


@pytest.mark.parametrize(
    ("share", "few", "many"),
    [
        (1.02, True, True),
        (0.97, True, True),
        (0.969, None, None),
        (0.899, None, False),
        (0.801, None, False),
        (0.799, False, False),
    ],
)
def test_share_of_completions_decides(share: float, few: bool | None, many: bool | None) -> None:
    """With few arrivals, a server with some reserve falls behind by chance."""
    assert keeps_up(at_rate(1000.0, 1000.0 * share, e2e=0.001, n=399)) is few
    assert keeps_up(at_rate(1000.0, 1000.0 * share, e2e=0.001, n=400)) is many


def test_short_run_is_undecided() -> None:
    assert keeps_up(at_rate(8, 8.0, n=10, e2e=2.0)) is None
    assert keeps_up(at_rate(8, 4.0, n=10, e2e=2.0)) is False
    assert scaling([at_rate(8, 8.0, n=10, e2e=2.0)]).sentence == "not sure yet at 8/s: use a longer run"


def test_latency_of_an_overloaded_rate_is_marked() -> None:
    """10 requests/s arrive, 5 requests/s complete: the tenth answer waits for all before it."""
    for served_ms, flagged in ((200, True), (100, False)):
        records = [request(100 * n, [served_ms * n + 50], task=n, t_sched_ns=BOOT_NS + 100 * n * MS) for n in range(10)]
        (found,) = level_figures(records, [stage(1, 512, load="open", rate=10.0)], [end(1)])
        assert ("overloaded" in [flag.code for flag in found.flags]) is flagged


def test_arrival_and_completion_rates() -> None:
    """10 requests/s were due and 5 requests/s completed, whenever they were sent."""
    records = [request(100 * n + 30, [200 * n + 100], task=n, t_sched_ns=BOOT_NS + 100 * n * MS) for n in range(10)]
    (found,) = level_figures(records, [stage(1, 512, load="open", rate=10.0)], [end(1)])
    assert (found.key, found.offered_load, found.name) == ((512, 10.0), 10.0, "10/s")
    assert found.arrived_per_s == pytest.approx(10.0) and found.served_per_s == pytest.approx(5.0)


def test_requests_are_in_flight_from_when_they_are_sent() -> None:
    """Each was due 0.5 s before it could be sent: latencies count that time, what is in flight does not."""
    records = [
        request(500 + 100 * n, [550 + 100 * n, 600 + 100 * n], task=n, t_sched_ns=BOOT_NS + 100 * n * MS)
        for n in range(10)
    ]
    (found,) = level_figures(records, [stage(1, 512, load="open", rate=10.0)], [end(1)])
    assert found.c_achieved == found.by_run[0].c_achieved == pytest.approx(1.0)
    assert found.wall_s == pytest.approx(1.0) and found.out_tps_wall == pytest.approx(20.0)
    assert found.e2e_s.mean == pytest.approx(0.6) and found.ttft_s.mean == pytest.approx(0.55)


def test_each_rate_is_its_own_level() -> None:
    slow = [request(100 * n, [100 * n + 100], task=n, stage=1) for n in range(5)]
    fast = [request(5000 + 10 * n, [5000 + 10 * n + 50], task=10 + n, stage=2) for n in range(5)]
    starts = [stage(1, 512, load="open", rate=10.0), stage(2, 512, load="open", rate=100.0)]
    found = level_figures([*slow, *fast], starts, [end(1), end(2)])
    assert [(one.rate, one.n) for one in found] == [(10.0, 5), (100.0, 5)]
