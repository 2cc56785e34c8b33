from __future__ import annotations

import pytest

from swarmtui.analysis.machine.bandwidth import ModelBytes, bandwidth_use, model_bytes_from_tags
from swarmtui.model.findings import Slots
from tests.analysis.level_builders import level

TAGS = {"active_bytes": "1.65GB", "gpu_bandwidth": "936GB/s", "model_bytes": "16.9GB", "experts": "8/128"}


def test_s0_reads_three_tenths_of_its_bandwidth_alone_and_not_one() -> None:
    """3.3 billion weights of half a byte, 167 times a second, of 936 GB/s; the seed says "roughly 10 %"."""
    weights = model_bytes_from_tags({"active_bytes": "1.65GB", "gpu_bandwidth": "936GB/s"})
    assert weights is not None
    (found,) = bandwidth_use([level(1, tpot=1 / 167)], weights, None)
    assert found.share == pytest.approx(0.294, abs=0.001)


def test_more_streams_touch_more_experts_up_to_the_whole_model() -> None:
    weights = model_bytes_from_tags(TAGS)
    assert weights is not None
    assert weights.step_bytes(1) == pytest.approx(1.65e9)
    assert weights.step_bytes(4) == pytest.approx(
        1.65e9 + (16.9e9 - 1.65e9) / (1 - 1 / 16) * ((15 / 16) - (15 / 16) ** 4)
    )
    assert weights.step_bytes(10_000) == pytest.approx(16.9e9)


def test_streams_beyond_the_seats_are_not_in_the_batch() -> None:
    weights = model_bytes_from_tags(TAGS)
    assert weights is not None
    four, eight = bandwidth_use([level(4, tpot=0.01), level(8, tpot=0.01)], weights, Slots(per_replica=2, replicas=2))
    assert four.step_bytes == eight.step_bytes == weights.step_bytes(2)


def test_a_dense_model_reads_the_same_in_every_step() -> None:
    weights = ModelBytes(active_bytes=16e9, gpu_bandwidth=936e9)
    assert weights.step_bytes(1) == weights.step_bytes(64) == 16e9


@pytest.mark.parametrize(
    "tags", [{}, {"active_bytes": "1GB"}, {"active_bytes": "much", "gpu_bandwidth": "1"}, {"gpu_bandwidth": "936GB/s"}]
)
def test_what_is_not_said_is_not_guessed(tags: dict[str, str]) -> None:
    assert model_bytes_from_tags(tags) is None
