"""How servers were started, from their command lines, and never a secret with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.telemetry.server_flags import (
    flags_of,
    flags_of_cache_config,
    flags_of_props,
    flags_of_server_info,
    looks_like_server,
    parse_cmdline,
    seats,
)

SAMPLES = Path(__file__).parent / "samples"


def test_vllm_as_it_is_started() -> None:
    line = "/usr/bin/python3 -u /usr/local/bin/vllm serve Qwen/Qwen3-30B --max-num-seqs 4 --max_model_len=32768"
    line += " --enable-prefix-caching -tp 2 --gpu-memory-utilization 0.92 --served-model-name a b --api-key sk-1"
    assert parse_cmdline(line.split()) == {
        "model": "Qwen/Qwen3-30B",
        "max-num-seqs": "4",
        "max-model-len": "32768",
        "enable-prefix-caching": "true",
        "tensor-parallel-size": "2",
        "gpu-memory-utilization": "0.92",
        "served-model-name": "a b",
    }


def test_llama_with_short_flags_and_negative_values() -> None:
    line = "./llama-server -m /models/x.gguf -c 16384 -np 4 -ngl -1 --temp -0.5 -fa --lora a.gguf --lora b.gguf"
    assert parse_cmdline(line.split()) == {
        "model": "/models/x.gguf",
        "ctx-size": "16384",
        "parallel": "4",
        "n-gpu-layers": "-1",
        "temp": "-0.5",
        "flash-attn": "true",
        "lora": "a.gguf, b.gguf",
    }


def test_a_module() -> None:
    module = ["python", "-m", "sglang.launch_server", "--model-path", "m", "--tp", "2"]
    assert parse_cmdline(module) == {"model-path": "m", "tp": "2"}


@pytest.mark.parametrize(
    "words",
    [
        "--api-key HIDDEN",
        "--api-key=HIDDEN",
        "--api_key HIDDEN",
        "--hf-token HIDDEN",
        "--token HIDDEN",
        "--ssl-keyfile-password HIDDEN",
        "-e HF_TOKEN=HIDDEN",
        '--config {"api_key":"HIDDEN"}',
        "--header X:HIDDEN",
        "--model https://user:HIDDEN@host/x",
        "--note hf_HIDDENHIDDENHIDDENHIDDEN",
        "--note sk-HIDDENHIDDENHIDDENHIDDEN",
        "--env Authorization: Bearer HIDDEN",
    ],
)
def test_secrets_are_dropped(words: str) -> None:
    assert "HIDDEN" not in json.dumps(parse_cmdline(["server", *words.split(" "), "--port", "1"]))


def test_flags_that_only_sound_secret_stay() -> None:
    line = "s --max-num-batched-tokens 8192 --tokenizer hf-internal-testing/llama --tokenizer-mode auto"
    assert len(parse_cmdline(line.split())) == 3


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=12))
def test_any_command_line_can_be_read(argv: list[str]) -> None:
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in parse_cmdline(argv).items())


def test_a_server_is_known_by_its_program_not_by_its_model() -> None:
    assert looks_like_server(["/opt/llama-server", "-m", "x"])
    assert looks_like_server(["python3", "-m", "vllm.entrypoints.openai.api_server"])
    assert looks_like_server(["python3", "/usr/bin/vllm", "serve", "m"])
    assert looks_like_server(["python3", "-m", "swarmtui.sim", "moe-tp1"])
    assert not looks_like_server(["python3", "train.py", "--model", "vllm/llama"])
    assert not looks_like_server(["vim", "notes.txt"]) and not looks_like_server([])


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps, with a command line and settings like Ollama's and llama.cpp's."""
    code = "import sys; sys.stdin.read()"
    environment = {**os.environ, "OLLAMA_NUM_PARALLEL": "3", "OLLAMA_API_KEY": "hidden", "HOME": "/nowhere"}
    command = [sys.executable, "-c", code, "--parallel", "4", "--api-key", "hidden"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        yield process
        process.kill()


def test_flags_of_a_running_process(server: subprocess.Popen[bytes]) -> None:
    flags = flags_of(server.pid)
    assert flags is not None
    assert flags["parallel"] == "4" and flags["OLLAMA_NUM_PARALLEL"] == "3"
    assert "hidden" not in json.dumps(flags) and "HOME" not in flags


def test_a_process_that_is_not_there_has_none() -> None:
    assert flags_of(2**22 + 1) is None


def test_what_servers_say_of_their_flags() -> None:
    props = json.loads((SAMPLES / "llama-props.json").read_text())
    assert flags_of_props(props) == {"parallel": "4", "ctx-size": "4096", "model": "/models/tiny-f16.gguf"}
    config = flags_of_cache_config((SAMPLES / "vllm-0.32.txt").read_text())
    assert config["gpu-memory-utilization"] == "0.92" and config["num-gpu-blocks"] == "2048"
    info = {
        "model_path": "m",
        "api_key": "hidden",
        "max_running_requests": None,
        "tp_size": 2,
        "disable_cuda_graph": False,
    }
    assert flags_of_server_info(info) == {"model-path": "m", "tp-size": "2", "disable-cuda-graph": "false"}


def test_seats() -> None:
    assert seats("vLLM", {"max-num-seqs": "4", "data-parallel-size": "2"}) == 8
    assert seats("vLLM", {"max-num-seqs": "4"}) == 4
    assert seats("vLLM", {}) is None, "its default hangs on its hardware"
    assert seats("llama.cpp", {"parallel": "2"}, {"total_slots": 4}) == 4
    assert seats("llama.cpp", {"parallel": "2"}) == 2
    assert seats("llama.cpp", {"parallel": "-1"}) is None
    assert seats("SGLang", {"max-running-requests": "64", "data-parallel-size": "4"}) == 64
    assert (
        seats("SGLang", None, {"dp_size": 2, "internal_states": [{"effective_max_running_requests_per_dp": 48}]}) == 96
    )
    assert seats("Ollama", {"OLLAMA_NUM_PARALLEL": "4"}) == 4
    assert seats("Ollama", {}) == 1 and seats("Ollama", None) is None
    assert seats("simulator", {"seats": "2", "replicas": "2"}) == 4
    assert seats("something else", {"max-num-seqs": "4"}) is None
