"""What config.json or the settings of a GGUF file say about the shape of a model.

Names differ between model families; a value that is missing or makes no sense counts as not given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from swarmtui.model.base import BadInput
from swarmtui.model.speed_of_light import AttentionLayers

_MAX_COUNT = 1 << 31
_MAX_LAYERS = 4096
# A state is kept in at least 16 bits, and is read and written by each step.
_STATE_BYTES = 4
_LINEAR = ("linear_attention", "mamba", "mamba2", "recurrent", "conv", "gated_deltanet")

# Layers with a window: all but every n-th, where config.json or GGUF do not list them.
_WINDOW_PATTERNS = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gpt-oss": 2, "gpt_oss": 2, "cohere2": 4}

_HIDDEN = ("hidden_size", "n_embd", "d_model")
# What GGUF calls the settings of config.json.
_GGUF_NAMES = {
    "hidden_size": "embedding_length", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
    "v_head_dim": "attention.value_length", "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count", "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count", "num_experts_per_tok": "expert_used_count",
    "num_nextn_predict_layers": "nextn_predict_layers",
}  # fmt: skip


class Quantisation(NamedTuple):
    """How weights are stored: `bits` of a packed weight and `overhead` bits for scales and zero points of its group."""

    name: str = ""
    bits: int = 16
    overhead: float = 0.0
    compute_bits: Literal[4, 8, 16] = 16
    kept: tuple[str, ...] = ()
    head: bool = False


class ModelSettings(NamedTuple):
    """The shape of a model; 0 is not given."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool | None
    experts: int
    experts_used: int
    draft_layers: int
    attention: tuple[AttentionLayers, ...]
    state_bytes: float
    latent: bool
    quantisation: Quantisation


class Reader:
    """Reads counts from settings, which may hold anything."""

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self.values, self._prefix = values, prefix

    def get(self, name: str) -> Any:
        return self.values.get(self._prefix + name)

    def count(self, *names: str) -> int:
        """Return the first of these settings that is a plausible count, else 0; of a list, its largest item."""
        for name in names:
            value = self.get(name)
            if isinstance(value, list | tuple):
                value = max((item for item in value if _is_count(item)), default=None)
            if _is_count(value):
                return int(value)
        return 0

    def text(self, name: str) -> str:
        value = self.get(name)
        return value if isinstance(value, str) else ""

    def items(self, name: str) -> list[Any]:
        value = self.get(name)
        return list(value) if isinstance(value, list | tuple) else []

    def part(self, name: str) -> Reader:
        value = self.get(name)
        return Reader(value if isinstance(value, Mapping) else {})


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_COUNT


def text_part(config: Mapping[str, Any]) -> Reader:
    """Return the settings of the text part of a multimodal model, else all."""
    whole = Reader(config)
    parts = (whole.part(name) for name in ("text_config", "llm_config", "language_config"))
    return next((part for part in parts if part.values), whole)


