"""Headers of models are read exactly; files that are damaged or lie about their size are refused by name."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.model.base import BadInput
from swarmtui.model.speed_of_light import AttentionLayers, ModelShape
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.telemetry.model_files.find import find_shape
from swarmtui.telemetry.model_files.reader import read_model
from tests.telemetry.model_builders import (
    DENSE,
    all_models,
    dense_model,
    gguf_model,
    gpt_oss,
    moe_model,
    settings,
    write_gguf,
    write_safetensors,
)


def test_two_hundred_models_of_all_formats_are_read_exactly(tmp_path: Path) -> None:
    count, wrong = 0, []
    for built in all_models(tmp_path):
        found, expected = read_model(built.path), built.expected
        read = (
            found.dense_bytes, found.dense_parameters, found.expert_bytes * found.experts,
            found.expert_parameters * found.experts, found.embedding_bytes, found.draft_bytes, found.other_bytes,
            found.experts, found.experts_used,
        )  # fmt: skip
        count += 1
        if read != pytest.approx(tuple(expected), rel=1e-12):
            wrong.append((built.name, read, tuple(expected)))
    assert count >= 200 and not wrong


def test_total_is_what_the_files_hold(tmp_path: Path) -> None:
    moe_model(tmp_path, "awq", 64, 6, shared=True, drafts=True)
    data = sum(path.stat().st_size - 8 - int.from_bytes(path.open("rb").read(8), "little")
               for path in tmp_path.glob("*.safetensors"))  # fmt: skip
    assert read_model(tmp_path).total_bytes == pytest.approx(data, rel=1e-12)


# what settings say


def shape_of(tmp_path: Path, **more: Any) -> ModelShape:
    """Read settings without weights: an 8B model, changed."""
    (tmp_path / "config.json").write_text(json.dumps(settings(DENSE["8b"], {}, tied=False, model_type="llama") | more))
    return read_model(tmp_path)


def test_kv_cache_follows_heads_windows_and_latent_vectors(tmp_path: Path) -> None:
    plain = AttentionLayers(layers=3, elements=2 * 8 * 128, flops=4 * 32 * 128)
    assert shape_of(tmp_path).attention == (plain,)
    latent = shape_of(tmp_path, kv_lora_rank=512, qk_rope_head_dim=64)
    assert latent.latent_kv and latent.attention[0].elements == 576
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    full, windowed = shape_of(tmp_path, sliding_window=1024, layer_types=kinds).attention
    assert (full.layers, full.window, windowed.layers, windowed.window) == (1, None, 2, 1024)
    switched_off = shape_of(tmp_path, sliding_window=4096, use_sliding_window=False)
    assert [group.window for group in switched_off.attention] == [None]
    gemma = shape_of(tmp_path, model_type="gemma3_text", sliding_window=512, num_hidden_layers=12)
    assert [(group.layers, group.window) for group in gemma.attention] == [(2, None), (10, 512)]


def test_linear_attention_keeps_a_state_instead_of_tokens(tmp_path: Path) -> None:
    found = shape_of(
        tmp_path, num_hidden_layers=8, full_attention_interval=4, linear_num_value_heads=32, linear_num_key_heads=16,
        linear_key_head_dim=128, linear_value_head_dim=128,
    )  # fmt: skip
    assert [group.layers for group in found.attention] == [2]
    assert found.state_bytes == 6 * 32 * 128 * 128 * 4


def test_gpt_oss_has_windows_and_four_bit_arithmetic(tmp_path: Path) -> None:
    gpt_oss(tmp_path, 32)
    found = read_model(tmp_path)
    assert [(group.layers, group.window) for group in found.attention] == [(1, None), (1, 128)]
    assert (found.quantisation, found.compute_bits) == ("MXFP4", 4)


@pytest.mark.parametrize(
    "form, name, bits",
    [("bf16", "BF16", 16), ("awq", "awq 4 bits", 16), ("gptq8", "gptq 8 bits", 16), ("fp8", "FP8", 8),
     ("int8", "compressed-tensors 8 bits", 8), ("nvfp4", "NVFP4", 4)],
)  # fmt: skip
def test_quantisation_has_a_name_and_the_width_of_its_arithmetic(
    tmp_path: Path, form: str, name: str, bits: int
) -> None:
    dense_model(tmp_path, "0.6b", form, tied=True)
    found = read_model(tmp_path)
    assert (found.quantisation, found.compute_bits) == (name, bits)


def test_settings_without_weights_are_computed_and_say_so(tmp_path: Path) -> None:
    expected = dense_model(tmp_path, "8b", "bf16", tied=False)
    (tmp_path / "model.safetensors").unlink()
    found = read_model(tmp_path / "config.json")
    assert found.source == "config"
    assert found.dense_bytes == pytest.approx(expected.dense_bytes, rel=0.001)  # without norms


def test_published_size_of_a_moe_is_computed_from_its_shape(tmp_path: Path) -> None:
    """Qwen3-Coder-30B-A3B in AWQ: 16.9 GB published, 3.3 of 30.5 B parameters (with the embedding)."""
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128},
    }))  # fmt: skip
    found = read_model(tmp_path)
    assert found.total_bytes == pytest.approx(16.9e9, rel=0.01)
    assert (found.experts, found.experts_used) == (128, 8)


def test_split_gguf_is_read_whole(tmp_path: Path) -> None:
    whole = tmp_path / "whole.gguf"
    gguf_model(whole, "0.6b", "Q4_K", tied=False)
    values = {"general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 256}
    first, second = (tmp_path / f"m-0000{part}-of-00002.gguf" for part in (1, 2))
    write_gguf(first, values, [("token_embd.weight", "F16", (256, 1000)), ("blk.0.attn_q.weight", "F16", (256, 256))])
    write_gguf(second, {}, [("output.weight", "F16", (256, 1000))])
    assert read_model(first).dense_bytes == 2 * 256 * (256 + 1000)
    second.unlink()
    with pytest.raises(BadInput, match=r"m-00002-of-00002\.gguf: no such file"):
        read_model(first)


# refusals


def refused(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read_model(path)
    return str(caught.value)


def small_model(directory: Path) -> Path:
    (directory / "config.json").write_text('{"num_hidden_layers": 1, "hidden_size": 8, "model_type": "llama"}')
    write_safetensors(directory, [("model.layers.0.mlp.up_proj.weight", "F16", (8, 8))])
    return directory / "model.safetensors"


def small_gguf(path: Path) -> Path:
    values = {"general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 8,
              "tokenizer.ggml.tokens": ["a", "b"]}  # fmt: skip
    write_gguf(path, values, [("blk.0.ffn_up.weight", "F16", (8, 8))])
    return path


def test_files_that_contradict_their_size_are_refused_by_name(tmp_path: Path) -> None:
    file = small_model(tmp_path)
    whole = file.read_bytes()
    for damaged in (b"", whole[:7], whole[:40], whole[:-1], (1 << 62).to_bytes(8, "little") + whole[8:]):
        file.write_bytes(damaged)
        assert "model.safetensors" in refused(tmp_path)
    gguf = small_gguf(tmp_path / "small.gguf")
    whole = gguf.read_bytes()
    for damaged in (b"GGUF", whole[:30], whole[:-64], b"GGML" + whole[4:]):
        gguf.write_bytes(damaged)
        assert "small.gguf" in refused(gguf)


def test_unknown_types_and_odd_places_are_refused_by_name(tmp_path: Path) -> None:
    file = small_model(tmp_path)
    header = b'{"x": {"dtype": "F3", "shape": [1], "data_offsets": [0, 1]}}'
    file.write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    assert "'x' has an unknown type, 'F3'" in refused(tmp_path)
    header = b'{"x": {"dtype": "F16", "shape": [-1, -2], "data_offsets": [0, 4]}}'
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert "model.safetensors: its header is not that" in refused(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "../secret.safetensors"}}))
    assert "outside its directory" in refused(tmp_path)
    index.write_text(json.dumps({"weight_map": {"x": "model-00009-of-00009.safetensors"}}))
    assert "model-00009-of-00009.safetensors: no such file" in refused(tmp_path)


def test_what_is_no_language_model_is_refused(tmp_path: Path) -> None:
    assert "neither config.json nor a GGUF file" in refused(tmp_path)
    assert "no such file" in refused(tmp_path / "nothing")
    (tmp_path / "config.json").write_text('{"model_type": "whisper", "is_encoder_decoder": true, "hidden_size": 8}')
    assert "encoder" in refused(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "resnet"}')
    assert "not the settings of a language model" in refused(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    assert "config.json" in refused(tmp_path)


def test_claimed_sizes_allocate_nothing(tmp_path: Path) -> None:
    """A header of 15 MiB that is a hole, counts of 2**60, 2**31 layers: refused in a few MB of memory."""
    big = tmp_path / "a"
    big.mkdir()
    file = small_model(big)
    with file.open("wb") as out:
        out.write((40 << 20).to_bytes(8, "little"))
        out.truncate(1 << 40)
    layers = tmp_path / "b"
    layers.mkdir()
    (layers / "config.json").write_text(json.dumps({"num_hidden_layers": (1 << 31) - 1, "hidden_size": 8}))
    counts = tmp_path / "c.gguf"
    counts.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60))
    long_list = tmp_path / "d.gguf"
    name = struct.pack("<Q", 1) + b"k"
    long_list.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + name + struct.pack("<IIQ", 9, 4, 1 << 60))
    tracemalloc.start()
    try:
        for path in (big, layers, counts, long_list):
            assert str(path) in refused(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def read_or_refuse(path: Path) -> None:
    try:
        assert isinstance(read_model(path), ModelShape)
    except BadInput as error:
        assert str(path.parent) in str(error)


MUTATIONS = st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=0, max_size=8)), min_size=1, max_size=6)


def mutated(data: bytes, changes: list[tuple[int, bytes]], cut: int) -> bytes:
    for place, new in changes:
        data = data[:place] + new + data[place + len(new) :]
    return data[: max(0, len(data) - cut)]


@given(changes=MUTATIONS, cut=st.integers(0, 200))
def test_mutated_safetensors_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]], cut: int
) -> None:
    directory = tmp_path_factory.mktemp("model")
    file = small_model(directory)
    file.write_bytes(mutated(file.read_bytes(), changes, cut))
    read_or_refuse(directory)


@given(changes=MUTATIONS, cut=st.integers(0, 200))
def test_mutated_gguf_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]], cut: int
) -> None:
    file = small_gguf(tmp_path_factory.mktemp("model") / "m.gguf")
    file.write_bytes(mutated(file.read_bytes(), changes, cut))
    read_or_refuse(file)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
     "layer_types", "sliding_window", "text_config", "quantization_config", "num_experts", "num_experts_per_tok",
     "kv_lora_rank", "full_attention_interval", "hybrid_override_pattern", "attn_layer_period", "no_rope_layers",
     "intermediate_size", "moe_intermediate_size", "mlp_only_layers", "tie_word_embeddings", "is_encoder_decoder"]
)  # fmt: skip


@given(changes=st.dictionaries(NAMES, JSON, max_size=6))
def test_any_settings_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]) -> None:
    directory = tmp_path_factory.mktemp("model")
    known = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    (directory / "config.json").write_text(json.dumps(known | changes))
    read_or_refuse(directory)


# where the files of a server are


def test_relative_path_starts_at_the_working_directory_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    dense_model(tmp_path / "weights", "0.6b", "bf16", tied=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=tmp_path, stdin=subprocess.PIPE) as process:
        server = DiscoveredServer(url="http://127.0.0.1:8000", pid=process.pid, flags={"model": "weights"})
        shape, problem = find_shape(server)
        process.communicate(b"\n")
    assert shape is not None and shape.path == str(tmp_path / "weights") and not problem


def test_repository_is_found_in_the_cache_of_the_servers_environment(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--acme--tiny"
    for name in ("aaaaaaaa", "bbbbbbbb"):
        (repository / "snapshots" / name).mkdir(parents=True)
    dense_model(repository / "snapshots" / "bbbbbbbb", "0.6b", "awq", tied=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("bbbbbbbb\n")
    environment = {"HF_HOME": str(tmp_path), "PATH": ""}
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()  # /proc has its environment once it runs
        server = DiscoveredServer(url="http://127.0.0.1:8000", pid=process.pid, models=("acme/tiny",))
        shape, _ = find_shape(server)
        process.communicate(b"\n")
    assert shape is not None and shape.path.endswith("snapshots/bbbbbbbb")


def test_model_of_ollama_is_found_by_its_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = f"sha256:{'0' * 64}"
    (tmp_path / "blobs").mkdir()
    gguf_model(tmp_path / "blobs" / digest.replace(":", "-"), "0.6b", "Q4_K", tied=True)
    manifest = tmp_path / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest"
    manifest.parent.mkdir(parents=True)
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": digest}]
    manifest.write_text(json.dumps({"layers": layers}))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    shape, _ = find_shape(DiscoveredServer(url="http://127.0.0.1:11434", models=("tiny:latest",)))
    assert shape is not None and shape.quantisation == "Q4_K"


def test_path_of_the_user_counts_first(tmp_path: Path) -> None:
    dense_model(tmp_path, "0.6b", "fp8", tied=True)
    server = DiscoveredServer(url="http://127.0.0.1:8000", models=("acme/other",), flags={"model": "/nowhere"})
    shape, problem = find_shape(server, str(tmp_path))
    assert shape is not None and not problem


def test_unknown_files_are_said_with_the_name_of_the_model(tmp_path: Path) -> None:
    dense_model(tmp_path, "0.6b", "bf16", tied=True)
    elsewhere = DiscoveredServer(url="http://10.0.0.9:8000", models=(str(tmp_path),))
    assert find_shape(elsewhere)[0] is None  # a path of another host
    shape, problem = find_shape(DiscoveredServer(url="http://10.0.0.9:8000", models=("acme/tiny",)))
    assert shape is None and "acme/tiny were not found" in problem
    assert "does not say which files" in find_shape(DiscoveredServer(url="http://10.0.0.9:8000"))[1]
