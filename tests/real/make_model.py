"""Make a model with random weights: `make_model.py gguf|hf OUT [SIZE [f16]]`; run by the Python that has the engine.

SIZE is tiny by default; dense (7 B parameters), large (27 B) and moe (64 experts, 13 B) are files of 14, 55 and 28 GB
for a GPU, in bfloat16 if float16 is not asked for; tiny is always in float16 (hf: float32), which CPUs compute faster.
Answers are noise, and end at their token limit. The vocabulary is trained on the licences and the Python library of
this machine, so that prompts have about as many tokens as elsewhere. The GGUF answers with letters and spaces only:
llama.cpp rejects answers that begin like a tool call and are none.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

VOCABULARY, CONTEXT = 8192, 32768
SPECIAL = ("<|end|>", "<|start|>", "<|stop|>")
END, STOP = 0, 2
_SPACE = "Ġ"  # how a byte-level vocabulary writes a space
TEMPLATE = (
    "{%- if tools %}{{- '<|start|>tools\\n' + (tools | tojson) + '<|stop|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{{- '<|start|>' + message.role + '\\n' + (message.content or '') }}"
    "{%- if message.tool_calls %}{{- message.tool_calls | tojson }}{%- endif %}{{- '<|stop|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start|>assistant\\n' }}{%- endif %}"
)


class Size(NamedTuple):
    """The sizes of a decoder; with experts, `hidden` is the width of one."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    experts: int = 0
    used: int = 0


SIZES = {
    "tiny": Size(2, 256, 4, 1, 64, 768),
    "dense": Size(32, 4096, 32, 8, 128, 14336),
    "large": Size(64, 6144, 48, 8, 128, 18432),
    "moe": Size(24, 2048, 16, 4, 128, 1408, experts=64, used=6),
}
# As many random numbers are drawn; large tensors repeat them.
_DRAWN = (1 << 24) + 57


