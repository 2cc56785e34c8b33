"""Write the files of models with real shapes and names: headers as published ones have them, and holes for weights.

Each builder knows what it wrote into which part of a model, so that tests compare the reader with it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

BITS = {"F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "I8": 8, "U8": 8, "I32": 32, "U32": 32, "I64": 64}
# Weights and bytes of a block, by the number of the type in GGUF.
GGUF_TYPES = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "Q3_K": (11, 256, 110),
    "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "IQ4_XS": (23, 256, 136),
    "BF16": (30, 1, 2), "MXFP4": (39, 32, 17),
}  # fmt: skip

Stored = tuple[str, str, tuple[int, ...]]
# The tensors in which a format stores a matrix: name, rows (out) and columns (in).
Format = Callable[[str, int, int], list[Stored]]


class Expected(NamedTuple):
    """What a reader has to find."""

    dense_bytes: int
    dense_parameters: int
    expert_bytes: int
    expert_parameters: int
    embedding_bytes: int
    draft_bytes: int
    other_bytes: int
    experts: int
    used: int


class Built(NamedTuple):
    name: str
    path: Path
    expected: Expected


# formats of safetensors


def plain(kind: str) -> Format:
    return lambda name, out, inner: [(f"{name}.weight", kind, (out, inner))]


def fp8(name: str, out: int, inner: int) -> list[Stored]:
    scales = (f"{name}.weight_scale_inv", "F32", (out // 128, inner // 128))
    return [(f"{name}.weight", "F8_E4M3", (out, inner)), scales]


def int8(name: str, out: int, inner: int) -> list[Stored]:
    return [(f"{name}.weight", "I8", (out, inner)), (f"{name}.weight_scale", "BF16", (out, 1))]


def awq(name: str, out: int, inner: int) -> list[Stored]:
    return [
        (f"{name}.qweight", "I32", (inner, out // 8)),
        (f"{name}.qzeros", "I32", (inner // 128, out // 8)),
        (f"{name}.scales", "F16", (inner // 128, out)),
    ]


def gptq(bits: int) -> Format:
    each = 32 // bits
    return lambda name, out, inner: [
        (f"{name}.qweight", "I32", (inner // each, out)),
        (f"{name}.qzeros", "I32", (inner // 128, out // each)),
        (f"{name}.scales", "F16", (inner // 128, out)),
        (f"{name}.g_idx", "I32", (inner,)),
    ]


def packed(name: str, out: int, inner: int) -> list[Stored]:
    return [
        (f"{name}.weight_packed", "I32", (out, inner // 8)),
        (f"{name}.weight_scale", "BF16", (out, inner // 128)),
        (f"{name}.weight_shape", "I64", (2,)),
    ]


def nvfp4(name: str, out: int, inner: int) -> list[Stored]:
    return [
        (f"{name}.weight_packed", "U8", (out, inner // 2)),
        (f"{name}.weight_scale", "F8_E4M3", (out, inner // 16)),
        (f"{name}.weight_global_scale", "F32", (1,)),
        (f"{name}.input_global_scale", "F32", (1,)),
    ]


def bitsandbytes(name: str, out: int, inner: int) -> list[Stored]:
    return [
        (f"{name}.weight", "U8", (out * inner // 2, 1)),
        (f"{name}.weight.absmax", "U8", (out * inner // 64,)),
        (f"{name}.weight.quant_map", "F32", (16,)),
        (f"{name}.weight.nested_absmax", "F32", (out * inner // 64 // 256,)),
        (f"{name}.weight.nested_quant_map", "F32", (256,)),
        (f"{name}.weight.quant_state.bitsandbytes__nf4", "U8", (104,)),
    ]


def mlx4(name: str, out: int, inner: int) -> list[Stored]:
    return [
        (f"{name}.weight", "U32", (out, inner // 8)),
        (f"{name}.scales", "BF16", (out, inner // 64)),
        (f"{name}.biases", "BF16", (out, inner // 64)),
    ]


FORMATS: Mapping[str, tuple[Format, Mapping[str, Any]]] = {
    "bf16": (plain("BF16"), {}),
    "f16": (plain("F16"), {}),
    "fp8": (fp8, {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    "int8": (int8, {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": {
        "weights": {"num_bits": 8}, "input_activations": {"num_bits": 8}}}}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 128}),
    "gptq4": (gptq(4), {"quant_method": "gptq", "bits": 4, "group_size": 128}),
    "gptq8": (gptq(8), {"quant_method": "gptq", "bits": 8, "group_size": 128}),
    "packed": (packed, {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "group_size": 128}}}}),
    "nvfp4": (nvfp4, {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "group_size": 16}}}}),
    "bnb4": (bitsandbytes, {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    "mlx4": (mlx4, {"bits": 4, "group_size": 64}),
}  # fmt: skip

# Hidden size, layers, heads, KV heads, head size, inner size, vocabulary.
DENSE = {
    "0.6b": (1024, 4, 16, 8, 128, 3072, 151936),
    "8b": (4096, 3, 32, 8, 128, 14336, 128256),
    "32b": (5120, 2, 40, 8, 128, 27648, 152064),
}


class Parts:
    """Collects the tensors of a model, and what each part of it adds up to."""

    def __init__(self) -> None:
        self.tensors: list[Stored] = []
        self.bytes: dict[str, int] = {}
        self.parameters: dict[str, int] = {}

    def add(self, part: str, tensors: Sequence[Stored], parameters: int) -> None:
        self.tensors += tensors
        self.bytes[part] = self.bytes.get(part, 0) + sum(prod(shape) * BITS[kind] // 8 for _, kind, shape in tensors)
        self.parameters[part] = self.parameters.get(part, 0) + parameters

    def matrix(self, part: str, form: Format, name: str, out: int, inner: int) -> None:
        self.add(part, form(name, out, inner), out * inner)

    def vector(self, part: str, name: str, size: int) -> None:
        self.add(part, [(f"{name}.weight", "BF16", (size,))], size)

    def expected(self, experts: int = 0, used: int = 0, tied: bool = False) -> Expected:
        table = self.bytes.get("embedding", 0)
        parameters = self.parameters["dense"] + self.parameters.get("head", 0)
        return Expected(
            dense_bytes=self.bytes["dense"] + (table if tied else self.bytes["head"]),
            dense_parameters=parameters + (self.parameters["embedding"] if tied else 0),
            expert_bytes=self.bytes.get("expert", 0),
            expert_parameters=self.parameters.get("expert", 0),
            embedding_bytes=0 if tied else table,
            draft_bytes=self.bytes.get("draft", 0),
            other_bytes=self.bytes.get("other", 0),
            experts=experts,
            used=used,
        )


def attention(parts: Parts, form: Format, at: str, shape: Sequence[int], part: str = "dense") -> None:
    hidden, _, heads, kv_heads, head_dim, *_ = shape
    for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
        parts.matrix(part, form, f"{at}.self_attn.{name}_proj", rows * head_dim, hidden)
    parts.matrix(part, form, f"{at}.self_attn.o_proj", hidden, heads * head_dim)
    parts.vector(part, f"{at}.input_layernorm", hidden)
    parts.vector(part, f"{at}.post_attention_layernorm", hidden)


def mlp(parts: Parts, form: Format, at: str, hidden: int, inner: int, part: str = "dense") -> None:
    parts.matrix(part, form, f"{at}.gate_proj", inner, hidden)
    parts.matrix(part, form, f"{at}.up_proj", inner, hidden)
    parts.matrix(part, form, f"{at}.down_proj", hidden, inner)


def ends(parts: Parts, hidden: int, vocabulary: int, *, tied: bool, prefix: str = "model") -> None:
    parts.matrix("embedding", plain("BF16"), f"{prefix}.embed_tokens", vocabulary, hidden)
    parts.vector("dense", f"{prefix}.norm", hidden)
    if not tied:
        parts.matrix("head", plain("BF16"), "lm_head", vocabulary, hidden)


def settings(shape: Sequence[int], quantised: Mapping[str, Any], *, tied: bool, **more: Any) -> dict[str, Any]:
    hidden, layers, heads, kv_heads, head_dim, inner, vocabulary = shape
    found = {
        "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "head_dim": head_dim,
        "num_key_value_heads": kv_heads, "intermediate_size": inner, "vocab_size": vocabulary,
        "tie_word_embeddings": tied, "torch_dtype": "bfloat16",
    }  # fmt: skip
    return found | ({"quantization_config": quantised} if quantised else {}) | more


# files


def write_safetensors(directory: Path, tensors: Sequence[Stored], shards: int = 1) -> None:
    """Write one file, or several with an index; tensors are dealt out in turn."""
    names = ["model.safetensors"]
    if shards > 1:
        names = [f"model-{i:05d}-of-{shards:05d}.safetensors" for i in range(1, shards + 1)]
        places = {tensor[0]: names[at % shards] for at, tensor in enumerate(tensors)}
        index = {"metadata": {"total_size": 0}, "weight_map": places}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    for at, file_name in enumerate(names):
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, kind, shape in tensors[at::shards]:
            size = prod(shape) * BITS[kind] // 8
            header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
            end += size
        text = json.dumps(header).encode()
        with (directory / file_name).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)


def gguf_string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_string(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, list) and value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_string, value))
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)
    return struct.pack("<II", 4, value)


def write_gguf(path: Path, values: Mapping[str, Any], tensors: Sequence[Stored]) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    head += b"".join(gguf_string(name) + gguf_value(value) for name, value in values.items())
    end = 0
    for name, kind, shape in tensors:
        number, weights, block = GGUF_TYPES[kind]
        head += gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, end)
        end += -(-(prod(shape) // weights * block) // 32) * 32
    with path.open("wb") as file:
        file.write(head)
        file.truncate(-(-len(head) // 32) * 32 + end)


# models


def dense_model(
    directory: Path, size: str, form: str, *, tied: bool, vision: bool = False, shards: int = 1
) -> Expected:
    shape, (stored, quantised), parts = DENSE[size], FORMATS[form], Parts()
    prefix = "model.language_model" if vision else "model"
    ends(parts, shape[0], shape[6], tied=tied, prefix=prefix)
    for i in range(shape[1]):
        attention(parts, stored, f"{prefix}.layers.{i}", shape)
        mlp(parts, stored, f"{prefix}.layers.{i}.mlp", shape[0], shape[5])
    config = settings(shape, quantised, tied=tied, model_type="qwen3")
    if vision:
        parts.matrix("other", plain("BF16"), "model.visual.blocks.0.mlp.fc1", 4304, 1152)
        parts.matrix("other", plain("BF16"), "model.visual.merger.linear", shape[0], 1152)
        text = {name: value for name, value in config.items() if name != "quantization_config"}
        config = {"model_type": "qwen3_vl", "text_config": text, "vision_config": {"depth": 1}} | {
            name: config[name] for name in ("quantization_config", "tie_word_embeddings") if name in config
        }
    write_safetensors(directory, parts.tensors, shards)
    (directory / "config.json").write_text(json.dumps(config))
    return parts.expected(tied=tied)


def moe_model(directory: Path, form: str, experts: int, used: int, *, shared: bool, drafts: bool = False) -> Expected:
    """Build a MoE whose first layer is dense, with or without shared experts and a layer for drafts."""
    shape, (stored, quantised), parts = (2048, 3, 32, 4, 128, 6144, 151936), FORMATS[form], Parts()
    ends(parts, shape[0], shape[6], tied=False)
    mlp(parts, stored, "model.layers.0.mlp", shape[0], shape[5])
    for i in range(shape[1] + drafts):
        at, part = f"model.layers.{i}", "draft" if i >= shape[1] else "dense"
        attention(parts, stored, at, shape, part)
        if i == 0 or part == "draft":
            continue
        parts.matrix("dense", plain("BF16"), f"{at}.mlp.gate", experts, shape[0])
        for expert in range(experts):
            mlp(parts, stored, f"{at}.mlp.experts.{expert}", shape[0], 768, "expert")
        if shared:
            mlp(parts, stored, f"{at}.mlp.shared_experts", shape[0], 768)
    more = {"n_routed_experts": experts, "num_experts_per_tok": used, "n_shared_experts": int(shared),
            "moe_intermediate_size": 768, "first_k_dense_replace": 1, "num_nextn_predict_layers": int(drafts),
            "kv_lora_rank": 512, "qk_rope_head_dim": 64, "model_type": "deepseek_v3"}  # fmt: skip
    write_safetensors(directory, parts.tensors, 4)
    (directory / "config.json").write_text(json.dumps(settings(shape, quantised, tied=False, **more)))
    return parts.expected(experts, used)


def gpt_oss(directory: Path, experts: int) -> Expected:
    """Build experts in MXFP4, stacked in one tensor per layer, and attention in 16 bits."""
    shape, parts = (2880, 2, 64, 8, 64, 2880, 201088), Parts()
    hidden, inner = shape[0], shape[5]
    ends(parts, hidden, shape[6], tied=False)
    for i in range(shape[1]):
        at = f"model.layers.{i}"
        attention(parts, plain("BF16"), at, shape)
        parts.matrix("dense", plain("BF16"), f"{at}.mlp.router", experts, hidden)
        for name, out, columns in (("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)):
            blocks = (f"{at}.mlp.experts.{name}_blocks", "U8", (experts, out, columns // 32, 16))
            scales = (f"{at}.mlp.experts.{name}_scales", "U8", (experts, out, columns // 32))
            parts.add("expert", [blocks, scales], experts * out * columns)
    quantised = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    more = {"num_local_experts": experts, "num_experts_per_tok": 4, "model_type": "gpt_oss", "sliding_window": 128,
            "layer_types": ["sliding_attention", "full_attention"]}  # fmt: skip
    write_safetensors(directory, parts.tensors)
    (directory / "config.json").write_text(json.dumps(settings(shape, quantised, tied=False, **more)))
    return parts.expected(experts, 4)


def gguf_model(path: Path, size: str, kind: str, *, tied: bool, experts: int = 0, shared: bool = False) -> Expected:
    """Build a GGUF file as llama.cpp quantises one: matrices in `kind`, the head in Q6_K, norms in F32."""
    hidden, layers, heads, kv_heads, head_dim, inner, vocabulary = DENSE[size]
    tensors: list[Stored] = []
    sums = {"dense": [0, 0], "head": [0, 0], "embedding": [0, 0], "expert": [0, 0]}

    def add(part: str, name: str, stored: str, *shape: int) -> None:
        tensors.append((name, stored, shape))
        _, weights, block = GGUF_TYPES[stored]
        sums[part][0] += prod(shape) // weights * block
        sums[part][1] += prod(shape)

    add("embedding", "token_embd.weight", kind, hidden, vocabulary)
    if not tied:
        add("head", "output.weight", "Q6_K", hidden, vocabulary)
    add("dense", "output_norm.weight", "F32", hidden)
    for i in range(layers):
        add("dense", f"blk.{i}.attn_norm.weight", "F32", hidden)
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            add("dense", f"blk.{i}.attn_{name}.weight", kind, hidden, rows * head_dim)
        add("dense", f"blk.{i}.attn_output.weight", kind, heads * head_dim, hidden)
        suffixes: list[tuple[str, str, tuple[int, ...]]] = [("", "dense", ())]
        if experts:
            suffixes = [("exps", "expert", (experts,))]
        suffixes += [("shexp", "dense", ())] if shared else []
        for suffix, part, more in suffixes:
            end = f"_{suffix}" if suffix else ""
            for name in ("gate", "up"):
                add(part, f"blk.{i}.ffn_{name}{end}.weight", kind, hidden, inner, *more)
            add(part, f"blk.{i}.ffn_down{end}.weight", kind, inner, hidden, *more)
        if experts:
            add("dense", f"blk.{i}.ffn_gate_inp.weight", "F32", hidden, experts)
    name = "qwen3moe" if experts else "qwen3"
    values: dict[str, Any] = {
        "general.architecture": name, "general.name": "made", f"{name}.block_count": layers,
        f"{name}.embedding_length": hidden, f"{name}.attention.head_count": heads,
        f"{name}.attention.head_count_kv": kv_heads, f"{name}.attention.key_length": head_dim,
        f"{name}.attention.value_length": head_dim, f"{name}.rope.freq_base": 1e6,
        "tokenizer.ggml.tokens": [f"t{number}" for number in range(500)],
        "tokenizer.ggml.token_type": [1] * 500,
    }  # fmt: skip
    if experts:
        values |= {f"{name}.expert_count": experts, f"{name}.expert_used_count": 8}
    write_gguf(path, values, tensors)
    head = sums["embedding"] if tied else sums["head"]
    return Expected(
        dense_bytes=sums["dense"][0] + head[0], dense_parameters=sums["dense"][1] + head[1],
        expert_bytes=sums["expert"][0], expert_parameters=sums["expert"][1],
        embedding_bytes=0 if tied else sums["embedding"][0], draft_bytes=0, other_bytes=0,
        experts=experts, used=8 if experts else 0,
    )  # fmt: skip


def all_models(root: Path) -> Iterator[Built]:
    """Write some 200 models of all formats, and yield each with what it consists of."""

    def directory(name: str) -> Path:
        made = root / name
        made.mkdir()
        return made

    for form in FORMATS:
        for size in DENSE:
            for tied in (False, True):
                for vision, shards in ((False, 1), (True, 3)):
                    name = f"dense-{form}-{size}-{tied}-{vision}"
                    made = directory(name)
                    yield Built(name, made, dense_model(made, size, form, tied=tied, vision=vision, shards=shards))
    for form in ("bf16", "fp8", "awq", "gptq4", "packed", "nvfp4"):
        for experts, used in ((8, 2), (64, 6)):
            for shared in (False, True):
                name = f"moe-{form}-{experts}-{shared}"
                made = directory(name)
                yield Built(name, made, moe_model(made, form, experts, used, shared=shared, drafts=experts == 64))
    for experts in (32, 128):
        made = directory(f"gpt-oss-{experts}")
        yield Built(made.name, made, gpt_oss(made, experts))
    for kind in ("F16", "BF16", "Q8_0", "Q4_0", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "MXFP4"):
        for tied in (False, True):
            path = root / f"dense-{kind}-{tied}.gguf"
            yield Built(path.name, path, gguf_model(path, "8b", kind, tied=tied))
            for experts, shared in ((64, False), (128, True)):
                path = root / f"moe-{kind}-{tied}-{experts}.gguf"
                yield Built(path.name, path, gguf_model(path, "0.6b", kind, tied=tied, experts=experts, shared=shared))
