"""Each preset reproduces the figures of its published benchmark within 5 %."""

from __future__ import annotations

import statistics

import pytest

from swarmtui.sim.presets import find_preset
from tests.sim.virtual_load import closed_loop, decode_tps

MOE_SHARES = {1: (1.0,), 2: (1.0, 0.36), 3: (1.0, 0.3, 0.25), 4: (1.0, 0.65, 0.65, 0.65)}
DENSE_SHARES = {1: (1.0,), 2: (1.0, 0.61), 3: (1.0, 0.45, 0.3), 4: (1.0, 1.0, 0.95, 0.45)}

BARRIER = {
    "moe-tp2-nvlink": (166, 218, 245, 399),
    "moe-tp1": (167, 215, 227, 336),
    "moe-tp2-pcie": (160, 201, 235, 360),
    "dense-tp2-nvlink": (31, 46, 48, 82),
    "dense-tp1": (39, 63, 69, 127),
}
CONTENTION = {"moe-tp2-nvlink": 0.25, "moe-tp1": 0.40, "dense-tp2-nvlink": 0.23, "dense-tp1": 0.07}

# (C, output tokens, requests, output tok/s)
CLOSED = {
    "qwen36-27b-2x": ((1, 1024, 16, 82), (2, 1024, 16, 154), (4, 1024, 16, 225), (8, 1024, 16, 167)),
    "qwen36-35b-moe": (
        (1, 256, 32, 90), (1, 1024, 32, 97), (2, 1024, 32, 161), (4, 1024, 32, 283), (8, 1024, 32, 282),
    ),
}  # fmt: skip

PRIMARY = {"gpt-oss-20b-5slot": (127, 49, 45, 34), "qwen3-coder-5slot": (80, 34, 29, 26)}


def within_5_percent(value: float) -> object:
    return pytest.approx(value, rel=0.05)


@pytest.mark.parametrize("c", [1, 2, 3, 4])
@pytest.mark.parametrize("name", BARRIER)
def test_barrier_of_coding_tasks(name: str, c: int) -> None:
    shares = (MOE_SHARES if name.startswith("moe") else DENSE_SHARES)[c]
    lengths = [round(2500 * share) for share in shares]
    outcome = closed_loop(find_preset(name), c, lengths, prompt=150)
    assert outcome.output_tps == within_5_percent(BARRIER[name][c - 1])


@pytest.mark.parametrize("name", CONTENTION)
def test_contention_at_four_agents(name: str) -> None:
    """The mean over the tasks, as in the source: the longest task ends alone, so it is slowed down less."""

    def per_task(c: int) -> float:
        shares = (MOE_SHARES if name.startswith("moe") else DENSE_SHARES)[c]
        jobs = closed_loop(find_preset(name), c, [round(2500 * share) for share in shares], prompt=150).jobs
        return statistics.mean(decode_tps(job) for job in jobs)

    contention = 1 - per_task(4) / per_task(1)
    assert contention == pytest.approx(CONTENTION[name], abs=0.02)


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, rows in CLOSED.items() for row in rows])
def test_closed_loop(name: str, row: tuple[int, int, int, int]) -> None:
    c, out, requests, target = row
    assert closed_loop(find_preset(name), c, [out] * requests, prompt=1024).output_tps == within_5_percent(target)


def test_queueing_delay_of_the_moe() -> None:
    assert closed_loop(find_preset("qwen36-35b-moe"), 8, [1024] * 32, prompt=1024).ttft_s == within_5_percent(13.4)


def test_queueing_delay_of_two_replicas() -> None:
    """The 19 s and the 167 tok/s of the source are not consistent within 5 %: see presets.toml."""
    ttft = closed_loop(find_preset("qwen36-27b-2x"), 8, [1024] * 16, prompt=1024).ttft_s
    assert ttft == pytest.approx(19, rel=0.10)


def test_fifty_agents_at_once() -> None:
    outcome = closed_loop(find_preset("b70-swarm"), 50, [512] * 50, prompt=1024)
    assert outcome.wall_s == within_5_percent(70)
    assert outcome.output_tps == within_5_percent(366)
    assert outcome.output_tps * (1024 + 512) / 512 == within_5_percent(1097)
    assert outcome.ttft_s == within_5_percent(11)


def test_fifty_serial_tasks() -> None:
    assert closed_loop(find_preset("b70-serial"), 1, [512] * 50, prompt=1024).wall_s == within_5_percent(2510)


def test_probe_rate_has_little_variation() -> None:
    jobs = closed_loop(find_preset("gemma-31b-tp4"), 1, [200] * 300, prompt=100).jobs
    rates = [decode_tps(job) for job in jobs]
    assert statistics.mean(rates) == within_5_percent(81.3)
    assert statistics.stdev(rates) / statistics.mean(rates) == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize(("at", "streams"), list(enumerate((1, 2, 3, 5))))
@pytest.mark.parametrize("name", PRIMARY)
def test_primary_rate_with_side_tasks(name: str, at: int, streams: int) -> None:
    primary = closed_loop(find_preset(name), streams, [400] + [500] * (streams - 1), prompt=100).jobs[0]
    assert decode_tps(primary) == within_5_percent(PRIMARY[name][at])
