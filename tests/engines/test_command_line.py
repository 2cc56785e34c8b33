"""Command lines are parsed into flags, and secrets never appear in them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.engines.command_line import redact_flags
from swarmtui.engines.registry import engine_from_command, flags_from_command, flags_from_environment


def test_vllm_command_line() -> None:
    line = "/usr/bin/python3 -u /usr/local/bin/vllm serve Qwen/Qwen3-30B --max-num-seqs 4 --max_model_len=32768"
    line += " --enable-prefix-caching -tp 2 --gpu-memory-utilization 0.92 --served-model-name a b --api-key sk-1"
    assert flags_from_command(line.split()) == {
        "model": "Qwen/Qwen3-30B",
        "max-num-seqs": "4",
        "max-model-len": "32768",
        "enable-prefix-caching": "true",
        "tensor-parallel-size": "2",
        "gpu-memory-utilization": "0.92",
        "served-model-name": "a b",
    }


def test_llama_short_flags_and_negative_values() -> None:
    line = "./llama-server -m /models/x.gguf -c 16384 -np 4 -ngl -1 --temp -0.5 -fa --lora a.gguf --lora b.gguf"
    assert flags_from_command(line.split()) == {
        "model": "/models/x.gguf",
        "ctx-size": "16384",
        "parallel": "4",
        "n-gpu-layers": "-1",
        "temp": "-0.5",
        "flash-attn": "true",
        "lora": "a.gguf, b.gguf",
    }


def test_python_module() -> None:
    module = ["python", "-m", "sglang.launch_server", "--model-path", "m", "--tp", "2"]
    assert flags_from_command(module) == {"model-path": "m", "tp": "2"}


def test_unknown_program_uses_short_flags_of_all_engines() -> None:
    assert flags_from_command(["./serve.sh", "-np", "4", "-tp", "2"]) == {"parallel": "4", "tensor-parallel-size": "2"}


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
        "--ngrok-authtoken HIDDEN",
        "--jwt HIDDEN",
        "--pw HIDDEN",
        '--config {"apiKey":"HIDDEN"}',
        '--config {"auth":{"clientSecret":"HIDDEN"}}',
        "--model https://user:HIDDEN@host/x",
        "--note hf_HIDDENHIDDENHIDDENHIDDEN",
        "--note sk-HIDDENHIDDENHIDDENHIDDEN",
        "--env Authorization: Bearer HIDDEN",
        "-hft HIDDEN",
        "--report-to https://host/x?sig=HIDDEN&api-version=3",
        "--report-to=https://hooks.host/services/HIDDEN0123456789",
    ],
)
def test_secrets_are_dropped(words: str) -> None:
    assert "HIDDEN" not in json.dumps(flags_from_command(["server", *words.split(" "), "--port", "1"]))
    redacted = redact_flags(f"server {words} --port 1")
    assert "HIDDEN" not in redacted and redacted.startswith("server -") and redacted.endswith(" --port 1")


def test_typed_flags_without_quotation_marks_are_redacted() -> None:
    assert redact_flags('--config {"token": "HIDDEN", "n": 1} --port 1') == "--config … … … … --port 1"
    plain = "--model-url https://host/models/qwen-3.gguf --port 1"
    assert redact_flags(plain) == plain


def test_flags_that_only_resemble_secrets_are_kept() -> None:
    line = "s --max-num-batched-tokens 8192 --tokenizer hf-internal-testing/llama --tokenizer-mode auto"
    assert len(flags_from_command(line.split())) == 3


@given(st.lists(st.text(max_size=12), max_size=12))
def test_any_command_line_is_accepted(argv: list[str]) -> None:
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in flags_from_command(argv).items())


def test_environment_keeps_settings_and_drops_secrets() -> None:
    environment = {
        "OLLAMA_NUM_PARALLEL": "3",
        "OLLAMA_API_KEY": "hidden",
        "VLLM_ATTENTION_BACKEND": "FLASH_ATTN",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HOME": "/root",
    }
    assert flags_from_environment(environment) == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "OLLAMA_NUM_PARALLEL": "3",
        "VLLM_ATTENTION_BACKEND": "FLASH_ATTN",
    }


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("/opt/llama-server -m x", "llama.cpp"),
        ("python3 -m llama_cpp.server --model x", "llama.cpp"),
        ("python3 -m vllm.entrypoints.openai.api_server", "vLLM"),
        ("python3 /usr/bin/vllm serve m", "vLLM"),
        ("python -m sglang.launch_server --model-path m", "SGLang"),
        ("/usr/bin/ollama serve", "Ollama"),
        ("text-generation-launcher --model-id m", "TGI"),
        ("/venv/bin/python /venv/bin/transformers serve m", "transformers"),
        ("python3 -m swarmtui.sim moe-tp1", "simulator"),
        ("python3 swarmtui.pyz sim --port 8000", "simulator"),
        ("litellm --config c.yaml", "LiteLLM gateway"),
        ("python3 train.py --model vllm/llama", None),
        ("vim vllm.txt", None),
        ("", None),
    ],
)
def test_engine_is_recognised_by_program_and_not_by_arguments(line: str, engine: str | None) -> None:
    found = engine_from_command(line.split())
    assert (found.name if found else None) == engine
