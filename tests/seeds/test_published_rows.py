"""The five published benchmarks with their built-in workloads give the published figures and conclusions.

They run in virtual time, so that the load of the machine does not matter; test_seeds.py runs them in real processes.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from swarmtui.model.load import SerialRates
from swarmtui.model.record import LEVEL_PHASES
from swarmtui.model.session import Summary
from swarmtui.report.levels import level_table
from swarmtui.report.session import finding_sentences, level_blocks, result_tables, session_blocks
from swarmtui.report.text import paint
from tests.seeds.virtual_session import simulate_journal, simulate_session

ROWS = {
    "moe-tp2-nvlink": (166, 218, 245, 399),
    "moe-tp1": (167, 215, 227, 336),
    "moe-tp2-pcie": (160, 201, 235, 360),
    "dense-tp2-nvlink": (31, 46, 48, 82),
    "dense-tp1": (39, 63, 69, 127),
}
CONTENTION = {"moe-tp2-nvlink": 0.25, "moe-tp1": 0.40, "dense-tp2-nvlink": 0.23, "dense-tp1": 0.065}
PRIMARY = {"gpt-oss-20b-5slot": (127, 49, 45, 34), "qwen3-coder-5slot": (80, 34, 29, 26)}


def within_5_percent(value: float) -> object:
    return pytest.approx(value, rel=0.05)


def rows(summary: Summary) -> list[float | None]:
    return [level.headline_tps for level in summary.levels]


def ttft_of_first(preset: str, count: int) -> float:
    """Return the mean TTFT at C=8 with the requests that found an idle server, as the source counts it."""
    records = simulate_journal(preset, "random-1k-1k", levels=(8,), requests=count, preroll=False).records
    first = sorted((r for r in records if r.phase in LEVEL_PHASES), key=lambda r: r.t_sent_ns or 0)[:count]
    return sum(record.ttft_s or 0.0 for record in first) / count


def workload_of(preset: str) -> str:
    return f"s0-rows-{preset.partition('-')[0]}"


@pytest.mark.parametrize("preset", ROWS)
def test_s0_rows_contention_and_speed_up(preset: str) -> None:
    summary = simulate_session(preset, workload_of(preset))
    assert rows(summary) == [within_5_percent(row) for row in ROWS[preset]]
    for level in summary.levels[1:]:
        assert level.serial is not None and not level.serial.extrapolated
        assert (level.runs, level.serial.tasks, level.token_ratio) == (2, 2 * level.c, 1.0)
    last = summary.levels[-1]
    assert last.wall_speedup == pytest.approx(ROWS[preset][3] / ROWS[preset][0], rel=0.08)
    if preset in CONTENTION:
        assert last.contention == pytest.approx(CONTENTION[preset], abs=0.02)


@pytest.mark.parametrize("preset", ["dense-tp1", "dense-tp2-nvlink"])
def test_s0_rows_of_the_short_form(preset: str) -> None:
    summary = simulate_session(preset, workload_of(preset), runs=1, max_tokens=600)
    assert rows(summary) == [within_5_percent(row) for row in ROWS[preset]]
    assert summary.levels[-1].contention == pytest.approx(CONTENTION[preset], abs=0.02)


@pytest.mark.parametrize("requests", ["16", "2C"])
def test_s1_sweet_spot_queue_and_anomaly_of_two_replicas(requests: str) -> None:
    levels: dict[str, Any] = {"levels": (1, 2, 4, 8), "requests": requests}
    from_idle = simulate_session("qwen36-27b-2x", "random-1k-1k", preroll=False, **levels)
    assert rows(from_idle) == [within_5_percent(row) for row in (82, 154, 225, 167)]
    summary = simulate_session("qwen36-27b-2x", "random-1k-1k", **levels)
    assert rows(summary) == [pytest.approx(row, rel=0.07) for row in (82, 154, 225, 167)], (
        "the queue is full throughout"
    )
    said = " ".join(paint(finding_sentences(summary)).split())
    assert summary.scaling is not None
    assert summary.scaling.sentence.startswith("sweet spot C=4 (2×2) = 2 replicas × 2 slots; queue forms at C=8; cliff")
    assert re.search("throughput fell by 3[0-3] % from C=4 to C=8 while all 4 slots were full", said)
    # The 19 s and the 167 tok/s of the source are not consistent within 5 %: see presets.toml.
    assert ttft_of_first("qwen36-27b-2x", 16) == pytest.approx(19, rel=0.1)


@pytest.mark.parametrize("requests", ["32", "4C"])
def test_s1_moe_throughput_is_flat_beyond_its_slots(requests: str) -> None:
    """The published row at C=1 has short answers, the others have long ones."""
    alone = simulate_session("qwen36-35b-moe", "random-1k-1k", levels=(1,), requests=8, max_tokens=256)
    assert rows(alone) == [within_5_percent(90)]
    summary = simulate_session("qwen36-35b-moe", "random-1k-1k", levels=(2, 4, 8), requests=requests)
    assert rows(summary) == [within_5_percent(row) for row in (161, 283, 282)]
    assert ttft_of_first("qwen36-35b-moe", 32) == within_5_percent(13.4)
    assert summary.scaling is not None and summary.scaling.anomalies == ()
    assert summary.scaling.sentence.startswith("sweet spot C=4 (4 slots); queue forms at C=8; cliff at C=8")


def test_s2_fifty_agents_with_extrapolated_serial_time() -> None:
    summary = simulate_session("b70-swarm", "s2-swarm-50", serial_rates=SerialRates(prompt_tps=85.4, decode_tps=13.4))
    (level,) = summary.levels
    assert level.c == level.ok == 50
    assert level.wall_s == within_5_percent(70)
    assert level.total_tps == within_5_percent(1097)
    assert level.out_tps_wall == within_5_percent(366)
    assert level.ttft_s.mean == within_5_percent(11)
    assert level.wall_speedup == within_5_percent(36)
    assert level.serial is not None and level.serial.extrapolated and level.token_ratio is None
    assert level.serial.wall_s == within_5_percent(2510)
    shown = paint(result_tables(summary))
    assert re.search(r"25[01]\d s \(extrapolated\)", shown) and "× (extrapolated)" in shown


def test_s2_extrapolation_from_a_sample_is_labelled() -> None:
    (level,) = simulate_session("b70-swarm", "s2-swarm-50").levels
    assert level.serial is not None
    assert level.serial.how == "extrapolated from 1 task of 50 run serially"
    assert level.wall_speedup == pytest.approx(27, rel=0.05)


@pytest.mark.parametrize("preset", PRIMARY)
def test_s4_primary_rate_and_answers_in_the_reasoning(preset: str) -> None:
    """Answers of equal length that repeat the question, all of it in the reasoning."""
    summary = simulate_session(f"{preset}?output.cv=0&output.echo=true&reasoning.share=1", "s4-mixed-fastapi")
    first = {task.c: task.per_stream_tps for task in summary.tasks if (task.type, task.turn) == ("primary", 0)}
    assert list(first) == [1, 2, 3, 5]
    assert list(first.values()) == [within_5_percent(row) for row in PRIMARY[preset]]
    for level in summary.levels:
        assert set(level.verdicts) == {"pass in reasoning"} and level.pass_rate == 1.0
    assert {task.type for task in summary.tasks if task.c == 5} == {"primary", "docstring", "tests", "bug", "async"}
    assert "fail" not in paint(result_tables(summary)).lower()
    table = level_table(summary.levels, summary.tasks)
    assert table in level_blocks(summary.levels, summary) and table in session_blocks(summary)
    at = [column.id for column in table.columns].index("primary")
    assert [float(row[at].text) for row in table.rows] == [within_5_percent(row) for row in PRIMARY[preset]]


def test_s4_without_loop_later_turns_run_alone() -> None:
    preset = "gpt-oss-20b-5slot?output.cv=0&output.echo=true"
    looped, once = (simulate_session(preset, "s4-mixed-fastapi", loop=loop) for loop in (True, False))

    def last_turn(summary: Summary) -> float:
        found = [t.per_stream_tps for t in summary.tasks if (t.c, t.type, t.turn) == (5, "primary", 2)]
        assert found[0] is not None
        return found[0]

    assert last_turn(looped) == within_5_percent(34)
    assert last_turn(once) == within_5_percent(127)
