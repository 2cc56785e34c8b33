"""Knobs are read from a command line and written into it; the catalogue of each engine is sound."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.engines.base import Engine
from swarmtui.engines.knobs import CORES, GPUS, STAGES, Knob, knob_values, read_knobs, write_knobs
from swarmtui.engines.registry import ENGINES, engine_named
from swarmtui.model.tuning import Flags, Value, is_env_variable

WITH_KNOBS = [engine for engine in ENGINES if engine.knobs]
VLLM, LLAMA, OLLAMA = (engine_named(name).knobs for name in ("vLLM", "llama.cpp", "Ollama"))


def changed(command: str, flags: Flags, knobs: tuple[Knob, ...]) -> str:
    words, env = write_knobs(shlex.split(command), flags, knobs)
    return " ".join([*(f"{name}={value}" for name, value in env.items()), *words])


@pytest.mark.parametrize(
    ("command", "knobs", "expected"),
    [
        (
            "vllm serve M --max_num_seqs=4 -tp 2 --no-enable-prefix-caching --port {port}",
            VLLM,
            {"--tensor-parallel-size": 2, "--max-num-seqs": 4, "--enable-prefix-caching": False},
        ),
        ("vllm serve --async-scheduling M", VLLM, {"--async-scheduling": True}),
        ("vllm serve M --gpu-memory-utilization 0.92", VLLM, {"--gpu-memory-utilization": 0.92}),
        ("llama-server -np 1 -np 4 -fa -b 512", LLAMA, {"--parallel": 4, "--flash-attn": True, "--batch-size": 512}),
        ("OLLAMA_NUM_PARALLEL=4 OLLAMA_HOST=:{port} ollama serve", OLLAMA, {"OLLAMA_NUM_PARALLEL": 4}),
        ("ollama serve", OLLAMA, {}),
    ],
)  # fmt: skip
def test_knobs_of_a_command(command: str, knobs: tuple[Knob, ...], expected: Flags) -> None:
    assert read_knobs(shlex.split(command), knobs) == expected


@pytest.mark.parametrize(
    ("command", "knobs", "flags", "expected"),
    [
        ("vllm serve M --max_num_seqs=4 -x 1", VLLM, {"--max-num-seqs": 8}, "vllm serve M --max_num_seqs 8 -x 1"),
        ("vllm serve M", VLLM, {"--kv-cache-dtype": "fp8"}, "vllm serve M --kv-cache-dtype fp8"),
        ("vllm serve --async-scheduling M", VLLM, {"--async-scheduling": False}, "vllm serve --no-async-scheduling M"),
        ("vllm serve --no-async-scheduling M", VLLM, {"--async-scheduling": True}, "vllm serve --async-scheduling M"),
        ("llama-server -np 4 -c 8192", LLAMA, {"--parallel": 8}, "llama-server -np 8 -c 16384"),
        ("llama-server -np 4 -c 0", LLAMA, {"--parallel": 8}, "llama-server -np 8 -c 0"),
        ("llama-server -np 4 -c 8192", LLAMA, {"--parallel": 8, "--ctx-size": 4096}, "llama-server -np 8 -c 4096"),
        ("OLLAMA_NUM_PARALLEL=4 ollama", OLLAMA, {"OLLAMA_NUM_PARALLEL": 8}, "OLLAMA_NUM_PARALLEL=8 ollama"),
        ("ollama serve", OLLAMA, {"OLLAMA_SCHED_SPREAD": True}, "OLLAMA_SCHED_SPREAD=1 ollama serve"),
    ],
)  # fmt: skip
def test_a_flag_is_replaced_where_it_is_else_appended(
    command: str, knobs: tuple[Knob, ...], flags: Flags, expected: str
) -> None:
    assert changed(command, flags, knobs) == expected


def test_number_in_a_json_object_is_changed_and_the_rest_kept() -> None:
    knob = next(knob for knob in VLLM if knob.json_key)
    command = ["vllm", "serve", "M", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}']
    baseline = read_knobs(command, (knob,))
    assert knob_values(knob, baseline)[0] == '{"method": "mtp", "num_speculative_tokens": 1}'
    assert knob_values(knob, {}) == () and knob_values(knob, {knob.name: "not JSON"}) == ()


@pytest.mark.parametrize("engine", WITH_KNOBS, ids=lambda engine: engine.name)
@given(data=st.data())
def test_what_is_written_into_a_command_is_read_from_it(engine: Engine, data: st.DataObject) -> None:
    knobs = tuple(knob for knob in engine.knobs if not knob.json_key)
    chosen = data.draw(st.lists(st.sampled_from(knobs), unique_by=lambda knob: knob.name))
    before: Flags = {knob.name: _draw(data, knob) for knob in chosen}
    after: Flags = {knob.name: _draw(data, knob) for knob in chosen}
    first = write_knobs(["server", "model"], before, knobs)
    words = [*(f"{name}={value}" for name, value in first.env.items()), *first.words]
    second = write_knobs(words, after, knobs)
    assert second.words[:2] == ("server", "model")
    read = read_knobs([*(f"{name}={value}" for name, value in second.env.items()), *second.words], knobs)
    by_name = {knob.name: knob for knob in knobs}
    # A switch that is off and has no negative is absent; a variable that is on reads as 1.
    expected = {
        name: 1 if value is True and is_env_variable(name) else value
        for name, value in after.items()
        if value is not False or by_name[name].negative
    }
    assert read == expected


def _draw(data: st.DataObject, knob: Knob) -> Value:
    return data.draw(st.sampled_from(knob.values))


@pytest.mark.parametrize("engine", WITH_KNOBS, ids=lambda engine: engine.name)
def test_catalogue_names_only_what_it_has(engine: Engine) -> None:
    knobs = engine.knobs
    names = [name for knob in knobs for name in knob.names]
    assert len(set(names)) == len(names)
    for knob in knobs:
        assert knob.stage in STAGES and knob.moves and len(set(knob.values)) == len(knob.values) > 1
        assert {*knob.at_most, *knob.scales} <= {*names, GPUS, CORES}
        assert {conflict.other for conflict in knob.excludes} <= set(names)
        assert not knob.ordered or list(knob.values) == sorted(knob.values)
