from __future__ import annotations

import pytest

from swarmtui.analysis.machine.by_level import bandwidth_use, step_bytes
from swarmtui.model.findings import Slots
from swarmtui.model.session_tags import model_facts_from_tags
from tests.analysis.level_builders import level

TAGS = {"active_bytes": "1.65GB", "gpu_bandwidth": "936GB/s", "model_bytes": "16.9GB", "experts": "8/128"}


def test_s0_single_stream_uses_29_percent_of_bandwidth() -> None:
    """3.3 billion weights of half a byte, 167 times per second, of 936 GB/s; S0 claims "roughly 10 %"."""
    facts = model_facts_from_tags({"active_bytes": "1.65GB", "gpu_bandwidth": "936GB/s"})
    (found,) = bandwidth_use([level(1, tpot=1 / 167)], facts, None)
    assert found.share == pytest.approx(0.294, abs=0.001)


def test_more_streams_read_more_experts() -> None:
    def read(streams: float) -> float:
        return step_bytes(1.65e9, 16.9e9, (8, 128), streams)

    assert read(1) == pytest.approx(1.65e9)
    assert read(4) == pytest.approx(1.65e9 + (16.9e9 - 1.65e9) / (1 - 1 / 16) * ((15 / 16) - (15 / 16) ** 4))
    assert read(10_000) == pytest.approx(16.9e9)


def test_streams_beyond_the_slots_are_not_in_the_batch() -> None:
    levels, slots = [level(4, tpot=0.01), level(8, tpot=0.01)], Slots(per_replica=2, replicas=2)
    four, eight = bandwidth_use(levels, model_facts_from_tags(TAGS), slots)
    assert four.step_bytes == eight.step_bytes == step_bytes(1.65e9, 16.9e9, (8, 128), 2)


def test_dense_model_reads_the_same_each_step() -> None:
    assert step_bytes(16e9, None, None, 1) == step_bytes(16e9, None, None, 64) == 16e9


@pytest.mark.parametrize(
    "tags", [{}, {"active_bytes": "1GB"}, {"active_bytes": "much", "gpu_bandwidth": "1"}, {"gpu_bandwidth": "936GB/s"}]
)
def test_incomplete_tags_give_no_bandwidth(tags: dict[str, str]) -> None:
    assert bandwidth_use([level(1, tpot=0.01)], model_facts_from_tags(tags), None) == ()