def from_config(config: Mapping[str, Any], source: str) -> ModelSettings:
    """Read the settings of a Hugging Face model; those of the text part of a multimodal one."""
    whole, text = Reader(config), text_part(config)
    layers = text.count("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if config.get("is_encoder_decoder") is True:
        raise BadInput("an encoder with a decoder: its steps are not known", source=source)
    _check(layers, text, "num_hidden_layers and hidden_size: not the settings of a language model", source)
    tied = text.get("tie_word_embeddings") if "tie_word_embeddings" in text.values else whole.get("tie_word_embeddings")
    kinds = _layer_kinds(text, layers)
    quantised = whole.part("quantization_config").values or text.part("quantization_config").values
    return _settings(
        text,
        layers,
        kinds,
        architecture=text.text("model_type") or whole.text("model_type"),
        vocabulary=text.count("vocab_size") or whole.count("vocab_size"),
        tied=tied if isinstance(tied, bool) else None,
        state_bytes=_state_bytes(text, sum(kind in _LINEAR for kind in kinds)),
        quantisation=_quantisation(Reader(quantised)),
    )


def from_gguf(values: Mapping[str, Any], source: str) -> ModelSettings:
    architecture = Reader(values).text("general.architecture")
    found = Reader(values, f"{architecture}.")
    layers = max(0, found.count("block_count") - found.count("nextn_predict_layers"))
    renamed = Reader({name: found.count(key) for name, key in _GGUF_NAMES.items()})
    _check(layers, renamed, "block_count and embedding_length: not a language model", source)
    by_layer = found.items("attention.head_count_kv")[:layers]
    kinds = _gguf_kinds(found, architecture, layers)
    if len(by_layer) == layers:  # hybrid models have no heads in layers without attention
        kinds = [kind if _is_count(count) else "mamba" for kind, count in zip(kinds, by_layer, strict=True)]
    linear = sum(kind in _LINEAR for kind in kinds)
    return _settings(
        renamed,
        layers,
        kinds,
        architecture=architecture,
        vocabulary=found.count("vocab_size"),
        tied=None,
        state_bytes=float(linear * found.count("ssm.inner_size") * found.count("ssm.state_size") * _STATE_BYTES),
        quantisation=Quantisation(),
    )


def _check(layers: int, text: Reader, missing: str, source: str) -> None:
    if layers > _MAX_LAYERS:
        raise BadInput(f"claims {layers:,} layers; at most {_MAX_LAYERS:,} are read", source=source)
    if not layers or not text.count(*_HIDDEN):
        raise BadInput(f"has no {missing}", source=source)


def _settings(text: Reader, layers: int, kinds: Sequence[str], **others: Any) -> ModelSettings:
    """Return the settings with what both formats have, by the names of config.json."""
    hidden, heads = text.count(*_HIDDEN), text.count("num_attention_heads", "n_head", "n_heads")
    head_dim = text.count("head_dim") or (hidden // heads if heads else 0)
    kv_heads = text.count("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num") or heads
    if text.get("multi_query") is True and not text.count("num_key_value_heads", "num_kv_heads"):
        kv_heads = 1
    attention, latent = _attention(text, kinds, heads, kv_heads, head_dim)
    experts = text.count("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_total")
    used = text.count("num_experts_per_tok", "moe_top_k", "num_experts_per_token", "moe_k", "experts_per_token")
    return ModelSettings(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        experts=experts if used else 0,
        experts_used=min(used, experts),
        draft_layers=text.count("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"),
        attention=attention,
        latent=latent,
        **others,
    )


# attention


def _attention(
    text: Reader, kinds: Sequence[str], heads: int, kv_heads: int, head_dim: int
) -> tuple[tuple[AttentionLayers, ...], bool]:
    """Return the layers that keep something for each token, in groups, and whether that is a latent vector (MLA)."""
    window = text.count("sliding_window", "attention_chunk_size", "sliding_window_size")
    rank, rope = text.count("kv_lora_rank"), text.count("qk_rope_head_dim")
    value_dim = text.count("v_head_dim") or head_dim
    if rank:
        elements, flops = rank + rope, 2 * heads * (2 * rank + rope)
    else:
        elements, flops = kv_heads * (head_dim + value_dim), 2 * heads * (head_dim + value_dim)
    full = sum(kind in ("full_attention", "attention") for kind in kinds)
    windowed = sum(kind in ("sliding_attention", "chunked_attention") for kind in kinds)
    if not window:
        full, windowed = full + windowed, 0
    groups = ((full, None), (windowed, window))
    return (
        tuple(AttentionLayers(layers=n, elements=elements, flops=flops, window=size) for n, size in groups if n),
        bool(rank),
    )


def _layer_kinds(text: Reader, layers: int) -> list[str]:
    named = [str(kind) for kind in text.items("layer_types")]
    if len(named) == layers:
        return named
    if len(named) > layers:
        return named[:layers]
    pattern = text.text("hybrid_override_pattern")
    if pattern:
        return [{"*": "attention", "M": "mamba"}.get(sign, "mlp") for sign in pattern[:layers]]
    interval = text.count("full_attention_interval")
    if interval:
        return _every_nth(layers, interval, "linear_attention")
    period, offset = text.count("attn_layer_period"), text.count("attn_layer_offset")
    if period:
        return ["attention" if i % period == offset else "mamba" for i in range(layers)]
    kinds = text.items("attn_type_list")
    if len(kinds) == layers:
        return ["full_attention" if kind else "linear_attention" for kind in kinds]
    if not text.count("sliding_window") or text.get("use_sliding_window") is False:
        return _chunked_kinds(text, layers)
    every = text.count("sliding_window_pattern") or _WINDOW_PATTERNS.get(text.text("model_type"), 0)
    return _every_nth(layers, every, "sliding_attention")


def _chunked_kinds(text: Reader, layers: int) -> list[str]:
    """Llama 4: layers with rotary positions look at a chunk; the others, every fourth, at everything."""
    rotary = text.items("no_rope_layers")
    if not text.count("attention_chunk_size") or len(rotary) != layers:
        return ["full_attention"] * layers
    return ["chunked_attention" if flag else "full_attention" for flag in rotary]


def _every_nth(layers: int, every: int, others: str) -> list[str]:
    """Return the kinds of layers of which every n-th looks at everything; with 0, none does."""
    return ["full_attention" if every and (i + 1) % every == 0 else others for i in range(layers)]


def _gguf_kinds(found: Reader, architecture: str, layers: int) -> list[str]:
    interval = found.count("full_attention_interval")
    if interval or architecture in ("qwen3next", "qwen35", "qwen35moe"):
        return _every_nth(layers, interval or 4, "linear_attention")
    if not found.count("attention.sliding_window"):
        return ["full_attention"] * layers
    listed = found.items("attention.sliding_window_pattern")
    if len(listed) >= layers:
        return ["sliding_attention" if flag else "full_attention" for flag in listed[:layers]]
    every = found.count("attention.sliding_window_pattern") or _WINDOW_PATTERNS.get(architecture, 0)
    return _every_nth(layers, every, "sliding_attention")


def _state_bytes(text: Reader, layers: int) -> float:
    heads, key, value = (
        text.count(f"linear_{name}") for name in ("num_value_heads", "key_head_dim", "value_head_dim")
    )  # fmt: skip
    if not heads:
        heads = text.count("mamba_num_heads", "mamba_n_heads")
        key, value = text.count("mamba_head_dim", "mamba_d_head"), text.count("ssm_state_size", "mamba_d_state")
    return float(layers * heads * key * value * _STATE_BYTES)


# quantisation


def _quantisation(found: Reader) -> Quantisation:
    if not found.values:
        return Quantisation()
    method = found.text("quant_method").lower()
    group = found.part("config_groups").part("group_0").part("weights")
    bits = found.count("bits", "w_bit", "weight_bits") or group.count("num_bits")
    size = found.count("group_size", "q_group_size") or group.count("group_size")
    names = found.items("modules_to_not_convert") + found.items("ignore") + found.items("ignored_layers")
    kept = tuple(str(name) for name in names[:4096])
    label = f"{found.text('format')} {found.text('quant_algo')} {method}".lower()
    head = found.get("lm_head") is True
    if "fp4" in label:
        overhead = 0.25 if "mx" in label else 0.5
        return Quantisation("MXFP4" if "mx" in label else "NVFP4", 4, overhead, 4, kept, head)
    if "fp8" in label or "float-quantized" in label:
        return Quantisation("FP8", 8, 0.0, 8, kept, head)
    if found.get("load_in_8bit") is True:
        return Quantisation("bitsandbytes 8 bits", 8, 0.0, 8, kept, head)
    bits = bits or (4 if found.get("load_in_4bit") is True or method in ("awq", "gptq", "bitsandbytes") else 16)
    if not 1 <= bits <= 32:
        bits = 16
    activations = found.part("config_groups").part("group_0").part("input_activations").count("num_bits")
    overhead = (16 + bits) / size if 0 < size < 1 << 16 else 16 / 4096
    return Quantisation(
        f"{method or 'quantised'} {bits} bits", bits, overhead if bits < 16 else 0.0, 8 if activations == 8 else 16,
        kept, head,
    )  # fmt: skip
