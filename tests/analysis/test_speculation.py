"""Speculative decoding in two parts: tokens per step, and steps per second."""

from __future__ import annotations

from typing import Any

import pytest

from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.machine.by_level import add_machine_figures
from swarmtui.model.record import EngineTimings, Record
from swarmtui.model.session import Level
from swarmtui.model.telemetry import ServerState, Telemetry
from swarmtui.report.figure_tables import load_tables
from swarmtui.report.text import paint
from swarmtui.telemetry.metrics import parse_prometheus
from tests.analysis.level_builders import summary
from tests.analysis.record_builders import BOOT_NS, MS, end, request, stage

METRICS = """
vllm:generation_tokens_total{{engine="0"}} {tokens}
vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}
vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {drafted}
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {first}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="1"}} {second}
"""


def sample(at: float, **counts: float) -> Telemetry:
    state = parse_prometheus(METRICS.format(**counts))
    assert state is not None
    return Telemetry(t_ns=BOOT_NS + round(at * MS), servers=(state,))


SAMPLES = (
    sample(-1, tokens=500, drafts=100, drafted=200, accepted=90, first=60, second=30),
    sample(9000, tokens=1500, drafts=600, drafted=1200, accepted=490, first=380, second=110),
)


def answer(at: float, **fields: Any) -> Record:
    """40 tokens after the first in two seconds: 20 tok/s."""
    return request(at, [at + 100, at + 2100], tokens=41, **fields)


def measured(records: list[Record], samples: tuple[Telemetry, ...] = ()) -> Level:
    stages, ends = [stage(1, 1)], [end(1, at=10_000)]
    (level,) = add_machine_figures(level_figures(records, stages, ends), stages, ends, samples, records)
    return level


def test_parts_by_the_counters_of_the_server() -> None:
    found = measured([answer(0), answer(3000, task=1)], SAMPLES).speculation
    # 1,000 tokens, 400 of them accepted drafts: 600 steps.
    assert found is not None and found.tokens_per_step == pytest.approx(1000 / 600)
    assert found.steps_per_s == pytest.approx(20 * 0.6) and found.acceptance == pytest.approx(0.4)
    assert found.drafted_per_step == pytest.approx(1000 / 600)
    assert found.by_position == pytest.approx((320 / 500, 80 / 500))


def test_answers_that_tell_of_their_drafts_count_more_than_counters() -> None:
    engine = EngineTimings(draft_tokens=60, accepted_tokens=21)
    found = measured([answer(0, engine=engine)], SAMPLES).speculation
    assert found is not None and found.tokens_per_step == pytest.approx(41 / 20)
    assert found.acceptance == pytest.approx(0.35)


def test_nothing_is_said_without_drafts() -> None:
    idle = Telemetry(t_ns=BOOT_NS - MS, servers=(ServerState(engine="vLLM", url=""),))
    assert measured([answer(0)], (idle,)).speculation is None


def test_report_and_comparison_show_both_parts() -> None:
    level = measured([answer(0)], SAMPLES)
    text = paint(load_tables(summary([level])))
    assert "Speculative decoding" in text and "1.67" in text and "64 % · 16 %" in text
    pair = compare_pair(summary([measured([answer(0)])], "20261115-014455-aaaa"), summary([level]))
    rows = {row.figure: row.after for row in pair.machine}
    assert rows["tokens per step"] == pytest.approx(1000 / 600) and rows["steps/s"] == pytest.approx(12.0)
