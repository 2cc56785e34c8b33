"""The cliff search finds the slots of a preset, without knowing them."""

from __future__ import annotations

import pytest

from swarmtui.analysis.capacity.cliff import find_cliff
from swarmtui.sim.presets import find_preset
from tests.seeds.virtual_session import simulate_cliff_search


@pytest.mark.parametrize("name", ["moe-tp1", "dense-tp1", "qwen36-27b-2x", "gemma-31b-tp4", "gpt-oss-20b-5slot"])
def test_cliff_search_finds_the_slots_of_a_preset(name: str) -> None:
    preset = find_preset(name)
    cliff = find_cliff(simulate_cliff_search(name, "chat", seed=1))
    assert cliff is not None
    assert cliff.c_before == preset.slots * preset.replicas
