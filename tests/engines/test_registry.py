"""Engines are consistent with each other and with ServerState, and report their slots."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from swarmtui.engines.base import Engine, ProbeReply
from swarmtui.engines.registry import (
    ENGINES,
    GENERIC,
    engine_from_metrics,
    engine_from_models,
    engine_named,
    tensor_parallel_size,
)
from swarmtui.model.telemetry import ServerHistogram, ServerState


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_metric_maps_name_fields_of_server_state(engine: Engine) -> None:
    types = {field.name: field.type for field in msgspec.structs.fields(ServerState)}
    assert {types[field] for field in engine.metric_values.values()} <= {float | None}
    assert {types[field] for field in engine.metric_histograms.values()} <= {ServerHistogram | None}


def test_names_and_owners_are_unique() -> None:
    counts = Counter(engine.name for engine in ENGINES) + Counter(owner for e in ENGINES for owner in e.owners)
    assert set(counts.values()) == {1}


def test_every_engine_has_a_command_pattern() -> None:
    """An empty one would match every program."""
    assert all(engine.command for engine in ENGINES)


def test_unknown_name_is_generic() -> None:
    assert engine_named("vLLM").name == "vLLM"
    assert engine_named("") is GENERIC and engine_named("something else") is GENERIC


@pytest.mark.parametrize(
    ("owner", "header", "engine"),
    [
        ("vllm", "uvicorn", "vLLM"),
        ("sglang", "", "SGLang"),
        ("llamacpp", "", "llama.cpp"),
        ("me", "llama.cpp", "llama.cpp"),
        ("library", "", "Ollama"),
        ("swarmtui-sim", "", "simulator"),
        ("me", "uvicorn", None),
    ],
)
def test_engine_from_models(owner: str, header: str, engine: str | None) -> None:
    found = engine_from_models([{"id": "m", "owned_by": owner}], header)
    assert (found.name if found else None) == engine


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("vllm:num_requests_running 1", "vLLM"),
        ("# HELP x\nllamacpp:requests_processing 1", "llama.cpp"),
        ("tgi_queue_size 1", "TGI"),
        ("process_cpu_seconds 1", None),
    ],
)
def test_engine_from_metrics(line: str, engine: str | None) -> None:
    found = engine_from_metrics(f"{line}\n")
    assert (found.name if found else None) == engine


def test_reported_settings_become_flags_without_secrets() -> None:
    info = {
        "model_path": "m",
        "api_key": "hidden",
        "max_running_requests": None,
        "tp_size": 2,
        "disable_cuda_graph": False,
    }
    sglang = engine_named("SGLang").describe({"/server_info": ProbeReply(200, "", json.dumps(info))})
    assert sglang.flags == {"model-path": "m", "tp-size": "2", "disable-cuda-graph": "false"}


@pytest.mark.parametrize(
    ("engine", "flags", "info", "slots"),
    [
        ("vLLM", {"max-num-seqs": "4", "data-parallel-size": "2"}, None, 8),
        ("vLLM", {"max-num-seqs": "4"}, None, 4),
        ("vLLM", {}, None, None),
        ("vLLM", None, None, None),
        ("llama.cpp", {"parallel": "2"}, {"total_slots": 4}, 4),
        ("llama.cpp", {"parallel": "2"}, None, 2),
        ("llama.cpp", {"parallel": "-1"}, None, None),
        ("SGLang", {"max-running-requests": "64", "data-parallel-size": "4"}, None, 64),
        ("SGLang", None, {"dp_size": 2, "internal_states": [{"effective_max_running_requests_per_dp": 48}]}, 96),
        ("Ollama", {"OLLAMA_NUM_PARALLEL": "4"}, None, 4),
        ("Ollama", {}, None, 1),
        ("Ollama", None, None, None),
        ("TGI", {"max-batch-size": "16", "max-concurrent-requests": "128"}, None, 16),
        ("TGI", {"max-concurrent-requests": "128"}, None, None),
        ("TGI", None, {"max_batch_size": 8}, 8),
        ("simulator", {"slots": "2", "replicas": "2"}, None, 4),
        ("simulator", None, {"slots": 3, "replicas": 2}, 6),
        ("something else", {"max-num-seqs": "4"}, None, None),
    ],
)
def test_slots(engine: str, flags: Mapping[str, str] | None, info: Mapping[str, Any] | None, slots: int | None) -> None:
    assert engine_named(engine).slots(flags, info) == slots


@pytest.mark.parametrize(
    ("flags", "size"),
    [
        ({"tensor-parallel-size": "2"}, 2),
        ({"--tensor-parallel-size": "4"}, 4),
        ({"-tp": "2"}, 2),
        ({"tp-size": "8"}, 8),
        ({"tp": "auto"}, None),
        ({}, None),
    ],
)
def test_tensor_parallel_size(flags: Mapping[str, str], size: int | None) -> None:
    assert tensor_parallel_size(flags) == size
