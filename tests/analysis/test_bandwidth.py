from __future__ import annotations

import pytest

from swarmtui.analysis.machine.bandwidth import ModelBytes, bandwidth_use, model_bytes_from_facts
from swarmtui.model.findings import Slots
from swarmtui.model.session_tags import model_facts_from_tags
from tests.analysis.level_builders import level

TAGS = {"active_bytes": "1.65GB", "gpu_bandwidth": "936GB/s", "model_bytes": "16.9GB", "experts": "8/128"}


def test_s0_single_stream_uses_29_percent_of_bandwidth() -> None:
    """3.3 billion weights of half a byte, 167 times per second, of 936 GB/s; S0 claims "roughly 10 %"."""
    weights = model_bytes_from_facts(model_facts_from_tags({"active_bytes": "1.65GB", "gpu_bandwidth": "936GB/s"}))
    assert weights is not None
    (found,) = bandwidth_use([level(1, tpot=1 / 167)], weights, None)
    assert found.share == pytest.approx(0.294, abs=0.001)


def test_more_streams_read_more_experts() -> None:
    weights = model_bytes_from_facts(model_facts_from_tags(TAGS))
    assert weights is not None
    assert weights.step_bytes(1) == pytest.approx(1.65e9)
    assert weights.step_bytes(4) == pytest.approx(
        1.65e9 + (16.9e9 - 1.65e9) / (1 - 1 / 16) * ((15 / 16) - (15 / 16) ** 4)
    )
    assert weights.step_bytes(10_000) == pytest.approx(16.9e9)


def test_streams_beyond_the_slots_are_not_in_the_batch() -> None:
    weights = model_bytes_from_facts(model_facts_from_tags(TAGS))
    assert weights is not None
    four, eight = bandwidth_use([level(4, tpot=0.01), level(8, tpot=0.01)], weights, Slots(per_replica=2, replicas=2))
    assert four.step_bytes == eight.step_bytes == weights.step_bytes(2)


def test_dense_model_reads_the_same_each_step() -> None:
    weights = ModelBytes(active_bytes=16e9, gpu_bandwidth=936e9)
    assert weights.step_bytes(1) == weights.step_bytes(64) == 16e9


@pytest.mark.parametrize(
    "tags", [{}, {"active_bytes": "1GB"}, {"active_bytes": "much", "gpu_bandwidth": "1"}, {"gpu_bandwidth": "936GB/s"}]
)
def test_incomplete_tags_give_no_bandwidth(tags: dict[str, str]) -> None:
    assert model_bytes_from_facts(model_facts_from_tags(tags)) is None
