"""Figures that depend on the load: serial baseline, due times, replicas, verdicts."""

from __future__ import annotations

import pytest

from swarmtui.analysis.levels.figures import level_figures, task_figures
from swarmtui.analysis.levels.runs import requests_by_level
from swarmtui.model.load import SerialRates
from swarmtui.model.record import Record
from tests.analysis.record_builders import BOOT_NS, MS, end, request, stage


def batch_of_two(**fields: object) -> list[Record]:
    return [
        request(0, [10, 100], task=1, c=2, tokens=50, **fields),
        request(0, [10, 200], task=2, c=2, tokens=100, **fields),
    ]


def serial_tasks(*, cut: bool = False) -> list[Record]:
    return [
        request(300, [310, 400], task=3, c=2, tokens=50, stage=2, phase="serial"),
        request(400, [410, 600], task=4, c=2, tokens=100, stage=2, phase="serial", cap_hit=cut),
    ]


STAGES = [stage(1, 2, load="barrier"), stage(2, 2, load="barrier", phase="serial")]


def test_batch_is_compared_with_serial_tasks() -> None:
    (level,) = level_figures([*batch_of_two(), *serial_tasks()], STAGES, [end(1), end(2)])
    assert (level.n, level.load) == (2, "barrier")
    assert level.wall_s == pytest.approx(0.2)
    assert level.wall_speedup == pytest.approx(0.3 / 0.2)
    assert level.token_ratio == 1.0
    assert level.serial is not None
    assert (level.serial.how, level.serial.extrapolated) == ("measured", False)
    assert level.serial.wall_s == pytest.approx(0.3) and level.serial.out_tps == pytest.approx(500.0)
    assert level.out_tps_wall == pytest.approx(750.0) == level.headline_tps
    assert level.flags == (), "a batch is not meant to hold C"


def test_cut_serial_answer_separates_raw_and_clean_speedup() -> None:
    (level,) = level_figures([*batch_of_two(), *serial_tasks(cut=True)], STAGES, [end(1), end(2)])
    assert level.serial is not None
    assert level.serial.speedup == pytest.approx(1.5)
    assert level.serial.clean_speedup == pytest.approx(0.1 * 2 / 0.2)


def test_serial_sample_is_extrapolated_and_flagged() -> None:
    (level,) = level_figures([*batch_of_two(), serial_tasks()[0]], STAGES, [end(1), end(2)])
    assert level.serial is not None and level.serial.extrapolated
    assert level.serial.how == "extrapolated from 1 task of 2 run serially"
    assert level.serial.wall_s == pytest.approx(0.2)
    assert level.token_ratio is None
    assert [flag.code for flag in level.flags] == ["serial_extrapolated"]


def test_single_stream_rates_replace_serial_baseline() -> None:
    (level,) = level_figures(batch_of_two(), STAGES[:1], [end(1)], SerialRates(prompt_tps=100.0, decode_tps=50.0))
    assert level.serial is not None and level.serial.extrapolated
    assert level.serial.wall_s == pytest.approx(20 / 100 + 150 / 50)
    assert level.wall_speedup == pytest.approx(3.2 / 0.2)


def test_no_speedup_without_baseline() -> None:
    (level,) = level_figures(batch_of_two(), STAGES[:1], [end(1)])
    assert (level.serial, level.wall_speedup, level.token_ratio) == (None, None, None)


def test_open_loop_latency_counts_from_due_time() -> None:
    records = [
        request(40, [50, 60], task=n, c=64, t_sched_ns=BOOT_NS + 10 * MS, t_headers_ns=BOOT_NS + 45 * MS)
        for n in range(5)
    ]
    (level,) = level_figures(records, [stage(1, 64, load="open", rate=8.0)], [end(1)])
    assert level.ttft_s.p50 == pytest.approx(0.040)
    assert level.e2e_s.p50 == pytest.approx(0.050)
    assert level.send_delay_s is not None and level.send_delay_s.max == pytest.approx(0.030)
    assert (level.rate, level.straggler) == (8.0, None)
    assert [flag.code for flag in level.flags] == ["send_delay"]


def test_figures_by_replica() -> None:
    records = [request(0, [10, 100], task=n, tokens=10 * (n + 1), endpoint=n % 2, c=4) for n in range(4)]
    (level,) = level_figures(records, [stage(1, 4)], [end(1)])
    assert [(part.endpoint, part.n, part.tokens_out) for part in level.replicas] == [(0, 2, 40), (1, 2, 60)]
    (single,) = level_figures([request(0, [10, 100])], [stage(1, 1)], [end(1)])
    assert single.replicas == ()


def test_verdicts_by_level_and_task_type() -> None:
    verdicts = ("pass", "pass in reasoning", "fail", "truncated")
    records = [
        request(0, [10, 100], task=n, c=4, type=f"t{n % 2}", verdict=verdict) for n, verdict in enumerate(verdicts)
    ]
    (level,) = level_figures(records, [stage(1, 4)], [end(1)])
    assert level.pass_rate == 0.5
    assert level.verdicts == {"fail": 1, "pass": 1, "pass in reasoning": 1, "truncated": 1}
    even, odd = task_figures(requests_by_level(records, [stage(1, 4)], [end(1)]))
    assert (even.type, even.verdicts) == ("t0", {"fail": 1, "pass": 1})
    assert (odd.type, odd.verdicts) == ("t1", {"pass in reasoning": 1, "truncated": 1})


def test_figures_by_turn() -> None:
    records = [request(100 * n, [100 * n + 10, 100 * n + 90], turn=n, type="primary") for n in range(3)]
    assert [(t.type, t.turn, t.n) for t in task_figures({(1, None): records})] == [("primary", n, 1) for n in range(3)]


def test_replica_with_failures_only_is_named() -> None:
    """It failed in an attempt that was repeated, and got no request after that."""
    failed = request(10, [], stage=1, endpoint=1, error="refused", tokens_out=None)
    records = [failed, *(request(100 * n, [100 * n + 50], task=n, stage=2) for n in range(3))]
    (level,) = level_figures(records, [stage(1), stage(2)], [end(1, complete=False), end(2)])
    assert [(part.endpoint, part.n, part.ok, part.errors) for part in level.replicas] == [(0, 3, 3, 0), (1, 0, 0, 1)]
