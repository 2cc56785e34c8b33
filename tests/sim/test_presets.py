"""Presets, their settings, and errors for misspelt ones."""

from __future__ import annotations

import pytest

from swarmtui.engines.simulator import simulator_address
from swarmtui.model.base import BadInput
from swarmtui.sim.presets import changed_settings, find_preset, list_presets, parse_spec


def test_list_of_presets() -> None:
    assert [preset.name for preset in list_presets()] == [
        "moe-tp2-nvlink", "moe-tp1", "moe-tp2-pcie", "dense-tp2-nvlink", "dense-tp1", "qwen36-27b-2x",
        "qwen36-35b-moe", "b70-swarm", "b70-serial", "gemma-31b-tp4", "gpt-oss-20b-5slot", "qwen3-coder-5slot",
        "agents-small-kv", "agents-large-kv",
    ]  # fmt: skip


def test_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(BadInput, match=r"sim:moe-tp3: no such preset; did you mean moe-tp1\?|did you mean moe-tp2"):
        find_preset("moe-tp3")
    with pytest.raises(BadInput, match="known are moe-tp2-nvlink, moe-tp1"):
        find_preset("zzz")


def test_spec_without_knobs_is_the_preset() -> None:
    preset, settings = parse_spec("moe-tp1")
    assert preset == find_preset("moe-tp1")
    assert (settings.speed, settings.seed) == (1.0, 0)


def test_spec_with_knobs() -> None:
    preset, settings = parse_spec(
        "moe-tp1?speed=10&seed=7&slots=8&failures.http_500=0.1&prefix_cache=true&api_key=secret&step_ms.a=2.5"
    )
    assert (settings.speed, settings.seed) == (10.0, 7)
    assert (preset.slots, preset.prefix_cache, preset.api_key) == (8, True, "secret")
    assert (preset.failures.http_500, preset.failures.reset) == (0.1, 0.0)
    assert (preset.step_ms.a, preset.step_ms.c) == (2.5, 1.46)
    assert find_preset("moe-tp1").slots == 4


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("moe-tp1?slot=8", "slot: unknown key, did you mean slots?"),
        ("moe-tp1?failures.http500=0.1", "failures.http500: unknown key, did you mean http_500?"),
        ("moe-tp1?nothing.at_all=1", "nothing.at_all: no table of this name"),
        ("moe-tp1?slots", "slots: expected key=value"),
        ("moe-tp1?slots=0", "slots: expected a whole number >= 1"),
        ("moe-tp1?slots=many", "slots: expected a whole number, got text"),
        ("moe-tp1?speed=0", "speed: expected a number > 0.0"),
        ("moe-tp1?failures.reset=0.7&failures.stall=0.7", "failures: moe-tp1: the shares add up to more than 1"),
        ("moe-tp1?slots=4000", "budget: moe-tp1: must be above slots"),
        ("moe-tp1?kv_tokens=100", "kv_tokens: moe-tp1: must be at least max_model_len"),
        ('moe-tp1?step_ms.at={"1":5}', "step_ms: moe-tp1: give either a and c, or at"),
    ],
)
def test_bad_spec_says_what_is_wrong(spec: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_spec(spec)
    assert message in str(caught.value)
    assert str(caught.value).startswith("sim:moe-tp1")


def test_what_was_set_leads_to_the_same_simulator_again() -> None:
    """R repeats a run on an embedded simulator, which ended with it, by what it had reported; a key is never told."""
    preset, _ = parse_spec(
        "moe-tp1?slots=8&prefill_tps=900&failures.http_500=0.1&prefix_cache=true&kv_tokens=50000&api_key=k"
    )
    changed = changed_settings(preset)
    assert changed == {"prefill_tps": "900.0", "failures.http_500": "0.1", "prefix_cache": "true", "kv_tokens": "50000"}
    address = simulator_address({"preset": "moe-tp1", "slots": "8", "watch-stdin": "true", **changed})
    assert address is not None
    assert address == simulator_address({**changed, "slots": "8", "preset": "moe-tp1"}), "in whatever order it is known"
    again, _ = parse_spec(address.removeprefix("sim:"))
    assert (again.prefill_tps, again.slots, again.prefix_cache, again.kv_tokens) == (900.0, 8, True, 50000)
    assert again.failures == preset.failures and changed_settings(find_preset("moe-tp1")) == {}