def train_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    library = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:100]
    files = [str(path) for path in (*sorted(Path("/usr/share/common-licenses").glob("*")), *library) if path.is_file()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train(files, trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    return tokenizer


def write_gguf(path: Path, size: Size, float16: bool) -> None:
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType.F16 if float16 else gguf.GGMLQuantizationType.BF16

    def halves(values: Any) -> Any:
        wide = np.asarray(values, np.float32)
        return wide.astype(np.float16).view(np.uint16) if float16 else (wide.view(np.uint32) >> 16).astype(np.uint16)

    drawn = halves(np.random.default_rng(0).standard_normal(_DRAWN) * 0.02)
    tokenizer = train_tokenizer()
    tokens = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])]
    pairs = json.loads(tokenizer.to_str())["model"]["merges"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in pairs]
    writer = gguf.GGUFWriter(str(path), "qwen3moe" if size.experts else "llama")
    writer.add_name(path.stem)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(size.width)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.hidden)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_key_length(size.head_width)
    writer.add_value_length(size.head_width)
    writer.add_rope_dimension_count(size.head_width)
    writer.add_layer_norm_rms_eps(1e-6)
    if size.experts:
        writer.add_expert_count(size.experts)
        writer.add_expert_used_count(size.used)
        writer.add_expert_feed_forward_length(size.hidden)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if float16 else gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.CONTROL if token in SPECIAL else kinds.NORMAL for token in tokens])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(STOP)
    writer.add_eot_token_id(STOP)
    writer.add_pad_token_id(END)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    at = 0

    def add(name: str, *shape: int) -> None:
        """Add a tensor. The first channel is 1 for all tokens and changed by none: its weight in the head is a bias."""
        nonlocal at
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
            return
        values = np.resize(drawn[at:], shape)
        at = (at + prod(shape)) % (_DRAWN // 2)
        words = (token.removeprefix(_SPACE) for token in tokens)
        if name == "token_embd":
            values[:, 0] = halves([1.0])
        elif name == "output":
            values[:, 0] = halves([0.0 if word.isascii() and word.isalpha() else -1000.0 for word in words])
        elif name.endswith(("attn_output", "ffn_down", "ffn_down_exps")):
            values[..., 0, :] = 0
        else:
            values[..., 0] = 0
        writer.add_tensor(f"{name}.weight", values.view(np.uint8), raw_dtype=kind)

    add("token_embd", VOCABULARY, size.width)
    add("output", VOCABULARY, size.width)
    add("output_norm", size.width)
    queries, keys = size.heads * size.head_width, size.kv_heads * size.head_width
    for layer in range(size.layers):
        block = f"blk.{layer}"
        add(f"{block}.attn_norm", size.width)
        add(f"{block}.attn_q", queries, size.width)
        add(f"{block}.attn_k", keys, size.width)
        add(f"{block}.attn_v", keys, size.width)
        add(f"{block}.attn_output", size.width, queries)
        add(f"{block}.ffn_norm", size.width)
        suffix, each = ("_exps", (size.experts,)) if size.experts else ("", ())
        if size.experts:
            add(f"{block}.attn_q_norm", size.head_width)
            add(f"{block}.attn_k_norm", size.head_width)
            add(f"{block}.ffn_gate_inp", size.experts, size.width)
        add(f"{block}.ffn_gate{suffix}", *each, size.hidden, size.width)
        add(f"{block}.ffn_up{suffix}", *each, size.hidden, size.width)
        add(f"{block}.ffn_down{suffix}", *each, size.width, size.hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_hf(folder: Path, size: Size, dtype: str) -> None:
    """Write configuration, tokenizer and the header of the weights, which the server makes (`--load-format dummy`)."""
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer().save(str(folder / "tokenizer.json"))
    names = {"eos_token": SPECIAL[STOP], "pad_token": SPECIAL[END]}
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer | names))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY,
        "hidden_size": size.width, "intermediate_size": size.hidden, "num_hidden_layers": size.layers,
        "head_dim": size.head_width, "num_attention_heads": size.heads, "num_key_value_heads": size.kv_heads,
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "eos_token_id": STOP, "pad_token_id": END, "tie_word_embeddings": False, "dtype": dtype,
    }  # fmt: skip
    if size.experts:
        config |= {
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": size.experts,
            "num_experts_per_tok": size.used, "moe_intermediate_size": size.hidden, "norm_topk_prob": True,
            "decoder_sparse_step": 1, "mlp_only_layers": [],
        }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    item, kind = (4, "F32") if dtype == "float32" else (2, "BF16")
    for name, shape in hf_tensors(size):
        end = at + item * prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)  # no disk space is taken


def hf_tensors(size: Size) -> Iterator[tuple[str, list[int]]]:
    yield "model.embed_tokens.weight", [VOCABULARY, size.width]
    yield "lm_head.weight", [VOCABULARY, size.width]
    yield "model.norm.weight", [size.width]
    queries, keys = size.heads * size.head_width, size.kv_heads * size.head_width
    for layer in range(size.layers):
        block = f"model.layers.{layer}"
        yield f"{block}.input_layernorm.weight", [size.width]
        yield f"{block}.post_attention_layernorm.weight", [size.width]
        yield f"{block}.self_attn.q_proj.weight", [queries, size.width]
        yield f"{block}.self_attn.k_proj.weight", [keys, size.width]
        yield f"{block}.self_attn.v_proj.weight", [keys, size.width]
        yield f"{block}.self_attn.o_proj.weight", [size.width, queries]
        if size.experts:
            yield f"{block}.self_attn.q_norm.weight", [size.head_width]
            yield f"{block}.self_attn.k_norm.weight", [size.head_width]
            yield f"{block}.mlp.gate.weight", [size.experts, size.width]
        for part in [f"experts.{expert}." for expert in range(size.experts)] or [""]:
            yield f"{block}.mlp.{part}gate_proj.weight", [size.hidden, size.width]
            yield f"{block}.mlp.{part}up_proj.weight", [size.hidden, size.width]
            yield f"{block}.mlp.{part}down_proj.weight", [size.width, size.hidden]


if __name__ == "__main__":
    size, *kind = sys.argv[3:] or ["tiny"]
    if sys.argv[1] == "gguf":
        write_gguf(Path(sys.argv[2]), SIZES[size], float16=size == "tiny" or kind == ["f16"])
    else:
        write_hf(Path(sys.argv[2]), SIZES[size], "float32" if size == "tiny" else "bfloat16")
